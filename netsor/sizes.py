"""Sizes of axes: a number, the size of a data axis, or ⌈(size − minus)/stride⌉."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, assert_never

from netsor import ir

T = TypeVar("T")


def fold(size: ir.Size, number: Callable[[int], T], axis: Callable[[str], T], strided: Callable[[T, int, int], T]) -> T:
    """A size in some language: of numbers, of data axes by name, and of ⌈(inner − minus)/stride⌉."""
    match size:
        case int():
            return number(size)
        case ir.SizeOf():
            return axis(size.axis)
        case ir.Strided():
            return strided(fold(size.of, number, axis, strided), size.minus, size.stride)
        case _:
            assert_never(size)


def axis_dim(axis: ir.Axis) -> ir.Dim:
    """An axis at its full size."""
    return ir.Dim(axis, ir.SizeOf(axis.name) if axis.size is None else axis.size)


def number(size: ir.Size, axis: Callable[[str], int]) -> int:
    """A size, given those of the data axes."""
    return fold(size, int, axis, _positions)


def strided(size: ir.Size, minus: int, stride: int) -> ir.Size:
    """⌈(size − minus) / stride⌉."""
    if isinstance(size, int):
        return _positions(size, minus, stride)
    return size if minus == 0 and stride == 1 else ir.Strided(size, minus, stride)


def _positions(inner: int, minus: int, stride: int) -> int:
    return -((minus - inner) // stride)
