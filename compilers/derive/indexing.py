"""Index forms: windows, elements, shifts and their adjoints, applied to the results of requests.

Index maps are never composed: the child is requested at fresh plain symbols and the map is put into the result. When
both sides carry the same map, symbols that coincide outside are unified inside, so that a demand for a diagonal flows
through, and a diagonal structure inside becomes one outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from netsor import ir
from netsor.compilers.derive.entries.arithmetic import mul, rewrite, sum_over
from netsor.compilers.derive.entries.indices import (
    ComposedIndexError,
    Const,
    Copy,
    Index,
    Inv,
    Off,
    Renaming,
    Sym,
    Win,
    copy_over,
)
from netsor.compilers.derive.entries.terms import Deltas, Term, Terms, collect, sum_left, swap
from netsor.compilers.derive.entries.traversal import symbols
from netsor.compilers.derive.entries.values import MEAN, ZERO, Ind, Kind, Space, Value
from netsor.compilers.derive.nodes import Indexed
from netsor.compilers.derive.references import AnyRef, Ref, ScalarRef
from netsor.compilers.derive.requests import Requests
from netsor.indexing import IndexMap, Read, index_map

if TYPE_CHECKING:
    from netsor.compilers.derive.rules import Rules


class Map:
    """One side's index form: fresh symbols of the child, what they become, and where the result is zero."""

    def __init__(
        self, q: Requests, line: ir.IndexForm, binding: dict[ir.Axis, Sym], dims: tuple[ir.Dim, ...], copy: Copy
    ) -> None:
        self.outer = binding
        self.inner: dict[ir.Axis, Sym] = {}  # child's axis -> fresh symbol
        self.table: dict[Sym, Index] = {}  # fresh symbol -> index
        self.masked: dict[Sym, bool] = {}  # may the index fall outside?
        self.factors: list[Value] = []
        self.summed: list[Sym] = []
        self.both: set[Sym] = set()  # fresh symbols that are an index of both inputs
        sizes = {d.axis: d for d in dims}
        m = index_map(line)
        if m.transposed and m.tap is not None:
            self.summed.append(self._inner(q, sizes[m.tap], copy, None, False))
        for r in m.reads:
            if m.transposed:
                self._scattered(m, r, q, sizes, copy)
            else:
                self._gathered(m, r, q, sizes[r.axis], copy)

    def _inner(self, q: Requests, dim: ir.Dim, copy: Copy, index: Index | None, masked: bool) -> Sym:
        sym = q.fresh(dim, copy)
        self.inner[dim.axis] = sym
        if index is not None:
            self.table[sym] = index
            self.masked[sym] = masked
        return sym

    def _gathered(self, m: IndexMap, r: Read, q: Requests, dim: ir.Dim, copy: Copy) -> None:
        """The child at the position that is read."""
        if r.at is None:
            self._inner(q, dim, copy, Const(r.offsets[0], dim.size, copy_over(dim.size, copy)), False)
        elif m.tap is not None:
            wrap = dim.size if m.outside == "wrap" else None
            index = Win(self.outer[r.at], self.outer[m.tap], r.offsets, r.stride, wrap)
            self._inner(q, dim, copy, index, wrap is None)
        else:
            assert r.stride == 1 and m.outside != "wrap", "no index of the recursion says this"
            self._inner(q, dim, copy, Off(self.outer[r.at], -r.offsets[0]), m.outside != "never")

    def _scattered(self, m: IndexMap, r: Read, q: Requests, sizes: dict[ir.Axis, ir.Dim], copy: Copy) -> None:
        """The child where its position is the index outside."""
        t = self.outer[r.axis]
        if r.at is None:
            own = copy_over(t.size, copy)
            self.factors.append(Ind(t, Const(r.offsets[0], t.size, own), t.size, own))
            return
        (tap,) = self.summed
        wrap = t.size if m.outside == "wrap" else None
        self._inner(q, sizes[r.at], copy, Inv(t, tap, r.offsets, r.stride, wrap), True)


def _key(line: ir.IndexForm) -> IndexMap:
    """What two index forms must share to count as the same map."""
    return replace(index_map(line), tap=None)


def own_copy(a: AnyRef) -> Copy:
    """The copy that a reference's data-sized axes belong to."""
    if a.copy is not Copy.NONE:
        return a.copy
    copy = Copy.NONE
    for s in a.symbols:
        if s.copy not in (Copy.NONE, Copy.SHORTER):
            return s.copy
        copy = Copy.FIRST if s.copy is Copy.SHORTER else copy
    return copy


