"""Two jointly Gaussian variables: their geometry near |ρ| = 1, and the bivariate normal distribution.

All functions are elementwise over broadcasting float64 tensors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from netsor.compilers.expectation.quadrature.nodes import on_unit

EPS = float(np.finfo(np.float64).eps)
SNAP = 8 * EPS  # 1 − ρ² below this is rounding of the covariances: ρ = ±1
TINY = 1e-150  # stands for 0 where a side of 0 is needed
_NEAR = 1e-5  # below this 1 − ρ² is computed again with error-free products


class Gauss(NamedTuple):
    """(u, v) ~ N((m1, m2), [[k11, k12], [k12, k22]]), det = k11·k22 − k12²; a mean None is zero."""

    k11: Tensor
    k22: Tensor
    k12: Tensor
    det: Tensor
    m1: Tensor | None = None
    m2: Tensor | None = None

    def swapped(self) -> Gauss:
        return Gauss(self.k22, self.k11, self.k12, self.det, self.m2, self.m1)


def gauss(k11: Tensor, k22: Tensor, k12: Tensor, m1: Tensor | None, m2: Tensor | None) -> Gauss:
    """The pair with its determinant; |k12| is clamped to √(k11·k22), and det snapped to 0 where ρ = ±1 to rounding."""
    k11, k22 = k11.clamp(min=0), k22.clamp(min=0)
    product = k11 * k22
    root = product.sqrt()
    k12 = torch.minimum(torch.maximum(k12, -root), root)
    det = (root - k12) * (root + k12)
    near = det < _NEAR * product
    if bool(near.any()):
        exact = _exact_det(*entries(near, k11, k22, k12))
        det = det.masked_scatter(near, exact)
    return Gauss(k11, k22, k12, torch.where(det <= SNAP * product, 0.0, det), m1, m2)


def entries(mask: Tensor, *tensors: Tensor) -> list[Tensor]:
    """The entries of a mask, flat, of tensors that broadcast to it."""
    spread = [t.broadcast_to(mask.shape) for t in tensors]
    if bool(mask.all()):
        return [t.reshape(-1) for t in spread]
    where = mask.nonzero(as_tuple=True)
    return [t[where] for t in spread]


def _exact_det(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a·b − c² to full relative precision: the rounding errors of both products are added back (Dekker)."""
    p, q = a * b, c * c
    return (p - q) + (_product_error(a, b, p) - _product_error(c, c, q))


