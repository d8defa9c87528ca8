"""Expectations of pairs without a branch, for blocks that are compiled as one (`compilers.native`).

With r = k12/√(k11·k22), u = 1 − |r|, s = √u, and the functions P and Q of u that are smooth on [0, 1],
arccos|r| = s·P(u) and √(1 − r²) − |r|·arccos|r| = s³·Q(u), so that with θ = arccos r

E relu·relu = √(k11·k22)·s³·Q(u)/2π + max(k12, 0)/2,  E step·step = (π − θ)/2π,  E erf·erf = (2/π)(π/2 − θ).

With v = r², arcsin r = r·R(v) for |r| ≤ ½, so that E erf·erf and E sgn·sgn keep their digits where they are small. One
square root each; nothing cancels at either end. P, Q and R are polynomials to the precision of the dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NEAR = {torch.float32: 1e-3, torch.float64: 1e-5}  # 1 − |r| below this is near
TOLD = 1e-8  # the same in float64 where the digits of float32 are enough
POINTS = {torch.float32: 8, torch.float64: 19}  # Chebyshev points of P; one fewer for Q
INNER = {torch.float32: 6, torch.float64: 15}  # of R


# ---------------------------------------------------------------- polynomials

_known: dict[torch.dtype, tuple[list[float], list[float], list[float]]] = {}


def polynomials(dtype: torch.dtype) -> tuple[list[float], list[float], list[float]]:
    """P and Q in powers of t = 2u − 1, R in powers of 8v − 1, lowest first."""
    if dtype not in _known:
        _known[dtype] = _polynomials(POINTS[dtype], INNER[dtype])
    return _known[dtype]


def _polynomials(points: int, inner: int) -> tuple[list[float], list[float], list[float]]:
    import mpmath

    def p(u: Any) -> Any:
        return mpmath.acos(1 - u) / mpmath.sqrt(u)

    def q(u: Any) -> Any:
        return (mpmath.sqrt(u * (2 - u)) - (1 - u) * mpmath.acos(1 - u)) / (u * mpmath.sqrt(u))

    def r(u: Any) -> Any:  # u = 4v
        return mpmath.asin(mpmath.sqrt(u) / 2) / (mpmath.sqrt(u) / 2)

    with mpmath.workdps(50):
        return _in_powers(mpmath, p, points), _in_powers(mpmath, q, points - 1), _in_powers(mpmath, r, inner)


def _in_powers(mp: Any, f: Callable[[Any], Any], count: int) -> list[float]:
    """The interpolant of f((1 + t)/2) at `count` Chebyshev points, in powers of t."""
    nodes = [mp.cos(mp.pi * (2 * j + 1) / (2 * count)) for j in range(count)]
    powers = mp.matrix([[x**i for i in range(count)] for x in nodes])
    return [float(c) for c in mp.lu_solve(powers, mp.matrix([f((1 + x) / 2) for x in nodes]))]


def _horner(coefficients: list[float], t: Tensor) -> Tensor:
    out = coefficients[-1] * t + coefficients[-2]
    for c in coefficients[-3::-1]:
        out = out * t + c
    return out


# ---------------------------------------------------------------- transforms


class Geometry:
    """r and what the transforms have in common; `size` is |r|."""

    def __init__(self, k12: Tensor, inverse1: Tensor, inverse2: Tensor) -> None:
        self.k12 = k12
        self.r = k12 * inverse1 * inverse2
        self.size = self.r.abs()
        self.u = (1 - self.size).clamp(min=0)
        self.root = self.u.sqrt()
        self.t = 2 * self.u - 1
        self.angle = self.root * _horner(polynomials(k12.dtype)[0], self.t)  # arccos|r|

    def relu(self, root1: Tensor, root2: Tensor) -> Tensor:
        """`root1`·`root2` is √(k11·k22)/2π."""
        arch = self.u * self.root * _horner(polynomials(self.k12.dtype)[1], self.t)
        return arch * (root1 * root2) + 0.5 * self.k12.clamp(min=0)

    def step(self) -> Tensor:
        return torch.where(self.r >= 0, math.pi - self.angle, self.angle) * (0.5 / math.pi)

    def erf(self) -> Tensor:
        rest = 1 - self.angle * (2 / math.pi)
        inner = self.r * _horner(polynomials(self.k12.dtype)[2], 8 * self.r.square().clamp(max=0.25) - 1)
        return torch.where(self.size <= 0.5, inner * (2 / math.pi), torch.where(self.r >= 0, rest, -rest))


# ---------------------------------------------------------------- blocks


class TracedBlock:
    """A block as the formulas want it (`formulas`), without a branch."""

    k11: Any
    k22: Any
    k12: Any
    noise: tuple[float, float]
    geometry: Geometry

    @property
    def complement(self) -> Tensor:
        """1 − r², a tensor of its own."""
        return self.geometry.u * (2 - self.geometry.u)

    @property
    def opposite(self) -> Tensor:
        """−r."""
        return -self.geometry.r

    def product(self, x: Any, y: Any) -> Any:
        return x * y

    def step(self) -> Tensor:
        return self.geometry.step()

    def erf(self) -> Tensor:
        return self.geometry.erf()

    def gaussian(self) -> Tensor:
        one, two = ((t / (k + t)).sqrt() for k, t in zip((self.k11, self.k22), self.noise, strict=True))
        return self.complement.rsqrt() * (one * two)