def form(a: Ref) -> Indexed:
    """The index form that a reference is to."""
    assert isinstance(a.node, Indexed)
    return a.node


def side(q: Requests, a: Ref) -> Map:
    line = form(a).line
    return Map(q, line, dict(a.binding), line.of.dims, own_copy(a))


def child(q: Requests, a: Ref, inner: dict[ir.Axis, Sym]) -> Ref:
    return q.child(a, form(a).of, a.copy, inner)


def renamed(q: Requests, a: Ref) -> Ref:
    """The child of a Rename, with its own axes bound to the parent's symbols."""
    return q.child(a, form(a).of, a.copy, _renaming(form(a).line, dict(a.binding)))


def _renaming(line: ir.IndexForm, table: Mapping[ir.Axis, Sym]) -> dict[ir.Axis, Sym]:
    """The symbols of the axes of `of`."""
    return {r.axis: table[r.at] for r in index_map(line).reads if r.at is not None}


# ---------------------------------------------------------------- one side


def one_sided(q: Requests, kind: Kind, a: Ref, b: Ref) -> Terms:
    """K or T with an index form on the left, the child being asked in full."""
    m = side(q, a)
    return _apply(q, m, q.pair(kind, child(q, a, m.inner), b), _space(a, b))


def mapped_mean(q: Requests, a: Ref) -> Terms:
    if index_map(form(a).line).is_renaming:
        value = q.one(MEAN, renamed(q, a))
        return () if value == ZERO else ((frozenset(), value),)
    m = side(q, a)
    value = q.one(MEAN, child(q, a, m.inner))
    return () if value == ZERO else _apply(q, m, ((frozenset(), value),), _space(a, a))


def mapped_scalar(rules: Rules, line: ir.IndexForm, a: ScalarRef) -> Value:
    """An index form of scalars."""
    if index_map(line).is_renaming:
        table = dict(a.binding)
        return rules.scalar(line.of, a.copy, table | _renaming(line, table))
    m = Map(rules.q, line, dict(a.binding), line.of.dims, own_copy(a))
    value = rules.scalar(line.of, a.copy, dict(a.binding) | m.inner)
    terms = _apply(rules.q, m, ((frozenset(), value),), _space(a, a))
    return terms[0][1] if terms else ZERO


def _space(a: AnyRef, b: AnyRef) -> Space:
    copies = {own_copy(a), own_copy(b)} - {Copy.NONE}
    return "const" if not copies else "pair" if len(copies) == 2 else "input"


def _apply(q: Requests, m: Map, terms: Terms, space: Space) -> Terms:
    """Put a left map into a result."""
    out: list[Term] = []
    for deltas, value in terms:
        kept, factors = [], list(m.factors)
        for left, r in deltas:
            if left in m.table:
                factors.append(Ind(m.table[left], r, r.size, r.copy))
            else:
                kept.append((left, r))
        factors += masks(m, symbols(value))
        out.append((frozenset(kept), mul(put(q, value, m.table, space), *factors)))
    found = collect(out)
    for tap in m.summed:
        found = sum_left(found, tap)
    return found


def masks(m: Map, present: frozenset[Sym], bound: Mapping[Sym, Sym] | None = None) -> list[Value]:
    """Indicators for indices that may fall outside, of either input, while the value does not depend on them.

    `bound`: symbols of the right side that are symbols of the left one.
    """
    shared = m.both | {left for r, left in (bound or {}).items() if left.copy != r.copy}
    return [
        Ind(index, None, s.size, Copy.SHORTER if s in shared else s.copy)
        for s, index in m.table.items() if m.masked[s] and s not in present
    ]  # fmt: skip


def put(q: Requests, value: Value, table: dict[Sym, Index], space: Space) -> Value:
    """Replace plain symbols by indices; a composite value becomes an entry first."""
    if not table.keys() & symbols(value):
        return value
    try:
        return rewrite(value, Renaming(table))
    except ComposedIndexError:
        return rewrite(q.as_entry("aux", space, value), Renaming(table))


# ---------------------------------------------------------------- both sides


