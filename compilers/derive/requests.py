"""Memoised requests in canonical index notation, with least fixpoints for recurrences.

K(u[α], v[β]) is E[Z^u Z^v], T(u[α], v[β]) the tangent kernel, M(u[α]) the mean and S(c[γ]) the limit of a scalar. A
request is stored with its symbols renamed in order of appearance, so that one derivation serves every use. A request
that is still being derived returns a reference to its own entries; what structure they have is assumed (zero first)
and the derivation repeated until the assumption is what comes out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from netsor import ir
from netsor.compilers.derive.entries.arithmetic import rewrite, split
from netsor.compilers.derive.entries.indices import Const, Copy, Index, Renaming, Sym, copy_over
from netsor.compilers.derive.entries.terms import NONE, Deltas, Term, Terms, collect, structure, swap
from netsor.compilers.derive.entries.traversal import symbols
from netsor.compilers.derive.entries.values import (
    PART,
    ZERO,
    Access,
    Entry,
    Given,
    Kind,
    Num,
    SizeValue,
    Space,
    Value,
)
from netsor.compilers.derive.nodes import AnyNode, Normal
from netsor.compilers.derive.references import AnyRef, Ref, Refs

Key = tuple[Kind, Refs]


class Restart(Exception):
    """A recurrent request came out with another structure than assumed."""


@dataclass
class _Open:
    looked_up: bool = False


class Requests:
    """The memo; `rule` derives a kind of its references."""

    def __init__(self, normal: Normal, rule: Callable[[Kind, Refs], Terms]) -> None:
        self.normal, self.rule = normal, rule
        self.assumed: dict[Key, dict[Deltas, frozenset[Sym]]] = {}
        self.reset()

    def reset(self) -> None:
        self.memo: dict[Key, Terms] = {}
        self.open: dict[Key, _Open] = {}
        self.recurrent: dict[Key, dict[Deltas, Entry]] = {}
        self.moments: dict[frozenset[tuple[Ref, int]], Value] = {}  # of several Gaussian variables, by their powers
        self.entries: list[Entry] = []
        self.count = 0
        self._fresh = itertools.count(1)
        self._names: dict[Space, set[str]] = {"const": set(), "input": set(), "pair": set()}

    # ------------------------------------------------------------ symbols and references

    def number(self) -> int:
        """A number that no symbol has."""
        return 10**6 + next(self._fresh)

    def fresh(self, dim: ir.Dim, copy: Copy) -> Sym:
        """A symbol that no request has used."""
        return Sym(self.number(), dim.size, copy_over(dim.size, copy), dim.axis.name)

    def ref(self, node: AnyNode, copy: Copy, lookup: Callable[[ir.Dim], Sym]) -> Ref:
        """A reference to a node; nodes that do not depend on data have no copy."""
        own = copy if node.id in self.normal.sampled else Copy.NONE
        return Ref(own, tuple((d.axis, lookup(d)) for d in node.dims), node)

    def child(self, parent: Ref, node: AnyNode, copy: Copy, more: dict[ir.Axis, Sym] | None = None) -> Ref:
        """A node read by the parent, with the parent's symbols, and `more` for axes it lacks or maps."""
        table = dict(parent.binding) | (more or {})
        return self.ref(node, copy, lambda d: table[d.axis])

    # ------------------------------------------------------------ requests

    def pair(self, kind: Kind, a: Ref, b: Ref) -> Terms:
        """K or T of two references, sides ordered so that equal requests meet."""
        if b.rank < a.rank:
            return swap(self._request(kind, (b, a)))
        return self._request(kind, (a, b))

    def one(self, kind: Kind, a: AnyRef) -> Value:
        """M or S of one reference."""
        terms = self._request(kind, (a,))
        assert all(d == NONE for d, _ in terms)
        return terms[0][1] if terms else ZERO

    def _request(self, kind: Kind, refs: Refs) -> Terms:
        canonical, table, copies, space = self._canonical(refs)
        return self._back(self._find((kind, canonical), space), table, copies)

    def _canonical(self, refs: Refs) -> tuple[Refs, dict[Sym, Sym], dict[Copy, Copy], Space]:
        own = {c for r in refs for c in _copies(r) if c is not Copy.NONE}
        own = own - {Copy.SHORTER} or ({Copy.FIRST} if own else own)
        if own == {Copy.FIRST, Copy.SECOND}:
            space: Space = "pair"
            copies: dict[Copy, Copy] = {}
        elif len(own) == 1:
            space = "input"
            (only,) = own
            copies = {only: Copy.OWN}
        else:
            space, copies = "const", {}
        table: dict[Sym, Sym] = {}
        for r in refs:
            for axis, s in r.binding:
                if s not in table:
                    table[s] = Sym(len(table), s.size, self._sym_copy(s, refs, space), axis.name)
        out = tuple(r.bound(copies.get(r.copy, r.copy), tuple((a, table[s]) for a, s in r.binding)) for r in refs)
        return out, table, copies, space

    @staticmethod
    def _sym_copy(s: Sym, refs: Refs, space: Space) -> Copy:
        """The copy whose size a symbol runs over; the shorter of both when both are indexed with it."""
        if isinstance(s.size, int):
            return Copy.NONE
        if space == "input":
            return Copy.OWN
        found = {s.copy if r.copy is Copy.NONE else r.copy for r in refs if s in r.symbols}
        one = [c for c in found if c is not Copy.SHORTER]
        return one[0] if len(one) == 1 else Copy.SHORTER

    @staticmethod
    def _back(terms: Terms, table: dict[Sym, Sym], copies: dict[Copy, Copy]) -> Terms:
        inverse = {c: s for s, c in table.items()}
        renaming = Renaming(inverse, {v: k for k, v in copies.items()})
        return tuple(
            (frozenset((inverse[a], inverse[b]) for a, b in deltas), rewrite(value, renaming))
            for deltas, value in terms
        )

    def _find(self, key: Key, space: Space) -> Terms:
        if key in self.memo:
            return self.memo[key]
        if key in self.open:
            self.open[key].looked_up = True
            return self._assume(key, space)
        self.open[key] = _Open()
        self.count += 1
        terms = self.rule(*key)
        opened = self.open.pop(key)
        if opened.looked_up:
            terms = self._close(key, terms)
        else:
            terms = tuple((d, self._entry(key, space, d, v)) for d, v in terms)
        self.memo[key] = terms
        return terms

    # ------------------------------------------------------------ recurrences

    def _assume(self, key: Key, space: Space) -> Terms:
        wanted = self.assumed.setdefault(key, {})
        entries = self.recurrent.setdefault(key, {})
        for deltas, dims in wanted.items():
            if deltas not in entries:
                table = shared_by_both(deltas)
                own = tuple(table.get(s, s) for s in sorted(dims))
                entries[deltas] = self._new_entry(key, space, own, ZERO, deltas)
                entries[deltas].recurrent = True
        return tuple((d, self._access(e, d)) for d, e in entries.items())

    def _close(self, key: Key, terms: Terms) -> Terms:
        found, wanted = structure(terms), self.assumed[key]
        if any(not (dims <= wanted.get(d, frozenset())) or d not in wanted for d, dims in found.items()):
            for d, dims in found.items():
                wanted[d] = wanted.get(d, frozenset()) | dims
            raise Restart
        values, entries = dict(terms), self.recurrent[key]
        out: list[Term] = []
        for d, e in entries.items():
            e.value = rewrite(values.get(d, ZERO), Renaming(shared_by_both(d)))
            out.append((d, self._access(e, d)))
        return collect(out)

    # ------------------------------------------------------------ entries

    def _entry(self, key: Key, space: Space, deltas: Deltas, value: Value) -> Value:
        table = shared_by_both(deltas)
        if is_simple(value) and not table.keys() & symbols(value):
            return value
        value = rewrite(value, Renaming(table))
        entry = self._new_entry(key, space, tuple(sorted(symbols(value))), value, deltas)
        return self._access(entry, deltas)

    def _access(self, entry: Entry, deltas: Deltas) -> Access:
        """An entry at the symbols that its value was derived with."""
        table = {own: s for s, own in shared_by_both(deltas).items()}
        return Access(entry, entry.copy, tuple(table.get(s, s) for s in entry.dims))

    def as_entry(self, name: str, space: Space, value: Value) -> Value:
        """A value as an entry of its own, so that an index map can be applied to it."""
        entry = Entry(self._name(name, space), space, tuple(sorted(symbols(value))), value, PART)
        self.entries.append(entry)
        return Access(entry, entry.copy, entry.dims)

    def moment(self, powers: Mapping[Ref, int], value: Value) -> Value:
        """E of a product of powers as an entry of its own, where the references are those of one request."""
        copies = {c for r in powers for c in _copies(r)} - {Copy.NONE}
        if is_simple(value) or copies not in ({Copy.OWN}, {Copy.FIRST, Copy.SECOND}):
            return value
        name = "K_" + "__".join(f"{r.label}_{k}" if k > 1 else r.label for r, k in powers.items())
        return self.as_entry(name, "input" if copies == {Copy.OWN} else "pair", value)

    def _new_entry(self, key: Key, space: Space, dims: tuple[Sym, ...], value: Value, deltas: Deltas) -> Entry:
        kind, refs = key
        stem = f"{kind}_" + "__".join(dict.fromkeys(r.label for r in refs))
        names = tuple(r.name for r in refs)
        entry = Entry(self._name(stem, space), space, dims, value, kind, names, refs=refs, deltas=deltas)
        self.entries.append(entry)
        return entry

    def _name(self, stem: str, space: Space) -> str:
        """A name that is free among the quantities that stand beside it: those of one input, of a pair, of none."""
        stem = "".join(c if c.isalnum() or c == "_" else "_" for c in stem)
        beside = self._names.values() if space == "const" else (self._names["const"], self._names[space])
        numbered = itertools.chain((stem,), (f"{stem}_{k}" for k in itertools.count(2)))
        name = next(n for n in numbered if not any(n in names for names in beside))
        self._names[space].add(name)
        return name


def shared_by_both(deltas: Deltas) -> dict[Sym, Sym]:
    """Left symbols that are an index of both inputs, as symbols that run over the shorter one."""
    return {a: a._replace(copy=Copy.SHORTER) for a, b in deltas if not isinstance(a.size, int) and a.copy != b.copy}


def _copies(r: AnyRef) -> set[Copy]:
    """The copy of a reference; that of its symbols when it does not depend on data."""
    return {r.copy} if r.copy is not Copy.NONE else {s.copy for s in r.symbols if not isinstance(s.size, int)}


def is_simple(value: Value) -> bool:
    """Values that are read directly instead of through an entry of their own: numbers, and what stands at indices."""
    _, v = split(value)
    if isinstance(v, Access | Given):
        return all(isinstance(i, Sym | Const) for i in v.idx) and _distinct(v.idx)
    return isinstance(v, Num | SizeValue)


def _distinct(idx: Iterable[Index]) -> bool:
    found = [i for i in idx if isinstance(i, Sym)]
    return len(set(found)) == len(found)
