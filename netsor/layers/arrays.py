"""What layers share: axes, biases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from netsor import ir
from netsor.build.expressions import Expr
from netsor.build.program import AxisLike

Axes = AxisLike | Iterable[AxisLike]


def axes_of(axes: Axes) -> tuple[AxisLike, ...]:
    return (axes,) if isinstance(axes, str | ir.Axis) else tuple(axes)


def dim_of(x: Expr, axis: AxisLike) -> ir.Dim:
    found = x.has_axis(axis)
    return next(d for d in x.dims if d.axis == found)


def _bias_name(matrix: str) -> str:
    return "b" + matrix[1:] if matrix[:1] == "W" else f"b_{matrix}"


def with_bias(h: Expr, n: Any, name: str, bias_var: ir.ScaleLike | None, array: Mapping[str, Any]) -> Expr:
    if bias_var is None:
        return h
    return h + h.program.bias(_bias_name(name), n, var=bias_var, trainable=array.get("trainable", True))
