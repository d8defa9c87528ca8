"""Batches of samples as users give them: counted, cut, and kernels with output axes as matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netsor.errors import InputError


def count(x: Any) -> int:
    """The number of samples of an array, a list of samples, or a dict of them."""
    first = next(iter(x.values())) if isinstance(x, Mapping) else x
    return len(first)


def part(x: Any, rows: slice) -> Any:
    """Some of the samples."""
    return {k: part(v, rows) for k, v in x.items()} if isinstance(x, Mapping) else x[rows]


def chosen(x: Any, numbers: list[int]) -> Any:
    """The samples of these numbers."""
    if isinstance(x, Mapping):
        return {k: chosen(v, numbers) for k, v in x.items()}
    return [x[i] for i in numbers] if isinstance(x, list | tuple) else x[numbers]


def batches(x: Any, size: int) -> Iterator[Any]:
    """The samples, at most `size` at a time."""
    n = count(x)
    yield from (part(x, slice(i, min(i + size, n))) for i in range(0, n, size))


def matrix(kernel: Tensor) -> Tensor:
    """`[n·p, m·p]` in float64 from a kernel `[n, m, *axes, *axes′]` with p outputs a sample."""
    axes = (kernel.dim() - 2) // 2
    order = (0, *range(2, 2 + axes), 1, *range(2 + axes, 2 + 2 * axes))
    n, m = kernel.shape[:2]
    outputs = kernel.shape[2 : 2 + axes].numel()
    return kernel.permute(order).reshape(n * outputs, m * outputs).to(torch.float64)


class Targets:
    """y_train `[n, *output axes]` or `[n, *output axes, k]` as a matrix `[n·p, k]` in float64."""

    def __init__(self, y: Any, samples: int, axes: tuple[int, ...], device: torch.device) -> None:
        value = y if isinstance(y, Tensor) else torch.as_tensor(_numbers(y))
        if value.dim() == 0 or value.shape[0] != samples:
            raise InputError(
                f"y_train has shape {tuple(value.shape)}, there are {samples} training samples", code="NT601"
            )
        if tuple(value.shape[1 : 1 + len(axes)]) != axes or value.dim() > 2 + len(axes):
            wanted = ", ".join(map(str, (samples, *axes)))
            raise InputError(
                f"y_train has shape {tuple(value.shape)}, wanted [{wanted}] or [{wanted}, k]", code="NT601"
            )
        if value.is_complex():
            raise InputError("y_train is complex", code="NT601", hint="give real numbers")
        flat = value.to(device, torch.float64).reshape(samples * int(np.prod(axes)), -1)
        bad = ~torch.isfinite(flat).all(1)
        if bool(bad.any()):
            sample = int(bad.nonzero()[0]) // int(np.prod(axes))
            raise InputError(f"y_train is not finite in sample {sample}", code="NT603", hint="remove NaN and infinity")
        self.matrix = flat
        self.axes = axes
        self.columns = tuple(value.shape[1 + len(axes) :])

    def shaped(self, mean: Tensor) -> Tensor:
        """Predictions `[m·p, k]` with the axes that y_train has."""
        return mean.reshape(-1, *self.axes, *self.columns)

    def covariance(self, value: Tensor) -> Tensor:
        """`[m, *axes, m, *axes]` from `[m·p, m·p]`."""
        return value.reshape(-1, *self.axes, value.shape[0] // int(np.prod(self.axes)), *self.axes)


def _numbers(y: Any) -> Any:
    try:
        value = np.asarray(y)
        return value if value.dtype.kind == "f" else value.astype(float)
    except (TypeError, ValueError) as problem:
        raise InputError(f"y_train is not an array of numbers: {problem}", code="NT601") from None
