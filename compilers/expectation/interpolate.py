"""Quantities of one input are functions of its standard deviation: many inputs share one Chebyshev interpolant.

On [a, b] a smooth F is Σ_j c_j T_j; with n Chebyshev points the remainder is of the size of the last c_j. Within an
octave of σ some tens of points give expectations to rounding, whatever the number of inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from netsor.compilers.expectation.gauss import EPS

POINTS = (12, 24, 40)
FEWEST = 3 * POINTS[0]  # σ for which it is worth the while
ACCEPT = 32 * EPS  # the last coefficients, relative to the scale

Family = Callable[[Tensor], Tensor]


def interpolated(of: Family, sigma: Tensor) -> tuple[Tensor, float]:
    """F at every σ `[N]`, as `[Q, N]`, and the error relative to the scale.

    `of` maps σ `[M]` to `[Q, M]`; its first row is the positive scale of all rows.
    """
    if len(sigma) < FEWEST:
        return of(sigma), 0.0
    octave = torch.frexp(sigma).exponent
    found, error = None, 0.0
    for j in octave.unique():
        where = (octave == j).nonzero()[:, 0]
        part, off = _octave(of, sigma[where])
        error = max(error, off)
        if found is None:
            found = part.new_empty((len(part), len(sigma)))
        found[:, where] = part
    assert found is not None
    return found, error


def _octave(of: Family, sigma: Tensor) -> tuple[Tensor, float]:
    low, high = (float(x) for x in torch.aminmax(sigma))
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    for points in POINTS:
        if low == 0 or len(sigma) < 3 * points:
            break
        x, transform = chebyshev(points, sigma.device)
        values = of(middle + half * x)
        coefficients = values @ transform
        off = float((coefficients[:, -2:].abs().sum(1) / values[0].min()).max())
        if off <= ACCEPT:
            t = (sigma - middle) / half if half else torch.zeros_like(sigma)
            return coefficients @ polynomials(t.clamp(-1, 1), points), off
    return of(sigma), 0.0


@lru_cache(maxsize=16)
def chebyshev(points: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The points on [−1, 1], and the matrix that takes values at them to coefficients."""
    angle = (torch.arange(points, dtype=torch.float64, device=device) + 0.5) * (math.pi / points)
    order = torch.arange(points, dtype=torch.float64, device=device)
    transform = torch.cos(angle[:, None] * order) * (2 / points)
    transform[:, 0] /= 2
    return torch.cos(angle), transform


def polynomials(t: Tensor, points: int) -> Tensor:
    """T_0 … T_{points−1} at t, `[points, N]`."""
    rows = [torch.ones_like(t), t]
    while len(rows) < points:
        rows.append(2 * t * rows[-1] - rows[-2])
    return torch.stack(rows)
