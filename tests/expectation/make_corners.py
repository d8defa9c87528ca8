"""E f(u)f(v) at corners of (σ, σ̄, ρ, means), by quadrature in 80-bit floats that shares nothing with the engine.

Run `python tests/expectation/make_corners.py` to write `corners.json`, in some minutes; `--check` compares the rule
with the closed form of exp(−x²) in 40 digits (mpmath). `benchmarks/cliffs.py` uses the same rule.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np

FILE = Path(__file__).with_name("corners.json")
RANGE, NODES = 11, 14  # 1e-27 of the Gaussian lies outside
Long = np.longdouble
Array = Any
Real = Callable[[Array], Array]


def sigmoid(x: Array) -> Array:
    decay = np.exp(-np.abs(x))
    return np.where(x > 0, 1, decay) / (1 + decay)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sech2(x: Array) -> Array:
    decay = np.exp(-2 * np.abs(x))
    return 4 * decay / (1 + decay) ** 2


class Known(NamedTuple):
    """A function and where its panels have to end: its kinks, and 0."""

    f: Real
    ends: tuple[float, ...] = (0.0,)


def beyond(x: Array) -> Array:
    """The part of x outside [−1/2, 1/2]."""
    return x - np.clip(x, Long(-0.5), Long(0.5))


LAMBDA, ALPHA = 1.0507009873554805, 1.6732632423543772

FUNCTIONS: dict[str, Known] = {
    "tanh": Known(np.tanh),
    "tanh'": Known(sech2),
    "sigmoid": Known(sigmoid),
    "silu": Known(lambda x: x * sigmoid(x)),
    "silu'": Known(lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
    "softplus": Known(softplus),
    "elu": Known(lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "elu'": Known(lambda x: np.exp(np.minimum(x, 0))),
    "selu": Known(lambda x: LAMBDA * np.where(x > 0, x, ALPHA * np.expm1(np.minimum(x, 0)))),
    "hard tanh": Known(lambda x: np.clip(x, -1, 1), (-1.0, 0.0, 1.0)),
    "relu6": Known(lambda x: np.clip(x, 0, 6), (0.0, 6.0)),
    "shrunk tanh": Known(lambda x: np.tanh(beyond(x)), (-0.5, 0.5)),
    "late tanh": Known(lambda x: np.where(x > 1, np.tanh(x), 0), (0.0, 1.0)),
    "algebraic": Known(lambda x: x / np.sqrt(1 + x * x)),
}


def legendre() -> tuple[Array, Array]:
    """Nodes and weights on [0, 1] to the digits of the format."""
    with mp.workdps(30):
        guess = [mp.mpf(float(t)) for t in np.polynomial.legendre.leggauss(NODES)[0]]
        x = [mp.findroot(lambda t: mp.legendre(NODES, t), (t - 1e-6, t + 1e-6)) for t in guess]
        w = [(1 - t * t) / (NODES * mp.legendre(NODES - 1, t)) ** 2 for t in x]
        return long([(1 + t) / 2 for t in x]), long(w)


def long(values: list[Any]) -> Array:
    return np.array([Long(mp.nstr(v, 25)) for v in values])


def panels(centres: list[tuple[Array, Any]]) -> tuple[Array, Array]:
    """Nodes `[N, Z]` and weights with the Gaussian density; panels double away from each (centre `[N]`, scale)."""
    count = len(centres[0][0])
    ends = [np.broadcast_to(np.arange(-RANGE, RANGE + 1, dtype=Long), (count, 2 * RANGE + 1))]
    for centre, scale in centres:
        reach = scale * 2.0 ** np.arange(max(1, math.ceil(-math.log2(scale)) + 1), dtype=Long)
        ends.append(centre[:, None] + np.concatenate([-reach, [Long(0)], reach]))
    edges = np.sort(np.clip(np.concatenate(ends, 1), -RANGE, RANGE), 1)
    t, w = LEGENDRE
    width = np.diff(edges)[..., None]
    z = (edges[:, :-1, None] + width * t).reshape(count, -1)
    return z, (width * w).reshape(count, -1) * np.exp(-z * z / 2) / np.sqrt(2 * Long(np.pi))


def norm(known: Known, s: Array, m: Array) -> Array:
    z, w = panels([(np.array([(c - m) / s]), float(min(1, 1 / s) / 4)) for c in known.ends])
    return np.sqrt((w * known.f(m + s * z) ** 2).sum())


def reference(known: Known, k: tuple[float, float, float], means: tuple[float, float]) -> tuple[float, float]:
    """E f(u)f(v) over √(E f² E g²), and that root; k = (k11, k22, k12) as the engine is given them.

    With |ρ| = 1 − 2d², c² + d² = 1, u = m₁ + s₁(cx + dy) and v = m₂ ± s₂(cx − dy) for independent x and y.
    """
    f = known.f
    with mp.workdps(40):
        k11, k22, k12 = map(mp.mpf, k)
        half = (1 - abs(k12) / mp.sqrt(k11 * k22)) / 2
        half = mp.mpf(0) if half < 1e-15 else half  # the engine takes this for |ρ| = 1
        s1, s2, c, d = long([mp.sqrt(x) for x in (k11, k22, 1 - half, half)])
    (m1, m2), side = map(Long, means), Long(1 if k[2] >= 0 else -1)
    scale = norm(known, s1, m1) * norm(known, s2, m2)
    one, two = [(Long(a) - m1) / s1 for a in known.ends], [side * (Long(a) - m2) / s2 for a in known.ends]
    y, outer = np.zeros(1, Long), np.ones(1, Long)
    if d:
        meet = [np.clip((a - b) / (2 * d), -1e6, 1e6) for a in one for b in two]
        y, outer = panels([(np.array([at]), float(min(1, 1 / (d * max(s1, s2) + 1e-300)) / 4)) for at in meet])
        y, outer = y[0], outer[0]
    total = Long(0)
    for part in np.array_split(np.arange(len(y)), -(-len(y) // 128)):
        step = d * y[part]
        centres = [((a - step) / c, float(min(1, 1 / s1) / 4)) for a in one]
        centres += [((b + step) / c, float(min(1, 1 / s2) / 4)) for b in two]
        x, w = panels(centres)
        inner = f(m1 + s1 * (c * x + step[:, None])) * f(m2 + side * s2 * (c * x - step[:, None]))
        total += (outer[part] * (w * inner).sum(1)).sum()
    return float(total / (scale or 1)), float(scale) or 1.0


LEGENDRE = legendre()


# ---------------------------------------------------------------- the table

SIGMAS = ((1e-8, 1e-8), (1e-8, 1e3), (1e-3, 2.0), (7.0, 3.0), (1e3, 1e3))
GAPS = (0.3, 1e-2, 1e-5, 1e-12, 0.0)  # 1 − |ρ|
MEANS = ((0.0, 0.0), (0.7, -2.0))
ROWS = 90


def rows() -> list[dict[str, Any]]:
    every = list(itertools.product(FUNCTIONS, SIGMAS, GAPS, (1, -1), MEANS))
    return [row(*case) for case in sorted(random.Random(0).sample(every, ROWS))]


def row(name: str, sigmas: tuple[float, float], gap: float, side: int, means: tuple[float, float]) -> dict[str, Any]:
    k = sigmas[0] ** 2, sigmas[1] ** 2, side * (1 - gap) * sigmas[0] * sigmas[1]
    value, scale = reference(FUNCTIONS[name], k, means)
    return {"f": name, "k": k, "means": means, "value": value, "scale": scale}


def check() -> None:
    for sigmas, gap, side in itertools.product(SIGMAS, GAPS, (1, -1)):
        k11, k22, k12 = sigmas[0] ** 2, sigmas[1] ** 2, side * (1 - gap) * sigmas[0] * sigmas[1]
        value, scale = reference(Known(lambda x: np.exp(-x * x)), (k11, k22, k12), (0.0, 0.0))
        with mp.workdps(40):
            a, b, c = map(mp.mpf, (k11, k22, k12))
            want = 1 / mp.sqrt((1 + 2 * a) * (1 + 2 * b) - 4 * (c * c if gap else a * b))
        print(sigmas, side * (1 - gap), f"{value - float(want) / scale:.1e}", flush=True)


if __name__ == "__main__":
    check() if "--check" in sys.argv else FILE.write_text(json.dumps(rows(), indent=0))
