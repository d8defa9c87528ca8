"""Arithmetic on expressions that stays small: what sympy would evaluate into a huge or a non-real number is refused.

Each function builds one node by sympy's own constructor. `BoundError` says what was refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import sympy as sp

from netsor.functions import Function
from netsor.functions import exp as exp_function
from netsor.measure import expanded_terms, power_terms

MAX_BITS = 4096
MAX_ROOT_BITS = 1200
MAX_EXPONENT = 100
MAX_CONSTANT = 1000
MAX_TERMS = 100_000


class BoundError(Exception):
    """An expression that is refused, with its code and reason."""

    def __init__(self, message: str, code: str = "NT005") -> None:
        super().__init__(message)
        self.code = code


def add(terms: Sequence[sp.Expr]) -> sp.Expr:
    """Σ terms."""
    return _checked(sp.Add(*terms))


def multiply(factors: Sequence[sp.Expr]) -> sp.Expr:
    """∏ factors."""
    if sum(_bits(c) for f in factors for c in (f, *f.args)) > MAX_BITS:
        raise BoundError("a number of more than a thousand digits")
    if expanded_terms(factors) > MAX_TERMS:
        raise BoundError(f"a product that expands into more than {MAX_TERMS} terms")
    return _checked(sp.Mul(*factors))


def power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    """base ^ exponent."""
    if base.is_zero and exponent.is_number and not exponent.is_nonnegative:
        raise BoundError("division by zero", "NT009")
    if exponent.is_number:
        _bound_power(base, exponent)
    elif exponent.has(sp.Pow) and base.is_number and not exponent.free_symbols:
        raise BoundError("an exponent that is too large")
    result = _checked(sp.Pow(base, exponent))
    if isinstance(result, sp.Pow) and result.exp.is_Rational and abs(result.exp) > MAX_EXPONENT:
        raise BoundError(f"an exponent beyond {MAX_EXPONENT}")
    return result


def _bound_power(base: sp.Expr, exponent: sp.Expr) -> None:
    size = _magnitude(exponent)
    if size > MAX_EXPONENT:
        raise BoundError(f"an exponent beyond {MAX_EXPONENT}")
    bits = max(_bits(c) for c in (base, *base.args))
    if bits * size > MAX_BITS:
        raise BoundError("a number of more than a thousand digits")
    if not exponent.is_Integer and bits > MAX_ROOT_BITS:
        raise BoundError("a root of a number of hundreds of digits")
    if exponent.is_Integer and power_terms(base, int(size)) > MAX_TERMS:
        raise BoundError(f"a power that expands into more than {MAX_TERMS} terms")


def apply(function: Function | Callable[..., sp.Expr], args: Sequence[sp.Expr], exact_only: bool) -> sp.Expr:
    """function(args); with `exact_only` constants must be rational, for functions that look at signs."""
    for a in args:
        if not a.is_number:
            continue
        if exact_only and not a.is_Rational:
            raise BoundError("a function with a kink of an irrational constant: write its value", "NT009")
        if _magnitude(a) > MAX_CONSTANT and (function is exp_function or not isinstance(function, Function)):
            raise BoundError(f"a function of a constant beyond {MAX_CONSTANT}")
    try:
        return _checked(function.sym(*args) if isinstance(function, Function) else function(*args))
    except ValueError:  # sympy's min and max compare real numbers only
        raise BoundError("not a real expression", "NT009") from None


def _bits(value: sp.Expr) -> int:
    return int(value.p).bit_length() + int(value.q).bit_length() - 1 if value.is_Rational else 0


def _magnitude(value: sp.Expr) -> float:
    if value.is_Rational:
        return float(abs(value)) if _bits(value) < 900 else math.inf if abs(value.p) > value.q else 0.0
    size = abs(value.evalf(15))
    return float(size) if size.is_Float and size < 1e300 else math.inf


def _checked(value: sp.Expr) -> sp.Expr:
    if value.is_number:
        if value.is_real is False or value.has(sp.I, sp.nan, sp.zoo, sp.oo, -sp.oo):
            raise BoundError("not a finite real number", "NT009")
        if not value.is_Rational and _magnitude(value) == math.inf:
            raise BoundError("a constant that is too large")
    elif value.has(sp.I, sp.nan, sp.zoo, sp.oo, -sp.oo):
        raise BoundError("not a real expression", "NT009")
    if any(_bits(c) > MAX_BITS for c in (value, *value.args)):
        raise BoundError("a number of more than a thousand digits")
    return value
