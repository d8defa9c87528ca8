"""Numbers as users give them: variances, means, multipliers, covariances, constants."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import sympy as sp

from netsor import ir
from netsor.errors import ProgramError, user_location


def _error(message: str, code: str, hint: str) -> ProgramError:
    return ProgramError(message, code=code, hint=hint, location=user_location())


def quantity(what: str, value: Any) -> ir.Number:
    """A finite real number as int, float or Fraction: Python's, numpy's, a 0-d array or tensor, a sympy rational.

    ProgramError for what would be lost or is none: a tensor with a gradient, an irrational sympy number (NT108), a
    symbol, an infinity (NT109).
    """
    plain = _plain(what, value)
    if isinstance(plain, int | Fraction):
        return plain
    if isinstance(plain, Decimal | sp.Rational) and _finite(plain):
        return _whole(Fraction(str(plain)))
    if isinstance(plain, float | sp.Float):
        if math.isfinite(plain):
            return float(plain)
        raise _error(f"{what} is {plain}, not a finite number", "NT109", "give a finite real number")
    if isinstance(plain, sp.Basic):
        raise _symbolic(what, plain)
    raise _error(f"{what} is a number, got {_short(value)}", "NT108", "give an int, a float or a Fraction")


def _plain(what: str, value: Any) -> Any:
    """What a 0-d array or tensor holds."""
    tracked(what, value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def tracked(what: str, value: Any) -> None:
    """ProgramError for a tensor whose gradient would be lost."""
    if getattr(value, "requires_grad", False) is True:
        hint = "a variance or multiplier takes a name, var='v', and kernel(x, params={'v': tensor}); or .item() of it"
        raise _error(
            f"{what} is a tensor with requires_grad: a program holds numbers, its gradient is lost", "NT108", hint
        )


def _finite(value: Decimal | sp.Rational) -> bool:
    return value.is_finite() if isinstance(value, Decimal) else bool(value.is_finite)


def _whole(value: Fraction) -> int | Fraction:
    return value.numerator if value.denominator == 1 else value


def _symbolic(what: str, value: sp.Basic) -> ProgramError:
    if value.free_symbols:
        names = ", ".join(sorted(map(str, value.free_symbols)))
        hint = f"put numbers in: .subs({{…}}) for {names}"
        return _error(f"{what} is the sympy expression {value}: a program holds numbers, not symbols", "NT108", hint)
    return _error(f"{what} is {value}, not a rational number", "NT108", "give float(…) of it")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:40]}…"


def nested(what: str, array: Any) -> Any:
    """An array as nested tuples of numbers."""
    tracked(what, array)
    if getattr(array, "shape", ()) != () and hasattr(array, "tolist"):
        array = array.tolist()
    if isinstance(array, list | tuple):
        return tuple(nested(what, a) for a in array)
    if isinstance(array, sp.Expr) and array.is_irrational:
        return array  # the value of a scalar may be any real number
    return quantity(f"an entry of {what}", array)


__all__ = ["nested", "quantity", "tracked"]
