"""How the cost of a compiled kernel grows: CPU time and predicted operations against n, depth, pixels and time.

    python benchmarks/scaling.py --case all

`n` is the number of inputs, `depth` the number of layers, `pixels` the side of the image, `time` the length of the
sequence. A time is the median over the repetitions of the CPU seconds of a call on one thread; the sizes of a series
take turns. Beside it stand the operations that `kernel.cost` predicts. A slope is that of the logarithms: 1 for a cost
that is linear in the size, 2 for a quadratic one; the fitted one is of the whole series, the others say how the cost
grew from the row above. `first-call` is the CPU time to the end of the first call in fresh processes, after
`import torch`, without and with `import netsor`.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before torch is imported

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

IMPORT = "import netsor"
SHORTEST = 0.02  # seconds: shorter calls are repeated and timed together

Row = dict[str, Any]


@dataclass(frozen=True)
class Series:
    """`program(size)` at the sizes given; `shape(size)` is that of the inputs, `axes` names those after the sample."""

    case: str
    name: str
    program: Callable[[int], Any]
    shape: Callable[[int], tuple[int, ...]]
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]


def all_series() -> tuple[Series, ...]:
    from netsor.programs import cnn, mlp, rnn

    flat, image, sequence = ("feature",), ("row", "col", "feature"), ("time", "feature")
    return (
        Series("n", "mlp relu, depth 5", lambda n: mlp(5, "relu", var_w=2), lambda n: (n, 64), flat,
               (125, 250, 500, 1000, 2000), (50, 100)),
        Series("n", "mlp tanh, depth 5", lambda n: mlp(5, "tanh", var_w=2), lambda n: (n, 64), flat,
               (125, 250, 500, 1000), (20, 40)),
        Series("depth", "mlp relu, n = 300", lambda d: mlp(d, "relu", var_w=2), lambda _: (300, 32), flat,
               (2, 4, 8, 16, 32, 64), (2, 4)),
        Series("depth", "cnn flatten relu, 16×16, n = 16", lambda d: cnn(d, var_w=2 / 9), lambda _: (16, 16, 16, 3),
               image, (2, 4, 8, 16, 32), (2, 3)),
        Series("pixels", "cnn flatten relu, depth 3, n = 16", lambda _: cnn(3, var_w=2 / 9), lambda s: (16, s, s, 3),
               image, (8, 16, 32, 64), (4, 8)),
        Series("pixels", "cnn mean relu, depth 3, n = 4", lambda _: cnn(3, var_w=2 / 9, readout="mean"),
               lambda s: (4, s, s, 3), image, (4, 8, 16, 24), (4, 8)),
        Series("time", "rnn relu, mean, n = 16", lambda _: rnn("relu", "mean"), lambda t: (16, t, 4), sequence,
               (4, 8, 16, 32), (2, 4)),
        Series("time", "rnn tanh, mean, n = 8", lambda _: rnn("tanh", "mean"), lambda t: (8, t, 4), sequence,
               (4, 8, 16), (2, 4)),
    )  # fmt: skip


# ---------------------------------------------------------------- steady state


@dataclass
class Point:
    size: int
    pairs: int
    operations: int
    call: Callable[[], Any]
    inner: int
    times: list[float]

    def turn(self) -> None:
        self.times.append(cpu(self.call, self.inner))


def cpu(call: Callable[[], Any], count: int = 1) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - start) / count


def point(series: Series, size: int, dtype: Any) -> Point:
    """The kernel compiled and called once."""
    import torch

    import netsor as ns

    shape = series.shape(size)
    x = torch.as_tensor(np.random.default_rng(0).standard_normal(shape)).to(dtype)
    kernel = ns.compile(series.program(size), dtype=dtype)
    cost = kernel.cost(shape[0], sizes=dict(zip(series.axes, shape[1:], strict=True)))
    kernel(x)
    once = cpu(lambda: kernel(x))
    pairs = shape[0] * (shape[0] + 1) // 2
    return Point(size, pairs, cost.operations, lambda: kernel(x), max(1, math.ceil(SHORTEST / max(once, 1e-6))), [])


def slope(x: list[float], y: list[float]) -> float:
    """Of log y against log x, by least squares."""
    return round(float(np.polyfit(np.log(x), np.log(y), 1)[0]), 2)


def measure(series: Series, sizes: tuple[int, ...], dtype: Any, repetitions: int) -> tuple[list[Row], Row]:
    """A row per size, and the slopes of the whole series."""
    points = [point(series, s, dtype) for s in sizes]
    for _ in range(repetitions):
        for p in points:
            p.turn()
    seconds = [statistics.median(p.times) for p in points]
    x = [float(p.size) for p in points]
    operations = [float(p.operations) for p in points]
    rows: list[Row] = []
    for i, (p, t) in enumerate(zip(points, seconds, strict=True)):
        two = slice(i - 1, i + 1)
        rows.append({
            "case": series.case, "series": series.name, "size": p.size, "pairs": p.pairs, "cpu_seconds": t,
            "operations": p.operations, "slope": slope(x[two], seconds[two]) if i else None,
            "operations_slope": slope(x[two], operations[two]) if i else None,
        })  # fmt: skip
    fit = {"case": series.case, "series": series.name, "fitted_slope": slope(x, seconds),
           "fitted_operations_slope": slope(x, operations)}  # fmt: skip
    return rows, fit


def show(series: Series, rows: list[Row], fit: Row) -> None:
    print(f"\n{series.case}: {series.name}")
    head = ("size", "pairs", "CPU s", "slope", "operations", "slope", "ns/operation")
    print(f"{head[0]:>6} {head[1]:>9} {head[2]:>10} {head[3]:>6} {head[4]:>11} {head[5]:>6} {head[6]:>13}")
    for r in rows:
        a, b = (f"{r[k]:6.2f}" if r[k] is not None else " " * 6 for k in ("slope", "operations_slope"))
        each = r["cpu_seconds"] / r["operations"] * 1e9
        print(f"{r['size']:6} {r['pairs']:9} {r['cpu_seconds']:10.4f} {a} {r['operations']:11.3g} {b} {each:13.2f}")
    print(f"{'fitted':>16} {'':10} {fit['fitted_slope']:6.2f} {'':11} {fit['fitted_operations_slope']:6.2f}")


# ---------------------------------------------------------------- the first call


def worker(depth: int) -> None:
    """One process: CPU seconds of each step after `import torch`, printed as JSON."""
    import torch

    torch.set_num_threads(1)
    clock = [time.process_time()]
    import netsor as ns
    from netsor.compilers.lowering.load import cached_module, cached_recursion
    from netsor.programs import mlp

    clock.append(time.process_time())
    kernel = ns.compile(mlp(depth))  # the program, its check
    clock.append(time.process_time())
    cached_recursion(kernel.program, ("nngp", "ntk"))
    clock.append(time.process_time())
    cached_module(kernel.program, ("nngp", "ntk"))
    clock.append(time.process_time())
    kernel(torch.eye(3, dtype=torch.float64))
    clock.append(time.process_time())
    steps = (IMPORT, "check", "derive", "lower and load", "call")
    print(json.dumps(dict(zip(steps, (b - a for a, b in pairwise(clock)), strict=True))))


def process(depth: int) -> dict[str, float]:
    """The steps of a fresh process, which may keep the byte code of its modules as Python does by default."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, __file__, "--worker", str(depth)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    steps: dict[str, float] = json.loads(done.stdout)
    return steps


