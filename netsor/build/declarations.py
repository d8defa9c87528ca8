"""What the declaration of an input says, checked: dimensions, variances, fan-ins, covariances, readouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import sympy as sp

from netsor import ir
from netsor.build import hints
from netsor.build.expressions import Expr
from netsor.build.quantity import nested, quantity
from netsor.build.scales import scale
from netsor.errors import Location, ProgramError, caller_location, user_location
from netsor.facts import inputs_of


def _error(message: str, code: str, hint: str | None = None, loc: Location | None = None) -> ProgramError:
    return ProgramError(message, code=code, hint=hint, location=loc or caller_location())


def dimension(of: object) -> ir.Dimension:
    """A width or data dimension, or that of a vector."""
    if isinstance(of, ir.Width | ir.Feature):
        return of
    if isinstance(of, Expr):
        rows = of.rows
        if rows is not None:
            return rows
    message = f"a dimension is a width or a vector that has one, got {of!r}"
    raise _error(message, "NT108", 'make a width with p.width("n")')


def variance(name: str, value: ir.ScaleLike) -> ir.Scale:
    """A number that is not negative, or an expression that is positive."""
    found = scale(f"var of {name}", value)
    if isinstance(found, sp.Expr):
        if not cast(sp.Expr, found).is_positive:
            raise _error(f"var of {name} is a variance: {found} is not seen to be positive", "NT109")
    elif found < 0:
        message = f"var of {name} is a variance and must not be negative, got {found}"
        raise _error(message, "NT109", loc=user_location())
    return found


def fan_in(name: str, value: hints.FanIn) -> hints.FanIn:
    """ "cols", None or a positive number."""
    if value is None or (isinstance(value, str) and value == "cols"):
        return value
    found = quantity(f'fan_in of {name} ("cols", None or a number)', value)
    if found <= 0:
        raise _error(f"fan_in of {name} must be positive, got {found}", "NT109")
    return found


def covariances(
    dims: tuple[ir.Dim, ...], given: hints.AxisCov | None, as_axis: Callable[[hints.AxisLike], ir.Axis]
) -> tuple[tuple[ir.Axis, Any], ...]:
    """The matrix over each axis."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return tuple((as_axis(a), nested("axis_cov", m)) for a, m in given.items())
    if len(dims) != 1:
        raise _error("axis_cov of a family with several axes is a dict from axis to matrix", "NT107")
    return ((dims[0].axis, nested("axis_cov", given)),)


def fit_readout(readout: ir.Var, vector: ir.Var, lines: Iterable[ir.Line]) -> None:
    """Give a readout over axes the sizes that the vector has there (after strides they are smaller)."""
    sizes = {d.axis: d.size for d in vector.dims}
    missing = [d.axis.name for d in readout.dims if d.axis not in sizes]
    if missing:
        raise _error(f"the readout {readout} has axes that {vector} lacks: {', '.join(missing)}", "NT107")
    dims = tuple(ir.Dim(d.axis, sizes[d.axis]) for d in readout.dims)
    used = any(readout in inputs_of(line) for line in lines)
    if not used and dims != readout.dims:
        object.__setattr__(readout, "dims", dims)  # still the builder's: nothing has read it yet
