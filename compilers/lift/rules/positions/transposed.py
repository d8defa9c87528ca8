"""Transposed convolutions: of one group, of several, depthwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsor import ir
from netsor.build.expressions import Expr
from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.rules.contract import applied_to, placed
from netsor.compilers.lift.rules.positions.kernels import (
    by_channel,
    channels,
    check_kernel,
    in_groups,
    is_depthwise,
    power,
    with_channel_bias,
)
from netsor.compilers.lift.rules.positions.windows import listed, offsets, spatial, unwindowed
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Data, Parameter, Value, renamed


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed(
    L: Lifter, x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: Any = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """y[t] = Σ W[κ]ᵀ x[s] over the (s, κ) with stride·s + dilation·κ − padding = t, plus b."""
    check_kernel(L, w)
    rank = len(w.sizes) - 2
    kernel, apart = [s[0] for s in w.sizes[2:]], listed(dilation, rank)
    expr, dims = channels(L, w, x)
    expr, dims, axes = spatial(L, expr, dims, rank)
    tap = L.program.fresh_axis("k", len(offsets(kernel, [0] * rank, apart)))
    y, taps = _each_tap(L, w, x, Value(dims, expr, power(L, x)), tap, groups)
    if isinstance(y.expr, Expr):
        where = offsets(kernel, listed(padding, rank), apart)
        y = replace(y, expr=unwindowed(L, y.expr, axes, taps, where, listed(stride, rank)))
    return with_channel_bias(L, y, b, rank)


def _each_tap(L: Lifter, w: Parameter, x: Any, v: Value, tap: ir.Axis, groups: Any) -> tuple[Value, ir.Axis]:
    """W[κ] x[s], not summed over the taps, and their axis."""
    each = w.sizes[0] if groups == 1 else (1, 1)
    if groups != 1 and is_depthwise(L, v.dims[1], groups, each):
        more = () if w.sizes[1] == (1, 1) else L.rows_of(w.name, 1, w.sizes[1])
        return by_channel(L, w, v, tap, (L.rows_of(w.name, 0, w.sizes[0]), more))
    if w.sizes[1][0] == w.sizes[1][1]:
        raise L.no_rule("a transposed convolution as the output layer", "a convolution, or a linear layer")
    if groups != 1:
        y = _of_groups(L, w, v, tap, groups)
    elif isinstance(x, Data):
        entry, M = placed(L, w, 1, v.expr, x.sizes[1][0], taps=tap)
        y = Value((v.dims[0], entry.rows, *v.dims[2:]), M @ v.expr, entry.power)
    else:
        y = applied_to(L, w, v, 1, 1, taps=tap, summed=False)
    taps = L.matrices[w.name].taps
    assert taps is not None
    return y, taps


def _of_groups(L: Lifter, w: Parameter, v: Value, tap: ir.Axis, groups: Any) -> Value:
    """One matrix for each group of channels."""
    (m, n), channel = w.sizes[0], v.dims[1]
    group = in_groups(L, channel, groups, (m // int(groups), n // int(groups)))
    entry, M = placed(L, w, 1, channel, taps=tap, apart=1)
    own = entry.cols[0]
    assert own.axis is not None and group.axis is not None
    y = renamed(v, {group.axis: own.axis})
    return Value((v.dims[0], (own, *entry.rows), *v.dims[2:]), M @ y.expr, v.power + entry.power)
