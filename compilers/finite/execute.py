"""The lines of a program run at finite width for one group of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import torch

from netsor import ir
from netsor.compilers.finite.lines import constant
from netsor.compilers.finite.order import Loop, Step
from netsor.compilers.finite.values import Binding, Value, axis_names
from netsor.errors import InputError
from netsor.run.rules import evaluate

Values = dict[ir.Var, Value]


class Scope:
    """Values by variable; inside a loop, of the current index, with an outer scope for the rest."""

    def __init__(self, values: Values, outer: Scope | None = None, axis: str = "", index: int = 0) -> None:
        self.values = values
        self.outer = outer
        self.axis = axis
        self.index = index
        self.finished: dict[ir.Var, dict[int, Value]] = {}

    def read(self, var: ir.Var) -> Value:
        if var in self.values:
            return self.values[var]
        if self.outer is None:
            raise InputError(f"{var} is used before it has a value", code="NT103")
        return self.outer.read(var).select(self.axis, self.index)

    def fixed(self) -> tuple[str, ...]:
        """The axes of the loops that are running."""
        return () if self.outer is None else (*self.outer.fixed(), self.axis)

    def earlier(self, line: ir.Shift) -> Value | None:
        """What a shift along a running loop's axis reads; None before the first step."""
        if self.outer is None:
            return None
        if self.axis == line.axis.name:
            return self.finished[line.of].get(self.index - line.by)
        value = self.outer.earlier(line)
        return None if value is None else value.select(self.axis, self.index)


def execute(
    program: Sequence[Step], given: Mapping[ir.Var, Value], binding: Binding, added: Mapping[ir.Var, Value],
    like: torch.Tensor,
) -> Values:  # fmt: skip
    """The values of all variables: inputs from `given`, lines computed in order.

    A tensor in `added` is added to its variable (gradients are taken with respect to it).
    """
    return Run(binding, added, like).block(program, Scope(dict(given)))


class Run:
    def __init__(self, binding: Binding, added: Mapping[ir.Var, Value], like: torch.Tensor) -> None:
        self.binding = binding
        self.added = added
        self.like = like

    def block(self, program: Sequence[Step], scope: Scope) -> Values:
        for step in program:
            if isinstance(step, Loop):
                scope.values.update(self.loop(step, scope))
            else:
                scope.values[step.out] = self.line(step, scope)
        return scope.values

    def loop(self, loop: Loop, outer: Scope) -> Values:
        size = self.binding.size(loop.made[0].size(loop.axis))
        inner = Scope({}, outer, loop.axis.name)
        inner.finished = {v: {} for v in loop.made}
        for t in reversed(range(size)) if loop.reverse else range(size):
            inner.index, inner.values = t, {}
            for v, value in self.block(loop.body, inner).items():
                inner.finished[v][t] = value
        steps = range(size)
        return {v: _stacked(loop.axis.name, [inner.finished[v][t] for t in steps]) for v in self.kept(loop)}

    def kept(self, loop: Loop) -> Sequence[ir.Var]:
        """The variables of a loop that are read after it."""
        return loop.made

    def line(self, line: ir.Line, scope: Scope) -> Value:
        fixed = scope.fixed()
        dims = [d for d in line.out.dims if d.axis.name not in fixed]
        axes = [d.axis.name for d in dims]
        sizes = [self.binding.size(d.size) for d in dims]
        value = self.compute(line, scope, axes)
        if line.out.kind == "A":
            return value
        value = value.expanded(axes, sizes)
        if line.out in self.added:
            extra = self.added[line.out]
            for s in _chain(scope):
                extra = extra.select(s.axis, s.index)
            value = Value(value.data + extra.aligned(axes), tuple(axes))
        return value

    def compute(self, line: ir.Line, scope: Scope, axes: Sequence[str]) -> Value:
        match line:
            case ir.InputMatrix() | ir.InputVector() | ir.Data():
                return scope.read(line.out)
            case ir.InputScalar():
                if line.out in scope.values:
                    return scope.read(line.out)
                return constant(line, self.binding, {"dtype": self.like.dtype, "device": self.like.device})
            case ir.Shift():
                if line.axis.name in scope.fixed():
                    return scope.earlier(line) or self._zero(line.out)
                return evaluate(line, scope.read, axes, self.binding, Value.xp)
            case (
                ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment() | ir.IndexLine() | ir.Reduce() | ir.Softmax()
            ):  # fmt: skip
                return evaluate(line, scope.read, axes, self.binding, Value.xp)
            case _:
                assert_never(line)

    def _zero(self, var: ir.Var) -> Value:
        shape = (1,) if var.rows is None else (1, self.binding.dimension(var.rows))
        return Value(self.like.new_zeros(shape))


def _chain(scope: Scope) -> list[Scope]:
    return [] if scope.outer is None else [*_chain(scope.outer), scope]


def _stacked(axis: str, values: Sequence[Value]) -> Value:
    samples = max(v.data.shape[0] for v in values)
    parts = [v.data.expand(samples, *v.data.shape[1:]) for v in values]
    return Value(torch.stack(parts, 1), (axis, *values[0].axes))


def canonical(values: Values) -> Values:
    """Every vector and scalar with its variable's own order of axes."""
    return {
        v: value if v.kind == "A" else Value(value.aligned(axis_names(v)), axis_names(v)) for v, value in values.items()
    }
