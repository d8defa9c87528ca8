"""Layer and batch normalisation."""

from __future__ import annotations

from typing import NoReturn

from netsor import ir
from netsor.build import hints
from netsor.build.expressions import Expr
from netsor.build.program import moment
from netsor.errors import UnsupportedError, caller_location
from netsor.layers.convolution import global_avg_pool


def layer_norm(x: Expr, eps: ir.Number = 0.0) -> Expr:
    """y = (x − ν)/√(s² + ε), ν = moment(x), s² = moment((x − ν)²): over the coordinates, without affine map."""
    x = x.program.handle(x.var)
    centred = x - moment(x)
    return centred / (moment(centred**2) + eps).sqrt()


def batch_norm(x: Expr, axis: hints.Axes, eps: ir.Number = 0.0) -> Expr:
    """y = x̂/√(mean x̂² + ε), x̂ = x − mean x, means over the axis (or axes), coordinatewise; without affine map."""
    x = x.program.handle(x.var)
    centred = x - global_avg_pool(x, axis)
    return centred / (global_avg_pool(centred**2, axis) + eps).sqrt()


def dropout(x: Expr, rate: float) -> NoReturn:
    """Refused: a random mask at training time is not a function of the arrays that a program samples."""
    raise UnsupportedError(
        f"dropout (rate {rate}) has no deterministic limit of this form: its masks are drawn anew at each step",
        code="NT703", location=caller_location(), hint="leave it out: at evaluation it is the identity",
    )  # fmt: skip
