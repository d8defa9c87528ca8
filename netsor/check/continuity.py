"""Continuity of functions of scalars at a point: what parameter control asks of sign(θ) at −1 or √|θ| at 0."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from netsor.check.bounds import bound
from netsor.functions import Head

_EVERYWHERE = (
    sp.sin, sp.cos, sp.exp, sp.sinh, sp.cosh, sp.tanh, sp.erf, sp.atan, sp.asinh, sp.Abs, sp.Add, sp.Mul, sp.Max,
    sp.Min,
)  # fmt: skip


def continuous(e: sp.Expr, at: Mapping[sp.Symbol, sp.Rational]) -> bool:
    """Proven: composed of functions that are continuous, and real nearby, at the values that their arguments have."""
    if not e.args:
        return True
    if not all(continuous(a, at) for a in e.args):
        return False
    value = e.args[0].xreplace(dict(at))
    if isinstance(e, Head):
        return _head(e, value)
    if isinstance(e, _EVERYWHERE):
        return True
    if isinstance(e, sp.Pow) and e.exp.is_Rational:
        root = e.exp.is_Integer or bool(value.is_positive) or (e.exp > 0 and bound(e.base, {}).low >= 0)
        return bool(root and (e.exp > 0 or value.is_nonzero))
    if isinstance(e, sp.log):
        return bool(value.is_positive)
    return isinstance(e, sp.sign | sp.Heaviside) and bool(value.is_nonzero)


def _head(e: Head, value: sp.Expr) -> bool:
    """A built-in function, its value away from the points where it jumps."""
    if e.spec.user or e.spec.numeric or e.spec.arity != 1 or e.spec.origin is not None:
        return False
    return not e.spec.jumps or (value.is_Rational and all(value != sp.Rational(str(k)) for k in e.spec.kinks))
