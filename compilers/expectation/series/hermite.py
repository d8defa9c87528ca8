"""Mehler's series: E f(u)g(v) = Σ_k a_k b_k ρ^k with a_k = E f(m₁ + σ₁z) h_k(z), h_k normalised Hermite.

The coefficients belong to one input each, so an entry of a Gram matrix costs a polynomial in ρ. Cutting the series
after K leaves at most |ρ|^{K+1} √(tail_f · tail_g), tail_f = E f² − Σ_{k≤K} a_k².
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import EPS, Gauss, common_shape, ratio
from netsor.compilers.expectation.quadrature import line
from netsor.compilers.expectation.series.interpolate import interpolated
from netsor.compilers.expectation.terms import Term

DEGREES = (48, 160, 512)
TARGET = 1e-14  # relative to √(E f² E g²)
ROUNDING = 32 * EPS  # of the sums over the nodes
ACCEPT = 1e-11  # entries whose bound is above this are integrated instead


class Coefficients(NamedTuple):
    """a `[K+1, *shape]`, the scale √E f² `[*shape]`, the largest relative tail after each k, and the rule's error."""

    a: Tensor
    scale: Tensor
    tails: list[float]
    error: float


def coefficients(f: Fn, k: Tensor, m: Tensor | None, degree: int) -> Coefficients:
    """The Hermite coefficients of z ↦ f(m + √k z) up to the degree."""
    sigma = k.sqrt() if m is None else k.sqrt() + torch.zeros_like(m)
    level, error = line.probe(f.call, f.kinks, sigma, m)
    flat, mean = sigma.reshape(-1), None if m is None else m.broadcast_to(sigma.shape).reshape(-1)
    if mean is None:
        both, off = interpolated(lambda s: _integrated(f, s, None, level, degree), flat)
    else:
        both, off = _integrated(f, flat, mean, level, degree), 0.0
    scale, a, error = both[0], both[1:], error + off
    return Coefficients(a.reshape(-1, *sigma.shape), scale.reshape(sigma.shape), _tails(f, a, scale), error)


def _integrated(f: Fn, sigma: Tensor, m: Tensor | None, level: int, degree: int) -> Tensor:
    """√E f² and the coefficients of flat σ and m, `[degree + 2, N]`, in chunks of bounded memory."""
    step = max(1, line.CHUNK >> (11 + level))  # a rule has some 2^10 nodes, times 2^level
    parts = []
    for i in range(0, sigma.numel(), step):
        s, mu = sigma[i : i + step], None if m is None else m[i : i + step]
        r = line.rule(f.kinks, s, mu, level)
        values = f.call(s * r.z if mu is None else mu + s * r.z)
        size = (r.w * values**2).sum(0, keepdim=True).sqrt()
        depth = line.halvings(s)
        if line.is_shared(f.kinks, depth, mu):
            projected = _basis(depth, level, degree, s.device) @ values
        else:
            projected = _project(r, values, degree)
        parts.append(torch.cat([size, projected]))
    return torch.cat(parts, 1)


def _project(r: line.Rule, values: Tensor, degree: int) -> Tensor:
    """Σ_z w·f·h_k for k = 0 … degree, by the three-term recurrence of √w·h_k (no overflow)."""
    root = torch.exp(-0.25 * r.z * r.z)
    weighted = r.w / root * values
    before, now = torch.zeros_like(r.z), root
    rows = []
    for k in range(degree + 1):
        rows.append((weighted * now).sum(0))
        before, now = now, (r.z * now - math.sqrt(k) * before) / math.sqrt(k + 1)
    return torch.stack(rows)


@lru_cache(maxsize=24)
def _basis(halvings: int, level: int, degree: int, device: torch.device) -> Tensor:
    """w·h_k(z) at the nodes of the shared rule, `[degree + 1, N]`."""
    z, w = line.shared(halvings, level, device)
    return _project(line.Rule(z.unsqueeze(0), w.unsqueeze(0)), torch.ones_like(z).unsqueeze(0), degree)


def _tails(f: Fn, a: Tensor, scale: Tensor) -> list[float]:
    """√tail/√E f² after k = 0 … K, the largest over the inputs; zero behind a polynomial's degree."""
    relative = ratio(a, scale) ** 2
    later = relative.flip(0).cumsum(0).flip(0)
    rest = (1 - later[0]).clamp(min=0) + EPS
    tail = (later - relative + rest).amax(1).sqrt()
    out: list[float] = tail.tolist()
    degree = _degree(f)
    return out if degree is None else [0.0 if k >= degree else t for k, t in enumerate(out)]


