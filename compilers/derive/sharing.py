"""Sums that contain another entry's whole sum read that entry: Θ(h) = K(h) + Σ Θ(x) instead of Σ K(x) + Σ Θ(x)."""

from __future__ import annotations

from typing import Any, cast

import networkx as nx

from netsor.compilers.derive.values import (
    Access,
    Add,
    Entry,
    Mul,
    Num,
    Radial,
    Renaming,
    Soft,
    Sum,
    Sym,
    Value,
    add,
    mul,
    rewrite,
    split,
    walk,
)

Terms = dict[Value, Value]  # canonical form → the term


def share(entries: list[Entry]) -> bool:
    """Rewrite in place the sums of pairs whose terms contain those of an entry that does not need them.

    True when an entry has become another, which its readers may then share in turn.
    """
    readers: Any = nx.DiGraph()
    for e in entries:
        readers.add_node(e)
        readers.add_edges_from((v.entry, e) for v in walk(cast(Value, e.value)) if isinstance(v, Access))
    pairs = [e for e in entries if e.space == "pair" and not e.recurrent]
    bases: dict[Any, list[tuple[Entry, Terms]]] = {}
    for e in pairs:
        own = _terms(cast(Value, e.value), e.dims)
        if e.kind == "K" and own and _worth(own):
            bases.setdefault(_shape(e), []).append((e, own))
    renamed = False
    for e in pairs:
        known = sorted(bases.get(_shape(e), ()), key=lambda x: -len(x[1]))
        free = [(o, t) for o, t in known if o is not e]
        value = cast(Value, e.value)
        e.value = _read(value, e, free, readers)
        if isinstance(value, Mul) and e.value is value:
            e.value = mul(*(_read(f, e, free, readers) for f in value.args))
        renamed = renamed or (e.value != value and isinstance(split(e.value)[1], Access))
    return renamed


def _read(v: Value, e: Entry, bases: list[tuple[Entry, Terms]], readers: Any) -> Value:
    """A factor of e's value with the largest base in it read."""
    terms = _terms(v, e.dims) if bases else None
    if not terms or not _worth(terms):
        return v
    for base, inside in bases:
        if len(inside) == len(terms) == 1 and not nx.has_path(readers, e, base):
            ((one, _),), ((other, _),) = inside.items(), terms.items()
            (c, rest), (d, same) = split(one), split(other)
            if rest == same and c != d:
                readers.add_edge(base, e)
                return mul(Num(d / c), Access(base, "m", e.dims))
        if inside.keys() <= terms.keys() and not nx.has_path(readers, e, base):
            readers.add_edge(base, e)
            others = [t for key, t in terms.items() if key not in inside]
            return add(Access(base, "m", e.dims), *others)
    return v


def _shape(e: Entry) -> Any:
    return tuple((d.size, d.copy) for d in e.dims), e.deltas


def _worth(terms: Terms) -> bool:
    """Is there something to compute?"""
    return len(terms) > 1 or not all(isinstance(split(t)[1], Access | Num) for t in terms)


def _terms(value: Value, dims: tuple[Sym, ...]) -> Terms | None:
    if any(isinstance(v, Radial | Soft) for v in walk(value)):
        return None
    return {_canonical(t, dims): t for t in (value.args if isinstance(value, Add) else (value,))}


def _canonical(v: Value, dims: tuple[Sym, ...]) -> Value:
    """The value with its symbols numbered by their places."""
    table: dict[Sym, Any] = {d: d._replace(number=-1 - i, label="") for i, d in enumerate(dims)}
    for x in walk(v):
        if isinstance(x, Sum) and x.sym not in table:
            table[x.sym] = x.sym._replace(number=-1000 - len(table), label="")
    return rewrite(v, Renaming(table))
