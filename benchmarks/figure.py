"""The convergence figure: relative deviation of finite networks from the compiled limit against width.

    python benchmarks/figure.py --out convergence.png --seeds 100

Finished runs are kept in the file given by --store, so an interrupted figure goes on where it stopped. The table of
slopes is printed at the end. At width 8192 most of the time goes into fresh memory, of which there is less with
GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in the environment (Linux).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from netsor import programs
from netsor.build.program import Program
from netsor.compilers.compile import compile
from netsor.compilers.experiment.convergence import convergence
from netsor.compilers.experiment.figure import save
from netsor.compilers.experiment.result import Simulation
from netsor.compilers.experiment.simulate import simulate
from netsor.errors import UnsupportedError

NETWORKS = {
    "mlp": (lambda: programs.mlp(depth=2), (4, 8)),
    "rnn": (lambda: programs.rnn(phi="erf", readout="mean", var_b=0.25), (4, 5, 8)),
    "cnn": (lambda: programs.cnn(depth=2, readout="mean", var_w=0.4), (3, 4, 4, 3)),
    "transformer": (lambda: programs.transformer(), (3, 4, 8)),
    "batchnorm": (lambda: programs.batchnorm_mlp(depth=2, eps=0.1), (2, 5, 8)),
    "gru": (lambda: programs.gru(), (3, 3, 8)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("convergence.png"))
    parser.add_argument("--store", type=Path, default=Path("convergence.jsonl"))
    parser.add_argument("--programs", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--widths", nargs="+", type=int, default=[2**k for k in range(6, 14)])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument(
        "--fewer", nargs="+", default=[], metavar="PROGRAM=SEEDS", help="seeds of programs that cost more"
    )
    parser.add_argument("--samples", type=int, default=2**19, help="draws of a sampled limit")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    args = parser.parse_args()
    fewer = {name: int(count) for name, count in (pair.split("=") for pair in args.fewer)}
    results: list[Simulation] = []
    for name in args.programs:
        make, shape = NETWORKS[name]
        p: Program = make()
        p.name = name
        x = np.random.default_rng(0).normal(size=shape)
        try:
            result = simulate(
                p, x, args.widths, fewer.get(name, args.seeds), device=args.device, dtype=getattr(torch, args.dtype),
                store=args.store, methods=("backward",), limit=compile(p, samples=args.samples)(x),
            )  # fmt: skip
        except UnsupportedError as error:
            print(f"{name} is left out: {error}")
            continue
        print(result, flush=True)
        results.append(result)
    results.sort(key=lambda r: list(NETWORKS).index(r.name))
    save(results, args.out, keys=("ntk",))
    print(table(results))


def table(results: Sequence[Simulation]) -> str:
    """Markdown: mean deviation at the largest width, its slope, that of dev² once b/n² is fitted, test of the mean."""
    widest = max(results[0].widths)
    head = f"| NTK of | seeds | deviation at {widest} | slope of E dev | of E dev² − b/n² | p of the mean |"
    rows = [head, "|---" * 6 + "|"]
    for r in results:
        (test,) = convergence(r, keys=("ntk",), tests=len(results))
        low, high = r.interval("ntk", widest)
        cells = [
            r.name, str(len(r.seeds)), f"{r.mean('ntk', widest):.2e} [{low:.2e}, {high:.2e}]",
            f"{r.slope('ntk'):.3f}", f"{test.slope:.3f} ± {test.slope_error:.3f}", f"{test.p:.2g}",
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
