"""What threads gain in native kernels: wall time of one thread by that of k, and CPU seconds of k by those of one.

    python benchmarks/threads.py --threads 2

Calls of one thread and of k take turns, in some 100 s for all cases; a ratio is that of one turn, and the median of all
is printed, with the least and the most. A gain below k on a machine that does other work says nothing: CPU seconds that
grow say that threads wait for one another.
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


def cases(n: int) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Programs, and the shapes of their inputs."""
    import netsor as ns

    relu, tanh = (ns.programs.mlp(5, phi, var_w=2, var_b=1) for phi in ("relu", "tanh"))
    side = 4 if n < 100 else 32
    return {
        "mlp-relu": (relu, (n, 784)),
        "mlp-tanh": (tanh, (n // 2, 784)),
        "cnn-flatten": (ns.programs.cnn(10), (n // 20, side, side, 3)),
        "cnn-mean": (ns.programs.cnn(4, readout="mean"), (max(2, n // 1000), side, side, 3)),
    }


def measured(program: Any, shape: tuple[int, ...], dtype: str, threads: int, seconds: float) -> dict[str, Any]:
    import torch

    import netsor as ns

    x = torch.as_tensor(np.random.default_rng(0).standard_normal(shape).astype(dtype))
    kernels = [ns.compile(program, backend="native", threads=k) for k in (1, threads)]
    same = torch.equal(*(kernel(x).ntk for kernel in kernels))
    turns: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(turns) < 3 or time.perf_counter() < end:
        found = []
        for kernel in kernels:
            wall, cpu = time.perf_counter(), time.process_time()
            kernel(x)
            found.append((time.perf_counter() - wall, time.process_time() - cpu))
        (wall1, cpu1), (wall, cpu) = found
        turns.append((wall1 / wall, cpu / cpu1))
    gains, ratios = (sorted(t) for t in zip(*turns, strict=True))
    return {
        "dtype": dtype, "shape": shape, "threads": threads, "turns": len(turns), "gain": statistics.median(gains),
        "least": gains[0], "most": gains[-1], "cpu_ratio": statistics.median(ratios), "same_numbers": same,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of turns for each case and dtype")
    parser.add_argument("--quick", action="store_true", help="small inputs, to try the script itself")
    parser.add_argument("--json", action="store_true", help="one object per line")
    a = parser.parse_args()
    from netsor.compilers.native import compiler

    if compiler.current() is None:
        print(f"skipped: no C compiler ({compiler.sought()})", file=sys.stderr)
        return 0
    for name, (program, shape) in cases(60 if a.quick else 4000).items():
        for dtype in ("float32", "float64"):
            r = {"case": name} | measured(program, shape, dtype, a.threads, 0 if a.quick else a.seconds)
            text = f"{r['gain']:.2f}× faster ({r['least']:.2f} to {r['most']:.2f} in {r['turns']} turns)"
            print(json.dumps(r) if a.json else f"{name:12} {dtype} {text}, CPU × {r['cpu_ratio']:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
