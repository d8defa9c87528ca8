"""Kernels that take long, beside the same job with relu: CPU seconds of one thread, their ratio, and the accuracy.

    python benchmarks/slow.py                  # or --case NAME, --quick; --json for one object per line

The accuracy is the error that the result states relative to √(E f² E g²), nothing for closed forms, and the largest
standard error of sampled kernels. Both have the native backend where it covers them. The first call of a kernel is
timed: it has what inputs take alone in it, but not the compiler, which a call of few inputs has started before
(`compiling`, the CPU seconds of that call and of the compiler, few where a library is in the cache). The other case and
relu take turns, three times each; the medians are given.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch is imported

import argparse
import contextlib
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


def products(f: str) -> ns.Program:
    """Dense layers with products of functions of several variables."""
    p = ns.Program("products")
    n = p.width("n")
    x = p.data("x")
    phi = ns.functions.as_function(f)
    h = p.let("h", phi(p.matrix("A", n, x) @ x))
    u, w = p.let("u", p.matrix("B", n, n) @ h), p.let("w", p.matrix("C", n, n) @ h + p.bias("c", n, var=0.1))
    z = p.let("z", phi(u) * phi(w) + phi(u))
    p.output(p.readout("v", n), p.let("y", phi(p.matrix("D", n, n) @ z) * phi(p.matrix("E", n, n) @ h)))
    return p


# The program of a function, the function, inputs of a size, the size and the quick one.
CASES: dict[str, tuple[Make, str, Callable[[int], torch.Tensor], int, int]] = {
    "elu, near-duplicates": (lambda f: mlp(2, f), "elu", near, 3000, 30),
    "elu, variances of 900": (lambda f: mlp(2, f), "elu", lambda n: 30 * vectors(n), 3000, 30),
    "tanh, near-duplicates": (lambda f: mlp(2, f), "tanh", near, 3000, 30),
    "dense, products of silu": (products, "silu", vectors, 1000, 30),
    "sin": (lambda f: mlp(2, f), "sin", vectors, 3000, 30),
    "rnn, 50 steps": (lambda f: rnn(f), "tanh", lambda n: sequences(n, 50), 100, 3),
    "batchnorm_mlp, batches of 8": (lambda f: batchnorm_mlp(2, f), "relu", lambda n: sequences(n, 8), 5, 2),
    "gru, 4 steps": (lambda f: gru() if f == "gru" else rnn(f), "gru", lambda n: sequences(n, 4), 4, 2),
    "lstm, 4 steps": (lambda f: lstm() if f == "lstm" else rnn(f), "lstm", lambda n: sequences(n, 4), 4, 2),
}


def spent() -> float:
    """CPU seconds of this process and of those that it has waited for, as the compiler is one."""
    return sum(os.times()[:4])


def covered(p: ns.Program) -> bool:
    """Has the native backend the whole program?"""
    with contextlib.suppress(ns.UnsupportedError):
        return not ns.compile(p, assume_gia=True).backend.startswith("torch (")
    return False  # sampled


def seconds(p: ns.Program, x: torch.Tensor, samples: int | None) -> tuple[float, float, Any]:
    """Of the first call of a kernel, and of what compiles it."""
    options: dict[str, Any] = {"assume_gia": True} | ({} if samples is None else {"samples": samples})
    start = spent()
    if covered(p):
        options["backend"] = "native"
        ns.compile(p, **options)(x[:3], get="ntk")
    compiling = spent() - start
    kernel = ns.compile(p, **options)
    start = time.process_time()
    found = kernel(x, get="ntk")
    return time.process_time() - start, compiling, found


def row(case: str, quick: bool) -> dict[str, Any]:
    make, f, inputs, size, small = CASES[case]
    x = inputs(small if quick else size)
    samples = 2**8 if quick else None
    mine, other, compiling = [], [], []
    for _ in range(1 if quick else 3):
        here, extra, found = seconds(make(f), x, samples)
        mine.append(here)
        compiling.append(extra)
        other.append(seconds(make("relu"), x, samples)[0])
    errors = [float(e.abs().max()) for e in found.errors.values()]
    return {
        "case": case, "seconds": median(mine), "relu": median(other), "ratio": median(mine) / median(other),
        "compiling": max(compiling), "backend": "native" if covered(make(f)) else "torch", "method": found.method,
        "error": max(errors) if errors else found.error,
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
    return f"{found['case']:28} {times}   {error:6} {found['backend']}, {found['method']}"


if __name__ == "__main__":
    main()
