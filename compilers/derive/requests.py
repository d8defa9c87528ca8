"""Memoised requests in canonical index notation, with least fixpoints for recurrences.

K(u[α], v[β]) is E[Z^u Z^v], T(u[α], v[β]) the tangent kernel, M(u[α]) the mean and S(c[γ]) the limit of a scalar. A
request is stored with its symbols renamed in order of appearance, so that one derivation serves every use. A request
that is still being derived returns a reference to its own entries; what structure they have is assumed (zero first)
and the derivation repeated until the assumption is what comes out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never, cast

import sympy as sp

from netsor import ir
from netsor.compilers.derive.nodes import AnyNode, Normal
from netsor.compilers.derive.terms import NONE, Deltas, Term, Terms, collect, structure, swap
from netsor.compilers.derive.values import (
    Access,
    Add,
    Const,
    Constant,
    Copy,
    Entry,
    Expect1,
    Expect2,
    ExpectJ,
    FeatureDim,
    Fn,
    Given,
    Gram,
    Ind,
    Mul,
    Num,
    Radial,
    Renaming,
    SizeValue,
    Soft,
    Sum,
    Sym,
    Value,
    rewrite,
    symbols,
)

Binding = tuple[tuple[ir.Axis, Sym], ...]
Space = Literal["const", "input", "pair"]


@dataclass(frozen=True)
class Ref:
    """A node (or scalar) of one copy with every axis bound to a symbol."""

    node: Any  # AnyNode, or the ir.Var of a scalar
    copy: Copy
    binding: Binding

    def at(self, axis: ir.Axis) -> Sym:
        return next(s for a, s in self.binding if a == axis)

    def renamed(self, table: dict[Sym, Any]) -> Ref:
        if not table:
            return self
        return Ref(self.node, self.copy, tuple((a, table.get(s, s)) for a, s in self.binding))

    @property
    def symbols(self) -> tuple[Sym, ...]:
        return tuple(s for _, s in self.binding)


class Restart(Exception):
    """A recurrent request came out with another structure than assumed."""


@dataclass
class _Open:
    looked_up: bool = False


class Requests:
    """The memo; `rules` maps a kind to the function that derives it."""

    def __init__(self, normal: Normal) -> None:
        self.normal = normal
        self.rules: dict[str, Callable[..., Terms]] = {}
        self.tangent_rule: Callable[..., Terms] = _no_rule
        self.assumed: dict[Any, dict[Deltas, frozenset[Sym]]] = {}
        self.reset()

    def reset(self) -> None:
        self.memo: dict[Any, Terms] = {}
        self.open: dict[Any, _Open] = {}
        self.recurrent: dict[Any, dict[Deltas, Entry]] = {}
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
        own: Copy = 0 if isinstance(dim.size, int) else copy
        return Sym(self.number(), dim.size, own, dim.axis.name)

    def ref(self, node: AnyNode, copy: Copy, lookup: Callable[[ir.Dim], Sym]) -> Ref:
        """A reference to a node; nodes that do not depend on data have no copy."""
        own: Copy = copy if node.id in self.normal.sampled else 0
        return Ref(node, own, tuple((d.axis, lookup(d)) for d in node.dims))

    def child(self, parent: Ref, node: AnyNode, copy: Copy, more: dict[ir.Axis, Sym] | None = None) -> Ref:
        """A node read by the parent, with the parent's symbols, and `more` for axes it lacks or maps."""
        table = dict(parent.binding) | (more or {})
        return self.ref(node, copy, lambda d: table[d.axis])

    # ------------------------------------------------------------ requests

    def pair(self, kind: str, a: Ref, b: Ref) -> Terms:
        """K or T of two references, sides ordered so that equal requests meet."""
        if self._rank(b) < self._rank(a):
            return swap(self._request(kind, (b, a)))
        return self._request(kind, (a, b))

    def one(self, kind: str, a: Ref) -> Value:
        """M or S of one reference."""
        terms = self._request(kind, (a,))
        assert all(d == NONE for d, _ in terms)
        return terms[0][1] if terms else Num(sp.Integer(0))

    def _rank(self, r: Ref) -> tuple[int, int]:
        return ({0: 0, "s": 1, "m": 1, 1: 1, 2: 2}[r.copy], r.node.id)

    def _request(self, kind: str, refs: tuple[Ref, ...]) -> Terms:
        canonical, table, copies, space = self._canonical(refs)
        key = (kind, *((r.node, r.copy, r.binding) for r in canonical))
        terms = self._find(key, kind, canonical, space)
        return self._back(terms, table, copies)

    def _canonical(self, refs: tuple[Ref, ...]) -> tuple[tuple[Ref, ...], dict[Sym, Sym], dict[Copy, Copy], Space]:
        own: set[Copy] = {c for r in refs for c in _copies(r) if c != 0}
        own = own - {"m"} or ({1} if own else own)
        if own == {1, 2}:
            space: Space = "pair"
            copies: dict[Copy, Copy] = {}
        elif len(own) == 1:
            space = "input"
            (only,) = own
            copies = {only: "s"}
        else:
            space, copies = "const", {}
        table: dict[Sym, Sym] = {}
        for r in refs:
            for axis, s in r.binding:
                if s not in table:
                    table[s] = Sym(len(table), s.size, self._sym_copy(s, refs, space), axis.name)
        out = tuple(Ref(r.node, copies.get(r.copy, r.copy), tuple((a, table[s]) for a, s in r.binding)) for r in refs)
        return out, table, copies, space

    @staticmethod
    def _sym_copy(s: Sym, refs: tuple[Ref, ...], space: Space) -> Copy:
        """The copy whose size a symbol runs over; the shorter of both when both are indexed with it."""
        if isinstance(s.size, int):
            return 0
        if space == "input":
            return "s"
        found: set[Copy] = {r.copy if r.copy != 0 else s.copy for r in refs if s in r.symbols}
        one: list[Copy] = [c for c in found if c != "m"]
        return one[0] if len(one) == 1 else "m"

    @staticmethod
    def _back(terms: Terms, table: dict[Sym, Sym], copies: dict[Copy, Copy]) -> Terms:
        inverse: dict[Sym, Any] = {c: s for s, c in table.items()}
        renaming = Renaming(inverse, {v: k for k, v in copies.items()})
        return tuple(
            (frozenset((inverse[a], inverse[b]) for a, b in deltas), rewrite(value, renaming))
            for deltas, value in terms
        )

    def _find(self, key: Any, kind: str, refs: tuple[Ref, ...], space: Space) -> Terms:
        if key in self.memo:
            return self.memo[key]
        if key in self.open:
            self.open[key].looked_up = True
            return self._assume(key, kind, refs, space)
        self.open[key] = _Open()
        self.count += 1
        rule = self.rules.get(kind)
        terms = rule(*refs) if rule is not None else self.tangent_rule(kind, *refs)
        opened = self.open.pop(key)
        if opened.looked_up:
            terms = self._close(key, terms)
        else:
            terms = tuple((d, self._entry(kind, refs, space, d, v)) for d, v in terms)
        self.memo[key] = terms
        return terms

    # ------------------------------------------------------------ recurrences

    def _assume(self, key: Any, kind: str, refs: tuple[Ref, ...], space: Space) -> Terms:
        wanted = self.assumed.setdefault(key, {})
        entries = self.recurrent.setdefault(key, {})
        for deltas, dims in wanted.items():
            if deltas not in entries:
                table = shared_by_both(deltas)
                own = tuple(table.get(s, s) for s in sorted(dims))
                entries[deltas] = self._new_entry(kind, refs, space, own, None, deltas)
                entries[deltas].recurrent = True
        return tuple((d, self._access(e, d)) for d, e in entries.items())

    def _close(self, key: Any, terms: Terms) -> Terms:
        found, wanted = structure(terms), self.assumed[key]
        if any(not (dims <= wanted.get(d, frozenset())) or d not in wanted for d, dims in found.items()):
            for d, dims in found.items():
                wanted[d] = wanted.get(d, frozenset()) | dims
            raise Restart
        values, entries = dict(terms), self.recurrent[key]
        out: list[Term] = []
        for d, e in entries.items():
            e.value = rewrite(values.get(d, Num(sp.Integer(0))), Renaming(shared_by_both(d)))
            out.append((d, self._access(e, d)))
        return collect(out)

    # ------------------------------------------------------------ entries

    @staticmethod
    def _entry_copy(space: Space) -> Copy:
        return {"const": 0, "input": "s", "pair": "m"}[space]  # type: ignore[return-value]

    def _entry(self, kind: str, refs: tuple[Ref, ...], space: Space, deltas: Deltas, value: Value) -> Value:
        table = shared_by_both(deltas)
        if is_simple(value) and not table.keys() & symbols(value):
            return value
        value = rewrite(value, Renaming(table))
        entry = self._new_entry(kind, refs, space, tuple(sorted(symbols(value))), value, deltas)
        return self._access(entry, deltas)

    def _access(self, entry: Entry, deltas: Deltas) -> Access:
        """An entry at the symbols that its value was derived with."""
        table = {own: s for s, own in shared_by_both(deltas).items()}
        return Access(entry, self._entry_copy(entry.space), tuple(table.get(s, s) for s in entry.dims))

    def as_entry(self, name: str, space: Space, value: Value) -> Value:
        """A value as an entry of its own, so that an index map can be applied to it."""
        entry = Entry(self._name(name, space), space, tuple(sorted(symbols(value))), value, "aux", ())
        self.entries.append(entry)
        return Access(entry, self._entry_copy(space), entry.dims)

    def moment(self, powers: Mapping[Ref, int], value: Value) -> Value:
        """E of a product of powers as an entry of its own, where the references are those of one request."""
        copies = {c for r in powers for c in _copies(r)} - {0}
        if is_simple(value) or copies not in ({"s"}, {1, 2}):
            return value
        name = "K_" + "__".join(f"{_label(r.node)}_{k}" if k > 1 else _label(r.node) for r, k in powers.items())
        return self.as_entry(name, "input" if copies == {"s"} else "pair", value)

    def _new_entry(
        self, kind: str, refs: Sequence[Ref], space: Space, dims: tuple[Sym, ...], value: Value | None, deltas: Deltas
    ) -> Entry:
        names = tuple(cast(str, r.node.name) for r in refs)
        stem = f"{kind}_" + "__".join(dict.fromkeys(_label(r.node) for r in refs))
        entry = Entry(self._name(stem, space), space, dims, value, kind, names, refs=tuple(refs), deltas=deltas)
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
    return {a: a._replace(copy="m") for a, b in deltas if not isinstance(a.size, int) and a.copy != b.copy}