def joint(q: Requests, kind: Kind, a: Ref, b: Ref) -> Terms | None:
    """The rule for equal maps on both sides; None when it does not apply."""
    if not (isinstance(a.node, Indexed) and isinstance(b.node, Indexed)):
        return None
    la, lb = a.node.line, b.node.line
    if _key(la) != _key(lb) or not _unifiable(la, lb, a, b):
        return None
    ma, mb = side(q, a), side(q, b)
    if ma.summed:
        return _joint_unwindow(q, kind, a, b, ma, mb)
    _unify(ma, mb)
    terms = q.pair(kind, child(q, a, ma.inner), child(q, b, mb.inner))
    return _apply_joint(q, ma, mb, terms, _space(a, b))


def _unifiable(la: ir.IndexForm, lb: ir.IndexForm, a: Ref, b: Ref) -> bool:
    m, other = index_map(la), index_map(lb)
    if m.transposed:
        return m.tap is not None  # an element in its place is no index
    if m.tap is not None and other.tap is not None:
        return dict(a.binding)[m.tap] == dict(b.binding)[other.tap]
    return all(isinstance(la.of.size(r.axis), int) for r in m.fixed) or own_copy(a) == own_copy(b)


def _unify(ma: Map, mb: Map) -> None:
    """Inner symbols of equal indices become one symbol."""
    for axis, s in ma.inner.items():
        other = mb.inner[axis]
        if ma.table[s] == mb.table[other]:
            if s.copy != other.copy:
                ma.both.add(s)
            mb.inner[axis] = s
            del mb.table[other], mb.masked[other]


def _apply_joint(q: Requests, ma: Map, mb: Map, terms: Terms, space: Space) -> Terms:
    out: list[Term] = []
    table = ma.table | mb.table
    for deltas, value in terms:
        kept, bound, factors = _moved(deltas, ma.table, mb.table)
        present = symbols(value) | bound.keys()
        factors += masks(ma, present, bound) + masks(mb, present)
        out.append((kept, mul(put(q, value, table, space), *factors)))
    return collect(out)


def _moved(
    deltas: Deltas, left: dict[Sym, Index], right: Mapping[Sym, Index]
) -> tuple[Deltas, dict[Sym, Sym], list[Value]]:
    """Deltas of the child as deltas outside where both sides move alike; those symbols, right to left; other deltas."""
    kept, bound, factors = [], dict[Sym, Sym](), list[Value]()
    for a, b in deltas:
        if a in left and b in right:
            kept.append((_free(left[a]), _free(right[b])))
            bound[b] = a
        elif a in left or b in right:
            factors.append(Ind(left.get(a, a), right.get(b, b), b.size, b.copy))
        else:
            kept.append((a, b))
    return frozenset(kept), bound, factors


def _free(index: Index) -> Sym:
    """The symbol that an index moves with."""
    match index:
        case Win():
            return index.s
        case Inv() | Off():
            return index.t
        case Sym() | Const():
            raise AssertionError("constant indices are unified")
        case _:
            assert_never(index)


def _joint_unwindow(q: Requests, kind: Kind, a: Ref, b: Ref, ma: Map, mb: Map) -> Terms:
    """Both sides sum over taps: a delta over taps is resolved first, then both sides move with one tap."""
    (ta,), (tb,) = ma.summed, mb.summed
    terms = q.pair(kind, child(q, a, ma.inner), child(q, b, mb.inner))
    out: list[Term] = []
    for deltas, value in terms:
        if (ta, tb) in deltas:
            rest = deltas - {(ta, tb)}
            shifted = {s: Inv(i.t, ta, i.offsets, i.stride, i.wrap) for s, i in mb.table.items() if isinstance(i, Inv)}
            out.extend(_same_tap(q, ma, shifted, rest, value, ta, _space(a, b)))
        else:
            left = _apply(q, ma, ((deltas, value),), _space(a, b))
            out.extend(swap(_apply(q, mb, swap(left), _space(a, b))))
    return collect(out)


def _same_tap(
    q: Requests, ma: Map, right: dict[Sym, Inv], deltas: Deltas, value: Value, tap: Sym, space: Space
) -> Terms:  # fmt: skip
    kept, bound, factors = _moved(deltas, ma.table, right)
    present = symbols(value) | bound.keys()
    absent = [s for s in right if s not in present]
    factors += masks(ma, present, bound) + [Ind(right[s], None, s.size, s.copy) for s in absent]
    body = mul(put(q, value, {**ma.table, **right}, space), *factors)
    return ((kept, sum_over(tap, body)),)
