"""Distributions against functions: E δ⁽ⁿ⁾(u − c) g(v) = (−1)ⁿ dⁿ/dcⁿ [p(c) · E(g(v) | u = c)], p the density of u."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import Gauss, difference, ratio
from netsor.compilers.expectation.terms import Delta

Single = Callable[[Fn, Tensor, Tensor | None], Tensor]


def against(d: Delta, g: Fn, on: Gauss, single: Single) -> Tensor:
    """E δ⁽ⁿ⁾(u − c) g(v). A constant u has no density: the symmetric derivative there is 0, and so is this."""
    gap = None if on.m1 is None and d.at == 0 else d.at - (0.0 if on.m1 is None else on.m1) + torch.zeros_like(on.k11)
    slope = ratio(on.k12, on.k11)
    rest = ratio(on.det, on.k11)
    mean = on.m2
    if gap is not None:
        mean = slope * gap if mean is None else difference(slope * gap, mean, rest)
    total = torch.zeros_like(on.det)
    for j in range(d.order + 1):
        height = _density(on.k11, gap, d.order - j)
        if height is not None:
            total = total + math.comb(d.order, j) * height * slope**j * single(g, rest, mean)
        g = g.derivative if j < d.order else g
    return -total if d.order % 2 else total


def _density(k: Tensor, gap: Tensor | None, order: int) -> Tensor | None:
    """The order-th derivative of the density of N(0, k) at the gap; None if zero by symmetry."""
    if gap is None and order % 2:
        return None
    sigma = k.sqrt()
    z = torch.zeros_like(k) if gap is None else ratio(gap, sigma)
    before, now = torch.zeros_like(z), ratio(torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), sigma)
    for n in range(order):
        before, now = now, ratio(-z * now, sigma) - n * ratio(before, k)
    return now
