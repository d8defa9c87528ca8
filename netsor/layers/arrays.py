"""What layers share: axes, biases."""

from __future__ import annotations

from netsor import ir
from netsor.build import hints
from netsor.build.expressions import Expr


def axes_of(axes: hints.Axes) -> tuple[hints.AxisLike, ...]:
    return (axes,) if isinstance(axes, str | ir.Axis) else tuple(axes)


def dim_of(x: Expr, axis: hints.AxisLike) -> ir.Dim:
    found = x.has_axis(axis)
    return next(d for d in x.dims if d.axis == found)


def _bias_name(matrix: str) -> str:
    return "b" + matrix[1:] if matrix[:1] == "W" else f"b_{matrix}"


def with_bias(h: Expr, n: hints.Dimension, name: str, bias_var: ir.ScaleLike | None, array: hints.Shared) -> Expr:
    if bias_var is None:
        return h
    return h + h.program.bias(_bias_name(name), n, var=bias_var, trainable=array.get("trainable", True))
