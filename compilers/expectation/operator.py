"""Mehler's operator (M_θ g)(x) = E g(x·cos θ + w·sin θ), w ~ N(0, 1), on functions given by their values on a grid.

E F(x)G(y) of standard x, y with correlation cos θ is ⟨F, M_θ G⟩ under the Gaussian measure. At x it is a
Gaussian of width s = sin θ around x·cos θ. Where the panels in its reach are narrow beside s the nodes resolve it.
Elsewhere the functions are smooth on the scale s (`grid.GROWTH`), and a trapezoid rule in w, which converges
geometrically, reads their polynomials.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from netsor.compilers.expectation.grid import NODES, RANGE, Grid, cardinal

NARROW = 4.0  # widths of a panel, in units of s, whose nodes integrate the Gaussian
REACH, STEP = 8.5, 0.5  # of the trapezoid rule in w


def applied(grid: Grid, theta: float, g: Tensor) -> Tensor:
    """M_θ g at the nodes x > 0, `[N/2, r]`, of functions given at all nodes `[N, r]`, for 0 ≤ θ ≤ π/2."""
    slope, s = math.cos(theta), math.sin(theta)
    half = len(grid.x) // 2
    if s == 0:
        return g[half:]
    centre = slope * grid.x[half:]
    resolved = _widest(grid, centre, REACH * s) <= NARROW * s
    out = torch.empty((half, g.shape[1]), dtype=torch.float64, device=g.device)
    out[resolved] = _direct(grid, centre[resolved], s, g)
    out[~resolved] = _interpolating(grid, centre[~resolved], s) @ g
    return out


def _widest(grid: Grid, centre: Tensor, reach: float) -> Tensor:
    """The widest panel within reach of each centre."""
    low, high = grid.edges[:-1], grid.edges[1:]
    near = (low < centre[:, None] + reach) & (high > centre[:, None] - reach)
    return ((high - low) * near).amax(1)


def _direct(grid: Grid, centre: Tensor, s: float, g: Tensor) -> Tensor:
    if not len(centre):
        return g[:0]
    ends = torch.stack([centre.min() - REACH * s, centre.max() + REACH * s])
    low, high = torch.searchsorted(grid.x, ends).tolist()
    z = (grid.x[low:high] - centre[:, None]).div_(s * math.sqrt(2))
    return z.square_().neg_().exp_() @ (g[low:high] * (grid.w[low:high] / (s * math.sqrt(2 * math.pi)))[:, None])


def _interpolating(grid: Grid, centre: Tensor, s: float) -> Tensor:
    w = torch.arange(-REACH, REACH + STEP / 2, STEP, dtype=torch.float64, device=centre.device)
    weight = STEP * torch.exp(-0.5 * w * w) / math.sqrt(2 * math.pi)
    y = centre[:, None] + s * w
    panel = (torch.searchsorted(grid.edges, y) - 1).clamp(0, len(grid.edges) - 2)
    low, high = grid.edges[panel], grid.edges[panel + 1]
    t = ((2 * y - low - high) / (high - low)).clamp(-1, 1)
    values = cardinal(t) * (weight * (y.abs() < RANGE))[..., None]
    at = panel[..., None] * NODES + torch.arange(NODES, device=centre.device)
    out = torch.zeros((len(centre), len(grid.x)), dtype=torch.float64, device=centre.device)
    return out.scatter_add_(1, at.flatten(1), values.flatten(1))
