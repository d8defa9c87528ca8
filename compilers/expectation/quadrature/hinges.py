"""E f(u)g(v) of piecewise linear functions of jointly Gaussian u, v, any means and kinks, in closed form.

Each function is the linear piece in which the mean lies, and a hinge for each kink (`linear.hinges`). Two hinges meet
in a quadrant of the plane beyond their kinks, with its Φ₂ and, by Stein's lemma, the first moments of it: for standard
X, Y of correlation ρ, s² = 1 − ρ², and the event X > −z, Y > −w,

    E [X + z]        = z·Φ₂ + φ(z)Φ((w − ρz)/s) + ρφ(w)Φ((z − ρw)/s),
    E [X + z][Y + w] = (zw + ρ)·Φ₂ + zφ(w)Φ((z − ρw)/s) + wφ(z)Φ((w − ρz)/s) + s·exp(−(z² − 2ρzw + w²)/2s²)/2π.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import EPS, Gauss, cdf, quadrant, ratio
from netsor.compilers.expectation.quadrature.linear import Hinge, Hinges, Piece, hinges

ROUNDING = 4 * EPS  # of the parts, without their signs
ACCEPT = 5e-10


class Correlated(NamedTuple):
    """k12 and √det of the pair."""

    k12: Tensor
    root: Tensor


def expectation(f: Fn, g: Fn, on: Gauss) -> tuple[Tensor, float] | None:
    """E f(u)g(v) and its error relative to √(E f² E g²); None where there are other pieces, or more rounding."""
    if not (f.pieces and g.pieces):
        return None
    left, right = _seen(f.pieces, on.k11, on.m1), _seen(g.pieces, on.k22, on.m2)
    error = ROUNDING * _loss(left) * _loss(right)
    if not error <= ACCEPT:
        return None
    return product(left, right, Correlated(on.k12, on.det.sqrt())), error


def _seen(found: tuple[Piece, ...], k: Tensor, m: Tensor | None) -> Hinges:
    return hinges(found, k, torch.zeros_like(k) if m is None else m)


def _loss(f: Hinges) -> float:
    """The largest ratio of the parts of f to f itself."""
    k = f.sigma.square()
    own = product(f, f, Correlated(k, torch.zeros_like(k))).clamp(min=0).sqrt()
    size = f.size
    return float(torch.where(size == 0, 1.0, size / own).max())


def product(f: Hinges, g: Hinges, by: Correlated) -> Tensor:
    total = f.level * g.level + f.slope * g.slope * by.k12
    for b in g.hinges:
        total = total + _line(f, b, by.k12)
    for a in f.hinges:
        total = total + _line(g, a, by.k12)
        for b in g.hinges:
            total = total + _meeting(a, b, by)
    return total


def _line(f: Hinges, b: Hinge, k12: Tensor) -> Tensor:
    """The linear piece of f against a hinge of v: E (X − m)·h(v) = cov · E h′."""
    below = cdf(b.z)
    slope = b.jump * ratio(b.density, b.sigma) + b.slope * below
    return f.level * b.mean + f.slope * b.side * k12 * slope


def _meeting(a: Hinge, b: Hinge, by: Correlated) -> Tensor:
    """The hinges of u and v against each other."""
    z, w = a.z, b.z
    q = quadrant(z, w, a.side * b.side * by.k12, by.root)
    first, second = a.density * q.given_x, b.density * q.given_y
    total = a.jump * b.jump * q.both
    if a.slope:
        total = total + a.slope * a.sigma * b.jump * (z * q.both + first + q.rho * second)
    if b.slope:
        total = total + b.slope * b.sigma * a.jump * (w * q.both + second + q.rho * first)
    if a.slope and b.slope:
        corner = (z * w + q.rho) * q.both + z * second + w * first + q.density
        total = total + a.slope * b.slope * a.sigma * b.sigma * corner
    return total
