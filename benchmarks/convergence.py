"""The test of convergence of every built-in program: the slope of dev² and the mean at the largest width.

    python benchmarks/convergence.py --seeds 300

A row per program and kernel, slopes with their 95% intervals; the exit status is 1 unless all pass. Finished runs are
kept in the file given by --store. See netsor.compilers.experiment.convergence for the statistics.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import netsor as ns
from netsor import programs
from netsor.compilers.experiment.convergence import HEAD, convergence
from netsor.compilers.experiment.simulate import simulate

PATH = [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]

NETWORKS: dict[str, tuple[Callable[[], ns.Program], tuple[int, ...]]] = {
    "mlp": (lambda: programs.mlp(depth=3), (3, 6)),
    "rnn": (lambda: programs.rnn(readout="mean", var_b=0.25), (2, 4, 5)),
    "cnn": (lambda: programs.cnn(depth=2, readout="mean", var_w=0.4), (2, 4, 4, 3)),
    "cntk": (lambda: programs.cntk(3), (2, 3, 3, 3)),
    "resnet": (lambda: programs.resnet(depth=3, var_b=0.2), (3, 6)),
    "transformer": (programs.transformer, (2, 4, 5)),
    "batchnorm_mlp": (lambda: programs.batchnorm_mlp(depth=2, eps=0.1), (1, 4, 6)),
    "gru": (programs.gru, (2, 3, 5)),
    "lstm": (programs.lstm, (2, 3, 5)),
    "gcn": (lambda: programs.gcn(depth=2, var_b=0.1), (2, 4, 5)),
    "maxpool_cnn": (lambda: programs.maxpool_cnn(depth=1), (2, 4, 4, 3)),
    "tied_autoencoder": (programs.tied_autoencoder, (3, 5)),
    "gia_counterexample": (programs.gia_counterexample, (3, 5)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128, 256, 512])
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--store", type=Path, default=Path("convergence-runs.jsonl"))
    parser.add_argument("--samples", type=int, default=2**17, help="draws of a sampled limit")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    passed = True
    print(HEAD)
    for name in args.programs:
        p, x = NETWORKS[name][0](), inputs(name)
        result = simulate(
            p, x, args.widths, args.seeds, limit=limit(p, x, args.samples), methods=("backward",), device=args.device,
            store=args.store,
        )  # fmt: skip
        for row in convergence(result, tests=len(args.programs)):
            print(row, flush=True)
            passed = passed and row.passes
    sys.exit(0 if passed else 1)


def inputs(name: str) -> Any:
    x = np.random.default_rng(0).normal(size=NETWORKS[name][1])
    return {"x": x, "A": np.array([PATH] * len(x))} if name == "gcn" else x


def limit(p: ns.Program, x: Any, samples: int) -> Any:
    """The compiled limit, or that of `ns.limit` where gradient independence fails or Wᵀ is used forwards."""
    if ns.check(p).bp_like:
        return ns.compile(p, samples=samples)(x)
    return ns.limit(p, x, samples=samples)


if __name__ == "__main__":
    main()
