"""Families as arrays of numpy or torch: a value knows the names of its axes.

Vectors and data are `[sample, *axes, coordinate]`, scalars `[sample, *axes]`, matrices `[*axes, row, column]`; the
sample dimension is 1 where a value does not depend on the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import sympy as sp

from netsor import ir

A = TypeVar("A", bound=Any)
V = TypeVar("V", covariant=True)


class Sized(Protocol):
    """What the data and a choice of widths decide."""

    def size(self, size: ir.Size, /) -> int: ...
    def dimension(self, dimension: ir.Dimension | None, /) -> int: ...


class Arrays(Protocol[A, V]):
    """What running a program asks of an array language, beyond what numpy and torch write alike.

    `numbers` are nested lists, `cast` is to another array's type and device; `root` is R with R Rᵀ the
    matrix without its negative eigenvalues, and the smallest and the largest eigenvalue.
    """

    def value(self, data: A, axes: tuple[str, ...] = ()) -> V: ...
    def numbers(self, values: Any, like: A) -> A: ...
    def cast(self, x: A, like: A) -> A: ...
    def root(self, matrix: Any) -> tuple[A, float, float]: ...
    def permute(self, x: A, order: Sequence[int]) -> A: ...
    def expand(self, x: A, shape: Sequence[int]) -> A: ...
    def movedim(self, x: A, source: int, to: int) -> A: ...
    def filled(self, like: A, shape: Sequence[int], number: float) -> A: ...
    def join(self, parts: Sequence[A], dim: int) -> A: ...
    def stack(self, parts: Sequence[A], dim: int) -> A: ...
    def positions(self, like: A, start: int, stride: int, count: int) -> Any: ...
    def take(self, x: A, dim: int, positions: Any) -> A: ...
    def add_at(self, x: A, dim: int, positions: Any, size: int) -> A: ...
    def function(self, expr: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Callable[..., A]: ...
    def inner(self, x: A, y: A) -> A: ...
    def reduce(self, x: A, dim: int, op: Literal["sum", "mean", "max"]) -> A: ...
    def softmax(self, scores: A, mask: A | None, dim: int) -> A: ...


@dataclass(frozen=True)
class Value(Generic[A]):
    """An array and the axes it carries, in the array's order."""

    data: A
    axes: tuple[str, ...] = ()
    xp: ClassVar[Arrays[Any, Any]]

    def aligned(self, axes: Sequence[str]) -> A:
        """The array with exactly these axes after the sample, in this order; size 1 where the value has none."""
        if tuple(axes) == self.axes:
            return self.data
        missing = [a for a in axes if a not in self.axes]
        here = (*self.axes, *missing)
        data = self.data[(slice(None),) * (1 + len(self.axes)) + (None,) * len(missing)] if missing else self.data
        order = [0, *(1 + here.index(a) for a in axes)]
        return self.xp.permute(data, (*order, *range(len(order), data.ndim)))  # type: ignore[no-any-return]

    def dim(self, axis: str) -> int:
        return 1 + self.axes.index(axis)

    def select(self, axis: str, index: int) -> Self:
        """The element at an index of an axis; itself when it does not carry the axis."""
        if axis not in self.axes:
            return self
        rest = tuple(a for a in self.axes if a != axis)
        return type(self)(self.data[(slice(None),) * self.dim(axis) + (index,)], rest)

    def ordered(self, axes: Sequence[str]) -> Self:
        """The value with its axes in this order."""
        return type(self)(self.aligned(axes), tuple(axes))

    def expanded(self, axes: Sequence[str], sizes: Sequence[int]) -> Self:
        """The value with these axes at these sizes (broadcast where it does not depend on them)."""
        data = self.aligned(axes)
        rest = data.shape[1 + len(axes) :]
        return type(self)(self.xp.expand(data, (data.shape[0], *sizes, *rest)), tuple(axes))
