"""Mehler's series of a whole block in its own dtype: the coefficients of every input once in a call."""

from __future__ import annotations

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks.law import Variance, as_variance
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import EPS
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.series import hermite
from netsor.compilers.expectation.series.hermite import DEGREES, ROUNDING, Coefficients, coefficients
from netsor.compilers.expectation.terms import Delta, Numeric, Term

STEEP = 8.0
MANY = 4000  # entries of a large block
TARGET = {torch.float32: 1e-8, torch.float64: 1e-14}  # relative to √(E f² E g²)


def applies(f: Fn, g: Fn) -> bool:
    """Are both known by their values alone?"""
    return all(isinstance(t, Numeric) for _, t in (*f.terms, *g.terms))


def serves(f: Fn, g: Fn, k12: Tensor) -> bool:
    """Is the series, or the table, the rule for a block of these functions?

    It is in float32, and in large blocks, too where the closed form, with exponentials on a half-line (elu), takes
    some hundred operations.
    """
    if applies(f, g):
        return True
    atoms = [[t for _, t in h.terms] for h in (f, g)]
    slow = all(any(isinstance(t, Term) and t.gate and t.linear for t in found) for found in atoms)
    large = k12.dtype == torch.float32 or k12.numel() > MANY
    return large and slow and not any(isinstance(t, Delta) for found in atoms for t in found)


def expansion(f: Fn, k: Tensor | Variance, degree: int) -> Coefficients:
    """The coefficients of f for these inputs, in the dtype of k; found once for all inputs."""

    def make(k: Tensor) -> tuple[list[Tensor], tuple[list[float], float]]:
        found = coefficients(f, k.double().clamp(min=0), None, degree)
        return [found.a.to(k.dtype), found.scale], (found.tails, found.error)

    (a, scale), (tails, error) = as_variance(k).values(("hermite", f, degree), make)
    return Coefficients(a, scale, tails, error)


def own(f: Fn, k: Variance) -> Tensor:
    """E f(u)², u ~ N(0, k), from what the coefficients take anyway."""
    found = expansion(f, k, DEGREES[0])
    report("quadrature", 2 * found.error + 8 * EPS)
    return (found.scale**2).to(k.k.dtype)


def series(
    f: Fn,
    g: Fn,
    k11: Variance,
    k22: Variance,
    r: Tensor,
    near: Tensor | None,
    slopes: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None] | None:
    """κ = Σ a_k b_k r^k with enough terms for all entries that are not near |r| = 1; None when there are not enough.

    With `slopes` = (1/√k11, 1/√k22) also E f′g′ = dκ/dr /√(k11·k22), by Price's theorem, from the same pass, where
    that is as accurate as the series of the derivatives.
    """
    size = r.abs() if near is None else r.abs().masked_fill_(near, 0.0)
    largest = float(size.max()) if size.numel() else 0.0
    terms = _terms(f, g, k11, k22, largest, r.dtype)
    if terms is None:
        return None
    last, degree, error = terms
    found = None if slopes is None else _terms(f.derivative, g.derivative, k11, k22, largest, r.dtype)
    if found is not None:
        last, degree, error = max(last, found[0] + 1), max(degree, found[1]), max(error, found[2])
    left, right = expansion(f, k11, degree), expansion(g, k22, degree)
    report("hermite", error)
    if slopes is None or found is None or last > degree or not (_steep(f, k11, degree) and _steep(g, k22, degree)):
        return hermite.horner(left.a[: terms[0] + 1], right.a[: terms[0] + 1], r), None
    value, slope = hermite.horner_with_slope(left.a[: last + 1], right.a[: last + 1], r)
    return value, slope.mul_(slopes[0]).mul_(slopes[1])


def _terms(
    f: Fn, g: Fn, k11: Variance, k22: Variance, largest: float, dtype: torch.dtype
) -> tuple[int, int, float] | None:
    """The last k that is needed, the degree of the coefficients that have it, and the error; None without enough."""
    for degree in DEGREES if f.centred and g.centred else DEGREES[:1]:
        left, right = expansion(f, k11, degree), expansion(g, k22, degree)
        for k, (s, t) in enumerate(zip(left.tails, right.tails, strict=True)):
            bound = largest ** (k + 1) * s * t
            if bound <= TARGET[dtype]:
                return k, degree, bound + left.error + right.error + ROUNDING
    return None


def _steep(f: Fn, k: Variance, degree: int) -> bool:
    """Is √E f² at most some times √(k E f′²), so that √(k + 1) a_{k+1}/√k has the digits of the coefficients of f′?"""
    size, slope = expansion(f, k, degree).scale, expansion(f.derivative, k, degree).scale
    return bool((size <= STEEP * k.k.clamp(min=0).sqrt() * slope).all())