def _product_error(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    """a·b − fl(a·b), exactly, by Veltkamp splitting."""
    (a1, a2), (b1, b2) = _split(a), _split(b)
    return ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    t = 134217729.0 * x  # 2^27 + 1
    high = t - (t - x)
    return high, x - high


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a/b, and 0 where b is 0."""
    zero = b == 0
    out: Tensor = torch.where(zero, 0.0, a / torch.where(zero, 1.0, b))
    return out


def difference(a: Tensor, b: Tensor, rest: Tensor) -> Tensor:
    """a + b, the mean of a variable of variance `rest`; exactly 0 where it is constant and a = −b to rounding.

    A constant a rounding error beside a jump would otherwise fall on one side of it.
    """
    total = a + b
    near = (rest == 0) & (total.abs() <= 64 * EPS * (a.abs() + b.abs()))
    return torch.where(near, 0.0, total)


def cdf(x: Tensor) -> Tensor:
    """Φ(x), accurate in the lower tail."""
    out: Tensor = 0.5 * torch.special.erfc(-x * math.sqrt(0.5))
    return out


def common_shape(*tensors: Tensor | None) -> torch.Size:
    """The shape that the tensors broadcast to; None counts as a scalar."""
    shape: torch.Size = torch.broadcast_shapes(*(t.shape for t in tensors if t is not None))
    return shape


def _owens_small(h: Tensor, a: Tensor) -> Tensor:
    """T(h, a) = (2π)^{-1} ∫₀^a exp(−h²(1+t²)/2)/(1+t²) dt for 0 ≤ a ≤ 1; 24 nodes leave 1e-17."""
    t, w = on_unit(24, h.device)
    shape = common_shape(h, a)
    flat_h, flat_a = h.expand(shape).reshape(-1, 1), a.expand(shape).reshape(-1, 1)
    parts = []
    for i in range(0, flat_h.shape[0], 8192):  # blocks that stay in cache
        one = 1 + (flat_a[i : i + 8192] * t) ** 2
        parts.append((torch.exp(-0.5 * flat_h[i : i + 8192] ** 2 * one) / one) @ w)
    return torch.cat(parts).reshape(shape) * a / (2 * math.pi)


def owens_t(h: Tensor, a: Tensor) -> Tensor:
    """Owen's T function; a may be ±∞. T is even in h and odd in a."""
    h, size = h.abs(), a.abs()
    far = size > 1
    product = torch.where(h == 0, 0.0, h * size)
    inner = _owens_small(torch.where(far, product, h), torch.where(far, 1 / size, size))
    tail, tail2 = cdf(-h), cdf(-product)
    # T(h, a) = ½(Φ(−h) + Φ(−ah)) − Φ(−h)Φ(−ah) − T(ah, 1/a), in tails so that large h keeps its digits
    flipped = 0.5 * (tail + tail2) - tail * tail2 - inner
    at_zero = torch.atan(size) / (2 * math.pi)
    return torch.sign(a) * torch.where(h == 0, at_zero, torch.where(far, flipped, inner))


def sign_product(
    x: Tensor, y: Tensor, c12: Tensor, root: Tensor, differences: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """E sgn(X + x)·sgn(Y + y) for standard X, Y; ρ = c12/√(c12² + root²). It is 4Φ₂(x, y) − 2Φ(x) − 2Φ(y) + 1.

    `differences` are y − ρx and x − ρy where the caller knows them better: they are divided by √(1−ρ²).
    """
    norm = torch.hypot(c12, root)
    rho, s = ratio(c12, norm), torch.where(norm == 0, 1.0, ratio(root, norm))
    if differences is None:
        # y − ρx = (y ∓ x) ± (1 − |ρ|)x, with 1 − |ρ| from s
        side, gap = _side(rho), s * s / (1 + rho.abs())
        differences = (y - side * x) + side * gap * x, (x - side * y) + side * gap * y
    first = owens_t(x, _slope(differences[0], x, s))
    second = owens_t(y, _slope(differences[1], y, s))
    opposite = 2 * ((x * y < 0) | ((x * y == 0) & (x + y < 0))).to(x.dtype)
    general = 1 - opposite - 4 * (first + second)
    return torch.where((x == 0) & (y == 0), 2 / math.pi * torch.atan2(rho, s), general)


def _side(x: Tensor) -> Tensor:
    """−1 where x < 0, else 1, in the dtype of x (two numbers in a `where` are float32)."""
    one = torch.ones_like(x)
    return torch.where(x < 0, -one, one)


class Quadrant(NamedTuple):
    """P(X > −x, Y > −y) of standard X, Y of correlation ρ, x, y ≤ 0, and P(Y > −y | X = −x), P(X > −x | Y = −y)."""

    both: Tensor
    given_x: Tensor
    given_y: Tensor
    density: Tensor  # of (X, Y) at (−x, −y), times 1 − ρ²
    rho: Tensor


def quadrant(x: Tensor, y: Tensor, c12: Tensor, root: Tensor) -> Quadrant:
    """Φ₂(x, y; ρ) and what its moments need, for x, y ≤ 0; ρ = c12/√(c12² + root²).

    ½(Φ(x) + Φ(y)) − T(x, (y − ρx)/xs) − T(y, (x − ρy)/ys), s² = 1 − ρ²: the error is some ulps of Φ(x) + Φ(y).
    """
    norm = torch.hypot(c12, root)
    rho, s = ratio(c12, norm), torch.where(norm == 0, 1.0, ratio(root, norm))
    side, gap = _side(rho), s * s / (1 + rho.abs())
    x, y = x.clamp(max=-TINY), y.clamp(max=-TINY)
    above, beside = (y - side * x) + side * gap * x, (x - side * y) + side * gap * y
    both = 0.5 * (cdf(x) + cdf(y)) - owens_t(x, _slope(above, x, s)) - owens_t(y, _slope(beside, y, s))
    above, beside = (torch.where(s == 0, 40 * torch.sign(d), d / torch.where(s == 0, 1.0, s)) for d in (above, beside))
    density = torch.where(s == 0, 0.0, s * torch.exp(-0.5 * (x * x + above * above)) / (2 * math.pi))
    return Quadrant(both.clamp(min=0), cdf(above), cdf(beside), density, rho)


def _slope(numerator: Tensor, h: Tensor, s: Tensor) -> Tensor:
    """numerator/(h·s) as Owen's formula needs it: ±∞ for a vanishing denominator, 0 for 0/0, and h = 0 as 0+."""
    side = torch.where(h < 0, -torch.sign(numerator), torch.sign(numerator))
    infinite = torch.where(numerator == 0, 0.0, side * math.inf)
    denominator = h * s
    return torch.where(denominator == 0, infinite, numerator / torch.where(denominator == 0, 1.0, denominator))
