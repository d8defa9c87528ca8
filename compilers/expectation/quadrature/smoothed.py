"""E g(x + s·w), w ~ N(0, 1): a function known by its values, smoothed over a distance s, for many x and s.

It is an analytic function of x and s. Within an octave of s it is interpolated on panels in x: as wide as s near a
kink, growing with the distance from it up to the panels of g itself.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Call, Fn
from netsor.compilers.expectation.gauss import ratio
from netsor.compilers.expectation.quadrature.panels import FAR, Profile, View, panels, walk
from netsor.compilers.expectation.series.interpolate import chebyshev, polynomials

POINTS = 16  # in a panel
TURN = 4.7  # s, the width of a panel on which a smoothed kink is integrated
ENOUGH, MOST = 3e-11, 8  # error, and parts of the panels of g for which it is wanted
CHUNK = 1 << 12  # points taken at once


def direct(call: Call, seen: Profile, x: Tensor, s: Tensor, reach: float, level: int = 0) -> Tensor:
    """E g(x + s·w), a quadrature each; x and s flat, `[N]`."""
    out = torch.empty_like(x)
    for i in range(0, len(x), CHUNK):
        view = View(seen, x[i : i + CHUNK], s[i : i + CHUNK])
        found = panels([view], reach, level)
        z, w = found.nodes()
        sums = (w * call(found.inside(view, z))).sum(1)
        out[i : i + CHUNK] = torch.zeros_like(view.mean).index_add_(0, found.entry, sums)
    return out


class Blurred:
    """For `panels`: E g(x + s·w) at x = mean + slope·z, one for each entry."""

    def __init__(self, view: View, s: Tensor) -> None:
        self.view = view
        self.turn = ratio(TURN * s, view.slope)
        centre = ratio(view.profile.kinks[:, None] - view.mean, view.slope).clamp_(-FAR, FAR)
        self.centre = torch.where(view.slope > 0, centre, FAR)  # [C, E]
        self.layer = ratio(view.profile.layer * s, view.slope).clamp_(1e-12, FAR / 2)

    def step(self, z: Tensor) -> Tensor:
        """Some s within the layers beside the kinks, at least as much elsewhere."""
        out = torch.maximum(self.view.step(z), self.turn)
        for centre in self.centre:
            gap = (z - centre).div_(self.layer)
            inside = (gap > -1 - 1e-4) & (gap < 1 - 1e-4)
            out = torch.where(inside, torch.minimum(out, self.turn), out)
        return out

    def ends(self) -> Tensor:
        """Where the layers begin and end, `[2C, E]`."""
        return torch.cat([self.centre - self.layer, self.centre + self.layer])


class Smoothed(NamedTuple):
    """E g(x + s·w) for s between `low` and `high`, and x between the outermost edges."""

    edges: Tensor  # [K + 1]
    powers: Tensor  # of t in [−1, 1] on every panel: [POINTS, S, K], S Chebyshev coefficients in log s
    low: float
    high: float
    error: float  # the last coefficients, relative to the largest value on the panel, or to √E g²

    def at(self, s: Tensor) -> Tensor:
        """The polynomials for every s `[E]`: `[POINTS, E, K]`."""
        count = self.powers.shape[1]
        t = (s / self.low).log_().mul_(2 / math.log(self.high / self.low)).sub_(1) if count > 1 else s
        mixed = polynomials(t.clamp(-1, 1), count).T if count > 1 else torch.ones_like(s)[:, None]
        return mixed @ self.powers

    def values(self, polynomial: Tensor, entry: Tensor, x: Tensor) -> Tensor:
        """At x `[P, N]`, whose rows belong to the entries `[P]` of `at`."""
        low, high = self.edges[:-1], self.edges[1:]
        last = len(low) - 1
        panel = torch.searchsorted(self.edges, x, out_int32=True).sub_(1).clamp_(0, last)
        scale, shift = 2 / (high - low), -(high + low) / (high - low)
        place = panel.view(-1)
        t = shift.index_select(0, place).addcmul_(x.view(-1), scale.index_select(0, place)).clamp_(-1, 1)
        panel.add_((entry[:, None] * (last + 1)).int())
        flat = polynomial.flatten(1)
        out, picked = flat[-1].index_select(0, place), torch.empty_like(t)
        for k in range(POINTS - 2, -1, -1):
            torch.index_select(flat[k], 0, place, out=picked)
            out.mul_(t).add_(picked)
        return out.view_as(x)


def smoothed(g: Fn, seen: Profile, s: Tensor, ends: tuple[float, float], reach: float) -> Smoothed:
    """For these s, within an octave, and x between the ends."""
    parts = 2
    found = _smoothed(g, seen, s, ends, reach, parts)
    while found.error > ENOUGH and parts < MOST:
        parts *= 2
        found = _smoothed(g, seen, s, ends, reach, parts)
    return found


def _smoothed(g: Fn, seen: Profile, s: Tensor, ends: tuple[float, float], reach: float, parts: int) -> Smoothed:
    least, most = float(s.min()), float(s.max())
    count = 1 if most <= least * (1 + 1e-12) else 8 + math.ceil(14 * math.log2(most / least))
    nodes, in_s = chebyshev(count, s.device)
    heights = least * (most / least) ** (0.5 + 0.5 * nodes)
    edges = torch.tensor(_edges(g, seen, (least, most), ends, parts), dtype=torch.float64, device=s.device)
    t, in_x = chebyshev(POINTS, s.device)
    x = 0.5 * (edges[1:] + edges[:-1])[:, None] + 0.5 * edges.diff()[:, None] * t  # [K, POINTS]
    at = (heights[:, None, None].expand(-1, *x.shape), x.expand(count, *x.shape))
    values = direct(g.call, seen, at[1].reshape(-1), at[0].reshape(-1), reach).view(at[0].shape)
    size = values.abs().amax((0, 2)).clamp(min=seen.small + 1e-290)
    found = torch.einsum("skn,nm,st->tmk", values, in_x, in_s)
    off = found[:, -2:].abs().sum((0, 1)) + (found[-2:].abs().sum((0, 1)) if count > 1 else 0.0)
    powers = torch.einsum("smk,mp->psk", found, _monomials(s.device))
    return Smoothed(edges, powers, least, most, float((off / size).max()))


def _monomials(device: torch.device) -> Tensor:
    """The coefficients of T_m, `[POINTS, POINTS]`."""
    rows = [[1.0] + [0.0] * (POINTS - 1), [0.0, 1.0] + [0.0] * (POINTS - 2)]
    while len(rows) < POINTS:
        before, now = rows[-2], rows[-1]
        rows.append([2 * a - b for a, b in zip([0.0, *now[:-1]], before, strict=True)])
    return torch.tensor(rows, dtype=torch.float64, device=device)


def _edges(
    g: Fn, seen: Profile, s: tuple[float, float], ends: tuple[float, float], parts: int
) -> list[float]:  # fmt: skip
    """A fraction of the panels of g, as wide as s beside a kink, growing with the distance from it."""
    (least, most), (low, high) = s, ends
    wide, narrow = _widths(seen), 4 * least / parts
    layers = [(c - seen.layer * most, c + seen.layer * most) for c in g.kinks]

    def step(x: float) -> float:
        own = max(wide(x) / parts, narrow)
        for c, (a, b) in zip(g.kinks, layers, strict=True):
            if a <= x < b:
                own = narrow
            else:
                gap = (x - c) * 2 / parts if x > c else (c - x) / parts
                own = min(own, max(gap, narrow))
        return own

    inner = {e for c, layer in zip(g.kinks, layers, strict=True) for e in (c, *layer) if low < e < high}
    return walk([low, *sorted(inner), high], step)


def _widths(seen: Profile) -> Callable[[float], float]:
    """How far a panel of one number may reach: no farther than `Profile.step`."""
    edges = seen.edges.tolist()
    width = [b - a for a, b in pairwise(edges)]

    def step(x: float) -> float:
        k = min(max(bisect.bisect_right(edges, x) - 1, 0), len(width) - 1)
        return min(width[k], max(edges[k + 1] - x, width[min(k + 1, len(width) - 1)]))

    return step
