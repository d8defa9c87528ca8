"""Cost and true error of E f(u)g(v): function × σ × ρ × mean, corners included.

    python benchmarks/cliffs.py                  # or --quick; --json for one object per line

Each row is a block of `--size` × `--size` pairs of inputs whose σ, and σ̄, spread over a factor of two around the
values given, with the same correlation. `µs` is the CPU time of one thread for an entry; what the inputs take alone and
what the block takes once are in it. `error` is the largest over some entries against quadrature in 19 digits
(`tests/expectation/make_corners.py`), and `bound` what the engine states, both relative to √(E f² · E g²). A row above
20 µs, or whose error is above its bound or 1e-9, is marked, and the exit status is then 1.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch is imported

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from netsor.compilers import expectation as ex
from netsor.compilers.expectation.blocks.fast import E2
from netsor.compilers.expectation.blocks.law import Law
from netsor.compilers.expectation.blocks.work import Work

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "expectation"))
import engine_functions as named
from make_corners import ALPHA, LAMBDA, reference
from make_corners import FUNCTIONS as TRUTH

SIGMAS = ((1e-8, 1e-8), (1e-3, 2.0), (1.0, 1.0), (7.0, 3.0), (30.0, 100.0), (1e3, 1e3))
GAPS = (1.0, 0.5, 1e-2, 1e-4, 1e-8, 1e-12, 0.0)  # 1 − |ρ|
MEANS = ((0.0, 0.0), (0.7, -2.0))
LIMIT, TARGET = 20.0, 1e-9

FUNCTIONS: dict[str, Callable[[], ex.Fn]] = {
    "tanh": named.tanh,
    "tanh'": lambda: named.tanh().derivative,
    "sigmoid": named.sigmoid,
    "silu": named.silu,
    "silu'": lambda: named.silu().derivative,
    "softplus": named.softplus,
    "elu": named.elu,
    "elu'": lambda: named.elu().derivative,
    "hard tanh": lambda: ex.function(
        lambda x: x.clamp(-1, 1), lambda x: (x.abs() < 1).to(x.dtype), kinks=(-1.0, 1.0), name="hard tanh"
    ),
    "relu6": lambda: ex.function(
        lambda x: x.clamp(0, 6), lambda x: ((x > 0) & (x < 6)).to(x.dtype), kinks=(0.0, 6.0), name="relu6"
    ),
    "selu": lambda: ex.function(
        lambda x: LAMBDA * torch.where(x > 0, x, ALPHA * torch.expm1(x.clamp(max=0))), kinks=(0.0,), name="selu"
    ),
    "shrunk tanh": lambda: ex.function(
        lambda x: torch.tanh(x - x.clamp(-0.5, 0.5)), kinks=(-0.5, 0.5), name="shrunk tanh"
    ),
    "late tanh": lambda: ex.function(lambda x: torch.where(x > 1, torch.tanh(x), 0.0), kinks=(1.0,), name="late tanh"),
    "algebraic": lambda: ex.function(lambda x: x / (1 + x * x).sqrt(), name="algebraic"),
}


# ---------------------------------------------------------------- the engine


def block(sigmas: tuple[float, float], gap: float, side: int, size: int) -> tuple[torch.Tensor, ...]:
    """Variances `[n, 1]`, `[1, n]` and covariances `[n, n]`."""
    generator = torch.Generator().manual_seed(0)
    one, two = (s * (0.7 + 0.7 * torch.rand(size, generator=generator, dtype=torch.float64)) for s in sigmas)
    two[0] = one[0] * sigmas[1] / sigmas[0]
    return (one**2)[:, None], (two**2)[None], side * (1 - gap) * one[:, None] * two


def cell(name: str, sigmas: tuple[float, float], gap: float, side: int, means: tuple[float, float], size: int) -> Any:
    """One row of the table."""
    f = FUNCTIONS[name]()
    k11, k22, k12 = block(sigmas, gap, side, size)
    given = [torch.full((), m, dtype=torch.float64) if any(means) else None for m in means]
    with ex.record() as log:
        start = time.process_time()
        out = E2(f, f, Law(Work(), k11, k22, k12, *given))
        spent = time.process_time() - start
    errors = []
    for i, j in ((0, 0), (size // 2, size - 1)):
        want, scale = reference(TRUTH[name], (float(k11[i, 0]), float(k22[0, j]), float(k12[i, j])), means)
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
        f"{row['f']:11} σ {one:5.0e} {two:5.0e}  1-|ρ| {row['gap']:5.0e} {'-' if row['side'] < 0 else '+'}"
        f"  mean {row['mean'][0]:4.1f} {row['mean'][1]:4.1f}  {row['us']:7.2f} µs  error {row['error']:7.1e}"
        f"  bound {row['bound']:7.1e}  {row['method']}{'' if row['good'] else '  <<<'}"
    )


if __name__ == "__main__":
    sys.exit(main())
