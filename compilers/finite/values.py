"""Values of torch (`netsor.run.values`), and what the data decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

import sympy as sp
import torch
from torch import Tensor

from netsor import ir
from netsor.compilers.finite.contract import products
from netsor.compilers.lowering.torch_functions import torch_function
from netsor.errors import InputError
from netsor.run import values
from netsor.run.expressions import Array
from netsor.sizes import number


class Torch:
    """torch's words for what the rules of lines ask."""

    def value(self, data: Tensor, axes: tuple[str, ...] = ()) -> Value:
        return Value(data, axes)

    def numbers(self, values: Any, like: Tensor) -> Tensor:
        return torch.tensor(values, dtype=like.dtype, device=like.device)

    def cast(self, x: Tensor, like: Tensor) -> Tensor:
        return x.to(dtype=like.dtype, device=like.device)

    def root(self, matrix: Array) -> tuple[Tensor, float, float]:
        eigenvalues, vectors = torch.linalg.eigh(torch.from_numpy(matrix))
        result = vectors * eigenvalues.clamp(min=0).sqrt() @ vectors.T
        return result, float(eigenvalues[0]), float(eigenvalues[-1])

    def permute(self, x: Tensor, order: Sequence[int]) -> Tensor:
        return x.permute(*order)

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return x.expand(tuple(shape))

    def movedim(self, x: Tensor, source: int, to: int) -> Tensor:
        return x.movedim(source, to)

    def filled(self, like: Tensor, shape: Sequence[int], number: float) -> Tensor:
        return like.new_full(shape, number) if number else like.new_zeros(shape)

    def join(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        return torch.cat(list(parts), dim)

    def stack(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        return torch.stack(list(parts), dim) if len(parts) > 1 else parts[0].unsqueeze(dim)

    def positions(self, like: Tensor, start: int, stride: int, count: int) -> Tensor:
        return stride * torch.arange(count, device=like.device) + start

    def take(self, x: Tensor, dim: int, positions: Tensor) -> Tensor:
        return x.index_select(dim, positions)

    def add_at(self, x: Tensor, dim: int, positions: Tensor, size: int) -> Tensor:
        return x.new_zeros([*x.shape[:dim], size, *x.shape[dim + 1 :]]).index_add(dim, positions, x)

    def function(self, expr: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Callable[..., Tensor]:
        return torch_function(expr, symbols)

    def inner(self, x: Tensor, y: Tensor) -> Tensor:
        return products(x, y)

    def reduce(self, x: Tensor, dim: int, op: Literal["sum", "mean", "max"]) -> Tensor:
        match op:
            case "sum":
                return x.sum(dim)
            case "mean":
                return x.mean(dim)
            case "max":
                return x.amax(dim)
            case _:
                assert_never(op)

    def softmax(self, scores: Tensor, mask: Tensor | None, dim: int) -> Tensor:
        if mask is None:
            return torch.softmax(scores, dim)
        scores, kept = torch.broadcast_tensors(scores, mask)
        largest = scores.masked_fill(kept == 0, -torch.inf).amax(dim, keepdim=True)
        weights = kept * torch.exp((scores - largest.detach()).masked_fill(kept == 0, 0.0))
        return weights / weights.sum(dim, keepdim=True)


class Value(values.Value[Tensor]):
    """A value of torch."""

    xp = Torch()


Values = dict[ir.Var, Value]


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
