"""What several entries have in common is computed once.

Sums that contain a multiple of another entry's sum read that entry: Θ(h) = K(h) + Σ Θ(x) for Σ K(x) + Σ Θ(x).
Expectations of homogeneous functions do without a factor of their covariances: E relu·relu(2K) = 2 E relu·relu(K).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import networkx as nx
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

Terms = dict[Value, tuple[sp.Expr, Value]]  # canonical form → the number in front, and the term without it


def share(entries: list[Entry]) -> bool:
    """Rewrite in place the sums of pairs whose terms contain those of an entry that does not need them.

    True when an entry has become another, which its readers may then share in turn.
    """
    readers: Any = nx.DiGraph()
    for e in entries:
        readers.add_node(e)
        readers.add_edges_from((v.entry, e) for v in walk(e.value) if isinstance(v, Access))
    pairs = [e for e in entries if e.space == "pair" and not e.recurrent]
    bases: dict[Hashable, list[tuple[Entry, Terms]]] = {}
    for e in pairs:
        own = _terms(e.value, e.dims)
        if e.kind == SECOND_MOMENT and own and _worth(own):
            bases.setdefault(_shape(e), []).append((e, own))
    renamed = False
    for e in pairs:
        known = sorted(bases.get(_shape(e), ()), key=lambda x: -len(x[1]))
        free = [(o, t) for o, t in known if o is not e]
        value = e.value
        e.value = _read(value, e, free, readers)
        if e.value is value and len(factors(value)) > 1:
            e.value = mul(*(_read(f, e, free, readers) for f in factors(value)))
        renamed = renamed or (e.value != value and isinstance(split(e.value)[1], Access))
    return renamed


def _read(v: Value, e: Entry, bases: list[tuple[Entry, Terms]], readers: Any) -> Value:
    """A factor of e's value with the largest base in it read."""
    terms = _terms(v, e.dims) if bases else None
    if not terms or not _worth(terms):
        return v
    for base, inside in bases:
        if not inside.keys() <= terms.keys():
            continue
        ratios = {terms[key][0] / c for key, (c, _) in inside.items()}
        if len(ratios) == 1 and not nx.has_path(readers, e, base):
            readers.add_edge(base, e)
            others = [mul(Num(c), t) for key, (c, t) in terms.items() if key not in inside]
            return add(mul(Num(ratios.pop()), Access(base, Copy.SHORTER, e.dims)), *others)
    return v


def _shape(e: Entry) -> Hashable:
    return tuple((d.size, d.copy) for d in e.dims), e.deltas


def _worth(terms: Terms) -> bool:
    """Is there something to compute?"""
    return len(terms) > 1 or not all(isinstance(t, Access | Num) for _, t in terms.values())


def _terms(value: Value, dims: tuple[Sym, ...]) -> Terms | None:
    if any(isinstance(v, Radial | Soft) for v in walk(value)):
        return None
    parts = [_split(t) for t in summands(value)]
    return {_canonical(t, dims): (c, t) for c, t in parts}


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
