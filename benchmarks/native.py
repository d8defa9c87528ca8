"""CPU-seconds of `backend="torch"` divided by those of `backend="native"`, and the errors of both against float64.

    python benchmarks/native.py --case cnn-flatten-32 --dtype float32 --turns 7

One thread; both kernels stand in one process and take turns after a first call of each, which compiles. The cases are
those of `peer.py`, and some that the other side of it cannot run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import CASES, Case


def _rnn() -> Any:
    from netsor.programs import rnn

    return rnn("relu", "mean")


def _transformer() -> Any:
    from netsor.programs import transformer

    return transformer()


def _alone(program: Any, count: int, *shape: int) -> Case:
    return Case(program, lambda stax: None, count, shape)


OWN = CASES | {
    "rnn-50": _alone(_rnn, 100, 50, 8),
    "transformer-16": _alone(_transformer, 64, 16, 32),
}
QUICK = {"quick": _alone(_rnn, 3, 4, 2)}


def compare(name: str, case: Case, dtype: str, turns: int) -> dict[str, Any]:
    """One row of the table."""
    import torch

    import netsor as ns

    torch.set_num_threads(1)
    program = ns.unit_variance(case.program())
    kernels = {b: ns.compile(program, backend=b) for b in ("torch", "native")}
    exact = kernels["torch"](*map(torch.as_tensor, case.arrays())).ntk
    given = [torch.as_tensor(a.astype(dtype)) for a in case.arrays()]
    start = time.process_time()
    first = {b: kernel(*given).ntk for b, kernel in kernels.items()}
    compiling = time.process_time() - start
    seconds: dict[str, list[float]] = {b: [] for b in kernels}
    for _ in range(turns):
        for b, kernel in kernels.items():
            start = time.process_time()
            kernel(*given)
            seconds[b].append(time.process_time() - start)
    row: dict[str, Any] = {"case": name, "dtype": dtype, "backend": kernels["native"].backend}
    row["ratio"] = round(statistics.median(np.divide(seconds["torch"], seconds["native"]).tolist()), 2)
    for b in kernels:
        row[f"{b}_seconds"] = statistics.median(seconds[b])
        row[f"{b}_error"] = float((first[b].double() - exact).abs().max() / exact.abs().max())
    return row | {"first_calls": compiling}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[*OWN, "all"], default="all")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one small case")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    from netsor.compilers.native import compiler

    if compiler.current() is None:
        print(json.dumps({"left out": f"no C compiler: {compiler.sought()}"}))
        return
    cases = QUICK if a.quick else OWN if a.case == "all" else {a.case: OWN[a.case]}
    for name, case in cases.items():
        row = compare(name, case, a.dtype, 1 if a.quick else a.turns)
        print(json.dumps(row) if a.json else f"{name:18} {a.dtype} {row['ratio']:8.2f}× {row['native_error']:.1e}")


if __name__ == "__main__":
    main()
