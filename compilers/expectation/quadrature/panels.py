"""Panels on the line for functions known by their values, and rules E F(z), z ~ N(0, 1), with few nodes for each entry.

A `Profile` holds panels on which a function is a polynomial between its kinks. The panels of a rule end at every kink
that an entry meets, and are as wide as the profiles of all the functions in the integrand allow at that place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import EPS
from netsor.compilers.expectation.quadrature.nodes import on_unit
from netsor.compilers.expectation.series.grid import NODES as POINTS
from netsor.compilers.expectation.series.grid import cardinal, filled

REACH = 8.5  # 2e-17 of the Gaussian lies outside
FAR = 1e3
WIDEST, BEFORE, AFTER = 3.15, 0.012, 0.09  # panels for the Gaussian itself: x² times its density to 1e-13
NODES = 12
FIRST, GROWTH = 4.0, 4.0  # panels near 0 and near kinks before they are tested, and their growth with the distance
MOST = 1000  # panels of a profile
EVENLY = 1.2  # a gap of up to so many panels is halved
NOISE = 16 * EPS  # of values, relative to the largest
SAMPLE = 2000  # entries
STEPS = 20_000  # panels of one entry


class Accuracy(NamedTuple):
    """Of the 12 terms of a profile, relative to the panel's values (the nodes integrate twice as many, so to the square
    of it) and to the smallest √E f².
    """

    resolved: float
    tiny: float


class Profile(NamedTuple):
    """Panels between the edges `[P + 1]`, the kinks on some of them, and √E f² of the entries where it is smallest."""

    edges: Tensor
    far: Tensor  # how far a panel from x may reach: far − bend·x, `[P]`
    bend: Tensor
    kinks: Tensor
    small: float
    layer: float = 7.0  # beyond so many s a kink that is smoothed over s is not felt

    def step(self, x: Tensor) -> Tensor:
        """How far a panel from x may reach."""
        k = torch.searchsorted(self.edges, x, right=True).sub_(1).clamp_(0, len(self.far) - 1)
        inside = x.clamp(self.edges[0], self.edges[-1])
        return self.far.take(k).sub_(self.bend.take(k).mul_(inside))


def _reach(edges: Tensor) -> tuple[Tensor, Tensor]:
    """The step from x: all of the panel at its beginning, as wide as the next panel at its end, linear between them.

    So a panel reaches into a narrower one as far as a panel from there would reach back.
    """
    width = edges.diff()
    after = torch.cat([width[1:], width[-1:]])
    bend = 1 - after / width
    return torch.addcmul(after, bend, edges[1:]), bend


class View(NamedTuple):
    """A function of mean + slope·z, slope ≥ 0, one for each entry `[E]`."""

    profile: Profile
    mean: Tensor
    slope: Tensor

    def at(self, entry: Tensor, z: Tensor) -> Tensor:
        """mean + slope·z, z `[P, N]` of the entries `[P]`."""
        return torch.addcmul(self.mean[entry, None], self.slope[entry, None], z)

    def step(self, z: Tensor) -> Tensor:
        """∞ for a constant."""
        return self.profile.step(torch.addcmul(self.mean, self.slope, z)).div_(self.slope)

    def ends(self) -> Tensor:
        """The kinks in units of z, `[C, E]`."""
        z = (self.profile.kinks[:, None] - self.mean) / self.slope
        return torch.where(self.slope > 0, z, FAR).clamp_(-FAR, FAR)


class Stepped(Protocol):
    """What ends panels, and how wide they may be from z on."""

    def step(self, z: Tensor) -> Tensor: ...

    def ends(self) -> Tensor: ...


class Panels(NamedTuple):
    """Panels of all entries one after the other, `[P]`."""

    entry: Tensor
    low: Tensor
    width: Tensor

    def nodes(self) -> tuple[Tensor, Tensor]:
        """z and its weights, density included, `[P, NODES]`."""
        t, w = on_unit(NODES, self.low.device)
        z = self.low[:, None] + self.width[:, None] * t
        density = torch.exp(-0.5 * z * z).mul_(self.width[:, None] / math.sqrt(2 * math.pi))
        return z, density.mul_(w)

    def part(self, some: slice) -> Panels:
        return Panels(*(x[some] for x in self))

    def inside(self, view: View, z: Tensor) -> Tensor:
        """mean + slope·z, kept on the panel's side of every kink whatever the rounding."""
        x = view.at(self.entry, z)
        kinks = view.profile.kinks
        apart = view.slope[self.entry] * self.width > 1e-12 * x[:, 0].abs()
        if not len(kinks) or bool(apart.all()):
            return x
        beside = torch.cat([kinks.new_full((1,), -math.inf), kinks, kinks.new_full((1,), math.inf)])
        middle = z.shape[1] // 2
        side = torch.searchsorted(kinks, x[:, middle : middle + 1].contiguous())
        low = torch.nextafter(beside[side], torch.full_like(x[:, :1], math.inf))
        high = torch.nextafter(beside[side + 1], torch.full_like(x[:, :1], -math.inf))
        constant = view.slope[self.entry, None] == 0  # at a kink it has the value there
        return x.clamp_(torch.where(constant, x[:, :1], low), torch.where(constant, x[:, :1], high))


