"""Two-dimensional quadrature for the entries that no closed form and no series reaches: kinked functions at |ρ| ≈ 1.

E f(u)g(v) = E_u[f(u)·G(u)], G(u) = E[g(v) | u] a one-dimensional expectation. The outer panels end at the kinks of f
and shrink towards the points where the conditional mean of v meets a kink of g, where G turns over a width
√(1−ρ²)/|ρ|. At ρ = ±1 exactly v is a function of u and one integral is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from netsor.compilers.expectation import line
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import EPS, Gauss, ratio

REACH = 10.0  # of the outer panels, of width 1: 1e-23 of the Gaussian lies outside
Conditional = Callable[[Tensor, Tensor], Tensor]


def diagonal(f: Fn, g: Fn, gauss: Gauss) -> tuple[Tensor, float]:
    """E f(m₁ + σ₁z) g(m₂ ± σ₂z), the sign that of k12, and its relative error; all entries flat, `[E]`."""
    if gauss.m1 is None and gauss.m2 is None and _equal(gauss.k11, gauss.k12) and _equal(gauss.k11, gauss.k22):
        kinks = tuple(sorted({*f.kinks, *g.kinks}))
        value, error = line.expectation(lambda x: f.call(x) * g.call(x), kinks, gauss.k11, None)
        return value, error + 64 * EPS
    s1, s2 = gauss.k11.sqrt(), gauss.k22.sqrt() * torch.where(gauss.k12 < 0, -1.0, 1.0)
    m1 = torch.zeros_like(s1) if gauss.m1 is None else gauss.m1
    m2 = torch.zeros_like(s2) if gauss.m2 is None else gauss.m2
    centres = torch.cat([_centres(f, m1, s1), _centres(g, m2, s2)])
    widest = float(torch.maximum(s1.abs().max(), s2.abs().max()))
    halvings = line.octaves(1 / widest if widest > 0 else math.inf)
    out = torch.empty_like(s1)
    for i in _chunks(len(s1), centres.shape[0] * (2 * halvings + 1) + 53):
        r = line.panels(centres[:, i], halvings, 1)
        out[i] = (r.w * f.call(m1[i] + s1[i] * r.z) * g.call(m2[i] + s2[i] * r.z)).sum(0)
    return out, 64 * EPS


def _equal(a: Tensor, b: Tensor) -> bool:
    return bool(((a - b).abs() <= 4 * EPS * a).all())


def _centres(f: Fn, m: Tensor, s: Tensor) -> Tensor:
    """Where m + s·z meets 0 or a kink of f; s may be negative."""
    return line.centred(tuple(sorted({0.0, *f.kinks})), m, s.abs()) * torch.where(s < 0, -1.0, 1.0)


def _chunks(count: int, panels: int) -> list[slice]:
    step = max(1, line.CHUNK // (2 * line.NODES * panels))
    return [slice(i, i + step) for i in range(0, count, step)]


def plane(f: Fn, conditional: Conditional, g: Fn, gauss: Gauss, level: int = 0) -> Tensor:
    """E f(u)·E[g(v) | u]; `conditional(k, m)` is E g under N(m, k), elementwise; all entries flat, `[E]`."""
    s1, s2 = gauss.k11.sqrt(), gauss.k22.sqrt()
    m1 = torch.zeros_like(s1) if gauss.m1 is None else gauss.m1
    m2 = torch.zeros_like(s2) if gauss.m2 is None else gauss.m2
    slope = ratio(gauss.k12, s1)  # the conditional mean of v is m2 + slope·z
    rest = ratio(gauss.det, gauss.k11)
    rest = torch.where(gauss.k11 == 0, gauss.k22, rest)
    own, other = _centres(f, m1, s1), _centres(g, m2, slope)
    centres = torch.cat([own, other])
    coarse = float(torch.maximum(s1.max(), s2.max()))
    turning = float(ratio(rest.sqrt(), slope.abs() + rest.sqrt()).min())
    sharp = line.octaves(min(turning, 1 / coarse if coarse else 1.0))
    counts = [1 + line.octaves(1 / coarse if coarse else 1.0)] * len(own) + [1 + sharp] * len(other)
    out = torch.empty_like(s1)
    for i in _chunks(len(s1), (sum(2 * c + 1 for c in counts) + 21) << level):
        r = line.panels(centres[:, i], counts, level, 1.0, REACH)
        mean = m2[i] + slope[i] * r.z
        out[i] = (r.w * f.call(m1[i] + s1[i] * r.z) * conditional(rest[i].expand_as(mean), mean)).sum(0)
    return out
