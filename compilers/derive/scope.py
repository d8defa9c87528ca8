"""The variables of one integrand."""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy as sp

from netsor.compilers.derive.requests import Ref
from netsor.compilers.derive.values import Value


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
