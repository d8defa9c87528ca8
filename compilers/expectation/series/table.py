"""E f(u)g(v) of many pairs at any correlation: Mehler's operator between bases that the inputs share.

With F_i(x) = f(m_i + σ_i x), and G_j the same of g, E f(u_i)g(v_j) = ⟨F_i, M_θ G_j⟩, cos θ the correlation
(`operator`). The functions of all inputs nearly span a space of some tens of dimensions: F_i = Σ_a A_ia V_a,
G_j = Σ_b B_jb V′_b. So

    E f(u_i)g(v_j) = A_i S(θ) B_j,   S_ab(θ) = ⟨V_a, M_θ V′_b⟩,

and S is interpolated in θ on panels that grow away from 0, where the scale is 1/σ. M_θ is a contraction: what the bases
leave of a function bounds what they leave of the expectations. For θ > π/2, M_{π−θ} and the mirror image of G.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.series import grid as grids
from netsor.compilers.expectation.series import operator
from netsor.compilers.expectation.series.grid import Family, Grid
from netsor.compilers.expectation.series.interpolate import chebyshev, polynomials

POINTS = 16  # in a panel of θ
RATIO = 3.0  # of its ends
FIRST = 0.7  # the first panel of θ ends at FIRST/σ
HALVINGS = 6  # of a panel on which S is not yet a polynomial
ACCEPT = 1e-11  # its last coefficients
SAMPLE = 192  # inputs from which the bases are made
CUT = 1e-14  # singular values of a basis, relative to the largest
RULE = 2e-13  # what the grid and the operator leave, relative to √(E f² E g²)
CHUNK = 1 << 22  # numbers held at once

Panel = tuple[float, float]


class Features(NamedTuple):
    """The coordinates A `[R, r]` of unit functions, their norms √E f² `[R]`, the largest distance from the basis."""

    a: Tensor
    scale: Tensor
    error: float


class Basis(NamedTuple):
    """V·√weight at the nodes, `[r, N]`, orthonormal, and the largest coordinates of the inputs `[r]`."""

    grid: Grid
    v: Tensor
    size: Tensor

    def features(self, family: Family) -> Features:
        step = max(1, CHUNK // len(self.grid.x))
        parts = [self._some(family.take(slice(i, i + step))) for i in range(0, len(family.sigma), step)]
        a, scale, error = zip(*parts, strict=True)
        return Features(torch.cat(a), torch.cat(scale), max(error))

    def _some(self, family: Family) -> tuple[Tensor, Tensor, float]:
        values, scale = _units(self.grid, family)
        a = values @ self.v.T
        rest = float((values - a @ self.v).square_().sum(1).max().sqrt())
        return a, scale, rest


def _units(grid: Grid, family: Family) -> tuple[Tensor, Tensor]:
    """√weight·F/√E F² and √E F²."""
    values = family.values(grid.x) * grid.root
    scale = values.square().sum(1).sqrt()
    return values / torch.where(scale == 0, 1.0, scale)[:, None], scale


def _sample(family: Family) -> Family:
    """Some inputs between the extremes of σ, and of the mean."""
    if len(family.sigma) <= SAMPLE:
        return family
    orders = [family.sigma.argsort()] + ([] if family.mean is None else [family.mean.argsort()])
    at = torch.linspace(0, len(family.sigma) - 1, SAMPLE // len(orders), device=family.sigma.device).long()
    return family.take(torch.cat([order[at] for order in orders]).unique())


class Table:
    """S(θ) for the functions of two families of inputs; its panels are made when an entry needs them."""

    def __init__(self, grid: Grid, left: Family, right: Family, finest: float) -> None:
        self.grid, self.finest = grid, finest
        self.left, self.right = _basis(grid, left), _basis(grid, right)
        widest = max(float(family.sigma.max()) for family in (left, right))
        self.first = min(math.pi / 2, FIRST / max(widest, 1e-300))
        self.kinked = bool(left.f.kinks or right.f.kinks)
        self.error = RULE
        self._panels: dict[Panel, Tensor | None] = {}

    def panels(self) -> Iterator[Panel]:
        low, high = 0.0, self.first
        while low < math.pi / 2:
            yield low, high
            low, high = high, min(math.pi / 2, RATIO * high)

    def at(self, theta: float) -> Tensor:
        """S(θ) and S(π − θ), `[2, r, r′]`.

        The mirror image of M_θ g is M_θ of the mirror image, so that the nodes x > 0 are enough.
        """
        root, half = self.grid.root, len(self.grid.x) // 2
        right, left = self.right.v / root, self.left.v * root
        moved = operator.applied(self.grid, theta, torch.cat([right, right.flip(1)]).T).unflatten(1, (2, -1))
        above, below = left[:, half:], left.flip(1)[:, half:]
        return torch.stack([above @ moved[:, k] + below @ moved[:, 1 - k] for k in (0, 1)])

    def coefficients(self, panel: Panel) -> Tensor | None:
        """S in Chebyshev polynomials on a panel, `[POINTS, 2, r, r′]`; None where it is not a polynomial yet."""
        if panel not in self._panels:
            points, transform = chebyshev(POINTS, self.grid.x.device)
            values = torch.stack([self.at(float(theta)) for theta in _angles(panel, points)])
            found = torch.tensordot(transform.T, values, 1)
            off = float((found[-2:].abs().sum(0) * self.left.size[:, None] * self.right.size).norm())
            self._panels[panel] = found if off <= ACCEPT else None
            self.error = max(self.error, RULE + off) if off <= ACCEPT else self.error
        return self._panels[panel]


def _angles(panel: Panel, t: Tensor) -> Tensor:
    """θ on a panel, t in [−1, 1]: geometric, linear from θ = 0."""
    low, high = panel
    share = 0.5 * (1 + t)
    return high * share if low == 0 else low * (high / low) ** share


def _places(panel: Panel, theta: Tensor) -> Tensor:
    """t in [−1, 1] of θ on a panel."""
    low, high = panel
    share = theta / high if low == 0 else (theta / low).log_().div_(math.log(high / low))
    return (2 * share - 1).clamp_(-1, 1)


def _middle(panel: Panel) -> float:
    low, high = panel
    return 0.5 * high if low == 0 else math.sqrt(low * high)


def _basis(grid: Grid, family: Family) -> Basis:
    values, _ = _units(grid, _sample(family))
    _, size, v = torch.linalg.svd(values, full_matrices=False)
    v = v[: max(1, int((size > CUT * size[0]).sum()))]
    return Basis(grid, v, (values @ v.T).abs().amax(0))


def table(left: Family, right: Family) -> Table | None:
    """None where no grid of a bearable size resolves the functions."""
    widest = max(float(family.sigma.max()) for family in (left, right))
    finest = min(1.0, FIRST / max(widest, 1e-300)) / (4 * POINTS**2)
    grid = grids.build([_sample(left), _sample(right)], finest)
    return None if grid is None else Table(grid, left, right, finest)


class Entries(NamedTuple):
    """Pairs of inputs (i, j) with their angle in [0, π/2], `[E]`."""

    i: Tensor
    j: Tensor
    theta: Tensor

    def take(self, where: Tensor) -> Entries:
        return Entries(self.i[where], self.j[where], self.theta[where])


def evaluate(table: Table, left: Features, right: Features, entries: Entries, opposite: Tensor) -> Tensor:
    """A_i S(θ) B_j for all entries; `opposite` where the correlation is negative."""
    out = torch.empty_like(entries.theta)
    for side in (0, 1):
        of_side = opposite if side else ~opposite
        for panel in table.panels():
            low, high = panel
            where = (of_side & (entries.theta >= low) & ((entries.theta < high) | (high >= math.pi / 2))).nonzero()[
                :, 0
            ]
            if len(where):
                out[where] = _panel(table, left, right, entries.take(where), panel, side)
    return out


def _panel(
    table: Table, left: Features, right: Features, entries: Entries, panel: Panel, side: int, depth: int = 0
) -> Tensor:
    smooth = panel[0] > 0 or not table.kinked  # at θ beside 0 the grid may not resolve what M_θ makes of a kink
    few = (len(entries.theta) <= POINTS and smooth) or depth > HALVINGS
    found = None if few else table.coefficients(panel)
    if few:
        return _singly(table, left, right, entries, side)
    if found is None:
        middle = _middle(panel)
        upper = entries.theta >= middle
        out = torch.empty_like(entries.theta)
        for mask, half in ((~upper, (panel[0], middle)), (upper, (middle, panel[1]))):
            if bool(mask.any()):
                out[mask] = _panel(table, left, right, entries.take(mask), half, side, depth + 1)
        return out
    t = _places(panel, entries.theta)
    dense = len(left.a) * len(right.a) <= max(len(left.a[0]), 16) * len(t)
    return (_by_products if dense else _by_entries)(found[:, side], left, right, entries, t)


def _singly(table: Table, left: Features, right: Features, entries: Entries, side: int) -> Tensor:
    """A few entries, at their own θ."""
    if table.kinked and float(entries.theta.min()) < 4 * table.finest:
        table.error = max(table.error, 4 * table.finest)
    rows = zip(entries.i.tolist(), entries.j.tolist(), entries.theta.tolist(), strict=True)
    return torch.stack([left.a[i] @ table.at(min(theta, math.pi / 2))[side] @ right.a[j] for i, j, theta in rows])


def _by_products(found: Tensor, left: Features, right: Features, entries: Entries, t: Tensor) -> Tensor:
    """Clenshaw's recurrence; each coefficient of all pairs by products of matrices."""
    at = entries.i * len(right.a) + entries.j
    later = now = torch.zeros_like(t)
    for k in range(len(found) - 1, -1, -1):
        term = ((left.a @ found[k]) @ right.a.T).reshape(-1)[at]
        if k:
            now, later = term.addcmul_(t, now, value=2).sub_(later), now
        else:
            now = term.addcmul_(t, now).sub_(later)
    return now


def _by_entries(found: Tensor, left: Features, right: Features, entries: Entries, t: Tensor) -> Tensor:
    points, r, s = found.shape
    flat = found.permute(1, 0, 2).reshape(r, points * s)
    step = max(1, CHUNK // (points * s))
    out = torch.empty_like(t)
    for k in range(0, len(t), step):
        part = slice(k, k + step)
        spread = (left.a[entries.i[part]] @ flat).unflatten(1, (points, s))
        terms = torch.einsum("eps,es->ep", spread, right.a[entries.j[part]])
        out[part] = (terms * polynomials(t[part], points).T).sum(1)
    return out
