"""Masks as factors: of entries, or of the exponentials of scores."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.values import Constant, Data, Value


def kept(L: Lifter, mask: Any, true_is_kept: bool) -> Any:
    """The factors of a mask: 1 or 0 for truth values, exp for numbers that are added."""
    if isinstance(mask, Constant):
        return Constant(mask.sizes, tuple(_factor(torch.as_tensor(v), true_is_kept) for v in mask.values))  # type: ignore[arg-type]
    if isinstance(mask, Data):
        if mask.step.node.meta["val"].dtype == torch.bool:
            return Data(mask.step, "" if true_is_kept else "not")
        return Data(mask.step, "exp")
    raise L.no_rule("a mask that is computed from parameters", "masks that are data or constants")


def _factor(mask: torch.Tensor, true_is_kept: bool) -> torch.Tensor:
    if mask.dtype == torch.bool:
        return (mask if true_is_kept else ~mask).double()
    return mask.double().exp()


def masked(L: Lifter, v: Value, factors: Any) -> Value:
    """Scores with factors of their exponentials."""
    new = L.value(factors)
    if v.mask is None:
        return replace(v, mask=new)
    x, y, dims = L.aligned(v.mask, new)
    return replace(v, mask=Value(dims, x.expr * y.expr))


def is_infinite(x: Any) -> bool:
    """A constant of zeros and −∞."""
    return isinstance(x, Constant) and bool((torch.as_tensor(x.values[0]).double() == -math.inf).any())


__all__ = ["is_infinite", "kept", "masked"]
