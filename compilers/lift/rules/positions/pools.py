"""Average and maximum pools, adaptive pools, and interpolation."""

from __future__ import annotations

from typing import Any

import torch

from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.dimensions.parts import mapped
from netsor.compilers.lift.rules.positions.windows import listed, resized, spatial, windowed
from netsor.compilers.lift.rules.reduce import averaged, largest
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Value, product


def _rank(L: Lifter) -> int:
    """The number of spatial axes, from the operation's name."""
    return next(int(c) for c in L.step.name if c.isdigit())


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    L: Lifter, x: Any, size: Any, stride: Any = None, padding: Any = 0, ceil: bool = False, include: bool = True,
    divisor: Any = None,
) -> Value:  # fmt: skip
    rank = _rank(L)
    if ceil or divisor is not None or (not include and any(listed(padding, rank))):
        raise L.no_rule("ceil_mode, divisor_override or count_include_pad=False", "their defaults")
    v = L.value(x)
    expr, dims, axes = spatial(L, as_expr(L.program, v), v.dims, rank)
    kernel = listed(size, rank)
    read, tap = windowed(L, expr, axes, kernel, listed(stride or size, rank), listed(padding, rank), [1] * rank)
    return resized(L, Value(dims, read.mean(tap), v.power), rank)


@rule("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    L: Lifter, x: Any, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value:  # fmt: skip
    rank, v = _rank(L), L.value(x)
    expr, dims, axes = spatial(L, as_expr(L.program, v), v.dims, rank)
    steps, pads = listed(stride or size, rank), listed(padding, rank)
    read, tap = windowed(L, expr, axes, listed(size, rank), steps, pads, listed(dilation, rank), "drop")
    return resized(L, Value(dims, read.max(tap), v.power), rank)


@rule("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool_with_indices(L: Lifter, *more: Any) -> list[Any]:
    L.step = SizedStep(L.step)
    return [_max_pool(L, *more), None]


# ---------------------------------------------------------------- to given sizes


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive(L: Lifter, x: Any, size: Any) -> Value:
    """The mean over all positions, or over torch's blocks of them, axis by axis."""
    rank, v = _rank(L), L.value(x)
    if listed(size, rank) == [1] * rank:
        return averaged(L, v, range(-rank, 0), True)
    return _linear(L, v, rank, lambda eye, out: torch.nn.functional.adaptive_avg_pool1d(eye, out))


@rule("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max(L: Lifter, x: Any, size: Any) -> list[Any]:
    rank, v = _rank(L), L.value(x)
    wanted, have = listed(size, rank), [product(d)[0] for d in v.dims[-rank:]]
    if wanted == [1] * rank:
        return [largest(L, v, list(range(len(v.dims) - rank, len(v.dims))), True), None]
    if any(h % w for h, w in zip(have, wanted, strict=True)):
        raise L.no_rule(f"positions {have} in {wanted} unequal blocks", "a size that divides the input's")
    blocks = [h // w for h, w in zip(have, wanted, strict=True)]
    L.step = SizedStep(L.step)
    return [_max_pool(L, v, blocks, blocks), None]


class SizedStep:
    """A step whose first result counts."""

    def __init__(self, step: Any) -> None:
        self.node, self.name, self.sizes = step.node, step.name, step.sizes_of(0)


@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d")
def _upsample(L: Lifter, x: Any, size: Any, *more: Any) -> Value:
    linear = "linear" in L.step.name
    corners = bool(more[0]) if linear and isinstance(more[0], bool) else None
    mode = "linear" if linear else "nearest"

    def weights(eye: torch.Tensor, out: int) -> torch.Tensor:
        return torch.nn.functional.interpolate(eye, size=out, mode=mode, align_corners=corners)

    return _linear(L, L.value(x), _rank(L), weights)


def _linear(L: Lifter, v: Value, rank: int, weights: Any) -> Value:
    """The same linear map of positions along each spatial axis."""
    for i in range(len(v.dims) - rank, len(v.dims)):
        have, out = product(v.dims[i])[0], L.step.sizes[i][0]
        matrix = weights(torch.eye(have, dtype=torch.float64)[None], out)[0].T
        v = mapped(L, v, i, matrix.tolist())
    return v
