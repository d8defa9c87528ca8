"""Are the standard errors of sampled kernels right? Prints how often |error|/SE is below 3, and how the SE falls.

python benchmarks/calibration.py [seeds]; the case is an MLP, whose kernels are known in closed form.
"""

from __future__ import annotations

import sys
from statistics import geometric_mean

import torch
from scipy import stats

import netsor as ns
from netsor.compilers.sampler import sampled
from netsor.compilers.sampler.estimate import SCRAMBLES
from netsor.programs import mlp

SAMPLES, EVERY = 2**11, 5  # one seed in five is run with four times the samples


def main(seeds: int) -> None:
    p = mlp(1, "relu")
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = dict(ns.compile(p)(x).items())
    few = [sampled(p, x, samples=SAMPLES, seed=s) for s in range(seeds)]
    many = [sampled(p, x, samples=4 * SAMPLES, seed=s) for s in range(0, seeds, EVERY)]
    expected = 1 - 2 * stats.t.sf(3, SCRAMBLES - 1)
    for key, value in exact.items():
        ratios = torch.stack([(dict(r.items())[key] - value).abs() / r.errors[key] for r in few])
        falls = torch.stack([a.errors[key] / b.errors[key] for a, b in zip(few[::EVERY], many, strict=True)])
        below = float((ratios < 3).double().mean())
        print(f"{key}: |error|/SE < 3 in {below:.2%} (Student's t: {expected:.2%}); SE ratio {mean(falls):.2f}")


def mean(ratios: torch.Tensor) -> float:
    return geometric_mean(ratios.flatten().tolist())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
