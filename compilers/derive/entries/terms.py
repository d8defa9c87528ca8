"""Results of requests: sums of terms (delta set, value).

A term δ(l₁, r₁) … δ(l_k, r_k) · value is zero off the diagonals; its value carries the left symbols only. The empty
tuple is zero.
"""

from __future__ import annotations

from collections.abc import Iterable

from netsor.compilers.derive.entries.arithmetic import add, mul, rewrite, sum_over
from netsor.compilers.derive.entries.indices import Index, Renaming, Sym
from netsor.compilers.derive.entries.traversal import symbols
from netsor.compilers.derive.entries.values import ONE, ZERO, Ind, Value

Deltas = frozenset[tuple[Sym, Sym]]
Term = tuple[Deltas, Value]
Terms = tuple[Term, ...]
NONE: Deltas = frozenset()
UNIT: Terms = ((NONE, ONE),)


def collect(terms: Iterable[Term]) -> Terms:
    """Terms of equal delta sets added; zero terms dropped."""
    found: dict[Deltas, list[Value]] = {}
    for deltas, value in terms:
        kept, marks = matching(frozenset(d for d in deltas if d[0] != d[1]))
        found.setdefault(kept, []).append(mul(value, *marks) if marks else value)
    sums = ((d, add(*values)) for d, values in found.items())
    return tuple((d, v) for d, v in sums if v != ZERO)


def matching(deltas: Deltas) -> tuple[Deltas, list[Value]]:
    """Deltas in which no symbol occurs twice, and the others (of left symbols among themselves, …) as indicators."""
    if len({s for d in deltas for s in d}) == 2 * len(deltas):
        return deltas, []
    kept: set[tuple[Sym, Sym]] = set()
    marks: list[Value] = []
    lefts = {left for left, _ in deltas}
    for left, r in sorted(deltas, key=lambda d: (d[1] in lefts, d)):
        partner = next((a for a, b in kept if b == r), r)
        if any(s in d for d in kept for s in (left, r)):
            marks.append(Ind(left, partner, partner.size, partner.copy))
        else:
            kept.add((left, r))
    return frozenset(kept), marks


def single(value: Value) -> Terms:
    return () if value == ZERO else ((NONE, value),)


def right_to_left(deltas: Deltas) -> dict[Sym, Sym]:
    return {r: left for left, r in deltas}


def scale(terms: Terms, factor: Value) -> Terms:
    """Every term times a value; right symbols in it go to the left ones."""
    if factor == ONE:
        return terms
    return collect((d, mul(v, rewrite(factor, Renaming(right_to_left(d))))) for d, v in terms)


def swap(terms: Terms) -> Terms:
    """Left and right exchanged: the value now carries the other symbols."""
    out = []
    for deltas, value in terms:
        table = {left: r for left, r in deltas}
        out.append((frozenset((r, left) for left, r in deltas), rewrite(value, Renaming(table))))
    return collect(out)


def same_range(a: Sym, b: Sym) -> bool:
    return isinstance(a.size, int) or a.copy == b.copy


def inside(index: Index, of: Sym) -> Value:
    """1 where an index lies in the range of a symbol."""
    return Ind(index, None, of.size, of.copy)


def sum_left(terms: Terms, sym: Sym) -> Terms:
    """Σ over a left symbol: a delta with it disappears and the value moves to the right symbol."""
    out = []
    for deltas, value in terms:
        partner = next((r for left, r in deltas if left == sym), None)
        if partner is None:
            out.append((deltas, sum_over(sym, value)))
            continue
        rest = frozenset(d for d in deltas if d != (sym, partner))
        moved = rewrite(value, Renaming({sym: partner}))
        out.append((rest, moved if same_range(sym, partner) else mul(moved, inside(partner, sym))))
    return collect(out)


def dense(terms: Terms) -> Value:
    """The value with deltas written as indicators."""
    parts = []
    for deltas, value in terms:
        marks = [Ind(left, r, r.size, r.copy) for left, r in sorted(deltas)]
        parts.append(mul(value, *marks))
    return add(*parts)


def structure(terms: Terms) -> dict[Deltas, frozenset[Sym]]:
    """What a recurrent request needs to know of its own result: delta sets and dimensions."""
    return {d: symbols(v) for d, v in terms}
