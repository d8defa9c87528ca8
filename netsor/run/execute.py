"""The lines of a program run on arrays of numpy or torch, in the order of `netsor.run.order`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar, assert_never

from netsor import ir
from netsor.errors import InputError
from netsor.run import draws
from netsor.run.order import Loop, Step
from netsor.run.rules import evaluate
from netsor.run.values import Arrays, Sized, Value

A = TypeVar("A", bound=Any)
V = TypeVar("V", bound=Value[Any])


class Scope(Generic[V]):
    """Values by variable; inside a loop, of the current index, with an outer scope for the rest."""

    def __init__(self, values: dict[ir.Var, V], outer: Scope[V] | None = None, axis: str = "", index: int = 0) -> None:
        self.values = values
        self.outer = outer
        self.axis = axis
        self.index = index
        self.finished: dict[ir.Var, dict[int, V]] = {}

    def read(self, var: ir.Var) -> V:
        if var in self.values:
            return self.values[var]
        if self.outer is None:
            raise InputError(f"{var} is used before it has a value", code="NT103")
        return self.outer.read(var).select(self.axis, self.index)

    def fixed(self) -> tuple[str, ...]:
        """The axes of the loops that are running."""
        return () if self.outer is None else (*self.outer.fixed(), self.axis)

    def earlier(self, line: ir.Shift) -> V | None:
        """What a shift along a running loop's axis reads; None before the first step."""
        if self.outer is None:
            return None
        if self.axis == line.axis.name:
            return self.finished[line.of].get(self.index - line.by)
        value = self.outer.earlier(line)
        return None if value is None else value.select(self.axis, self.index)

    def here(self, value: V) -> V:
        """The element of a value at the indices of the running loops."""
        return value if self.outer is None else self.outer.here(value).select(self.axis, self.index)


class Run(Generic[A, V]):
    """Runs lines in `like`'s kind of array; a value in `added` is added to its variable (gradients are taken by it)."""

    def __init__(self, xp: Arrays[A, V], sizes: Sized, like: A, added: Mapping[ir.Var, V] | None = None) -> None:
        self.xp = xp
        self.sizes = sizes
        self.like = like
        self.added = added or {}

    def block(self, program: Sequence[Step], scope: Scope[V]) -> dict[ir.Var, V]:
        """The values of all variables: inputs are in the scope, lines are computed in order."""
        for step in program:
            if isinstance(step, Loop):
                scope.values.update(self.loop(step, scope))
            else:
                scope.values[step.out] = self.line(step, scope)
        return scope.values

    def loop(self, loop: Loop, outer: Scope[V]) -> dict[ir.Var, V]:
        size = self.sizes.size(loop.made[0].size(loop.axis))
        inner: Scope[V] = Scope({}, outer, loop.axis.name)
        inner.finished = {v: {} for v in loop.made}
        for t in reversed(range(size)) if loop.reverse else range(size):
            inner.index, inner.values = t, {}
            for v, value in self.block(loop.body, inner).items():
                inner.finished[v][t] = value
        steps = range(size)
        return {v: self._stacked(loop.axis.name, [inner.finished[v][t] for t in steps]) for v in self.kept(loop)}

    def kept(self, loop: Loop) -> Sequence[ir.Var]:
        """The variables of a loop that are read after it."""
        return loop.made

    def line(self, line: ir.Line, scope: Scope[V]) -> V:
        fixed = scope.fixed()
        dims = [d for d in line.out.dims if d.axis.name not in fixed]
        axes = [d.axis.name for d in dims]
        sizes = [self.sizes.size(d.size) for d in dims]
        value = self.compute(line, scope, axes)
        if line.out.kind == "A":
            return value
        value = value.expanded(axes, sizes)
        if line.out in self.added:
            extra = scope.here(self.added[line.out])
            value = self.xp.value(value.data + extra.aligned(axes), tuple(axes))
        return value

    def compute(self, line: ir.Line, scope: Scope[V], axes: Sequence[str]) -> V:
        match line:
            case ir.InputMatrix() | ir.InputVector() | ir.Data():
                return scope.read(line.out)
            case ir.InputScalar():
                if line.out in scope.values:
                    return scope.read(line.out)
                number = draws.constant(line, self.sizes, self.like, self.xp)
                return self.xp.value(number[None], tuple(a.name for a in line.out.axes))
            case ir.Shift():
                if line.axis.name in scope.fixed():
                    return scope.earlier(line) or self._zero(line.out)
                return evaluate(line, scope.read, axes, self.sizes, self.xp)
            case (
                ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment() | ir.IndexLine() | ir.Reduce() | ir.Softmax()
            ):  # fmt: skip
                return evaluate(line, scope.read, axes, self.sizes, self.xp)
            case _:
                assert_never(line)

    def _zero(self, var: ir.Var) -> V:
        shape = (1,) if var.rows is None else (1, self.sizes.dimension(var.rows))
        return self.xp.value(self.xp.filled(self.like, shape, 0.0))

    def _stacked(self, axis: str, values: Sequence[V]) -> V:
        samples = max(v.data.shape[0] for v in values)
        parts = [self.xp.expand(v.data, (samples, *v.data.shape[1:])) for v in values]
        return self.xp.value(self.xp.stack(parts, 1), (axis, *values[0].axes))


def canonical(values: Mapping[ir.Var, V]) -> dict[ir.Var, V]:
    """Every vector and scalar with its variable's own order of axes."""
    return {v: value if v.kind == "A" else value.ordered([a.name for a in v.axes]) for v, value in values.items()}