def _copies(r: Ref) -> set[Copy]:
    """The copy of a reference; that of its symbols when it does not depend on data."""
    return {r.copy} if r.copy != 0 else {s.copy for s in r.symbols if not isinstance(s.size, int)}


def _no_rule(*_: Any) -> Terms:
    raise AssertionError("no rule for tangent kernels")


def _label(node: Any) -> str:
    """What names an entry: a node's label where it has one (nodes), the name of a scalar."""
    return cast(str, getattr(node, "label", "") or node.name)


def is_simple(value: Value) -> bool:
    """Values that are read directly instead of through an entry of their own."""
    match value:
        case Num() | SizeValue():
            return True
        case Access() | Given() | Constant():
            return all(isinstance(i, Sym | Const) for i in value.idx) and _distinct(value.idx)
        case Mul():
            return len(value.args) == 2 and isinstance(value.args[0], Num) and is_simple(value.args[1])
        case (
            FeatureDim() | Gram() | Add() | Sum() | Ind() | Fn() | Soft() | Expect1() | Expect2() | ExpectJ() | Radial()
        ):
            return False
        case _:
            assert_never(value)


def _distinct(idx: Iterable[Any]) -> bool:
    found = [i for i in idx if isinstance(i, Sym)]
    return len(set(found)) == len(found)
