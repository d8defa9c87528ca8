"""The lines of one step of training: the forward lines on all samples, the output, and the backward lines from χ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import sympy as sp

from netsor import ir
from netsor.build.constants import free_name
from netsor.build.expressions import Expr
from netsor.build.program import Program, moment
from netsor.facts import ancestors, matrices, trained
from netsor.functions import exact
from netsor.passes.backward import forward_part, sweep
from netsor.passes.sgd.batch import Batched, dependents


class Base:
    """p on the samples, its output f a C-var, and the backward lines from χ = ∂L/∂f."""

    def __init__(self, p: Program, x: Any, count: int, frozen: frozenset[str]) -> None:
        self.batched = Batched(forward_part(p), x, frozen)
        self.program = q = self.batched.program
        self.sample, self.count = self.batched.sample, count
        self.classes: ir.Axis | None = None
        self.f = self._output(p.outputs)
        self.chi = q.new_var(free_name(q, "chi"), "C", None, None, self.f.dims)
        forward = q.lines
        q.add(ir.InputScalar(self.chi, 0))
        self.width = cast(ir.Width, p.outputs[0].readout.rows)
        sweep(q, (), {self.f: cast(Expr, q.handle(self.chi))}, self.width)
        self.gradients = {g.of: g.is_ for g in q.gradients}
        self.trained = trained(forward)
        self.roots = {v: (line.out, flipped) for v, (line, flipped) in matrices(q.lines).items()}
        self.forward, self.backward = self._live(forward), self._live(q.lines[len(forward) + 1 :])
        self.moving = self._moving()
        read = {o.vector: o.readout.axes for o in p.outputs}
        axes = self.batched.axes
        self.features = [(self.batched.vars[x], tuple(axes.get(a, a) for a in own)) for x, own in read.items()]
        self.seeded = dependents(q.lines, {self.chi})
        sums = [x for x in self.backward if isinstance(x, ir.Reduce) and x.axis == self.sample]
        self.summed = {x.out: x.of for x in sums if x.out in self.seeded}

    def uses(self, line: ir.InputMatrix) -> list[ir.MatMul]:
        """The forward lines that apply a matrix or its transpose."""
        return [x for x in self.forward if isinstance(x, ir.MatMul) and self.roots[x.matrix][0] is line.out]

    def square(self, line: ir.InputMatrix | ir.InputVector) -> sp.Expr:
        """multiplier², over the fan-in for the columns of an embedding matrix."""
        return self.batched.squares.get(line.out, exact(line.multiplier) ** 2)

    def _output(self, outputs: Sequence[ir.Output]) -> ir.Var:
        """f = Σ scale · moment(v x)/√positions; several outputs are a family over `classes`."""
        q, names = self.program, list(dict.fromkeys(o.name for o in outputs))
        parts = [self._one([o for o in outputs if o.name == name]) for name in names]
        if len(parts) == 1:
            return q.var_of(q.let(free_name(q, "f"), parts[0] * 1))
        self.classes = q.fresh_axis("class", len(parts))
        total = parts[0].place(self.classes, 0)
        for k, part in enumerate(parts[1:], 1):
            total = total + part.place(self.classes, k)
        return q.var_of(q.let(free_name(q, "f"), total))

    def _one(self, outputs: Sequence[ir.Output]) -> Expr:
        q, total = self.program, None
        for o in outputs:
            v, x = (self.batched.vars[u] for u in (o.readout, o.vector))
            part = moment(q.handle(v) * q.handle(x)) * o.scale
            for dim in v.dims:
                part = part.sum(dim.axis) / sp.sqrt(cast(int, dim.size))
            total = part if total is None else total + part
        return cast(Expr, total)

    def _live(self, lines: Sequence[ir.Line]) -> list[ir.Line]:
        """Those that the output or a gradient needs."""
        needed = ancestors(self.program.lines, [self.f, *self.gradients.values()])
        return [line for line in lines if line.out in needed]

    def _moving(self) -> set[ir.Var]:
        """The variables that change from step to step."""
        trained = {line.out for line in self.trained}
        found = {line.out for line in self.trained if isinstance(line, ir.InputVector)} | {self.chi}
        lines = [line for line in self.program.lines if not isinstance(line, ir.InputVector | ir.InputMatrix | ir.Trsp)]
        found |= {x.out for x in lines if isinstance(x, ir.MatMul) and self.roots[x.matrix][0] in trained}
        return dependents(lines, found)
