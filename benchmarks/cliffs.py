"""Cost and true error of E f(u)g(v): function × σ × ρ × mean, corners included.

    python benchmarks/cliffs.py                  # or --quick; --json for one object per line

Each row is a block of `--size` × `--size` pairs of inputs whose σ, and σ̄, spread over a factor of two around the
values given, with the same correlation. `µs` is the CPU time of one thread for an entry; what the inputs take alone and
what the block takes once are in it. `error` is the largest over some entries against quadrature in 30 digits
(mpmath) on panels, and `bound` what the engine states, both relative to √(E f² · E g²). A row above 20 µs, or whose
error is above its bound or 1e-9, is marked, and the exit status is then 1.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch is imported

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import mpmath as mp
import torch
from torch import Tensor

from netsor.compilers import expectation as ex

SIGMAS = ((1e-8, 1e-8), (1e-3, 2.0), (1.0, 1.0), (7.0, 3.0), (30.0, 100.0), (1e3, 1e3))
GAPS = (1.0, 0.5, 1e-2, 1e-4, 1e-8, 1e-12, 0.0)  # 1 − |ρ|
MEANS = ((0.0, 0.0), (0.7, -2.0))
LIMIT, TARGET = 20.0, 1e-9
RANGE = 11  # 1e-27 of the Gaussian lies outside

Real = Callable[[Any], Any]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x)) if x > -60 else mp.exp(x)


FUNCTIONS: dict[str, tuple[Callable[[], ex.Fn], Real]] = {
    "tanh": (ex.tanh, mp.tanh),
    "tanh'": (lambda: ex.tanh().derivative, lambda x: mp.sech(x) ** 2),
    "sigmoid": (ex.sigmoid, sigmoid),
    "silu": (ex.silu, lambda x: x * sigmoid(x)),
    "softplus": (ex.softplus, lambda x: max(x, mp.mpf(0)) + mp.log1p(mp.exp(-abs(x)))),
    "elu": (ex.elu, lambda x: x if x > 0 else mp.expm1(x)),
    "elu'": (lambda: ex.elu().derivative, lambda x: mp.mpf(1) if x > 0 else mp.exp(x)),
    "gelu'": (ex.gelu_prime, lambda x: mp.ncdf(x) + x * mp.npdf(x)),
    "user": (lambda: ex.function(lambda x: x / (1 + x * x).sqrt()), lambda x: x / mp.sqrt(1 + x * x)),
}


# ---------------------------------------------------------------- the reference


def edges(centres: list[tuple[Any, Any]]) -> list[Any]:
    """Ends of panels on ±RANGE that double away from each (centre, scale)."""
    found = {mp.mpf(k) / 2 for k in range(-2 * RANGE, 2 * RANGE + 1)}
    for centre, scale in centres:
        found.add(centre)
        reach = scale
        while reach < 1:
            found |= {centre - reach, centre + reach}
            reach *= 2
    return sorted(x for x in found if abs(x) <= RANGE)


def panels(ends: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Nodes of the Gauss–Legendre rule of 12 points, and weights with the Gaussian density."""
    for low, high in itertools.pairwise(ends):
        for t, w in LEGENDRE:
            z = low + (high - low) * (t + 1) / 2
            yield z, w * (high - low) / 2 * mp.npdf(z)


def legendre(n: int) -> list[tuple[Any, Any]]:
    roots = [mp.findroot(lambda x: mp.legendre(n, x), mp.cos(mp.pi * (k + 0.75) / (n + 0.5))) for k in range(n)]
    return [(x, 2 * (1 - x * x) / (n * mp.legendre(n - 1, x)) ** 2) for x in roots]


with mp.workdps(30):
    LEGENDRE = legendre(12)


def reference(f: Real, s: tuple[float, float], gap: float, m: tuple[float, float], side: int) -> tuple[float, float]:
    """E f(u)f(v), ρ = side·(1 − gap), and √(E f² E g²).

    In 1 − |ρ| = gap the two are u = m₁ + s₁(cx + dy), v = m₂ ± s₂(cx − dy), c² = 1 − gap/2, d² = gap/2.
    """
    with mp.workdps(30):
        (s1, s2), (m1, m2), half = map(mp.mpf, s), map(mp.mpf, m), mp.mpf(gap) / 2
        c, d = mp.sqrt(1 - half), mp.sqrt(half)
        one, two = (mp.sqrt(sum(w * f(b + a * z) ** 2 for z, w in line(a, b))) for a, b in ((s1, m1), (s2, m2)))
        if gap == 0:
            ends = edges([(-m1 / s1, 1 / s1 / 4), (-side * m2 / s2, 1 / s2 / 4)])
            total = sum(w * f(m1 + s1 * z) * f(m2 + side * s2 * z) for z, w in panels(ends))
            return float(total / (one * two)), float(one * two)
        total = mp.mpf(0)
        for y, outer in panels(edges([(mp.mpf(0), mp.mpf(1))])):
            first, second = (-m1 / s1 - d * y) / c, (-side * m2 / s2 + d * y) / c
            inner = panels(edges([(first, 1 / s1 / 4), (second, 1 / s2 / 4)]))
            total += outer * sum(
                w * f(m1 + s1 * (c * x + d * y)) * f(m2 + side * s2 * (c * x - d * y)) for x, w in inner
            )
        return float(total / (one * two)), float(one * two)


def line(s: Any, m: Any) -> Iterator[tuple[Any, Any]]:
    return panels(edges([(-m / s, 1 / s / 4)]))
