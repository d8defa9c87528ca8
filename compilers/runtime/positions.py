"""Sizes of axes and positions on them: numbers, and arrays of integers that stand for indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.evaluate.inputs import Inputs
from netsor.errors import UnsupportedError


def grid(data: Inputs, size: int, after: int) -> Tensor:
    """0 … size − 1 with `after` dimensions behind it."""
    return torch.arange(size, device=data.device).view(size, *[1] * after)


def values(data: Inputs, numbers: Sequence[int], after: int) -> Tensor:
    """Integers along a dimension with `after` dimensions behind it."""
    return torch.tensor(numbers, device=data.device).view(len(numbers), *[1] * after)


def values_at(data: Inputs, numbers: Sequence[int], at: Tensor, after: int) -> Tensor:
    """Integers at positions, with `after` dimensions behind them."""
    return values(data, numbers, 0)[at].view(-1, *[1] * after)


def strided(size: int, minus: int, stride: int) -> int:
    """⌈(size − minus) / stride⌉."""
    return -((minus - size) // stride)


def window(at: Any, taps: Any, stride: int, wrap: int | None) -> Any:
    """stride·at + taps (modulo the size when wrapping)."""
    position = stride * at + taps
    return position if wrap is None else position % wrap


def inverse(at: Any, taps: Any, stride: int, wrap: int | None) -> Tensor:
    """(at − taps) / stride where it divides (modulo the size when wrapping), else −1."""
    position = at - taps if wrap is None else (at - taps) % wrap
    quotient = torch.div(position, stride, rounding_mode="floor")
    return torch.where(position % stride == 0, quotient, -1)


def inside(data: Inputs, index: Any, size: int) -> Any:
    """1 where 0 ≤ index < size."""
    if isinstance(index, int):
        return float(0 <= index < size)
    return ((index >= 0) & (index < size)).to(data.dtype)


def position(data: Inputs, index: Any) -> Tensor:
    """An index as a number."""
    return torch.as_tensor(index, dtype=data.dtype, device=data.device)


def equal(data: Inputs, left: Any, right: Any, size: int) -> Any:
    """1 where the indices are equal and inside."""
    hit = left == right
    if isinstance(hit, bool):
        return float(hit and 0 <= left < size)
    return (hit & (torch.as_tensor(left >= 0)) & torch.as_tensor(left < size)).to(data.dtype)


def shorter(a: Inputs, b: Inputs) -> dict[str, int]:
    """The sizes of the axes that both inputs have in common: those of the shorter one."""
    return {axis: min(size, b.size[axis]) for axis, size in a.size.items()}


def equal_sizes(one: int, two: int) -> int:
    """The size of a circular axis of two inputs, where position s of one meets position s of the other."""
    if one != two:
        raise UnsupportedError(
            f"positions of circular axes of different sizes ({one} and {two}) meet one by one", code="NT702",
            hint="inputs of one size, or a readout of the mean over the axis instead of one for each position",
        )  # fmt: skip
    return one
