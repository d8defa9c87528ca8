"""What convolutions and transposed ones share: kernels, channels, groups of channels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from netsor import ir
from netsor.build.expressions import Expr
from netsor.compilers.lift.export import Pair, Size
from netsor.compilers.lift.layout import marked
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.contract import with_bias
from netsor.compilers.lift.rules.positions.windows import resized
from netsor.compilers.lift.values import Atom, Data, Dim, Dims, Parameter, Value, axis_atom, renamed


def check_kernel(L: Lifter, w: Any) -> None:
    """A kernel is a parameter as it is, of a fixed size."""
    if not isinstance(w, Parameter) or not w.whole:
        raise L.no_rule("a kernel that is computed", "kernels are parameters as they are")
    if any(a != b for a, b in w.sizes[2:]):
        raise L.no_rule("a kernel that grows with the width", "kernels of a fixed size")


def channels(L: Lifter, w: Parameter, x: Any) -> tuple[Expr, Dims]:
    """What a kernel reads, data as features."""
    if isinstance(x, Data):
        return L.data.features(x, 1, w.name, L.step.node)
    v = L.value(x)
    return as_expr(L.program, v), v.dims


def power(L: Lifter, x: Any) -> Fraction:
    return Fraction(0) if isinstance(x, Data) else L.value(x).power


def with_channel_bias(L: Lifter, y: Any, b: Any, rank: int) -> Any:
    """The sizes of the operation's result, and a bias of each channel."""
    if isinstance(y, Value):
        y = resized(L, y, rank)
    beside: tuple[int | None, ...] = (0, *[None] * rank)
    return y if b is None else with_bias(L, y, replace(b, order=beside) if isinstance(b, Parameter) else b)


# ---------------------------------------------------------------- groups


def is_depthwise(L: Lifter, channel: Dim, groups: Any, each: Size) -> bool:
    """A group for each channel; other numbers of groups that grow, and groups of data, have no rule."""
    if any(a.kind not in ("wide", "axis") for a in channel) or not any(a.kind == "wide" for a in channel):
        raise L.no_rule("groups of channels of data", "groups=1 in the first layer")
    if isinstance(groups, Pair) and each != (1, 1):
        raise L.no_rule("a number of groups that grows with the width", "a fixed number of groups, or one a channel")
    return isinstance(groups, Pair)


def in_groups(L: Lifter, channel: Dim, groups: Any, each: Size) -> Atom:
    """The groups of the channels, an axis; found by taking a width apart."""
    count = (int(groups), int(groups))
    if len(channel) == 1:
        raise L.split(channel[0], [count, each])
    if [a.size for a in channel] != [count, each]:
        raise L.no_rule("groups of channels that are made of other parts")
    return channel[0]


def by_channel(L: Lifter, w: Parameter, v: Value, tap: ir.Axis, dims: Dims) -> tuple[Value, ir.Axis]:
    """w[κ] ⊙ x, and the axis of the taps; `dims` are those of the kernel: the channel, and axes of several outputs."""
    channel = v.dims[1]
    rows: Dim = tuple(a for d in dims for a in d)
    if len(channel) != 1:
        raise L.no_rule("depthwise kernels of channels that are made of parts")
    if w.name not in L.vectors:
        taps = axis_atom(tap)
        axes = [a.axis for a in (taps, *rows) if a.axis]
        label = L.label(w.name)
        array = L.arrays.vector(w.name, label, L.wide(channel[0]), axes, L.step.node, int(tap.size or 1))
        L.lay(array, w.name, (*(marked(d, "rows") for d in dims), (taps,)))
        L.vectors[w.name] = ((rows, (taps,)), array)
    (rows, (taps,)), array = L.vectors[w.name]
    assert taps.axis is not None
    x = renamed(v, {tap: taps.axis})
    merged = tuple(replace(a, rows=a.rows | b.rows) for a, b in zip(rows, channel, strict=False))
    dim: Dim = (*merged, *rows[len(merged) :])
    expr = array * as_expr(L.program, x) if isinstance(array, Expr) else 0
    return Value((v.dims[0], dim, *v.dims[2:]), expr, v.power), taps.axis


__all__ = ["by_channel", "channels", "check_kernel", "in_groups", "is_depthwise", "power", "with_channel_bias"]
