"""Convolutions: of one group, of several, depthwise and transposed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from netsor import ir
from netsor.build.expressions import Expr
from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.layout import marked
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.contract import applied_to, placed, read_out, with_bias
from netsor.compilers.lift.rules.positions.windows import (
    listed,
    offsets,
    pads_of,
    resized,
    spatial,
    unwindowed,
    windowed,
)
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Data, Dim, Dims, Outputs, Parameter, Value, axis_atom, renamed


@rule("conv1d", "conv2d", "conv3d", "convolution")
def _convolution(
    L: Lifter, x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, *more: Any
) -> Any:  # fmt: skip
    """y[s] = Σ_κ W[κ] x[stride·s + dilation·κ − padding] + b, channels in dimension 1."""
    groups = more[-1] if more else 1
    _kernel(L, w)
    if len(more) > 1 and more[0]:
        return _transposed(L, x, w, b, stride, padding, more[1], groups, dilation)
    rank = len(w.sizes) - 2
    kernel, steps, apart = [s[0] for s in w.sizes[2:]], listed(stride, rank), listed(dilation, rank)
    expr, dims = _channels(L, w, x)
    if len(dims) != rank + 2:
        raise L.no_rule("a convolution without a dimension of samples", "inputs [sample, channel, positions]")
    expr, dims, axes = spatial(L, expr, dims, rank)
    read, tap = windowed(L, expr, axes, kernel, steps, pads_of(padding, kernel, apart), apart)
    v = Value(dims, read, _power(L, x))
    if groups != 1:
        y: Any = _in_groups(L, w, v, tap, groups)
    elif w.sizes[0][0] == w.sizes[0][1]:
        y = _outputs(L, w, x, v, tap)
    elif isinstance(x, Data):
        y = _of_data(L, w, x, read, dims, tap)
    else:
        y = applied_to(L, w, v, 1, 0, taps=tap)
    return _with_bias(L, y, b, rank)


def _kernel(L: Lifter, w: Any) -> None:
    if not isinstance(w, Parameter) or w.order != tuple(range(len(w.sizes))):
        raise L.no_rule("a kernel that is computed", "kernels are parameters as they are")
    if any(a != b for a, b in w.sizes[2:]):
        raise L.no_rule("a kernel that grows with the width", "kernels of a fixed size")


def _channels(L: Lifter, w: Parameter, x: Any) -> tuple[Expr, Dims]:
    if isinstance(x, Data):
        return L.data.features(x, 1, w.name, L.step.node)
    v = L.value(x)
    return as_expr(L.program, v), v.dims


def _power(L: Lifter, x: Any) -> Fraction:
    return Fraction(0) if isinstance(x, Data) else L.value(x).power


def _with_bias(L: Lifter, y: Any, b: Any, rank: int) -> Any:
    if isinstance(y, Value):
        y = resized(L, y, rank)
    beside: tuple[int | None, ...] = (0, *[None] * rank)
    return y if b is None else with_bias(L, y, replace(b, order=beside) if isinstance(b, Parameter) else b)


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


def _in_groups(L: Lifter, w: Parameter, v: Value, tap: ir.Axis, groups: Any) -> Value:
    """g matrices, one for each part of the channels; a group for each channel is a product with vectors."""
    channel = v.dims[1]
    if any(a.kind not in ("wide", "axis") for a in channel) or not any(a.kind == "wide" for a in channel):
        raise L.no_rule("groups of channels of data", "groups=1 in the first layer")
    if isinstance(groups, Pair) and w.sizes[1] == (1, 1):
        return _depthwise(L, w, v, tap)
    if isinstance(groups, Pair):
        raise L.no_rule("a number of groups that grows with the width", "a fixed number of groups, or one a channel")
    count = (int(groups), int(groups))
    if len(channel) == 1:
        raise L.split(channel[0], [count, w.sizes[1]])
    if [a.size for a in channel] != [count, w.sizes[1]]:
        raise L.no_rule("groups of channels that are made of other parts")
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
    if len(channel) != 1:
        raise L.no_rule("depthwise kernels of channels that are made of parts")
    if size != channel[0].size:
        more = size[0] // channel[0].size[0]
        if (w.name, 0) not in L.facts.splits:
            raise L.split(L.rows_of(w.name, 0, size)[0], [channel[0].size, (more, more)])
    if w.name not in L.vectors:
        rows = L.rows_of(w.name, 0, size)
        taps = axis_atom(tap)
        axes = [a.axis for a in (taps, *rows) if a.axis]
        label = L.label(w.name)
        array = L.arrays.vector(w.name, label, L.wide(channel[0]), axes, L.step.node, int(tap.size or 1))
        L.lay(array, w.name, (marked(rows, "rows"), (taps,)))
        L.vectors[w.name] = ((rows, (taps,)), array)
    (rows, (taps,)), array = L.vectors[w.name]
    assert taps.axis is not None
    x = renamed(v, {tap: taps.axis})
    merged = tuple(replace(a, rows=a.rows | b.rows) for a, b in zip(rows, channel, strict=False))
    dim: Dim = (*merged, *rows[len(merged) :])
    if not isinstance(array, Expr):
        return Value((v.dims[0], dim, *v.dims[2:]), 0)
    return Value((v.dims[0], dim, *v.dims[2:]), (array * as_expr(L.program, x)).sum(taps.axis), v.power)


# ---------------------------------------------------------------- transposed


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _transposed(
    L: Lifter, x: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: Any = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """y[t] = Σ W[κ]ᵀ x[s] over the (s, κ) with stride·s + dilation·κ − padding = t, plus b."""
    _kernel(L, w)
    if groups != 1:
        raise L.no_rule("a transposed convolution in groups", "groups=1")
    rank = len(w.sizes) - 2
    kernel, apart = [s[0] for s in w.sizes[2:]], listed(dilation, rank)
    if w.sizes[1][0] == w.sizes[1][1]:
        raise L.no_rule("a transposed convolution as the output layer", "a convolution, or a linear layer")
    expr, dims = _channels(L, w, x)
    expr, dims, axes = spatial(L, expr, dims, rank)
    tap = L.program.fresh_axis("k", len(offsets(kernel, [0] * rank, apart)))
    y = _each_tap(L, w, x, Value(dims, expr, _power(L, x)), tap)
    taps = L.matrices[w.name].taps
    assert taps is not None
    where = offsets(kernel, listed(padding, rank), apart)
    y = replace(y, expr=unwindowed(L, y.expr, axes, taps, where, listed(stride, rank)))
    return _with_bias(L, y, b, rank)


def _each_tap(L: Lifter, w: Parameter, x: Any, v: Value, tap: ir.Axis) -> Value:
    """W[κ] x[s], not summed over the taps."""
    if isinstance(x, Data):
        entry, M = placed(L, w, 1, v.expr, x.sizes[1][0], taps=tap)
        return Value((v.dims[0], entry.rows, *v.dims[2:]), M @ v.expr, entry.power)
    return applied_to(L, w, v, 1, 1, taps=tap, summed=False)
