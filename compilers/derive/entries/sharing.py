"""What several entries have in common is computed once.

Sums that contain a multiple of another entry's sum read that entry: Θ(h) = K(h) + Σ Θ(x) for Σ K(x) + Σ Θ(x).
Expectations of homogeneous functions do without a factor of their covariances: E relu·relu(2K) = 2 E relu·relu(K).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from operator import or_

import sympy as sp

from netsor.compilers.derive.entries.arithmetic import add, factors, mul, rebuilt, rewrite, split, summands
from netsor.compilers.derive.entries.functions_of import degree, of_two
from netsor.compilers.derive.entries.indices import Copy, Index, Renaming, Sym
from netsor.compilers.derive.entries.traversal import walk
from netsor.compilers.derive.entries.values import (
    SECOND_MOMENT,
    Access,
    Entry,
    Expect,
    Law,
    Num,
    Radial,
    Soft,
    Sum,
    Value,
)

Terms = dict[int, tuple[sp.Expr, Value]]  # number of the canonical form → the number in front, and the term without it


def share(entries: list[Entry]) -> bool:
    """Rewrite in place the sums of pairs whose terms contain those of an entry that does not need them.

    True when an entry has become another, which its readers may then share in turn.
    """
    needs = Needs(entries)
    forms: dict[Value, int] = {}
    pairs = [e for e in entries if e.space == "pair" and not e.recurrent]
    bases: dict[Hashable, list[tuple[Entry, Terms]]] = {}
    for e in pairs:
        own = _terms(e.value, e.dims, forms)
        if e.kind == SECOND_MOMENT and own and _worth(own):
            bases.setdefault(_shape(e), []).append((e, own))
    for known in bases.values():
        known.sort(key=lambda x: -len(x[1]))
    renamed = False
    for e in pairs:
        free = [(base, t) for base, t in bases.get(_shape(e), ()) if not needs.has(base, e)]
        value = e.value
        e.value = _read(value, e, free, forms, needs)
        if e.value is value and len(factors(value)) > 1:
            e.value = mul(*(_read(f, e, free, forms, needs) for f in factors(value)))
        renamed = renamed or (e.value != value and isinstance(split(e.value)[1], Access))
    return renamed


class Needs:
    """The entries that each entry is computed from, and itself: a bit for each."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        reads = {e: {v.entry for v in walk(e.value) if isinstance(v, Access)} for e in entries}
        self.number = {e: i for i, e in enumerate(dict.fromkeys([*reads, *chain(*reads.values())]))}
        self.of = {e: 1 << i for e, i in self.number.items()}
        changed = True
        while changed:  # once more where entries stand before what they read, as in recurrences
            changed = False
            for e, read in reads.items():
                found = reduce(or_, (self.of[r] for r in read), self.of[e])
                changed = changed or found != self.of[e]
                self.of[e] = found

    def has(self, e: Entry, needed: Entry) -> bool:
        return bool(self.of[e] >> self.number[needed] & 1)

    def read(self, e: Entry, base: Entry) -> None:
        """Let an entry read another."""
        more, bit = self.of[base], self.number[e]
        self.of |= {reader: bits | more for reader, bits in self.of.items() if bits >> bit & 1}


def _read(v: Value, e: Entry, bases: list[tuple[Entry, Terms]], forms: dict[Value, int], needs: Needs) -> Value:
    """A factor of e's value with the largest base in it read."""
    terms = _terms(v, e.dims, forms) if bases else None
    if not terms or not _worth(terms):
        return v
    for base, inside in bases:
        if not inside.keys() <= terms.keys():
            continue
        ratios = {terms[key][0] / c for key, (c, _) in inside.items()}
        if len(ratios) == 1:
            needs.read(e, base)
            others = [mul(Num(c), t) for key, (c, t) in terms.items() if key not in inside]
            return add(mul(Num(ratios.pop()), Access(base, Copy.SHORTER, e.dims)), *others)
    return v


def _shape(e: Entry) -> Hashable:
    return tuple((d.size, d.copy) for d in e.dims), e.deltas


def _worth(terms: Terms) -> bool:
    """Is there something to compute?"""
    return len(terms) > 1 or not all(isinstance(t, Access | Num) for _, t in terms.values())


def _terms(value: Value, dims: tuple[Sym, ...], forms: dict[Value, int]) -> Terms | None:
    """The terms of a sum; equal forms have equal numbers, and new ones are numbered."""
    if any(isinstance(v, Radial | Soft) for v in walk(value)):
        return None
    parts = [_split(t) for t in summands(value)]
    return {forms.setdefault(_canonical(t, dims), len(forms)): (c, t) for c, t in parts}


def _split(t: Value) -> tuple[sp.Expr, Value]:
    return (t.value, Num(sp.Integer(1))) if isinstance(t, Num) else split(t)


def _canonical(v: Value, dims: tuple[Sym, ...]) -> Value:
    """The value with its symbols numbered by their places."""
    table: dict[Sym, Index] = {d: d._replace(number=-1 - i, label="") for i, d in enumerate(dims)}
    for x in walk(v):
        if isinstance(x, Sum) and x.sym not in table:
            table[x.sym] = x.sym._replace(number=-1000 - len(table), label="")
    return rewrite(v, Renaming(table))


# ---------------------------------------------------------------- homogeneous functions


def unscaled(v: Value) -> Value:
    """E f(u)g(v) at c·K as c^((p + q)/2) times that at K, where f and g are homogeneous of degrees p and q."""
    new = rebuilt(v, unscaled)
    sides = of_two(new) if isinstance(new, Expect) and new.law.centred else None
    return new if sides is None or not isinstance(new, Expect) else _unscaled(new, *sides)


def _unscaled(v: Expect, f: sp.Expr, g: sp.Expr) -> Value:
    (c, k11), (d, k22), (e, k12) = map(split, (*v.law.variances, *v.law.covariances))
    if not c == d == e or c == 1 or not c.is_positive:
        return v
    p, q = degree(f), degree(g)
    if p is None or q is None or (p + q) % 2:
        return v
    return mul(Num(c ** ((p + q) // 2)), replace(v, law=Law((k11, k22), (k12,), v.law.means)))
