"""CPU-seconds of neural-tangents divided by ours, case by case, and the accuracy of both against float64.

    python benchmarks/peer.py --peer /path/to/peer/bin/python --case mlp-relu --dtype float32 --json

The two sides run in processes of their own, each on one core, and take turns: theirs, ours, theirs, ours, … A ratio is
the median over the turns of (their CPU time / our CPU time); compilation is excluded on both sides. `peer_venv.sh`
builds the other's environment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from cases import CASES  # noqa: E402 - beside this file

Call = Callable[[], dict[str, np.ndarray]]
ONE_CORE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}  # fmt: skip


def ours(case: str, dtype: str, backend: str) -> Call:
    import torch

    import netsor as ns

    torch.set_num_threads(1)
    c = CASES[case]
    kernel = ns.compile(ns.unit_variance(c.program()), backend=backend)  # the convention of the other side
    arrays = [torch.as_tensor(a.astype(dtype)) for a in c.arrays()]

    def call() -> dict[str, np.ndarray]:
        r = kernel(*arrays)
        return {"nngp": r.nngp.numpy(), "ntk": r.ntk.numpy()}

    return call


def theirs(case: str, dtype: str) -> Call:
    import jax

    jax.config.update("jax_enable_x64", dtype == "float64")
    from neural_tangents import stax

    c = CASES[case]
    kernel = c.peer(stax)
    run = jax.jit(lambda *x: tuple(kernel(x[0], x[1] if len(x) > 1 else None, ("nngp", "ntk"))))
    arrays = [a.astype(dtype) for a in c.arrays()]

    def call() -> dict[str, np.ndarray]:
        nngp, ntk = jax.block_until_ready(run(*arrays))
        return {"nngp": np.asarray(nngp), "ntk": np.asarray(ntk)}

    return call


def serve(side: str, case: str, dtype: str, out: str, backend: str) -> None:
    """A worker: one call for every line on its standard input; answers with the CPU time and the peak memory."""
    import resource

    call = ours(case, dtype, backend) if side == "ours" else theirs(case, dtype)
    np.savez(out, **call())
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        call()
        print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)


class Worker:
    def __init__(
        self, python: str, side: str, case: str, dtype: str, folder: str, backend: str = "torch"
    ) -> None:  # fmt: skip
        self.out = f"{folder}/{side}-{dtype}.npz"
        command = [python, __file__, "--worker", side, "--case", case, "--dtype", dtype, "--out", self.out]
        command += ["--backend", backend]
        core = max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        pin = None if core is None else (lambda: os.sched_setaffinity(0, {core}))
        env = os.environ | ONE_CORE
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, preexec_fn=pin
        )
        self.peak = 0
        while (line := self._line()) != "ready":
            if not line:
                raise SystemExit(f"the {side} side of {case} did not start")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def turn(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        seconds, peak = self._line().split()
        self.peak = int(peak) * 1024
        return float(seconds)

    def kernels(self) -> dict[str, np.ndarray]:
        with np.load(self.out) as found:
            return dict(found)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def distance(found: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> float:
    """The largest error of the NTK relative to its largest entry."""
    a, b = found["ntk"].astype(float).squeeze(), exact["ntk"].squeeze()
    return float(np.abs(a - b).max() / np.abs(b).max())


def reference(case: str, folder: str) -> dict[str, np.ndarray]:
    worker = Worker(sys.executable, "ours", case, "float64", folder)
    worker.close()
    return worker.kernels()


def compare(
    peer: str, case: str, dtype: str, turns: int, peer_dtype: str | None = None, backend: str = "torch"
) -> dict[str, Any]:  # fmt: skip
    """One row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        exact = reference(case, folder)
        b = Worker(peer, "theirs", case, peer_dtype or dtype, folder)
        a = Worker(sys.executable, "ours", case, dtype, folder, backend)
        pairs = [(b.turn(), a.turn()) for _ in range(turns)]
        a.close()
        b.close()
        return {
            "case": case, "dtype": dtype, "peer_dtype": peer_dtype or dtype, "backend": backend,
            "ratio": round(statistics.median(x / y for x, y in pairs), 2),
            "accuracy": distance(a.kernels(), exact), "peer_accuracy": distance(b.kernels(), exact),
            "seconds": statistics.median(y for _, y in pairs), "peer_seconds": statistics.median(x for x, _ in pairs),
            "peak_bytes": a.peak, "peer_peak_bytes": b.peak,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="python of the environment with neural-tangents")
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--peer-dtype", choices=["float32", "float64"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--backend", choices=["torch", "native"], default="torch", help="of our side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        serve(a.worker, a.case, a.dtype, a.out, a.backend)
        return
    if not a.peer:
        parser.error("--peer PYTHON is needed; benchmarks/peer_venv.sh builds the environment")
    for case in CASES if a.case == "all" else [a.case]:
        row = compare(a.peer, case, a.dtype, a.turns, a.peer_dtype, a.backend)
        print(json.dumps(row) if a.json else f"{case:18} {a.dtype} {row['ratio']:8.2f}× {row['accuracy']:.1e}")


if __name__ == "__main__":
    main()
