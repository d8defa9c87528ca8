"""Polynomials in independent centred Gaussian variables, with exact rational coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod

import sympy as sp

from netsor.compilers.limit.ring import ONE, NotPolynomial, Sum
from netsor.functions import exact as as_exact


class Polynomial(Sum[Fraction]):
    """Σ coefficient · Π g_iᵏ, without functions."""

    __slots__ = ()
    MOST = 20_000

    @staticmethod
    def constant(c: Fraction | int) -> Polynomial:
        return Polynomial({ONE: Fraction(c)})

    @staticmethod
    def variable(i: int) -> Polynomial:
        return Polynomial({(((i, 1),), ()): Fraction(1)})


class Gaussians:
    """Independent centred Gaussian variables by number, and expectations of polynomials in them (Wick)."""

    def __init__(self) -> None:
        self.variances: list[Fraction] = []

    zero = Polynomial({})
    tiny, passes = 0.0, 1
    constant = staticmethod(Polynomial.constant)

    @staticmethod
    def number(value: object) -> Fraction:
        return number(value)

    @staticmethod
    def negligible(size: Fraction, whole: Fraction) -> bool:
        """Is nothing left of a variance?"""
        return size == 0

    @staticmethod
    def function(
        expr: sp.Expr, args: Mapping[sp.Symbol, Polynomial], params: Mapping[sp.Symbol, Fraction]
    ) -> Polynomial:
        """The value of an expression whose symbols have these values."""
        total = Polynomial({})
        for powers, c in polynomial_coefficients(expr, list(args), params):
            part = Polynomial.constant(c)
            for a, k in zip(args.values(), powers, strict=False):
                part = part * a**k if k else part
            total = total + part
        return total

    def fresh(self, variance: Fraction) -> Polynomial:
        if variance == 0:
            return Polynomial({})
        self.variances.append(variance)
        return Polynomial.variable(len(self.variances) - 1)

    def mean(self, p: Polynomial) -> Fraction:
        """E Π g_iᵏ = Π (k − 1)!! varᵏᐟ² for even k, zero when one is odd."""
        even = ((m, c) for (m, _), c in p.terms.items() if all(k % 2 == 0 for _, k in m))
        return sum((c * prod((self._moment(i, k) for i, k in m), start=Fraction(1)) for m, c in even), Fraction(0))

    def product(self, p: Polynomial, q: Polynomial) -> Fraction:
        return self.mean(p * q)

    def _moment(self, i: int, k: int) -> Fraction:
        return self.variances[i] ** (k // 2) * prod(range(1, k, 2))


def number(value: object) -> Fraction:
    """A rational from a program's number, a float by its shortest decimal form; refuses irrational ones."""
    exact = as_exact(value)
    if not exact.is_Rational:
        raise NotPolynomial(f"{exact} is not rational")
    return Fraction(int(exact.p), int(exact.q))


def polynomial_coefficients(
    expr: sp.Expr, args: Sequence[sp.Symbol], params: Mapping[sp.Symbol, Fraction]
) -> list[tuple[tuple[int, ...], Fraction]]:
    """Powers of the arguments and their coefficients, parameters put in."""
    values = {s: sp.Rational(v.numerator, v.denominator) for s, v in params.items()}
    body = sp.sympify(expr).xreplace(values)
    if not args:
        return [((), number(body))]
    try:
        poly = sp.Poly(body, *args)
    except sp.PolynomialError:
        raise NotPolynomial(f"{body} is not a polynomial") from None
    return [(tuple(powers), number(c)) for powers, c in poly.terms()]


__all__ = ["Gaussians", "NotPolynomial", "Polynomial", "number", "polynomial_coefficients"]
