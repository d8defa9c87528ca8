"""Piecewise linear functions, found by their values, and their expectation of one variable in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.gauss import cdf

TOLERANCE = 1e-13
READ, FAR = 400, 5000.0


class Piece(NamedTuple):
    """x ↦ slope·x + offset from `low` to the next piece."""

    low: float
    slope: float
    offset: float


def pieces(call: Callable[[Tensor], Tensor], kinks: tuple[float, ...]) -> tuple[Piece, ...]:
    """The pieces between the kinks when all are linear; none otherwise."""
    ends = [-math.inf, *kinks, math.inf]
    found = [_piece(call, low, high) for low, high in pairwise(ends)]
    return tuple(p for p in found if p) if all(found) else ()


def _piece(call: Callable[[Tensor], Tensor], low: float, high: float) -> Piece | None:
    x = _points(low, high)
    y = call(x)
    slope = (y[-1] - y[0]) / (x[-1] - x[0])
    first = x.abs().argmin() if math.isinf(low) or math.isinf(high) else 0
    offset = y[first] - slope * x[first]
    size = y.abs() + (slope * x).abs() + offset.abs()
    linear = bool(((y - offset - slope * x).abs() <= TOLERANCE * size).all())
    return Piece(low, float(slope), float(offset)) if linear else None


def _points(low: float, high: float) -> Tensor:
    """Points at which a piece is read, dense at its ends (or at 0), up to FAR away; none is a fraction."""
    shares = (torch.arange(READ, dtype=torch.float64) + 1 / math.pi) / READ
    if math.isinf(low) and math.isinf(high):
        return torch.cat([-FAR * shares.flip(0) ** 3, FAR * shares**3])
    if math.isinf(low):
        return high - FAR * shares.flip(0) ** 3
    if math.isinf(high):
        return low + FAR * shares**3
    return low + (high - low) * shares


class Hinge(NamedTuple):
    """jump·step(v) + slope·relu(v), v = side·(x − at): what a kink adds beyond it, seen from the mean."""

    side: Tensor
    jump: Tensor
    slope: float
    z: Tensor  # −|mean − at|/σ
    sigma: Tensor

    @property
    def density(self) -> Tensor:
        return torch.exp(-0.5 * self.z * self.z) / math.sqrt(2 * math.pi)

    @property
    def mean(self) -> Tensor:
        below = cdf(self.z)
        return self.jump * below + self.slope * self.sigma * (self.z * below + self.density)


class Hinges(NamedTuple):
    """f = level + slope·(x − m) + the hinges: the piece in which the mean m lies, and the kinks on either side.

    Nothing cancels where the kinks are far in units of σ.
    """

    level: Tensor
    slope: Tensor
    sigma: Tensor
    hinges: list[Hinge]

    @property
    def size(self) -> Tensor:
        """A bound of √(E f²), and of what rounding is relative to: the parts without their signs."""
        total = (self.level.square() + (self.slope * self.sigma).square()).sqrt()
        for h in self.hinges:
            below = cdf(h.z)
            total = total + h.jump.abs() * below.sqrt() + abs(h.slope) * h.sigma * (below * (1 + h.z * h.z)).sqrt()
        return total


def hinges(found: tuple[Piece, ...], k: Tensor, m: Tensor) -> Hinges:
    """The pieces as seen from N(m, k)."""
    sigma = k.sqrt() + torch.zeros_like(m)
    level = found[0].slope * m + found[0].offset + torch.zeros_like(sigma)
    slope = torch.full_like(sigma, found[0].slope)
    parts = []
    for before, piece in pairwise(found):
        gap = m - piece.low
        past = gap > 0
        level = torch.where(past, piece.slope * m + piece.offset, level)
        slope = torch.where(past, piece.slope, slope)
        far = gap.abs() / sigma.clamp(min=1e-300)
        z = -torch.where(sigma > 0, far, torch.sign(gap).abs() * 40).clamp(max=40)
        change = piece.slope - before.slope
        jump = _rounded(piece.offset + piece.slope * piece.low, before.offset + before.slope * piece.low)
        side = torch.where(past, -1.0, 1.0).to(sigma)
        parts.append(Hinge(side, side * jump, change, z + torch.zeros_like(sigma), sigma))
    return Hinges(level, slope, sigma, parts)


def _rounded(a: float, b: float) -> float:
    """a − b, and 0 where that is what the pieces' own rounding leaves."""
    return a - b if abs(a - b) > 100 * TOLERANCE * (abs(a) + abs(b)) else 0.0


def mean(found: tuple[Piece, ...], k: Tensor, m: Tensor) -> Tensor:
    """E g(v), v ~ N(m, k): with z = (m − c)/√k for a kink c, its jump·Φ(z) and the change of slope times
    (m − c)·Φ(z) + √k·φ(z), each on the side of c where the mean is not.
    """
    on = hinges(found, k, m)
    total = on.level
    for hinge in on.hinges:
        total = total + hinge.mean
    return total
