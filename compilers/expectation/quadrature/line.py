"""One-dimensional rules: E F(z), z ~ N(0, 1), by Gauss–Legendre panels.

Panels of width ½ on [−13, 13] carry a smooth F; panels that shrink geometrically towards given centres carry
features at a smaller scale (tanh(100 z) at 0), and panels end at kinks. A rule has nodes `[N, *shape]`, one set per
entry, or `[N, 1, ...]` when all entries can share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.gauss import EPS, common_shape
from netsor.compilers.expectation.quadrature.nodes import on_unit
from netsor.compilers.expectation.report import divergent
from netsor.compilers.expectation.series.interpolate import FEWEST, interpolated

RANGE = 13.0
NODES = 16
WIDTH = 0.5
MAX_LEVEL = 5
MOST_AT_ENDS = 1e-3  # of E f², beyond |z| = RANGE − WIDTH
CHUNK = 1 << 21  # node values held at once


class Rule(NamedTuple):
    """Nodes and weights, `[N, *shape]`; Σ w·F(z) is E F."""

    z: Tensor
    w: Tensor


def octaves(finest: float) -> int:
    """How many halvings lead from the panel width to the finest scale."""
    if not math.isfinite(finest) or finest >= 1:
        return 0
    return min(60, math.ceil(-math.log2(max(finest, 1e-18))))


def panels(centres: Tensor, halvings: int | list[int], level: int, width: float = WIDTH, reach: float = RANGE) -> Rule:
    """The rule whose panels end at every centre `[C, *shape]` (in units of z) and shrink towards it.

    `halvings` is how often, for each centre or for all; `level` divides every panel into 2^level.
    """
    counts = halvings if isinstance(halvings, list) else [halvings] * centres.shape[0]
    grid = torch.arange(-reach, reach + width / 2, width, dtype=torch.float64, device=centres.device)
    shape = centres.shape[1:]
    ends = [grid.reshape(-1, *[1] * len(shape)).expand(-1, *shape)]
    for centre, count in zip(centres, counts, strict=True):
        radii = width * 0.5 ** torch.arange(1, count + 1, dtype=torch.float64, device=centres.device)
        offsets = torch.cat([-radii, torch.zeros_like(radii[:1]) if count else radii.new_zeros(1), radii])
        ends.append(centre + offsets.reshape(-1, *[1] * len(shape)))
    points = torch.cat(ends).clamp(-reach, reach).sort(0).values
    return _fill(points, level)


def _fill(points: Tensor, level: int) -> Rule:
    """Gauss–Legendre nodes between consecutive points."""
    tail = [1] * (points.dim() - 1)
    parts = 1 << level
    cuts = torch.arange(parts, dtype=points.dtype, device=points.device).reshape(1, -1, *tail) / parts
    low, size = points[:-1], (points[1:] - points[:-1])
    start = (low.unsqueeze(1) + size.unsqueeze(1) * cuts).reshape(-1, *points.shape[1:])
    size = size.repeat_interleave(parts, 0) / parts
    t, w = (a.reshape(1, -1, *tail) for a in on_unit(NODES, points.device))
    z = (start.unsqueeze(1) + size.unsqueeze(1) * t).reshape(-1, *points.shape[1:])
    weight = (size.unsqueeze(1) * w).reshape(-1, *points.shape[1:])
    return Rule(z, weight * torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))


def centred(points: tuple[float, ...], m: Tensor | None, sigma: Tensor) -> Tensor:
    """(c − m)/σ for every point c, `[C, *shape]`; σ = 0 leaves the point outside, or at 0."""
    out = []
    for c in points:
        gap = torch.full_like(sigma, c) if m is None else c - m + torch.zeros_like(sigma)
        z = torch.where(sigma == 0, torch.sign(gap) * 2 * RANGE, gap / torch.where(sigma == 0, 1.0, sigma))
        out.append(z.clamp(-2 * RANGE, 2 * RANGE))
    return torch.stack(out)


def rule(kinks: tuple[float, ...], sigma: Tensor, m: Tensor | None, level: int = 0) -> Rule:
    """A rule for F(m + σz), F with features of scale 1 near 0 and at its kinks; one for all entries where it can be."""
    depth = halvings(sigma)
    if is_shared(kinks, depth, m):
        z, w = shared(depth, level, sigma.device)
        return Rule(*(t.reshape(-1, *[1] * sigma.dim()) for t in (z, w)))
    sigma = sigma if m is None else sigma + torch.zeros_like(m)
    return panels(centred(tuple(sorted({0.0, *kinks})), m, sigma), depth, level)


def halvings(sigma: Tensor) -> int:
    """How often the panels are halved towards their centres for the largest σ."""
    widest = float(sigma.max()) if sigma.numel() else 0.0
    return octaves(1 / widest if widest > 0 else math.inf)


def is_shared(kinks: tuple[float, ...], halvings: int, m: Tensor | None) -> bool:
    """Whether all entries have their centres at z = 0, or need none."""
    return (m is None and kinks in ((), (0.0,))) or (halvings == 0 and not kinks)


@lru_cache(maxsize=64)
def shared(halvings: int, level: int, device: torch.device) -> Rule:
    """Nodes and weights `[N]` of the panels around 0."""
    return panels(torch.zeros(1, dtype=torch.float64, device=device), halvings, level)


Integrand = Callable[[Tensor], Tensor]


def probe(f: Integrand, kinks: tuple[float, ...], sigma: Tensor, m: Tensor | None) -> tuple[int, float]:
    """The level at which halving the panels changes nothing, and what it still changes, relative to √E f².

    Judged on the entries of largest σ and |m|, by E f, E f² and E f·(a wave), at this level and the next. InputError
    (NT603) where much of E f² comes from the end of the range, since then E f² is infinite or far from what is summed.
    """
    sigma, m = _extremes(sigma, m)
    waves = 17.0
    previous: Tensor | None = None
    error = beyond = 0.0
    for level in range(MAX_LEVEL + 2):
        r = rule(kinks, sigma, m, level)
        values = f(sigma * r.z if m is None else m + sigma * r.z)
        size = (r.w * values**2).sum(0).sqrt() + 1e-300
        now = torch.stack([(r.w * values).sum(0), size, (r.w * torch.cos(waves * r.z + 1) * values).sum(0)]) / size
        beyond = float(((r.w * values**2 * (r.z.abs() > RANGE - WIDTH)).sum(0) / size**2).max())
        if beyond > MOST_AT_ENDS:
            raise divergent()
        if previous is not None:
            error = float((now - previous).abs().max())
            if not error > 64 * EPS:
                return level - 1, max(error, beyond)
        previous = now
    return MAX_LEVEL, max(error, beyond)


def _extremes(sigma: Tensor, m: Tensor | None) -> tuple[Tensor, Tensor | None]:
    if m is None:
        flat = sigma.reshape(-1)
        return torch.stack([flat.max(), flat.median()]), None
    shape = common_shape(sigma, m)
    s, mean = sigma.expand(shape).reshape(-1), m.expand(shape).reshape(-1)
    at = torch.stack([s.argmax(), mean.argmax(), mean.argmin()])
    return s[at], mean[at]


def expectation(f: Integrand, kinks: tuple[float, ...], k: Tensor, m: Tensor | None) -> tuple[Tensor, float]:
    """E f(u), u ~ N(m, k), elementwise, and the error relative to √E f² seen by `probe`."""
    sigma = k.sqrt() if m is None else k.sqrt() + torch.zeros_like(m)
    if sigma.numel() == 0:
        return torch.zeros_like(sigma), 0.0
    level, error = probe(f, kinks, sigma, m)
    if m is not None or sigma.numel() < FEWEST:
        return integrate(f, kinks, sigma, m, level), error
    both, off = interpolated(lambda s: _with_scale(f, kinks, s, level), sigma.reshape(-1))
    return both[1].reshape(sigma.shape), error + off


def _with_scale(f: Integrand, kinks: tuple[float, ...], sigma: Tensor, level: int) -> Tensor:
    """√E f² and E f, `[2, N]`."""
    size = integrate(lambda x: f(x) ** 2, kinks, sigma, None, level).sqrt()
    return torch.stack([size, integrate(f, kinks, sigma, None, level)])


def integrate(f: Integrand, kinks: tuple[float, ...], sigma: Tensor, m: Tensor | None, level: int) -> Tensor:
    """E f(m + σz) elementwise, in chunks of bounded memory."""
    flat, mean = sigma.reshape(-1), None if m is None else m.broadcast_to(sigma.shape).reshape(-1)
    step = max(1, CHUNK >> (11 + level))  # a rule has some 2^10 nodes, times 2^level
    out = torch.empty_like(flat)
    for i in range(0, flat.numel(), step):
        s, mu = flat[i : i + step], None if mean is None else mean[i : i + step]
        r = rule(kinks, s, mu, level)
        out[i : i + step] = (r.w * f(s * r.z if mu is None else mu + s * r.z)).sum(0)
    return out.reshape(sigma.shape)
