"""Kernels that people ask for: CPU seconds of one thread with torch and with the C functions, and the accuracy.

    python benchmarks/people.py                  # or --case NAME, --turns 3, --quick; --json for one object per line

Both backends take turns in one process, after a first call of each, which compiles. The error is that of float32
against torch in float64, relative to the largest entry; `stated` is what the float64 result says of itself. `mnist`
writes the kernels of 20,000 inputs into a store and gives pairs a second, and what 60,000 would take at that rate.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch is imported

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import netsor as ns
from netsor.layers import avg_pool, conv
from netsor.programs import batchnorm_mlp, cntk, mlp, rnn, transformer

SEVERAL, ALL = 20_000, 60_000  # inputs of the size of MNIST's


def myrtle() -> ns.Program:
    """Myrtle-5: convolutions 3 × 3 and pools 2 × 2, the last one over what is left of the image."""
    p = ns.Program("myrtle5")
    n = p.width("n")
    x: Any = p.data("x", axes=("row", "col"))
    for l, pools in enumerate((0, 1, 1, 1), 1):
        x = p.let(f"x{l}", ns.relu(conv(x, n, f"W{l}", ("row", "col"), var=2 / 9)))
        for k in range(pools):
            x = p.let(f"p{l}{k}", avg_pool(x, {"row": 2, "col": 2}))
    p.output(p.readout("v", n), x.mean("row").mean("col"))
    return p


# A program, the shape of its inputs, of a quick run and of another.
CASES: dict[str, tuple[Callable[[], ns.Program], tuple[int, ...], tuple[int, ...]]] = {
    "cntk-gap-32": (cntk, (2, 8, 8, 3), (2, 32, 32, 3)),
    "myrtle-5": (myrtle, (2, 8, 8, 3), (2, 32, 32, 3)),
    "rnn-tanh-50": (lambda: rnn("tanh", "mean"), (3, 4, 2), (32, 50, 4)),
    "transformer-64": (transformer, (3, 4, 3), (16, 64, 32)),
    "batchnorm-20x8": (lambda: batchnorm_mlp(2), (2, 3, 4), (20, 8, 16)),
}


def inputs(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def row(case: str, turns: int, quick: bool) -> dict[str, Any]:
    make, small, large = CASES[case]
    p, x = make(), inputs(small if quick else large)
    torch_ = ns.compile(p, backend="torch", assume_gia=True)
    kernels, why = {"torch": torch_}, ""
    native = ns.compile(p, backend="native", assume_gia=True)
    try:
        native(x[:1].float())
        kernels["native"] = native
    except ns.UnsupportedError as error:
        why = error.diagnostic.message
    exact = torch_(x)
    seconds: dict[str, list[float]] = {b: [] for b in kernels}
    errors = {b: float((k(x.float()).ntk.double() - exact.ntk).abs().max() / exact.ntk.abs().max())
              for b, k in kernels.items()}  # fmt: skip
    for _ in range(turns):
        for b, kernel in kernels.items():
            start = time.process_time()
            kernel(x.float())
            seconds[b].append(time.process_time() - start)
    found = {b: median(s) for b, s in seconds.items()}
    best = "torch" if why else "native"
    return {
        "case": case, "shape": list(x.shape), "backend": best, "torch": found["torch"], "seconds": found[best],
        "ratio": found["torch"] / found[best], "error": errors[best], "stated": exact.error,
        "why": why,
    }  # fmt: skip


def mnist(quick: bool) -> dict[str, Any]:
    """All pairs of so many inputs into a store."""
    n = 300 if quick else SEVERAL
    x = inputs((n, 784)).float()
    kernel = ns.compile(mlp(depth=5, phi="relu", var_w=2, var_b=1), backend="native", threads=1)
    kernel(x[:3])  # compiles
    with tempfile.TemporaryDirectory() as folder:
        start, wall = time.process_time(), time.perf_counter()
        stored = kernel.gram(x, store=Path(folder, "k.zarr"))
        spent, wall = time.process_time() - start, time.perf_counter() - wall
        some = torch.as_tensor(stored.ntk[:100, :100])
    exact = ns.compile(mlp(depth=5, phi="relu", var_w=2, var_b=1), backend="torch")(x[:100].double()).ntk
    pairs = n * (n + 1) / 2
    return {
        "case": "mnist", "shape": [n, 784], "backend": "native", "seconds": spent, "wall": wall,
        "pairs a second": pairs / spent, f"seconds of {ALL:,}": spent * ALL * (ALL + 1) / 2 / pairs,
        "error": float((some.double() - exact).abs().max() / exact.abs().max()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=["mnist", *CASES], action="append", help="only these")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small inputs, once")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # long calls say so
    for case in args.case or ["mnist", *CASES]:
        found = mnist(args.quick) if case == "mnist" else row(case, 1 if args.quick else args.turns, args.quick)
        print(json.dumps(found) if args.json else text(found), flush=True)


def text(found: dict[str, Any]) -> str:
    return f"{found['case']:16} " + "  ".join(
        f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items() if k != "case" and v != ""
    )


if __name__ == "__main__":
    main()
