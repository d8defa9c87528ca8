"""Kernel regression on many samples: time, memory and error of landmarks and of conjugate gradients.

    python benchmarks/large.py [--samples 60000] [--landmarks 2000] [--solver cholesky|cg] [--quick] [--json]

The data are made up: inputs near a space of six dimensions, a smooth function with noise of standard deviation 0.1. The
network is a relu MLP of two hidden layers, inputs are float32. Times are of fitting and of the means at a thousand
other samples; memory is the largest resident size of the process; the error is the mean square over the variance.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from typing import Any

import numpy as np

import netsor as ns

Array = np.ndarray[Any, Any]


def data(samples: int, features: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(samples, 6))
    x = hidden @ rng.normal(size=(6, features)) / 6**0.5 + 0.05 * rng.normal(size=(samples, features))
    y = np.sin(2 * hidden[:, :3]).sum(1) + hidden[:, 3] * hidden[:, 4] + 0.1 * rng.normal(size=samples)
    return x.astype(np.float32), y


def peak() -> float:
    """The largest resident size of this process in GB."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 1e9 if sys.platform == "darwin" else used * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--solver", choices=("cholesky", "cg"), default="cholesky")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    samples, landmarks = (400, 100) if args.quick else (args.samples, args.landmarks)
    x, y = data(samples + 1000, args.features)
    (train, test), (known, wanted) = ((a[:samples], a[samples:]) for a in (x, y))
    cpu, wall = time.process_time(), time.perf_counter()
    kernel = ns.compile(ns.programs.mlp(depth=2, var_w=2, var_b=0.1))
    found = ns.predict(
        kernel, train, known, 1e-3, landmarks=landmarks, solver=args.solver, memory=args.memory, tol=1e-5
    )
    mean = found.ensemble(test, variance=False).mean.numpy()
    row = {
        "samples": samples, "features": args.features, "landmarks": landmarks, "solver": args.solver,
        "cpu_seconds": round(time.process_time() - cpu, 1), "seconds": round(time.perf_counter() - wall, 1),
        "peak_gb": round(peak(), 2), "error": float(np.square(mean - wanted).mean() / wanted.var()),
    }  # fmt: skip
    print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()))


if __name__ == "__main__":
    main()
