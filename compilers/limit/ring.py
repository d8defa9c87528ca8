"""Sums of products of independent Gaussian variables and of functions of them, by their coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Generic, Self, TypeVar

C = TypeVar("C", Fraction, float)

Powers = tuple[tuple[Any, int], ...]  # (a variable's number, or a function, power) in order
Monomial = tuple[Powers, Powers]  # of variables, and of functions
ONE: Monomial = ((), ())


class NotPolynomial(Exception):
    """A line that has no exact treatment."""


class Sum(Generic[C]):
    """Σ coefficient · Π g_iᵏ · Π F_jᵏ, with exact or with floating coefficients."""

    __slots__ = ("terms",)
    MOST: ClassVar[int]  # pairs of terms in one product

    def __init__(self, terms: Mapping[Monomial, C]) -> None:
        self.terms: dict[Monomial, C] = {m: c for m, c in terms.items() if c}

    def __add__(self, other: Self) -> Self:
        total = dict(self.terms)
        for m, c in other.terms.items():
            total[m] = total[m] + c if m in total else c
        return type(self)(total)

    def scaled(self, c: C) -> Self:
        return type(self)({m: c * a for m, a in self.terms.items()})

    def __mul__(self, other: Self) -> Self:
        if len(self.terms) * len(other.terms) > self.MOST:
            raise NotPolynomial("too many terms")
        total: dict[Monomial, C] = {}
        for (p, f), a in self.terms.items():
            for (q, g), b in other.terms.items():
                key = (joined(p, q), joined(f, g))
                total[key] = total[key] + a * b if key in total else a * b
        return type(self)(total)

    def __pow__(self, k: int) -> Self:
        """For k ≥ 1."""
        return self if k == 1 else self ** (k - 1) * self


def joined(m: Powers, n: Powers) -> Powers:
    """The powers of a product, in order."""
    if not m or not n:
        return m or n
    powers = dict(m)
    for x, k in n:
        powers[x] = powers.get(x, 0) + k
    return tuple(sorted(powers.items(), key=lambda item: item[0] if isinstance(item[0], int) else item[0].key))
