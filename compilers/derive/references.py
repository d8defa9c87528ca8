"""What a derivation asks about: nodes and scalars at their symbols, and the variables of one integrand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.entries.values import Value
from netsor.compilers.derive.nodes import AnyNode

Binding = tuple[tuple[ir.Axis, Sym], ...]


@dataclass(frozen=True)
class Reference:
    """Something of one copy with every axis bound to a symbol."""

    copy: Copy
    binding: Binding

    def at(self, axis: ir.Axis) -> Sym:
        return next(s for a, s in self.binding if a == axis)

    @property
    def symbols(self) -> tuple[Sym, ...]:
        return tuple(s for _, s in self.binding)


@dataclass(frozen=True)
class Ref(Reference):
    """A node at its symbols."""

    node: AnyNode

    def bound(self, copy: Copy, binding: Binding) -> Ref:
        """The node of another copy, at other symbols."""
        return Ref(copy, binding, self.node)

    def renamed(self, table: Mapping[Sym, Sym]) -> Ref:
        return self.bound(self.copy, tuple((a, table.get(s, s)) for a, s in self.binding)) if table else self

    @property
    def rank(self) -> tuple[int, int]:
        """The left side of a pair has the smaller one."""
        return (self.copy.side, self.node.id)

    @property
    def what(self) -> AnyNode | ir.Var:
        return self.node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def label(self) -> str:
        """What names an entry."""
        return self.node.label


@dataclass(frozen=True)
class ScalarRef(Reference):
    """A C-var at its symbols."""

    var: ir.Var

    def bound(self, copy: Copy, binding: Binding) -> ScalarRef:
        return ScalarRef(copy, binding, self.var)

    @property
    def what(self) -> AnyNode | ir.Var:
        return self.var

    @property
    def name(self) -> str:
        return self.var.name

    @property
    def label(self) -> str:
        return self.var.name


AnyRef = Ref | ScalarRef
Refs = tuple[AnyRef, ...]


@dataclass
class Scope:
    """Variables of one integrand: a symbol for every reference; scalars are symbols of their values."""

    refs: dict[sp.Symbol, Ref] = field(default_factory=dict)
    symbol: dict[Ref, sp.Symbol] = field(default_factory=dict)
    right: set[sp.Symbol] = field(default_factory=set)
    scalars: dict[sp.Symbol, Value] = field(default_factory=dict)

    def add(self, ref: Ref, right: bool) -> sp.Symbol:
        if ref not in self.symbol:
            s = sp.Symbol(f"z{len(self.refs)}", real=True)
            self.refs[s], self.symbol[ref] = ref, s
            if right:
                self.right.add(s)
        return self.symbol[ref]

    def scalar(self, value: Value) -> sp.Symbol:
        for s, v in self.scalars.items():
            if v == value:
                return s
        s = sp.Symbol(f"k{len(self.scalars)}", real=True)
        self.scalars[s] = value
        return s