def _degree(f: Fn) -> int | None:
    powers = [t.power for _, t in f.terms if isinstance(t, Term) and not (t.linear or t.quadratic or t.gate)]
    return max(powers, default=0) if len(powers) == len(f.terms) else None


class Series(NamedTuple):
    """The value, its relative error bound on the entries it serves, and the largest |ρ| that it serves."""

    value: Tensor
    bound: float
    reach: float
    scale: Tensor


def series(f: Fn, g: Fn, gauss: Gauss, rho: Tensor, largest: float, degrees: tuple[int, ...] = DEGREES) -> Series:
    """Σ a_k b_k ρ^k with enough terms for the largest |ρ|, or for as large a |ρ| as the bound can reach."""
    left, right, products = _expand(f, g, gauss, degrees[0])
    for degree in degrees[1:]:
        if _enough(products, largest) is not None:
            break
        left, right, products = _expand(f, g, gauss, degree)
    found = _enough(products, largest)
    terms = len(products) - 1 if found is None else found
    reach = largest if found is not None else min(largest, (ACCEPT / max(products[-1], 1e-300)) ** (1 / len(products)))
    value = horner(left.a[: terms + 1], right.a[: terms + 1], rho.clamp(-reach, reach))
    bound = reach ** (terms + 1) * products[terms] + left.error + right.error + ROUNDING
    return Series(value, bound, reach, left.scale * right.scale)


def _expand(f: Fn, g: Fn, gauss: Gauss, degree: int) -> tuple[Coefficients, Coefficients, list[float]]:
    """Both sides' coefficients and, after each k, √(tail_f · tail_g) relative to the scale."""
    left = coefficients(f, gauss.k11, gauss.m1, degree)
    right = coefficients(g, gauss.k22, gauss.m2, degree)
    return left, right, [s * t for s, t in zip(left.tails, right.tails, strict=True)]


def _enough(products: list[float], largest: float) -> int | None:
    """The first k after which the remainder is below the target, if there is one."""
    for k, tails in enumerate(products):
        if largest ** (k + 1) * tails <= TARGET:
            return k
    return None


def horner(a: Tensor, b: Tensor, rho: Tensor) -> Tensor:
    """Σ_k a_k b_k ρ^k, skipping the coefficients that parity makes zero."""
    active = _active(a, b)
    total = torch.zeros(common_shape(a[0], b[0], rho), dtype=a.dtype, device=a.device)
    squared = rho * rho
    previous = active[-1]
    for k in reversed(active):
        _multiply(total, rho, squared, previous - k)
        total.addcmul_(a[k], b[k])
        previous = k
    _multiply(total, rho, squared, previous)
    return total


def horner_with_slope(a: Tensor, b: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
    """κ = Σ_k a_k b_k ρ^k and dκ/dρ in one pass: D ← Dq + P, P ← Pq + a_k b_k, q = ρ, or ρ² for even and odd κ."""
    parities = {k % 2 for k in _active(a, b)}
    odd = parities == {1}
    squares = len(parities) == 1
    q = rho * rho if squares else rho
    value = torch.zeros(common_shape(a[0], b[0], rho), dtype=a.dtype, device=a.device)
    slope = torch.zeros_like(value)
    for k in reversed(range(int(odd), len(a), 1 + squares)):
        torch.addcmul(value, slope, q, out=slope)
        value.mul_(q).addcmul_(a[k], b[k])
    if odd:  # κ = ρP(ρ²)
        return value * rho, slope.mul_(q).mul_(2).add_(value)
    return value, slope.mul_(rho).mul_(2) if squares else slope


def _active(a: Tensor, b: Tensor) -> list[int]:
    """The k at which a_k b_k is more than rounding."""
    size = (a.abs().reshape(len(a), -1).amax(1) * b.abs().reshape(len(b), -1).amax(1)).tolist()
    floor = 1e-18 * max(size, default=0.0)
    return [k for k, s in enumerate(size) if s > floor] or [0]


def _multiply(total: Tensor, rho: Tensor, squared: Tensor, gap: int) -> None:
    """total ← total·ρ^gap."""
    if gap == 1:
        total.mul_(rho)
    elif gap == 2:
        total.mul_(squared)
    elif gap:
        total.mul_(rho**gap)
