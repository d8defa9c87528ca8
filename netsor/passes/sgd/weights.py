"""Trained matrices: what their uses have seen, W_t z and W_tᵀ z."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import sympy as sp

from netsor import ir
from netsor.build.expressions import Expr
from netsor.build.program import Program, moment
from netsor.functions import exact
from netsor.passes.sgd.arguments import Recursion
from netsor.passes.sgd.base import Base
from netsor.passes.sgd.history import History

Read = Callable[[ir.Var], ir.Var]


@dataclass
class Weight:
    """A trained matrix: its optimiser, multiplier², rows/cols, and what its uses have seen."""

    recursion: Recursion
    factor: sp.Expr
    ratio: sp.Expr
    uses: dict[ir.MatMul, History] = field(default_factory=dict)


class Weights:
    """The trained matrices of a base's program, written into p."""

    def __init__(self, base: Base, p: Program, rates: Mapping[str, Recursion]) -> None:
        self.base, self.p = base, p
        self.past = p.fresh_axis("past", None)
        self.others: dict[ir.Axis, ir.Axis] = {}
        self.known: dict[ir.Var, Weight] = {}
        for line in base.trained:
            if isinstance(line, ir.InputMatrix):
                rows, cols = (exact(cast(ir.Width, d).ratio) for d in (line.out.rows, line.out.cols))
                uses = {u: History(p, self.past, line.out.axes) for u in base.uses(line) if u.out in base.gradients}
                self.known[line.out] = Weight(rates[line.out.name], base.square(line), rows / cols, uses)

    def changed(self, line: ir.MatMul) -> bool:
        """Is its matrix another than at the start?"""
        weight = self.known.get(self.base.roots[line.matrix][0])
        return weight is not None and (weight.recursion.kept != 1 or any(h.sizes for h in weight.uses.values()))

    def product(self, line: ir.MatMul, made: ir.MatMul) -> None:
        """kept · W_0 z − multiplier² Σ_uses Σ_past moved · left moment(right z), the roles changed for W_0ᵀ z."""
        p, (root, flipped) = self.p, self.base.roots[line.matrix]
        weight, z = self.known[root], p.handle(made.vector)
        first = p.new_var(None, "G", made.out.rows, None, made.out.dims)
        total = p.add(ir.MatMul(first, made.matrix, made.vector, line.loc)) * weight.recursion.kept
        factor = weight.factor * (weight.ratio if flipped else 1)
        for history in weight.uses.values():
            if history.left is not None and history.right is not None:
                write, read = (history.right, history.left) if flipped else (history.left, history.right)
                total = total - self._moved(history, weight.recursion, write, read, z) * factor
        args, params = p.split(total.sym)
        p.add(ir.Nonlin(made.out, p.positional(total.sym, args, params), args, params, line.loc))

    def _moved(self, history: History, recursion: Recursion, write: Expr, read: Expr, z: Expr) -> Expr:
        """Σ_past moved · write moment(read z)."""
        c, moved = moment(read * z), recursion.moved
        same = len(set(moved)) == 1
        if not same:
            values = tuple(float(m) for m, size in zip(moved, history.sizes, strict=True) for _ in range(size))
            c = c * self.p.constant(values, (ir.Dim(self.past, len(values)),))
        term = write * c
        for axis in {a: None for x in (write, read) for a in x.axes if a not in history.own}:
            term = term.sum(axis)
        return term * moved[0] if same else term

    def step(self, read: Read, batch: ir.Axis) -> None:
        """What the uses of all matrices see in a step, and the optimiser's step."""
        for weight in self.known.values():
            for use, history in weight.uses.items():
                x, dh = (self.p.handle(read(v)) for v in (use.vector, self.base.gradients[use.out]))
                flipped = self.base.roots[use.matrix][1]
                history.add(*((x, dh) if flipped else (dh, x)), batch, self._other)
            weight.recursion.step()

    def _other(self, axis: ir.Axis) -> ir.Axis:
        if axis not in self.others:
            self.others[axis] = self.p.fresh_axis(f"{axis.name}_past", axis.size)
        return self.others[axis]
