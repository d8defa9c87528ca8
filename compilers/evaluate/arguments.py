"""Arguments of `ns.compile` and of kernels, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from netsor import ir
from netsor.errors import InputError

Get = str | Sequence[str]


def wanted_names(get: Get) -> tuple[str, ...]:
    return (get,) if isinstance(get, str) else tuple(dict.fromkeys(get))


def as_dtype(dtype: Any) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    known = {"float32": torch.float32, "float64": torch.float64, "float": torch.float64, "double": torch.float64}
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in known:
        raise InputError(f"dtype is float32 or float64, got {dtype!r}", code="NT609")
    return known[name]


def as_device(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(f"the device {device!r} cannot be used: {reason}", code="NT609", hint="device='cpu'") from None
    return found


def size_axes(size: Any) -> list[Any]:
    while isinstance(size, ir.Strided):
        size = size.of
    return [size] if isinstance(size, ir.SizeOf) else []
