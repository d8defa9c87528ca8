"""Convolutions: of one group, of several, depthwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsor import ir
from netsor.build.expressions import Expr
from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.rules.contract import applied_to, placed, read_out
from netsor.compilers.lift.rules.positions.kernels import (
    by_channel,
    channels,
    check_kernel,
    in_groups,
    is_depthwise,
    power,
    with_channel_bias,
)
from netsor.compilers.lift.rules.positions.transposed import transposed
from netsor.compilers.lift.rules.positions.windows import listed, pads_of, spatial, windowed
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Data, Dims, Outputs, Parameter, Value, axis_atom, renamed


@rule("conv1d", "conv2d", "conv3d", "convolution")
def _convolution(
    L: Lifter, x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, *more: Any
) -> Any:  # fmt: skip
    """y[s] = Σ_κ W[κ] x[stride·s + dilation·κ − padding] + b, channels in dimension 1."""
    groups = more[-1] if more else 1
    check_kernel(L, w)
    if len(more) > 1 and more[0]:
        return transposed(L, x, w, b, stride, padding, more[1], groups, dilation)
    rank = len(w.sizes) - 2
    kernel, steps, apart = [s[0] for s in w.sizes[2:]], listed(stride, rank), listed(dilation, rank)
    expr, dims = channels(L, w, x)
    if len(dims) != rank + 2:
        raise L.no_rule("a convolution without a dimension of samples", "inputs [sample, channel, positions]")
    expr, dims, axes = spatial(L, expr, dims, rank)
    read, tap = windowed(L, expr, axes, kernel, steps, pads_of(padding, kernel, apart), apart)
    v = Value(dims, read, power(L, x))
    if groups != 1:
        y: Any = _of_groups(L, w, v, tap, groups)
    elif w.sizes[0][0] == w.sizes[0][1]:
        y = _outputs(L, w, x, v, tap)
    elif isinstance(x, Data):
        y = _of_data(L, w, x, read, dims, tap)
    else:
        y = applied_to(L, w, v, 1, 0, taps=tap)
    return with_channel_bias(L, y, b, rank)


def _of_data(L: Lifter, w: Parameter, x: Data, read: Expr, dims: Dims, tap: ir.Axis) -> Value:
    known = L.matrices.get(w.name)
    if known is not None and known.taps is not None and known.taps != tap:
        tap, read = known.taps, read.rename({tap: known.taps})
    entry, M = placed(L, w, 0, read, x.sizes[1][0], taps=tap)
    return Value((dims[0], entry.rows, *dims[2:]), (M @ read).sum(tap), entry.power)


def _outputs(L: Lifter, w: Parameter, x: Any, v: Value, tap: ir.Axis) -> Outputs:
    """A convolution to a finite number of channels is a readout at every position."""
    if isinstance(x, Data):
        raise L.refuse("NT812", f"{w.name} maps data to a finite dimension", "the first layer has the width")
    v = Value((v.dims[0], (*v.dims[1], axis_atom(tap)), *v.dims[2:]), v.expr, v.power)
    found = read_out(L, w, v, 1, 0)
    sizes = L.step.sizes[2:]
    last = tuple((replace(d[0], size=s),) for d, s in zip(found.dims[2:], sizes, strict=True))
    return replace(found, dims=(*found.dims[:2], *last))


# ---------------------------------------------------------------- groups


def _of_groups(L: Lifter, w: Parameter, v: Value, tap: ir.Axis, groups: Any) -> Value:
    """g matrices, one for each part of the channels; a group for each channel is a product with vectors."""
    channel = v.dims[1]
    if is_depthwise(L, channel, groups, w.sizes[1]):
        return _depthwise(L, w, v, tap)
    in_groups(L, channel, groups, w.sizes[1])
    count = channel[0].size
    rows = L.rows_of(w.name, 0, w.sizes[0])
    if len(rows) == 1:
        raise L.split(rows[0], [count, (w.sizes[0][0] // count[0], w.sizes[0][1] // count[1])])
    known = L.matrices.get(w.name)
    entry, M = placed(L, w, 0, channel[1:], taps=tap) if known is None else (known, known.matrix)
    group = entry.rows[0].axis
    assert group is not None and entry.taps is not None and channel[0].axis is not None
    x = renamed(v, {channel[0].axis: group, tap: entry.taps})
    return Value((v.dims[0], entry.rows, *v.dims[2:]), (M @ x.expr).sum(entry.taps), v.power + entry.power)


def _depthwise(L: Lifter, w: Parameter, v: Value, tap: ir.Axis) -> Value:
    """y = Σ_κ w[κ] ⊙ x[κ]; several outputs a channel are an axis."""
    channel, size = v.dims[1], w.sizes[0]
    if len(channel) == 1 and size != channel[0].size and (w.name, 0) not in L.facts.splits:
        more = size[0] // channel[0].size[0]
        raise L.split(L.rows_of(w.name, 0, size)[0], [channel[0].size, (more, more)])
    y, taps = by_channel(L, w, v, tap, (L.rows_of(w.name, 0, size),))
    return replace(y, expr=y.expr.sum(taps)) if isinstance(y.expr, Expr) else y
