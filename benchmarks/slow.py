"""Kernels that take long, beside the same job with relu: CPU seconds of one thread, their ratio, and the accuracy.

    python benchmarks/slow.py                  # or --case NAME, --quick; --json for one object per line

The accuracy is the error that the result states relative to √(E f² E g²), nothing for closed forms, and the largest
standard error of sampled kernels. The first call is timed: it has what inputs take alone in it. The other case and
relu take turns, three times each; the medians are given.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch is imported

import argparse
import json
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

import netsor as ns
from netsor.programs import batchnorm_mlp, gru, lstm, mlp, rnn

Make = Callable[[str], ns.Program]


def vectors(n: int) -> torch.Tensor:
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def near(n: int) -> torch.Tensor:
    """A third of the inputs is nearly another."""
    x = vectors(n)
    third = n // 3
    x[:third] = x[third : 2 * third] + 1e-6 * x[2 * third : 3 * third]
    return x


def sequences(n: int, t: int) -> torch.Tensor:
    return torch.randn(n, t, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


# The program of a function, the function, inputs of a size, the size and the quick one.
CASES: dict[str, tuple[Make, str, Callable[[int], torch.Tensor], int, int]] = {
    "elu, near-duplicates": (lambda f: mlp(2, f), "elu", near, 3000, 30),
    "elu, variances of 900": (lambda f: mlp(2, f), "elu", lambda n: 30 * vectors(n), 3000, 30),
    "tanh, near-duplicates": (lambda f: mlp(2, f), "tanh", near, 3000, 30),
    "sin": (lambda f: mlp(2, f), "sin", vectors, 3000, 30),
    "rnn, 50 steps": (lambda f: rnn(f), "tanh", lambda n: sequences(n, 50), 100, 3),
    "batchnorm_mlp, batches of 8": (lambda f: batchnorm_mlp(2, f), "relu", lambda n: sequences(n, 8), 5, 2),
    "gru, 4 steps": (lambda f: gru() if f == "gru" else rnn(f), "gru", lambda n: sequences(n, 4), 4, 2),
    "lstm, 4 steps": (lambda f: lstm() if f == "lstm" else rnn(f), "lstm", lambda n: sequences(n, 4), 4, 2),
}


def seconds(p: ns.Program, x: torch.Tensor, samples: int | None) -> tuple[float, Any]:
    """Of the first call of a kernel."""
    kernel = ns.compile(p, assume_gia=True, **({} if samples is None else {"samples": samples}))
    start = time.process_time()
    found = kernel(x, get="ntk")
    return time.process_time() - start, found


def row(case: str, quick: bool) -> dict[str, Any]:
    make, f, inputs, size, small = CASES[case]
    x = inputs(small if quick else size)
    samples = 2**8 if quick else None
    mine, other = [], []
    for _ in range(1 if quick else 3):
        spent, found = seconds(make(f), x, samples)
        mine.append(spent)
        other.append(seconds(make("relu"), x, samples)[0])
    errors = [float(e.abs().max()) for e in found.errors.values()]
    return {
        "case": case, "seconds": median(mine), "relu": median(other), "ratio": median(mine) / median(other),
        "method": found.method, "error": max(errors) if errors else found.error,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="only these")
    parser.add_argument("--quick", action="store_true", help="small inputs, once")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # sampled kernels and long calls say so
    for case in args.case or CASES:
        found = row(case, args.quick)
        print(json.dumps(found) if args.json else text(found), flush=True)


def text(found: dict[str, Any]) -> str:
    error = "" if found["error"] is None else f"{found['error']:.0e}"
    times = f"{found['seconds']:8.2f} s   relu {found['relu']:7.2f} s   ratio {found['ratio']:7.1f}"
    return f"{found['case']:28} {times}   {error:6} {found['method']}"


if __name__ == "__main__":
    main()
