"""One scramble of a program in the limit: its lines, run on `count` independent draws of all Z.

This is the program at finite width with the coordinates of all vectors replaced by draws of Z: Nonlin, Moment and the
index forms are the same lines; MatMul gives new Gaussian variables (`netsor.compilers.sampler.matrices`). All samples,
of every size, are run together, so that all pairs of inputs are had at once. Backward lines that are linear in Gaussian
variables need no draws of these (`netsor.compilers.sampler.linear`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import torch
from torch import Tensor

from netsor import ir
from netsor.compilers.finite.inputs import Group
from netsor.compilers.finite.network import Network, Result
from netsor.compilers.finite.values import Binding, Value, Values, axis_names
from netsor.compilers.sampler.lifetimes import Plan, Sum, plan
from netsor.compilers.sampler.linear import LATENT, Latents, linear_part
from netsor.compilers.sampler.linear import Linear as LinearPart
from netsor.compilers.sampler.matrices import Direction, Element, Linear
from netsor.compilers.sampler.normals import Normals
from netsor.errors import UnsupportedError
from netsor.facts import covariance_blocks
from netsor.run import draws
from netsor.run.execute import Run, Scope
from netsor.run.order import Loop, Step, read_outside, steps


class Limit(Network):
    """A group of samples in the limit: every width is the number of draws."""

    def __init__(self, p: ir.ProgramLike, order: Sequence[Step], group: Group, count: int) -> None:
        super().__init__(p, order, group, count)
        self.binding = Binding(group.sizes, limit_dimensions(p, count, group))

    def some(self, part: slice) -> Limit:
        """Some of its samples."""
        twin, count = copy.copy(self), len(range(self.samples)[part])
        values = {v: _some(x, part, self.samples) for v, x in self.group.values.items()}
        twin.group, twin.samples = replace(self.group, samples=tuple(range(count)), values=values), count
        return twin


def _some(value: Value, part: slice, samples: int) -> Value:
    """Some of the samples of a value; one that all have stays."""
    return Value(value.data[part], value.axes) if value.data.shape[0] == samples else value


@dataclass(frozen=True)
class Drawn:
    """Values of all variables for every group, as the finite-width code has them."""

    networks: list[Limit]
    results: list[Result]
    latents: Latents  # the coordinates of a linear variable are [γ, draw], flattened
    made: int = 0  # numbers that were kept at once

    def groups(self, start: int, stop: int | None = None) -> Drawn:
        """Some of the groups."""
        return replace(self, networks=self.networks[start:stop], results=self.results[start:stop])

    def some(self, part: slice) -> Drawn:
        """Some of the samples of every group."""
        networks = [n.some(part) for n in self.networks]
        pairs = zip(self.networks, self.results, strict=True)
        results = [replace(r, values={v: _some(x, part, n.samples) for v, x in r.values.items()}) for n, r in pairs]
        return replace(self, networks=networks, results=results)

    def repeats(self, var: ir.Var) -> int:
        """What a mean over the coordinates of a variable is to be multiplied by."""
        return self.latents.count if var in self.latents.lines.variables else 1

    def value(self, var: ir.Var) -> list[Value]:
        return [r.values[var] for r in self.results]


class Paths:
    """The limit variables of a program on groups of samples; `coupled` adds the terms Ż that break independence.

    `conditioned` does not draw the Gaussian variables that backward lines are linear in, where these are few. `needed`
    are the variables whose values are asked for, all by default.
    """

    def __init__(
        self, p: ir.ProgramLike, groups: Sequence[Group], coupled: bool = False, conditioned: bool = False,
        needed: frozenset[ir.Var] | None = None,
    ) -> None:  # fmt: skip
        self.program = p
        self.groups = groups
        self.coupled = coupled
        self.order: Sequence[Step] = steps(p.lines)
        self.needed = None if needed is None else needed | read_outside(self.order, p.lines)
        self.sizes: dict[str, int] = {}
        for group in groups:
            for axis, size in group.sizes.items():
                self.sizes[axis] = max(size, self.sizes.get(axis, 0))
        self.linear = linear_part(p, groups, Binding(self.sizes)) if conditioned and not coupled else LinearPart()
        known = self.needed is not None and not self.linear.variables
        self.plan = plan(self.order, p.lines, self.needed or frozenset()) if known else None

    def draw(self, normals: Normals) -> Drawn:
        """All lines, once."""
        whole = Binding(self.sizes, limit_dimensions(self.program, normals.count, self.groups[0]))
        latents = Latents(self.linear, self.linear.size(self.program, self.groups, whole), normals.device)
        vectors = input_vectors(self.program, whole, normals, latents)
        elements, ids = self._matrices(whole)
        networks = [Limit(self.program, self.order, g, normals.count) for g in self.groups]
        results, made = [], 0
        for network in networks:
            given: Values = dict(network.group.values)
            for var, value in (vectors | ids).items():
                given[var] = leading(value, network.binding.shape(var))
            run = _PathRun(network.binding, elements, normals, latents, self.needed)
            values = run.block(self.order, Scope(given)) if self.plan is None else run.planned(self.plan, Scope(given))
            made += run.made
            results.append(Result({v: run.whole(v, x) for v, x in values.items() if v.kind != "A"}, {}))
        return Drawn(networks, results, latents, made + sum(e.stored for e in elements))

    def _matrices(self, binding: Binding) -> tuple[list[Element], Values]:
        """The elements of all families of matrices, and for every matrix twice their numbers `[1, *axes]`."""
        elements: list[Element] = []
        ids: Values = {}
        for line in self.program.lines:
            if isinstance(line, ir.InputMatrix):
                shape = binding.shape(line.out)
                count = math.prod(shape)
                numbers = 2 * (len(elements) + torch.arange(count).reshape(1, *shape))
                ids[line.out] = Value(numbers, axis_names(line.out))
                elements += [element(line, self.coupled) for _ in range(count)]
        return elements, ids


def limit_dimensions(p: ir.ProgramLike, count: int, group: Group) -> dict[ir.Dimension, int]:
    """Every width is the number of draws."""
    widths: dict[ir.Dimension, int] = dict.fromkeys(p.widths, count)
    return widths | dict(group.features)


def element(line: ir.InputMatrix, coupled: bool) -> Element:
    """One matrix: σ² = multiplier² · var, and (rows/cols) · σ² for its transpose; data are divided by fan_in."""
    sigma = abs(float(line.multiplier)) * math.sqrt(line.var)
    rows, cols = line.out.rows, line.out.cols
    if isinstance(cols, ir.Width) and isinstance(rows, ir.Width):
        if line.fan_in != "cols":
            raise UnsupportedError(
                f"{line.out} has fan_in={line.fan_in} with a width as columns: no limit exists",
                code="NT703",
                location=line.loc,
            )
        back = sigma * math.sqrt(float(rows.ratio) / float(cols.ratio))
        return Element(Direction(sigma), Direction(back), coupled, (Linear(sigma), Linear(back)))
    fan_in = 1.0 if line.fan_in is None else line.fan_in
    weight = None if fan_in == "cols" else 1 / float(fan_in)
    return Element(Direction(sigma, weight), Direction(0.0), False)


def input_vectors(p: ir.ProgramLike, binding: Binding, normals: Normals, latents: Latents) -> Values:
    """g = multiplier · β for every input vector, `[1, *axes, count]`, with the covariances that the lines state.

    Readouts that the backward lines are linear in are `[1, *axes, γ, 1]`, the coefficients of γ.
    """
    found: Values = {}
    for block in covariance_blocks(p.lines):
        counts = [math.prod(binding.shape(line.out)) for line in block]
        factor = draws.root(block, binding, Value.xp)
        used = [j for j in range(factor.shape[1]) if bool((factor[:, j] != 0).any())]
        source = latents if block[0].out in latents.lines.roots else normals
        drawn = factor[:, used].to(normals.device) @ source.draw(len(used))
        for line, z in zip(block, drawn.split(counts), strict=True):
            beta = draws.factor(line, binding) * (float(line.mean) + z)
            axes, shape = axis_names(line.out), (1, *binding.shape(line.out), source.count)
            if source is latents:
                found[line.out] = Value(beta.reshape(*shape, 1), (*axes, LATENT))
            else:
                found[line.out] = Value(beta.reshape(shape), axes)
    return found


def leading(value: Value, shape: Sequence[int]) -> Value:
    """The leading elements along every axis."""
    data = value.data
    for i, size in enumerate(shape):
        data = data.narrow(1 + i, 0, size)
    return Value(data, value.axes)


class _PathRun(Run[Tensor, Value]):
    """Runs lines; matrices are numbers of elements, doubled, plus one when transposed.

    Linear vectors have an axis more, of the coefficients of γ, and one coordinate where these are constant.
    """

    def __init__(
        self, binding: Binding, elements: Sequence[Element], normals: Normals, latents: Latents,
        needed: frozenset[ir.Var] | None,
    ) -> None:  # fmt: skip
        super().__init__(Value.xp, binding, torch.zeros((), dtype=torch.float64, device=normals.device))
        self.elements = elements
        self.normals = normals
        self.latents = latents
        self.linear = latents.lines.variables
        self.needed = needed
        self.made = 0

    def planned(self, plan: Plan, scope: Scope[Value]) -> Values:
        """The values that are needed; the others are let go once they are read."""
        held: dict[ir.Var, int] = {v: x.data.numel() for v, x in scope.values.items()}
        most = 0
        for step, dead in zip(plan.steps, plan.dead, strict=True):
            self.made = 0
            if isinstance(step, Sum):
                scope.values[step.out] = step.value(scope.values, axis_names(step.out))
                held[step.out] = scope.values[step.out].data.numel()
            else:
                before = set(scope.values)
                self.block((step,), scope)
                held |= {v: scope.values[v].data.numel() for v in scope.values.keys() - before}
            most = max(most, sum(held.values()) + self.made)
            for v in dead:
                scope.values.pop(v, None)
                held.pop(v, None)
        self.made = most
        return scope.values

    def kept(self, loop: Loop) -> Sequence[ir.Var]:
        return [v for v in loop.made if self.needed is None or v in self.needed]

    def line(self, line: ir.Line, scope: Scope[Value]) -> Value:
        value = self._linear_line(line, scope) if line.out in self.linear else super().line(line, scope)
        self.made += value.data.numel()
        return value

    def _linear_line(self, line: ir.Line, scope: Scope[Value]) -> Value:
        dims = [d for d in line.out.dims if d.axis.name not in scope.fixed()]
        axes, sizes = [d.axis.name for d in dims], [self.sizes.size(d.size) for d in dims]
        if line.out.kind == "C":  # a mean of odd functions
            return Value(self.like.new_zeros(1, *sizes), tuple(axes))
        axes, sizes = [*axes, LATENT], [*sizes, self.latents.count]
        value = self.compute(line, scope, axes).expanded(axes, sizes)
        looped = scope.outer is not None  # the steps of a loop are stacked
        return Value(value.data.expand(*value.data.shape[:-1], self.normals.count), value.axes) if looped else value

    def whole(self, var: ir.Var, value: Value) -> Value:
        """With the variable's own order of axes; γ and draws are the coordinates of a linear vector."""
        axes = axis_names(var)
        if var not in self.linear or var.kind == "C":
            return Value(value.aligned(axes), axes)
        data = value.aligned([*axes, LATENT])
        return Value(data.expand(*data.shape[:-1], self.normals.count).flatten(-2), axes)

    def compute(self, line: ir.Line, scope: Scope[Value], axes: Sequence[str]) -> Value:
        match line:
            case ir.InputMatrix():
                return scope.read(line.out)
            case ir.Trsp():
                ids = scope.read(line.of)
                return Value(ids.data ^ 1, ids.axes)
            case ir.MatMul():
                return self._matmul(scope.read(line.matrix), scope.read(line.vector), axes)
            case (
                ir.InputVector() | ir.InputScalar() | ir.Data() | ir.Nonlin() | ir.Moment() | ir.IndexLine()
                | ir.Reduce() | ir.Softmax()
            ):  # fmt: skip
                return super().compute(line, scope, axes)
            case _:
                assert_never(line)

    def _matmul(self, matrix: Value, vector: Value, axes: Sequence[str]) -> Value:
        own, rest = matrix.axes, [a for a in axes if a not in matrix.axes]
        x = vector.aligned([*own, *rest])
        family = matrix.data.shape[1:]
        x = x.expand(x.shape[0], *family, *x.shape[1 + len(own) :])
        flat = x.reshape(x.shape[0], math.prod(family), *x.shape[1 + len(own) :])
        image = self._linear_image if LATENT in axes else self._image
        parts = [image(int(k), flat[:, i]) for i, k in enumerate(matrix.data.flatten())]
        y = parts[0].unsqueeze(1) if len(parts) == 1 else torch.stack(parts, 1)
        return Value(y.reshape(y.shape[0], *family, *y.shape[2:]), (*own, *rest))

    def _image(self, number: int, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        y = self.elements[number // 2].apply(rows, bool(number % 2), self.normals)
        return y.reshape(*x.shape[:-1], -1)

    def _linear_image(self, number: int, x: Tensor) -> Tensor:
        """`[…, γ, draw or 1]` to the constant coefficients `[…, γ, 1]` of the images."""
        rows = x.expand(*x.shape[:-1], self.normals.count).reshape(-1, self.latents.count, self.normals.count)
        y = self.elements[number // 2].linear[number % 2].apply(rows, self.latents)
        return y.reshape(*x.shape[:-1], 1)
