"""E f(u)g(v) of functions known by their values, kinks anywhere, any σ, ρ and means: one integral for each entry.

E f(u)g(v) = E f(u)·G(u), G(u) = E[g(v) | u]: given u, v is Gaussian of variance s² = (1 − ρ²)σ̄² about a mean linear in
u, so that G is g smoothed over s (`smoothed`). Panels end at the kinks of f, and where s = 0 at those of g too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn, scaled
from netsor.compilers.expectation.gauss import Gauss, ratio
from netsor.compilers.expectation.quadrature import smoothed as tables
from netsor.compilers.expectation.quadrature.panels import (
    REACH,
    Accuracy,
    Panels,
    Profile,
    View,
    panels,
    profile,
)
from netsor.compilers.expectation.quadrature.smoothed import Blurred, Smoothed, smoothed

FEWEST = 12  # entries for which a table of G is worth the while
ENTRIES, PANELS = 1 << 12, 1 << 12
REACHES = (REACH, 12.0, 17.0, 24.0, 34.0)  # the larger ones for functions that grow exponentially
RARE, WIDER = 1e-12, 9.4  # √E g² relative to the largest in the block; `Profile.layer` where it is small
LEVELS = 2
MANY, FEW = Accuracy(1e-6, 1e-11), Accuracy(1e-7, 1e-13)
FEWER = 200  # entries that are taken to the accuracy of `FEW`, a quadrature each


class Entries(NamedTuple):
    """u = m1 + s1·z, and v of deviation `rest` about m2 + slope·z, slope ≥ 0; flat, `[E]`."""

    m1: Tensor
    s1: Tensor
    m2: Tensor
    slope: Tensor
    rest: Tensor

    def take(self, some: Tensor | slice) -> Entries:
        return Entries(*(x[some] for x in self))

    @property
    def s2(self) -> Tensor:
        return torch.hypot(self.slope, self.rest)


class Pair(NamedTuple):
    """f and g with the panels on which they are polynomials."""

    f: Fn
    g: Fn
    of_f: Profile
    of_g: Profile
    reach: float
    accuracy: Accuracy


def expectation(f: Fn, g: Fn, on: Gauss) -> tuple[Tensor, float]:
    """E f(u)g(v), all entries flat, `[E]`, and the error relative to √(E f² E g²) that finer panels show in some."""
    zero = torch.zeros_like(on.k11)
    m1, m2 = (zero if m is None else m for m in (on.m1, on.m2))
    s1 = on.k11.sqrt()
    rest = torch.where(on.k11 == 0, on.k22, ratio(on.det, on.k11)).sqrt()
    slope = ratio(on.k12, s1)
    value, error = zero.clone(), 0.0
    for side in (1.0, -1.0):
        where = (slope >= 0) if side > 0 else (slope < 0)
        if bool(where.any()):
            entries = Entries(m1, s1, side * m2, slope.abs(), rest).take(where)
            value[where], off = _one_side(f, g if side > 0 else scaled(g, -1.0), entries)
            error = max(error, off)
    return value, error


def _one_side(f: Fn, g: Fn, entries: Entries) -> tuple[Tensor, float]:
    some = _some(entries)
    few = entries.take(some)
    reach = next((r for r in REACHES if _decays(f, few.m1, few.s1, r) and _decays(g, few.m2, few.s2, r)), REACHES[-1])
    accuracy = FEW if len(entries.m1) <= FEWER else MANY
    of_f = profile(f, entries.m1, entries.s1, reach, accuracy)
    of_g = profile(g, entries.m2, entries.s2, reach, accuracy)
    one = tables.direct(lambda x: f.call(x).square(), of_f, few.m1, few.s1, reach).sqrt()
    two = tables.direct(lambda x: g.call(x).square(), of_g, few.m2, few.s2, reach).sqrt()
    both, size = Pair(f, g, of_f, _seen(of_g, two), reach, accuracy), one * two
    finer, off, level = _singly(both, few, 0), math.inf, 0
    while level < LEVELS and not off <= accuracy.tiny:
        level += 1
        coarse, finer = finer, _singly(both, few, level)
        off = float(ratio((finer - coarse).abs(), size).max())
    value, table = _values(both, entries, level - 1)
    off = max(off, float(ratio((finer - value[some]).abs(), size).max()))
    return value, off + table + 2 * accuracy.tiny


def _some(entries: Entries) -> Tensor:
    """Entries that are taken again with panels of half the width: those of extreme means and deviations."""
    every = (entries.s1, entries.s2, entries.m1, entries.m2)
    return torch.stack([x.argmax() for x in every] + [x.argmin() for x in every]).unique()


def _seen(of_g: Profile, sizes: Tensor) -> Profile:
    """What counts as small, at least 1e-12 of the largest; where it does, kinks are felt from farther off."""
    largest = float(sizes.max())
    small = max(float(sizes.min()), RARE * largest)
    return of_g._replace(small=small, layer=of_g.layer if small > 0.05 * largest else WIDER)


def _decays(f: Fn, mean: Tensor, deviation: Tensor, reach: float) -> bool:
    """Is the root of f²·density at ±reach below 6e-7 of √E f², and E f² beyond it below 1e-14?"""
    at = torch.linspace(-reach, reach, 129, dtype=torch.float64, device=mean.device)
    values = f.call(mean[:, None] + deviation[:, None] * at).abs() * torch.exp(-0.25 * at**2)
    return bool((values[:, [0, -1]].amax(1) <= 6e-7 * values.square().mean(1).sqrt() + 1e-290).all())


def _values(both: Pair, entries: Entries, level: int) -> tuple[Tensor, float]:
    """By a table of G for every octave of its width, where many entries share it."""
    out, error = torch.empty_like(entries.m1), 0.0
    octave = torch.frexp(entries.rest).exponent.masked_fill(entries.rest == 0, -(1 << 20))
    for which in octave.unique():
        where = (octave == which).nonzero()[:, 0]
        part = entries.take(where)
        rule, off = _rule(both, part, level)
        out[where] = torch.cat([rule(part.take(some)) for some in _slices(len(where), ENTRIES)])
        error = max(error, off)
    return out, error


def _rule(both: Pair, entries: Entries, level: int) -> tuple[Callable[[Entries], Tensor], float]:
    """The rule for entries whose G is as wide up to a factor of 2, and its own error."""
    if not bool(entries.rest.any()):
        return lambda some: _on_the_line(both, some, level), 0.0
    if len(entries.rest) < FEWEST or both.accuracy is FEW:
        return lambda some: _nested(both, some, level), 0.0
    far = both.reach * entries.slope + entries.rest
    ends = float((entries.m2 - far).min()), float((entries.m2 + far).max())
    table = smoothed(both.g, both.of_g, entries.rest, ends, both.reach)
    return lambda some: _tabulated(both, table, some, level), table.error


def _tabulated(both: Pair, table: Smoothed, entries: Entries, level: int) -> Tensor:
    """Some entries, by the table."""
    left, right = _views(both, entries)

    def inner(found: Panels, z: Tensor) -> Tensor:
        first, last = int(found.entry[0]), int(found.entry[-1]) + 1
        return table.values(table.at(entries.rest[first:last]), found.entry - first, right.at(found.entry, z))

    return _outer(both.f, left, panels([left, Blurred(right, entries.rest)], both.reach, level), inner)


def _nested(both: Pair, entries: Entries, level: int) -> Tensor:
    """A few entries, with a quadrature for each value of G."""
    left, right = _views(both, entries)

    def inner(found: Panels, z: Tensor) -> Tensor:
        mean, rest = right.at(found.entry, z), entries.rest[found.entry, None].expand_as(z)
        return tables.direct(both.g.call, both.of_g, mean.reshape(-1), rest.reshape(-1), both.reach, level).view_as(z)

    return _outer(both.f, left, panels([left, Blurred(right, entries.rest)], both.reach, level), inner)


def _singly(both: Pair, entries: Entries, level: int) -> Tensor:
    out = torch.empty_like(entries.m1)
    for where, rule in ((entries.rest > 0, _nested), (entries.rest == 0, _on_the_line)):
        if bool(where.any()):
            out[where] = rule(both, entries.take(where), level)
    return out


def _on_the_line(both: Pair, entries: Entries, level: int) -> Tensor:
    """Entries of ρ = ±1, where v is a function of u."""
    left, right = _views(both, entries)
    return _outer(
        both.f, left, panels([left, right], both.reach, level), lambda found, z: both.g.call(found.inside(right, z))
    )


def _views(both: Pair, entries: Entries) -> tuple[View, View]:
    return View(both.of_f, entries.m1, entries.s1), View(both.of_g, entries.m2, entries.slope)


def _outer(f: Fn, left: View, whole: Panels, inner: Callable[[Panels, Tensor], Tensor]) -> Tensor:
    """E f(u)·G, G = `inner` at the nodes of some panels."""
    sums = torch.empty_like(whole.low)
    for some in _slices(len(sums), PANELS):
        found = whole.part(some)
        z, w = found.nodes()
        sums[some] = w.mul_(f.call(found.inside(left, z))).mul_(inner(found, z)).sum(1)
    return torch.zeros_like(left.mean).index_add_(0, whole.entry, sums)


def _slices(count: int, step: int) -> list[slice]:
    return [slice(i, i + step) for i in range(0, count, step)]
