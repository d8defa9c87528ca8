"""Index forms: windows, elements, shifts and their adjoints, applied to the results of requests.

Index maps are never composed: the child is requested at fresh plain symbols and the map is put into the result. When
both sides carry the same map, symbols that coincide outside are unified inside, so that a demand for a diagonal flows
through, and a diagonal structure inside becomes one outside.
"""

from __future__ import annotations

from collections.abc import Mapping
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
        match line:
            case ir.Window():
                self._window(line, q, sizes, copy)
            case ir.Unwindow():
                self._unwindow(line, q, sizes, copy)
            case ir.At():
                self._at(line, q, sizes, copy)
            case ir.Place():
                self._place(line, copy)
            case ir.Shift():
                self._shift(line, q, sizes, copy)
            case ir.Rename():
                raise AssertionError("a renamed axis keeps its symbol")
            case _:
                assert_never(line)

    def _inner(self, q: Requests, dim: ir.Dim, copy: Copy, index: Index | None, masked: bool) -> Sym:
        sym = q.fresh(dim, copy)
        self.inner[dim.axis] = sym
        if index is not None:
            self.table[sym] = index
            self.masked[sym] = masked
        return sym

    def _at(self, line: ir.At, q: Requests, sizes: dict[ir.Axis, ir.Dim], copy: Copy) -> None:
        dim = sizes[line.axis]
        self._inner(q, dim, copy, Const(line.index, dim.size, copy_over(dim.size, copy)), False)

    def _shift(self, line: ir.Shift, q: Requests, sizes: dict[ir.Axis, ir.Dim], copy: Copy) -> None:
        self._inner(q, sizes[line.axis], copy, Off(self.outer[line.axis], line.by), True)

    def _place(self, line: ir.Place, copy: Copy) -> None:
        t = self.outer[line.axis]
        own = copy_over(t.size, copy)
        self.factors.append(Ind(t, Const(line.index, t.size, own), t.size, own))

    def _window(self, line: ir.Window, q: Requests, sizes: dict[ir.Axis, ir.Dim], copy: Copy) -> None:
        wrap = line.outside == "wrap"
        for i, axis in enumerate(line.axes):
            offsets = tuple(o[i] for o in line.offsets)
            index = Win(
                self.outer[axis], self.outer[line.tap], offsets, line.stride[i], sizes[axis].size if wrap else None
            )
            self._inner(q, sizes[axis], copy, index, not wrap)

    def _unwindow(self, line: ir.Unwindow, q: Requests, sizes: dict[ir.Axis, ir.Dim], copy: Copy) -> None:
        tap = q.fresh(sizes[line.tap], copy)
        self.inner[line.tap] = tap
        self.summed.append(tap)
        for i, axis in enumerate(line.axes):
            t = self.outer[axis]
            offsets = tuple(o[i] for o in line.offsets)
            wrap = t.size if line.outside == "wrap" else None
            self._inner(q, sizes[axis], copy, Inv(t, tap, offsets, line.stride[i], wrap), True)


def _key(line: ir.IndexForm) -> tuple[object, ...]:
    """What two index forms must share to count as the same map."""
    match line:
        case ir.Window() | ir.Unwindow():
            return (type(line), line.axes, line.offsets, line.stride, line.outside)
        case ir.At():
            return (type(line), line.axis, line.index)
        case ir.Shift():
            return (type(line), line.axis, line.by)
        case ir.Place() | ir.Rename():
            return (id(line),)
        case _:
            assert_never(line)


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
    line, table = form(a).line, dict(a.binding)
    assert isinstance(line, ir.Rename)
    return q.child(a, form(a).of, a.copy, {old: table[new] for old, new in line.axes})


# ---------------------------------------------------------------- one side


def one_sided(q: Requests, kind: Kind, a: Ref, b: Ref) -> Terms:
    """K or T with an index form on the left, the child being asked in full."""
    m = side(q, a)
    return _apply(q, m, q.pair(kind, child(q, a, m.inner), b), _space(a, b))


def mapped_mean(q: Requests, a: Ref) -> Terms:
    if isinstance(form(a).line, ir.Rename):
        value = q.one(MEAN, renamed(q, a))
        return () if value == ZERO else ((frozenset(), value),)
    m = side(q, a)
    value = q.one(MEAN, child(q, a, m.inner))
    return () if value == ZERO else _apply(q, m, ((frozenset(), value),), _space(a, a))


def mapped_scalar(rules: Rules, line: ir.IndexForm, a: ScalarRef) -> Value:
    """An index form of scalars."""
    if isinstance(line, ir.Rename):
        table = dict(a.binding)
        return rules.scalar(line.of, a.copy, table | {old: table[new] for old, new in line.axes})
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
    if isinstance(la, ir.Unwindow):
        return _joint_unwindow(q, kind, a, b, ma, mb)
    _unify(ma, mb)
    terms = q.pair(kind, child(q, a, ma.inner), child(q, b, mb.inner))
    return _apply_joint(q, ma, mb, terms, _space(a, b))


def _unifiable(la: ir.IndexForm, lb: ir.IndexForm, a: Ref, b: Ref) -> bool:
    match la:
        case ir.Window():
            return isinstance(lb, ir.Window) and dict(a.binding)[la.tap] == dict(b.binding)[lb.tap]
        case ir.At():
            size = next(d.size for d in la.of.dims if d.axis == la.axis)
            return isinstance(size, int) or own_copy(a) == own_copy(b)
        case ir.Shift() | ir.Unwindow():
            return True
        case ir.Place() | ir.Rename():
            return False
        case _:
            assert_never(la)


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
