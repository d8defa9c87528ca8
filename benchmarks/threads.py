"""What threads gain in native kernels: wall time of one thread by that of k, and CPU seconds of k by those of one.

    python benchmarks/threads.py --threads 2

Calls of one thread and of k take turns; the medians over the repetitions. A gain below k on a machine that does other
work says nothing; CPU seconds that grow say that threads wait for one another.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch is imported: torch's own threads aside

import argparse
import json
import statistics
import sys
import time
from typing import Any

import numpy as np


def measured(phi: str, dtype: str, n: int, threads: int, repetitions: int) -> dict[str, Any]:
    import torch

    import netsor as ns

    x = torch.as_tensor(np.random.default_rng(0).standard_normal((n, 784)).astype(dtype))
    p = ns.programs.mlp(5, phi, var_w=2, var_b=1)
    kernels = [ns.compile(p, backend="native", threads=k) for k in (1, threads)]
    same = torch.equal(*(kernel(x).ntk for kernel in kernels))
    taken: list[list[tuple[float, float]]] = [[], []]
    for _ in range(repetitions):
        for kernel, found in zip(kernels, taken, strict=True):
            wall, cpu = time.perf_counter(), time.process_time()
            kernel(x)
            found.append((time.perf_counter() - wall, time.process_time() - cpu))
    (wall1, cpu1), (wall, cpu) = ([statistics.median(t) for t in zip(*found, strict=True)] for found in taken)
    return {
        "phi": phi, "dtype": dtype, "n": n, "threads": threads, "gain": wall1 / wall, "cpu_ratio": cpu / cpu1,
        "seconds": wall, "same_numbers": same,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="small inputs, to try the script itself")
    parser.add_argument("--json", action="store_true", help="one object per line")
    a = parser.parse_args()
    from netsor.compilers.native import compiler

    if compiler.current() is None:
        print(f"skipped: no C compiler ({compiler.sought()})", file=sys.stderr)
        return 0
    n, repetitions = (60, 1) if a.quick else (4000, a.repetitions)
    for phi in ("relu", "tanh"):
        for dtype in ("float32", "float64"):
            r = measured(phi, dtype, n // (4 if phi == "tanh" else 1), a.threads, repetitions)
            text = f"{r['threads']} threads: {r['gain']:.2f}× faster, CPU × {r['cpu_ratio']:.2f}"
            print(json.dumps(r) if a.json else f"{phi:6} {dtype} n={r['n']:5} {text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
