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


class Piece(NamedTuple):
    """x ↦ slope·x + offset from `low` to the next piece."""

    low: float
    slope: float
    offset: float


def pieces(call: Callable[[Tensor], Tensor], kinks: tuple[float, ...]) -> tuple[Piece, ...]:
    """The pieces between the kinks when all are linear; none otherwise."""
    if not kinks:
        return ()
    ends = [-math.inf, *kinks, math.inf]
    found = [_piece(call, low, high) for low, high in pairwise(ends)]
    return tuple(p for p in found if p) if all(found) else ()


def _piece(call: Callable[[Tensor], Tensor], low: float, high: float) -> Piece | None:
    shares = torch.tensor([0.11, 0.27, 0.42, 0.63, 0.81, 0.93], dtype=torch.float64)
    if math.isinf(low):
        x = high - 50 * shares**3
    elif math.isinf(high):
        x = low + 50 * shares**3
    else:
        x = low + (high - low) * shares
    y = call(x)
    slope = (y[-1] - y[0]) / (x[-1] - x[0])
    offset = y[0] - slope * x[0]
    size = y.abs().max() + (slope * x).abs().max() + 1e-300
    linear = bool(((y - offset - slope * x).abs() <= TOLERANCE * size).all())
    return Piece(low, float(slope), float(offset)) if linear else None


def mean(found: tuple[Piece, ...], k: Tensor, m: Tensor) -> Tensor:
    """E g(v), v ~ N(m, k): the first piece, and for each kink c, z = (m − c)/√k, the jump·Φ(z) and the change of slope
    times (m − c)·Φ(z) + √k·φ(z).
    """
    sigma = k.sqrt()
    total = (found[0].slope * m + found[0].offset) + torch.zeros_like(sigma)
    for before, piece in pairwise(found):
        gap = m - piece.low
        z = torch.where(sigma > 0, gap / sigma.clamp(min=1e-300), torch.sign(gap) * 40).clamp(-40, 40)
        slope = piece.slope - before.slope
        jump = piece.offset - before.offset + slope * piece.low
        density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        total = total + jump * cdf(z) + slope * (gap * cdf(z) + sigma * density)
    return total
