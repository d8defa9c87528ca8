"""Variables written as functions of G-vars and C-vars (Tensor Programs II, B.9), within a size limit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import sympy as sp

from netsor import ir
from netsor.measure import terms, tree_size
from netsor.run.work import Work

_LIMIT = 400  # nodes of an expression


class Collapse:
    """`of(v)` is v's expression in the symbols of G-vars, C-vars and variables made by index forms."""

    def __init__(self, lines: Sequence[ir.Line], work: Work | None = None) -> None:
        self.work = work or Work()
        self.work.affords(len(lines))
        self.lines = {line.out: line for line in lines}
        self.symbols: dict[ir.Var, sp.Symbol] = {}
        self.variables: dict[sp.Symbol, ir.Var] = {}
        self._done: dict[ir.Var, sp.Expr] = {}

    def symbol(self, v: ir.Var) -> sp.Symbol:
        if v not in self.symbols:
            s = sp.Symbol(f"{'c' if v.kind == 'C' else 'x'}{len(self.symbols)}", real=True)
            self.symbols[v], self.variables[s] = s, v
        return self.symbols[v]

    def of(self, v: ir.Var, deep: bool = False) -> sp.Expr | None:
        """The collapsed expression, expanded; None when it grows too large. `deep` also opens scalar functions."""
        order = self._order(v, deep)
        if order is None:
            return None
        for u in order:
            line = self.lines[u]
            assert isinstance(line, ir.Nonlin | ir.Moment)
            table = {ir.arg(i): self._value(a) for i, a in enumerate(line.args)}
            table |= {ir.param(j): self._value(c) for j, c in enumerate(line.params)}
            value = line.expr.xreplace(table)
            if tree_size(value) > _LIMIT or not self.work.affords(tree_size(value) + terms(value)):
                return None
            self._done[u] = sp.expand(value) if terms(value) <= _LIMIT else value
        return self._value(v)

    @cached_property
    def intact(self) -> dict[ir.Var, frozenset[ir.Var]]:
        """Variables in which nothing can cancel, with the variables that their expressions are made of."""
        found: dict[ir.Var, frozenset[ir.Var]] = {}
        for v, line in self.lines.items():
            if not self._opens(v, False):
                found[v] = frozenset((v,))
                continue
            assert isinstance(line, ir.Nonlin)
            parts = [found.get(a) for a in (*line.args, *line.params)]
            known = [p for p in parts if p is not None]
            apart = frozenset[ir.Var]().union(*known)
            if len(known) == len(parts) and len(apart) == sum(map(len, known)) <= _LIMIT and _intact(line.expr):
                found[v] = apart
        return found

    def _value(self, v: ir.Var) -> sp.Expr:
        return self._done.get(v, self.symbol(v))

    def _order(self, v: ir.Var, deep: bool) -> list[ir.Var] | None:
        """The variables to open, arguments first."""
        order: list[ir.Var] = []
        state: dict[ir.Var, bool] = {}
        stack: list[tuple[ir.Var, bool]] = [(v, False)]
        while stack:
            u, ready = stack.pop()
            if ready:
                order.append(u)
                continue
            if u in state or u in self._done or not self._opens(u, deep):
                continue
            state[u] = True
            if len(state) > _LIMIT or not self.work.affords(1):
                return None
            line = self.lines[u]
            assert isinstance(line, ir.Nonlin | ir.Moment)
            stack.append((u, True))
            stack.extend((a, False) for a in (*line.args, *line.params))
        return order

    def _opens(self, v: ir.Var, deep: bool) -> bool:
        """Nonlins whose arguments have the result's own axes are opened; moments stay, being C-vars."""
        line = self.lines.get(v)
        if isinstance(line, ir.Moment):
            return deep and not line.args
        return isinstance(line, ir.Nonlin) and v.kind == "H"


def _intact(e: sp.Expr) -> bool:
    """Expanding e loses none of its symbols: no symbol stands in two terms of a sum."""
    if isinstance(e, sp.Add):
        free = [term.free_symbols for term in e.args]
        if sum(map(len, free)) > len(set().union(*free)):
            return False
    return all(map(_intact, e.args))
