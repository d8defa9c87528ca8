"""Cost and true error of E f(u)g(v): function × σ × ρ × mean, corners included.

    python benchmarks/cliffs.py                  # or --quick; --json for one object per line

Each row is a block of `--size` × `--size` pairs of inputs whose σ, and σ̄, spread over a factor of two around the
values given, with the same correlation. `µs` is the CPU time of one thread for an entry; what the inputs take alone and
what the block takes once are in it. `error` is the largest over some entries against quadrature in
19 digits on panels, and `bound` what the engine states, both relative to √(E f² · E g²). A row above 20 µs, or whose
error is above its bound or 1e-9, is marked, and the exit status is then 1.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch is imported

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import torch

from netsor.compilers import expectation as ex
from netsor.compilers.expectation.fast import E2
from netsor.compilers.expectation.scratch import scratch

SIGMAS = ((1e-8, 1e-8), (1e-3, 2.0), (1.0, 1.0), (7.0, 3.0), (30.0, 100.0), (1e3, 1e3))
GAPS = (1.0, 0.5, 1e-2, 1e-4, 1e-8, 1e-12, 0.0)  # 1 − |ρ|
MEANS = ((0.0, 0.0), (0.7, -2.0))
LIMIT, TARGET = 20.0, 1e-9
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


def root(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x * x).sqrt()


FUNCTIONS: dict[str, tuple[Callable[[], ex.Fn], Real]] = {
    "tanh": (ex.tanh, np.tanh),
    "tanh'": (lambda: ex.tanh().derivative, sech2),
    "sigmoid": (ex.sigmoid, sigmoid),
    "silu": (ex.silu, lambda x: x * sigmoid(x)),
    "silu'": (lambda: ex.silu().derivative, lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
    "softplus": (ex.softplus, softplus),
    "elu": (ex.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "elu'": (lambda: ex.elu().derivative, lambda x: np.exp(np.minimum(x, 0))),
    "user": (lambda: ex.function(root, name="user"), lambda x: x / np.sqrt(1 + x * x)),
}


# ---------------------------------------------------------------- the reference


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


def norm(f: Real, s: Array, m: Array) -> Array:
    z, w = panels([(np.array([-m / s]), float(min(1, 1 / s) / 4))])
    return np.sqrt((w * f(m + s * z) ** 2).sum())


def reference(f: Real, k: tuple[float, float, float], means: tuple[float, float]) -> tuple[float, float]:
    """E f(u)f(v) over √(E f² E g²), and that root; k = (k11, k22, k12) as the engine is given them.

    With |ρ| = 1 − 2d², c² + d² = 1, u = m₁ + s₁(cx + dy) and v = m₂ ± s₂(cx − dy) for independent x and y.
    """
    with mp.workdps(40):
        k11, k22, k12 = map(mp.mpf, k)
        half = (1 - abs(k12) / mp.sqrt(k11 * k22)) / 2
        half = mp.mpf(0) if half < 1e-15 else half  # the engine takes this for |ρ| = 1
        s1, s2, c, d = long([mp.sqrt(x) for x in (k11, k22, 1 - half, half)])
    (m1, m2), side = map(Long, means), Long(1 if k[2] >= 0 else -1)
    scale = norm(f, s1, m1) * norm(f, s2, m2)
    meet = np.clip((-m1 / s1 + side * m2 / s2) / (2 * d), -1e6, 1e6) if d else Long(0)
    y, outer = panels([(np.array([meet]), float(min(1, 1 / (d * max(s1, s2) + 1e-300)) / 4))])
    y, outer = (y[0], outer[0]) if d else (np.zeros(1, Long), np.ones(1, Long))
    total = Long(0)
    for part in np.array_split(np.arange(len(y)), -(-len(y) // 128)):
        step = d * y[part]
        centres = [((-m1 / s1 - step) / c, float(min(1, 1 / s1) / 4)), ((-side * m2 / s2 + step) / c, float(min(1, 1 / s2) / 4))]
        x, w = panels(centres)
        inner = f(m1 + s1 * (c * x + step[:, None])) * f(m2 + side * s2 * (c * x - step[:, None]))
        total += (outer[part] * (w * inner).sum(1)).sum()
    return float(total / scale), float(scale)


LEGENDRE = legendre()


# ---------------------------------------------------------------- the engine


def block(sigmas: tuple[float, float], gap: float, side: int, size: int) -> tuple[torch.Tensor, ...]:
    """Variances `[n, 1]`, `[1, n]` and covariances `[n, n]`."""
    generator = torch.Generator().manual_seed(0)
    one, two = (s * (0.7 + 0.7 * torch.rand(size, generator=generator, dtype=torch.float64)) for s in sigmas)
    two[0] = one[0] * sigmas[1] / sigmas[0]
    return (one**2)[:, None], (two**2)[None], side * (1 - gap) * one[:, None] * two


def cell(name: str, sigmas: tuple[float, float], gap: float, side: int, means: tuple[float, float], size: int) -> Any:
    """One row of the table."""
    f, truth = FUNCTIONS[name][0](), FUNCTIONS[name][1]
    k11, k22, k12 = block(sigmas, gap, side, size)
    given = [torch.full((), m, dtype=torch.float64) if any(means) else None for m in means]
    with ex.record() as log, scratch():
        start = time.process_time()
        out = E2(f, f, k11, k22, k12, *given)
        spent = time.process_time() - start
    errors = []
    for i, j in ((0, 0), (size // 2, size - 1)):
        want, scale = reference(truth, (float(k11[i, 0]), float(k22[0, j]), float(k12[i, j])), means)
        errors.append(abs(float(out[i, j]) / scale - want))
    bound = max(b for _, b in log)
    micro = 1e6 * spent / size**2
    good = micro <= LIMIT and max(errors) <= min(TARGET, bound + rounding(f, k11, k22, k12, given))
    return {
        "f": name, "sigma": sigmas, "gap": gap, "side": side, "mean": means, "us": micro, "error": max(errors),
        "bound": bound, "method": "+".join(sorted({m for m, _ in log})), "good": good,
    }  # fmt: skip


def rounding(f: ex.Fn, k11: torch.Tensor, k22: torch.Tensor, k12: torch.Tensor, means: list[Any]) -> float:
    """What half an ulp of the covariances changes at the first entry, relative to the scale: E f′f′ times it."""
    some = k11[:1], k22[:, :1], k12[:1, :1]
    slope = E2(f.derivative, f.derivative, *some, *means).abs() * k12[:1, :1].abs()
    scale = (ex.E11(f, f, k11[:1], means[0]) * ex.E11(f, f, k22[:, :1], means[1])).sqrt()
    return 2.0**-50 * float(slope / scale) + 2.0**-50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few cells, small blocks; no limit on the time")
    parser.add_argument("--size", type=int, default=300, help="inputs per side of a block")
    parser.add_argument("--function", choices=sorted(FUNCTIONS), action="append", help="only these")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    names = args.function or (["tanh", "elu'"] if args.quick else list(FUNCTIONS))
    sigmas, gaps, means = (SIGMAS[-1:], GAPS[2:5:2], MEANS[:1]) if args.quick else (SIGMAS, GAPS, MEANS)
    bad = 0
    for name, sigma, gap, mean in itertools.product(names, sigmas, gaps, means):
        side = -1 if len(f"{name}{gap}") % 2 else 1
        row = cell(name, sigma, gap, side, mean, 20 if args.quick else args.size)
        good = row["good"] or (args.quick and row["error"] <= TARGET)
        bad += not good
        print(json.dumps(row) if args.json else text(row), flush=True)
    return 1 if bad else 0


def text(row: Any) -> str:
    one, two = row["sigma"]
    return (
        f"{row['f']:9} σ {one:5.0e} {two:5.0e}  1-|ρ| {row['gap']:5.0e} {'-' if row['side'] < 0 else '+'}"
        f"  mean {row['mean'][0]:4.1f} {row['mean'][1]:4.1f}  {row['us']:7.2f} µs  error {row['error']:7.1e}"
        f"  bound {row['bound']:7.1e}  {row['method']}{'' if row['good'] else '  <<<'}"
    )


if __name__ == "__main__":
    sys.exit(main())
