"""Hyperparameters given once for all layers or as one per layer."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

from netsor.errors import InputError, user_location
from netsor.functions import Function, as_function
from netsor.ir import ScaleLike

Phi = str | Function
Phis = Phi | Sequence[Phi]
Variance: TypeAlias = ScaleLike | Sequence[ScaleLike]
MaybeVariance: TypeAlias = Variance | Sequence[ScaleLike | None] | None
Kernel = int | tuple[int, ...] | list[int | tuple[int, ...]]


def layer_count(value: Any, what: str = "depth", least: int = 1) -> int:
    """A number of layers."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        message = f"{what} is a whole number, at least {least}, got {value!r}"
        raise InputError(message, code="NT616", location=user_location(), hint=f"{what}={max(2, least)}")
    return number


def choice(what: str, value: Any, *known: str) -> None:
    """InputError unless the value is one of these words."""
    if value not in known:
        message = f"{what} is {' or '.join(map(repr, known))}, got {value!r}"
        raise InputError(message, code="NT616", location=user_location())


def per_layer(value: Any, depth: int, what: str) -> tuple[Any, ...]:
    """`depth` values: the one given, repeated, or those of a list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return (value,) * depth
    if len(value) != depth:
        message = f"{what} has {len(value)} entries for {depth} layers"
        raise InputError(message, code="NT616", location=user_location(), hint="give one value, or one for each layer")
    return tuple(value)


def functions(phi: Phis, depth: int) -> tuple[Function, ...]:
    """The nonlinearity of each layer."""
    return tuple(as_function(f) for f in per_layer(phi, depth, "phi"))


def kernel_window(kernel: Kernel) -> dict[str, Any]:
    """A size, a tuple of sizes (one per axis) or a list of offsets, as arguments of a window."""
    return {"offsets": kernel} if isinstance(kernel, list) else {"size": kernel}
