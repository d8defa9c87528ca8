"""Where a plan's quantities and arrays of single inputs stand, and their sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.lowering.plan import order
from netsor.compilers.lowering.plan.arrays import Parameter
from netsor.compilers.lowering.plan.operands import Array, Name
from netsor.compilers.lowering.plan.uses import parts
from netsor.sizes import number

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Shapes:
    """Of two batches: sizes of the axes, shapes of the quantities and of the arrays behind the samples."""

    sizes: tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]
    kept: tuple[tuple[Shape, ...], tuple[Shape, ...]]

    def size(self, copy: Any, axis: str) -> int:
        """Of both inputs (m) that of the shorter one."""
        one, two = (dict(s) for s in self.sizes)
        return min(one[axis], two[axis]) if copy == "m" else (two if copy == 2 else one)[axis]

    def shape(self, copy: Any, place: int) -> Shape:
        return self.kept[1 if copy == 2 else 0][place]


@dataclass(frozen=True)
class Sides:
    """What the pairs of a plan read of single inputs: quantities, then arrays."""

    quantities: tuple[Name, ...]
    arrays: tuple[Array, ...]
    parameters: tuple[str, ...]

    def shapes(self, a: Any, b: Any) -> Shapes:
        """The shapes of two batches with their quantities, `[samples, …]`."""
        sizes = tuple(tuple(sorted(each.data.size.items())) for each in (a, b))
        return Shapes((sizes[0], sizes[1]), (self._shapes(a), self._shapes(b)))

    def _shapes(self, each: Any) -> tuple[Shape, ...]:
        values = [_behind(each, name, v) for name, v in self._values(each)]
        return (*values, *(tuple(each.data[x.name].shape[1:]) for x in self.arrays), *[()] * len(self.parameters))

    def _values(self, each: Any) -> list[tuple[str, Any]]:
        return list(each.values.items())[: len(self.quantities)]

    def flattened(self, each: Any) -> list[Tensor]:
        """The quantities and arrays of a batch as `[samples, elements]`."""
        n = each.data.samples
        out = []
        for name, v in self._values(each):
            t = torch.as_tensor(v, dtype=each.data.dtype)
            rows = t.reshape(1, -1) if name in each.constants else t.reshape(t.shape[0], -1)
            out.append(rows.expand(n, rows.shape[1]))
        out += [each.data[x.name].reshape(n, -1) for x in self.arrays]
        return out + [each.data.parameter(name).detach().reshape(1, 1).expand(n, 1) for name in self.parameters]

    def nominal(self, size: Callable[[str], int]) -> Shapes:
        """The shapes of two batches whose axes, and features by "feature", have these sizes."""
        sizes: dict[str, int] = {}

        def axis(name: str) -> int:
            return sizes.setdefault(name, size(name))

        layouts = [*(x.layout for x in self.quantities), *(x.layout for x in self.arrays)]
        shapes = tuple(
            () if own is None else tuple(1 if s is None else number(s.size, axis) for s in own.axes) for own in layouts
        )
        shapes += ((),) * len(self.parameters)
        sizes.pop(FEATURE, None)
        own = tuple(sorted(sizes.items()))
        return Shapes((own, own), (shapes, shapes))


FEATURE = "feature"


def sides(plan: order.Plan) -> Sides:
    arrays: dict[str, Array] = {}
    parameters: dict[str, None] = {}
    for s in plan.pairs.body:
        for x in parts(s):
            if isinstance(x, Parameter):
                parameters[x.parameter] = None
            if isinstance(x, Array):
                arrays.setdefault(x.name, x)
    return Sides(tuple(dict.fromkeys(plan.each.kept)), tuple(arrays.values()), tuple(parameters))


def _behind(each: Any, name: str, value: Any) -> Shape:
    shape = tuple(getattr(value, "shape", ()))
    return shape if name in each.constants else shape[1:]


def count(shape: Shape) -> int:
    return math.prod(shape)
