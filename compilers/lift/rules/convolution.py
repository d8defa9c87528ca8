"""Convolutions and pools over finite axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from netsor import ir
from netsor.build.expressions import Expr
from netsor.compilers.lift.export import Size
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.contract import applied_to, placed, with_bias
from netsor.compilers.lift.rules.reduce import averaged
from netsor.compilers.lift.rules.shapes import whole_axis
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Data, Dim, Dims, Parameter, Value


def listed(x: Any, rank: int) -> list[int]:
    """One number per spatial axis."""
    return [int(i) for i in x] * (rank if len(x) == 1 else 1) if isinstance(x, list | tuple) else [int(x)] * rank


def spatial_axes(L: Lifter, dims: Sequence[Dim]) -> list[ir.Axis]:
    """The axes of spatial dimensions (a dimension of size 1 gets one)."""
    found: list[ir.Axis] = []
    for dim in dims:
        axis = whole_axis(L, dim, "a window slides over it")
        if axis is None:
            raise L.no_rule("a window over a dimension of size 1", "an input with more than one position")
        found.append(axis)
    return found


def windowed(
    L: Lifter, expr: Expr, axes: Sequence[ir.Axis], size: Any, stride: Any, padding: Any, dilation: Any = 1,
    outside: Any = "zero",
) -> tuple[Expr, ir.Axis]:  # fmt: skip
    """The windows of a vector and the axis of their taps, in the order of torch's kernel."""
    rank = len(axes)
    pads = [padding] * rank if isinstance(padding, str) else listed(padding, rank)
    if len(set(pads)) > 1:
        raise L.no_rule(f"the padding {pads} differs between axes", "one padding for all axes")
    read = expr.window(
        axes, size=listed(size, rank), stride=listed(stride, rank), padding=pads[0], dilation=listed(dilation, rank),
        outside=outside,
    )  # fmt: skip
    return read, read.dims[-1].axis


def resized(dims: Dims, count: int, sizes: Sequence[Size]) -> Dims:
    """The last `count` dimensions with the sizes after a window."""
    last = [(replace(d[0], size=s),) for d, s in zip(dims[-count:], sizes[-count:], strict=True)]
    return (*dims[:-count], *last)


@rule("conv1d", "conv2d", "conv3d", "convolution")
def _convolution(
    L: Lifter, x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, *more: Any
) -> Any:  # fmt: skip
    """y[s] = Σ_κ W[κ] x[stride·s + dilation·κ − padding] + b, channels in dimension 1."""
    groups = more[-1] if more else 1
    if groups != 1 or (len(more) > 1 and more[0]):
        raise L.no_rule("a grouped or transposed convolution", "groups=1")
    if not isinstance(w, Parameter) or w.order != tuple(range(len(w.sizes))):
        raise L.no_rule("a kernel that is computed", "kernels are parameters as they are")
    rank = len(w.sizes) - 2
    kernel = [s[0] for s in w.sizes[2:]]
    stride_, dilation_ = listed(stride, rank), listed(dilation, rank)
    if isinstance(padding, str) and (stride_ != [1] * rank or (padding == "same" and any(k % 2 == 0 for k in kernel))):
        raise L.no_rule(f"padding={padding!r} with this kernel", "padding as a number")
    read, dims, tap = _read(L, w, x, rank, kernel, stride_, padding, dilation_)
    if isinstance(x, Data):
        known = L.matrices.get(w.name)
        tap, read = _same_tap(read, tap, known.taps if known else None)
        entry, M = placed(L, w, 0, read, x.sizes[1][0], taps=tap)
        y = Value((dims[0], entry.rows, *dims[2:]), (M @ read).sum(tap), entry.power)
    else:
        y = applied_to(L, w, Value(dims, read, L.value(x).power), 1, 0, taps=tap)
    y = replace(y, dims=resized(y.dims, rank, L.step.sizes))
    bias = replace(b, order=(0, *[None] * rank)) if isinstance(b, Parameter) else b
    return y if b is None else with_bias(L, y, bias)


def _same_tap(read: Expr, tap: ir.Axis, known: ir.Axis | None) -> tuple[ir.Axis, Expr]:
    return (tap, read) if known is None or known == tap else (known, read.rename({tap: known}))


def _read(
    L: Lifter, w: Parameter, x: Any, rank: int, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any
) -> tuple[Expr, Dims, ir.Axis]:
    if isinstance(x, Data):
        expr, dims = L.data.features(x, 1, w.name, L.step.node)
    else:
        v = L.value(x)
        expr, dims = as_expr(L.program, v), v.dims
    if len(dims) != rank + 2:
        raise L.no_rule("a convolution without a dimension of samples", "inputs [sample, channel, positions]")
    read, tap = windowed(L, expr, spatial_axes(L, dims[2:]), kernel, stride, padding, dilation)
    return read, dims, tap


# ---------------------------------------------------------------- pools


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    L: Lifter, x: Any, size: Any, stride: Any = None, padding: Any = 0, ceil: bool = False, include: bool = True,
    divisor: Any = None,
) -> Value:  # fmt: skip
    rank = 1 if L.step.name == "avg_pool1d" else 2 if L.step.name == "avg_pool2d" else 3
    if ceil or divisor is not None or (not include and any(listed(padding, rank))):
        raise L.no_rule("ceil_mode, divisor_override or count_include_pad=False", "their defaults")
    v = L.value(x)
    axes = spatial_axes(L, v.dims[-rank:])
    read, tap = windowed(L, as_expr(L.program, v), axes, size, stride or size, padding)
    return Value(resized(v.dims, rank, L.step.sizes), read.mean(tap), v.power)


@rule("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    L: Lifter, x: Any, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
) -> Value:  # fmt: skip
    rank = 1 if L.step.name == "max_pool1d" else 2 if L.step.name == "max_pool2d" else 3
    if ceil:
        raise L.no_rule("ceil_mode", "ceil_mode=False")
    v = L.value(x)
    axes = spatial_axes(L, v.dims[-rank:])
    read, tap = windowed(L, as_expr(L.program, v), axes, size, stride or size, padding, dilation, "drop")
    return Value(resized(v.dims, rank, L.step.sizes), read.max(tap), v.power)


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive(L: Lifter, x: Any, size: Any) -> Value:
    """The mean over all positions, or over equal blocks of them."""
    v = L.value(x)
    rank = 1 if L.step.name == "adaptive_avg_pool1d" else 2 if L.step.name == "adaptive_avg_pool2d" else 3
    wanted = listed(size, rank)
    if wanted == [1] * rank:
        return averaged(L, v, range(-rank, 0), True)
    have = [d[0].size[0] if d else 1 for d in v.dims[-rank:]]
    blocks = [h // w for h, w in zip(have, wanted, strict=True)]
    if any(h % w for h, w in zip(have, wanted, strict=True)):
        raise L.no_rule(f"positions {have} in {wanted} unequal blocks", "a size that divides the input's")
    read, tap = windowed(L, as_expr(L.program, v), spatial_axes(L, v.dims[-rank:]), blocks, blocks, 0)
    return Value(resized(v.dims, rank, L.step.sizes), read.mean(tap), v.power)


__all__ = ["resized", "windowed"]
