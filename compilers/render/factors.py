"""Numbers, and the factors of a product, as people write them."""

from __future__ import annotations

import re
from typing import cast

import sympy as sp

from netsor.compilers.derive.entries.values import Fn, Num, Value

LONGEST_NUMBER = 20


def number_text(value: sp.Expr) -> str:
    """A number: short decimals as such, fractions of a page's width to double precision, anything else exactly."""
    if value.is_Integer:
        return str(value)
    if value.is_Rational:
        decimal = f"{float(value):.6g}"
        exact = str(value) if len(str(value)) <= LONGEST_NUMBER else repr(float(value))
        return decimal if "e" not in decimal and sp.Rational(decimal) == value else exact
    return str(value).replace("**", "^")


def merged(factors: list[Value]) -> list[Value]:
    """A decimal in front of one over something in its numerator: 2·1/√n as 2/√n."""
    number = factors[0] if factors and isinstance(factors[0], Num) else None
    place = next((i for i, f in enumerate(factors) if isinstance(f, Fn) and sp.numer(f.expr) == 1), None)
    if number is None or place is None or number.value == -1:
        return factors
    text, inverse = number_text(number.value), cast(Fn, factors[place])
    if re.fullmatch(r"-?[\d.]+", text) is None:
        return factors
    whole = Fn(sp.Symbol(text) * inverse.expr, inverse.args)
    return [whole, *factors[1:place], *factors[place + 1 :]]