def panels(views: Sequence[Stepped], reach: float, level: int = 0) -> Panels:
    """The panels of every entry on [−reach, reach], each divided into 2^level."""
    ends = torch.cat([view.ends() for view in views])
    z = ends.new_full(ends.shape[1:], -reach)
    last = torch.full_like(z, reach)
    lows, widths = [], []
    for _ in range(STEPS):
        if bool((z >= reach).all()):
            break
        goal, step = last, torch.where(z > 0, AFTER, BEFORE).mul_(z).mul_(z).add_(WIDEST)
        for end in ends:
            goal = torch.minimum(goal, torch.where(end > z, end, last))
        for view in views:
            step = torch.minimum(step, view.step(z))
        gap, step = goal - z, step.mul_(2.0**-level)
        after = z + torch.where(gap <= EVENLY * step, 0.5 * gap, step)
        after = torch.where(gap <= (1 + 1e-9) * step, goal, after)
        lows.append(z)
        widths.append(after - z)
        z = after
    low, width = torch.stack(lows, 1), torch.stack(widths, 1)
    kept = width > 0
    entry = torch.arange(len(z), device=z.device)[:, None].expand_as(low)
    return Panels(entry[kept], low[kept], width[kept])


# ---------------------------------------------------------------- profiles


def profile(f: Fn, mean: Tensor, deviation: Tensor, reach: float, accuracy: Accuracy) -> Profile:
    """Panels within reach of every N(mean, deviation²) on which f is a polynomial of degree 11."""
    far = (reach + 1) * deviation + 1e-300
    low, high = float((mean - far).min()), float((mean + far).max())
    inner = sorted({c for c in f.kinks if low < c < high})
    centres = sorted({0.0, *f.kinks})

    def first(x: float) -> float:
        return min(_graded(x, c) for c in centres)

    edges = torch.tensor(walk([low, *inner, high], first), dtype=torch.float64, device=mean.device)
    small = _small(f, mean, deviation)
    while len(edges) <= MOST:
        bad = _unresolved(f, edges, small, accuracy) & (edges.diff() > 1e-9 * (1 + edges[:-1].abs()))
        if not bool(bad.any()):
            break
        edges = torch.cat([edges, 0.5 * (edges[1:] + edges[:-1])[bad]]).sort().values
    return Profile(edges, *_reach(edges), torch.tensor(inner, dtype=torch.float64, device=mean.device), small)


def _small(f: Fn, mean: Tensor, deviation: Tensor) -> float:
    """The smallest √E f² of the entries, roughly."""
    some = torch.linspace(0, len(mean) - 1, min(SAMPLE, len(mean)), device=mean.device).long()
    at = torch.linspace(-2, 2, 9, dtype=torch.float64, device=mean.device)
    values = f.call(mean[some, None] + deviation[some, None] * at)
    return float(values.square().mean(1).min().sqrt())


def _graded(x: float, centre: float) -> float:
    """A step from x to the right that grows with the distance from a centre, on either side of it."""
    gap = x - centre
    return FIRST + GROWTH * gap if gap >= 0 else (FIRST - GROWTH * gap) / (1 + GROWTH)


def walk(ends: list[float], step: Callable[[float], float]) -> list[float]:
    """Edges from the first end to the last, through all of them, no farther apart than step(x)."""
    edges = [ends[0]]
    for _, goal in pairwise(ends):
        while (gap := goal - edges[-1]) > 0:
            width = max(step(edges[-1]), 1e-9 * gap)
            edges.append(
                goal
                if gap <= (1 + 1e-9) * width
                else edges[-1] + min(width, 0.5 * gap if gap <= EVENLY * width else gap)
            )
    return edges


def _unresolved(f: Fn, edges: Tensor, small: float, accuracy: Accuracy) -> Tensor:
    """Panels on which the polynomial through the nodes is off, by more than rounding of what is small."""
    test = torch.tensor([-0.99, -0.52, -0.06, 0.47, 0.97], dtype=torch.float64, device=edges.device)
    middle, half = 0.5 * (edges[1:] + edges[:-1])[:, None], 0.5 * edges.diff()[:, None]
    values = f.call(filled(edges).x).unflatten(0, (-1, POINTS))
    off = (f.call(middle + half * test) - values @ cardinal(test).T).abs().amax(1)
    floor = max(accuracy.tiny * small, NOISE * float(values.abs().max()), 1e-290)
    return ~(off <= accuracy.resolved * values.abs().amax(1) + floor)
