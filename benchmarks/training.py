"""The figure of the training page: lazy and feature-learning limits, and finite networks in both scalings.

`python benchmarks/training.py` writes docs/figures/training.png (about a minute on one core).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import netsor as ns
from netsor.compilers.predict.curves import curves
from netsor.programs import mlp

STEPS, RATE, WIDTHS, SEEDS = 25, 0.5, (32, 128, 512), 10
TARGET = Path(__file__).parents[1] / "docs" / "figures" / "training.png"


def lazy(p: ns.Program, x: Any, y: Any) -> Any:
    """Mean losses under f ← f − η Θ (f − y)/N from f = 0."""
    theta = np.asarray(ns.compile(p)(x, get="ntk").ntk)
    f, losses = np.zeros(len(y)), []
    for _ in range(STEPS + 1):
        losses.append(float(((f - y) ** 2).mean() / 2))
        f = f - RATE * theta @ (f - y) / len(y)
    return np.array(losses)


def networks(n: int, x: torch.Tensor, y: torch.Tensor) -> Any:
    """Mean losses of two-layer tanh networks in the NTK scaling, outputs less those at the start."""
    generator = torch.Generator().manual_seed(n)
    shapes = ((n, x.shape[1]), (n,), (n, n), (n,), (n,))
    params = [torch.randn(SEEDS, *s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]
    optimiser = torch.optim.SGD(params, lr=RATE)

    def output() -> torch.Tensor:
        w, b, u, c, v = params
        h = torch.tanh(x @ w.transpose(-1, -2) / x.shape[1] ** 0.5 + b[:, None])
        h = torch.tanh(h @ u.transpose(-1, -2) / n**0.5 + c[:, None])
        return torch.einsum("sia,sa->si", h, v) / n**0.5

    start, losses = output().detach(), []
    for _ in range(STEPS + 1):
        loss = ((output() - start - y) ** 2).mean(1) / 2
        losses.append(loss.mean().item())
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
    return np.array(losses)


def main() -> None:
    from matplotlib.figure import Figure

    rng = np.random.default_rng(3)
    x = rng.normal(size=(6, 2))
    y = np.sign(x[:, 0] * x[:, 1])
    p = mlp(depth=2, phi="tanh")
    found = curves(ns.limit(ns.train(p, x, y, STEPS, RATE), samples=2**15, methods=("sampled",)), WIDTHS, SEEDS)
    print(found)
    canvas = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = canvas.subplots(1, 2, sharey=True)
    for i, n in enumerate(WIDTHS):
        left.plot(networks(n, torch.as_tensor(x), torch.as_tensor(y)), color=f"C{i}", label=f"n = {n}")
        right.plot(found.finite[n].mean(0), color=f"C{i}", label=f"n = {n}")
    left.plot(lazy(p, x, y), color="black", label="limit")
    right.plot(found.losses, color="black", label="limit")
    left.set(title="NTK parametrisation: lazy", xlabel="step", ylabel="mean training loss", yscale="log")
    right.set(title="maximal update parametrisation", xlabel="step")
    left.legend()
    canvas.savefig(TARGET, dpi=120)


if __name__ == "__main__":
    main()
