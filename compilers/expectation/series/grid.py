"""A grid on the line on which the functions x ↦ f(m + σx) of many inputs are resolved together.

Gauss–Legendre panels on [−9, 9], symmetric about 0, halved until their polynomials reproduce every function between
the nodes, and then until the width of a panel grows by at most a quarter of the distance from a finer one: a Gaussian
of any width in front of a panel is then either resolved by the nodes, or narrower than the functions' scale there.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.quadrature import nodes

RANGE = 9.0
NODES = 12
MOST = 320  # panels
GROWTH = 1 / 4
RESOLVED = 1e-12  # the error between the nodes, weighted by the root of the density, relative to √E f²
FEW = 24  # kinks of all inputs that are worth an edge each


class Family(NamedTuple):
    """The functions x ↦ f(m + σx), σ `[R]`; a mean None is zero."""

    f: Fn
    sigma: Tensor
    mean: Tensor | None

    def values(self, x: Tensor) -> Tensor:
        """`[R, *x.shape]`."""
        tail = [1] * x.dim()
        scaled = self.sigma.reshape(-1, *tail) * x
        return self.f.call(scaled if self.mean is None else scaled + self.mean.reshape(-1, *tail))

    def take(self, rows: Tensor | slice) -> Family:
        return Family(self.f, self.sigma[rows], None if self.mean is None else self.mean[rows])

    def centres(self) -> Tensor:
        """The kinks, in units of x."""
        mean = torch.zeros_like(self.sigma) if self.mean is None else self.mean
        found = [((c - mean) / self.sigma)[self.sigma > 0] for c in self.f.kinks]
        out = torch.cat(found) if found else self.sigma.new_zeros(0)
        return out[out.abs() < RANGE].unique()


class Grid(NamedTuple):
    """Panels between the edges `[P + 1]`, their nodes x `[N]`, and the weights w with ∫F(x)dx = Σ w·F(x)."""

    edges: Tensor
    x: Tensor
    w: Tensor

    @property
    def root(self) -> Tensor:
        """√(w·density): E F² = Σ (root·F)²."""
        return (self.w * torch.exp(-0.5 * self.x**2) / math.sqrt(2 * math.pi)).sqrt()


@lru_cache(maxsize=4)
def legendre(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes on [−1, 1], weights, and the matrix that takes values at the nodes to Legendre coefficients."""
    x, w = nodes.legendre(NODES)
    basis = np.polynomial.legendre.legvander(x, NODES - 1)
    transform = (basis * w[:, None]) * (np.arange(NODES) + 0.5)
    return torch.tensor(x, device=device), torch.tensor(w, device=device), torch.tensor(transform, device=device)


def cardinal(t: Tensor) -> Tensor:
    """The Lagrange polynomials of the nodes at t in [−1, 1], `[*t.shape, NODES]`."""
    rows = [torch.ones_like(t), t]
    for k in range(1, NODES - 1):
        rows.append(((2 * k + 1) * t * rows[-1] - k * rows[-2]) / (k + 1))
    return torch.stack(rows, -1) @ legendre(t.device)[2].T


def filled(edges: Tensor) -> Grid:
    t, w, _ = legendre(edges.device)
    half = 0.5 * (edges[1:] - edges[:-1])[:, None]
    return Grid(edges, (0.5 * (edges[1:] + edges[:-1])[:, None] + half * t).reshape(-1), (half * w).reshape(-1))


def build(families: list[Family], smoothing: float) -> Grid | None:
    """The grid for all the families; None where it would be too fine, or where a function outgrows the range.

    Kinks lie on edges, with panels down to the width `smoothing` at them.
    """
    kinks = torch.cat([family.centres() for family in families])
    if len(kinks) > FEW or any(bool(_outgrows(family).any()) for family in families):
        return None
    edges = torch.arange(-RANGE, RANGE + 0.5, 1.0, dtype=torch.float64, device=kinks.device)
    edges = torch.cat([edges, kinks, -kinks]).unique()
    while len(edges) <= MOST:
        width = edges[1:] - edges[:-1]
        coarse = _unresolved(families, edges) & (width > 1e-9)
        if len(kinks):
            coarse |= _beside(edges, kinks) & (width > smoothing)
        coarse |= coarse.flip(0) | (width > 1.001 * _allowed(edges))
        if not bool(coarse.any()):
            return filled(edges)
        middles = 0.5 * (edges[1:] + edges[:-1])[coarse]
        edges = torch.cat([edges, middles]).sort().values
    return None


def _outgrows(family: Family) -> Tensor:
    """Is f²·density still felt at the ends of the range? What lies beyond is 4e-14 of E f² otherwise."""
    ends = torch.tensor([-RANGE, RANGE], dtype=torch.float64, device=family.sigma.device)
    inner = torch.linspace(-3, 3, 25, dtype=torch.float64, device=family.sigma.device)
    size = family.values(inner).square().mean(-1).sqrt()
    return ~((family.values(ends).abs() * torch.exp(-0.25 * ends**2)).amax(-1) <= 1e-6 * size + 1e-300)


def _unresolved(families: list[Family], edges: Tensor) -> Tensor:
    """Panels on which a polynomial through the nodes misses a function, `[P]`."""
    test = torch.tensor([-0.99, -0.52, -0.06, 0.47, 0.97], dtype=torch.float64, device=edges.device)
    middle, half = 0.5 * (edges[1:] + edges[:-1])[:, None], 0.5 * (edges[1:] - edges[:-1])[:, None]
    weight = (torch.exp(-0.25 * (middle.abs() - half).clamp(min=0) ** 2) * half.sqrt())[:, 0]
    grid = filled(edges)
    bad = torch.zeros(len(middle), dtype=torch.bool, device=edges.device)
    for family in families:
        values = family.values(grid.x)
        scale = (values * grid.root).square().sum(-1, keepdim=True).sqrt()
        off = (family.values(middle + half * test) - values.unflatten(1, (-1, NODES)) @ cardinal(test).T).abs().amax(-1)
        bad |= ~(off * weight <= RESOLVED * scale + 1e-300).all(0)
    return bad


def _beside(edges: Tensor, kinks: Tensor) -> Tensor:
    """Panels that end at a kink, or at the mirror image of one."""
    at = torch.isin(edges, torch.cat([kinks, -kinks]))
    return at[1:] | at[:-1]


def _allowed(edges: Tensor) -> Tensor:
    """The width that a finer panel at a distance leaves to each panel."""
    low, high = edges[:-1], edges[1:]
    gap = torch.maximum(low[:, None] - high, low - high[:, None]).clamp(min=0)
    return (2 * (high - low) + GROWTH * gap).amin(1)