def first_call(depths: tuple[int, ...], repetitions: int) -> list[Row]:
    found: dict[int, list[dict[str, float]]] = {d: [] for d in depths}
    if repetitions > 1:
        process(depths[0])  # writes the byte code
    for _ in range(repetitions):
        for d in depths:
            found[d].append(process(d))
    return [
        {"case": "first-call", "series": "mlp relu", "size": d,
         "cpu_seconds": statistics.median(sum(s.values()) - s[IMPORT] for s in steps),
         "with_import": statistics.median(sum(s.values()) for s in steps),
         "steps": {k: round(statistics.median(s[k] for s in steps), 4) for k in steps[0]}}
        for d, steps in found.items()
    ]  # fmt: skip


def show_first(rows: list[Row]) -> None:
    print("\nfirst call of an MLP: CPU seconds after `import torch`, in a fresh process")
    names = list(rows[0]["steps"])
    print(f"{'depth':>6} {'first call':>10} {'with import':>11} " + " ".join(f"{n:>14}" for n in names))
    for r in rows:
        print(
            f"{r['size']:6} {r['cpu_seconds']:10.3f} {r['with_import']:11.3f} "
            + " ".join(f"{r['steps'][n]:14.3f}" for n in names)
        )


# ---------------------------------------------------------------- the command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=["n", "depth", "pixels", "time", "first-call", "all"], default="all")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--repetitions", type=int, help="5; 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the script itself")
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        worker(a.worker)
        return
    repetitions = a.repetitions or (1 if a.quick else 5)
    if a.case in ("first-call", "all"):
        rows = first_call((5,) if a.quick else (5, 50), repetitions)
        print("\n".join(map(json.dumps, rows))) if a.json else show_first(rows)
    if a.case != "first-call":
        run(a.case, a.dtype, repetitions, a.quick, a.json)


def run(case: str, dtype: str, repetitions: int, quick: bool, as_json: bool) -> None:
    import torch

    torch.set_num_threads(1)
    for series in all_series():
        if case in (series.case, "all"):
            rows, fit = measure(series, series.quick if quick else series.sizes, getattr(torch, dtype), repetitions)
            if as_json:
                print("\n".join(map(json.dumps, [*rows, fit])), flush=True)
            else:
                show(series, rows, fit)


if __name__ == "__main__":
    main()
