"""Hyperparameters given once for all layers or as one per layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netsor.functions import Function, as_function
from netsor.ir import Number

Phi = str | Function
Phis = Phi | Sequence[Phi]
Variance = Number | Sequence[Number]
MaybeVariance = Number | None | Sequence[Number | None]
Kernel = int | tuple[int, ...] | list[Any]


def per_layer(value: Any, depth: int, what: str) -> tuple[Any, ...]:
    """`depth` values: the one given, repeated, or those of a list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return (value,) * depth
    if len(value) != depth:
        raise ValueError(f"{what} has {len(value)} entries for {depth} layers")
    return tuple(value)


def functions(phi: Phis, depth: int) -> tuple[Function, ...]:
    """The nonlinearity of each layer."""
    return tuple(as_function(f) for f in per_layer(phi, depth, "phi"))


def kernel_window(kernel: Kernel) -> dict[str, Any]:
    """A size, a tuple of sizes (one per axis) or a list of offsets, as arguments of a window."""
    return {"offsets": kernel} if isinstance(kernel, list) else {"size": kernel}
