"""Families as tensors: a value knows the names of its axes.

Vectors and data are `[sample, *axes, coordinate]`, scalars `[sample, *axes]`, matrices `[*axes, row, column]`; the
sample dimension is 1 where a value does not depend on the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from netsor import ir
from netsor.errors import InputError
from netsor.sizes import number


@dataclass(frozen=True)
class Value:
    """A tensor and the axes it carries, in the tensor's order."""

    data: torch.Tensor
    axes: tuple[str, ...] = ()

    def aligned(self, axes: Sequence[str]) -> torch.Tensor:
        """The tensor with exactly these axes after the sample, in this order; size 1 where the value has none."""
        missing = [a for a in axes if a not in self.axes]
        here = (*self.axes, *missing)
        data = self.data
        for k in range(len(missing)):
            data = data.unsqueeze(1 + len(self.axes) + k)
        order = [0, *(1 + here.index(a) for a in axes)]
        return data.permute(*order, *range(len(order), data.ndim))

    def dim(self, axis: str) -> int:
        return 1 + self.axes.index(axis)

    def select(self, axis: str, index: int) -> Value:
        """The element at an index of an axis; itself when it does not carry the axis."""
        if axis not in self.axes:
            return self
        return Value(self.data.select(self.dim(axis), index), tuple(a for a in self.axes if a != axis))


@dataclass(frozen=True)
class Binding:
    """What the data decide: sizes of the axes, dimensions of the widths and features."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    dimensions: Mapping[ir.Dimension, int] = field(default_factory=dict)

    def size(self, size: ir.Size) -> int:
        """The number of positions of an axis of a variable."""
        return number(size, self._known)

    def _known(self, axis: str) -> int:
        if axis not in self.sizes:
            raise InputError(
                f"the size of the axis {axis} is not known", code="NT602",
                hint=f"no input carries it; pass sizes={{{axis!r}: …}}",
            )  # fmt: skip
        return self.sizes[axis]

    def shape(self, var: ir.Var) -> tuple[int, ...]:
        """The sizes of a variable's axes."""
        return tuple(self.size(d.size) for d in var.dims)

    def dimension(self, dimension: ir.Dimension | None) -> int:
        if dimension is None or dimension not in self.dimensions:
            raise InputError(f"the dimension {dimension} is not bound by any input", code="NT602")
        return self.dimensions[dimension]


def axis_names(var: ir.Var) -> tuple[str, ...]:
    return tuple(a.name for a in var.axes)


def expanded(value: Value, axes: Sequence[str], sizes: Sequence[int]) -> Value:
    """The value with these axes at these sizes (broadcast where it does not depend on them)."""
    data = value.aligned(axes)
    rest = data.shape[1 + len(axes) :]
    return Value(data.expand(data.shape[0], *sizes, *rest), tuple(axes))


__all__ = ["Binding", "Value", "axis_names", "expanded"]
