"""Functions of a Gaussian variable that have no second moment or no value: refused, never integrated."""

from __future__ import annotations

import sympy as sp

from netsor.checker.regularity.bounds import bound
from netsor.checker.regularity.extremes import Extreme, at_points, without_value
from netsor.errors import InputError

HALF = 0.495  # E φ² is infinite where |φ| grows like |z − z₀|^(−½) or faster; an exponent is measured to 1e-3


def refuse_unbounded(f: sp.Expr, z: sp.Symbol) -> None:
    """InputError (NT303) for a function f(z) that is unbounded near a point or has no real value on a set of points."""
    known = bound(f, {})
    if known.defined and not known.singular:
        return
    if not known.defined and (x := without_value(f, z)) is not None:
        raise InputError(
            f"no kernel of {f}: it has no real value at {z} = {x:.3g}", code="NT303",
            hint="a Gaussian variable takes every value: log(abs(z) + 1), sqrt(abs(z)) have one everywhere",
        )  # fmt: skip
    found = at_points(f, (z,))
    if found is not None:
        raise InputError(
            f"no kernel of {f}: {_near(found)}", code="NT303", hint="add a positive constant to what may become zero"
        )


def _near(found: Extreme) -> str:
    if found.pole < HALF:
        return f"{found}, and no rule integrates what is unbounded near a point within a bound"
    return f"{found}, where it grows like a power −{found.pole:.3g} of the distance: its second moment is infinite"
