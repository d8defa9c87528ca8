"""Losses and outputs of a trained program by step: its limit, and networks of finite width beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from netsor.compilers.budget.progress import Progress
from netsor.compilers.finite.network import run
from netsor.compilers.limit import LimitResult

Array = np.ndarray[Any, Any]


@dataclass
class Curves:
    """Outputs `[step, sample, …]`, with errors, and mean losses `[step]`; losses `[seed, step]` by width.

    `kernels` are what else the program returns by step, `ntk[t]` and alike, with errors.
    """

    name: str
    method: str
    outputs: Array
    errors: Array
    losses: Array
    finite: dict[int, Array] = field(default_factory=dict)
    kernels: dict[str, tuple[Array, Array]] = field(default_factory=dict)

    def __str__(self) -> str:
        heads = ["step", "limit", *(f"n = {w}" for w in self.finite)]
        rows = [heads] + [
            [str(t), f"{loss:.6g}", *(f"{a[:, t].mean():.6g}" for a in self.finite.values())]
            for t, loss in enumerate(self.losses)
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        error = f"outputs ± {self.errors.max():.1g}" if self.errors.any() else "outputs exact"
        head = f"{self.name}: mean loss of the training samples ({self.method}, {error})"
        numbers = [f"{name} = {value:.6g}" for name, (value, _) in self.kernels.items() if value.ndim == 0]
        return "\n".join([head, *lines, *([""] if numbers else []), *numbers])

    def as_dict(self) -> dict[str, Any]:
        """What `netsor train --json` prints."""
        return {
            "program": self.name,
            "method": self.method,
            "outputs": self.outputs.tolist(),
            "errors": self.errors.tolist(),
            "losses": self.losses.tolist(),
            "finite": {str(w): a.tolist() for w, a in self.finite.items()},
            "kernels": {name: value.tolist() for name, (value, _) in self.kernels.items()},
            "kernel_errors": {name: error.tolist() for name, (_, error) in self.kernels.items()},
        }

    def save(self, path: str | Path) -> None:
        """Draw the losses by step: the limit, and mean and standard deviation over networks of every width."""
        from matplotlib.figure import Figure

        canvas = Figure(figsize=(6.4, 4.8), layout="constrained")
        axes, steps = canvas.add_subplot(), np.arange(len(self.losses))
        for width, losses in self.finite.items():
            mean, spread = losses.mean(0), losses.std(0)
            (line,) = axes.plot(steps, mean, marker="o", markersize=3, label=f"n = {width}")
            axes.fill_between(steps, mean - spread, mean + spread, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.plot(steps, self.losses, color="black", label="limit")
        axes.set(xlabel="step", ylabel="mean training loss", title=self.name)
        axes.legend()
        canvas.savefig(path, dpi=150)


def curves(r: LimitResult, widths: Sequence[int] = (), seeds: int = 5, progress: bool | None = None) -> Curves:
    """The curves of the limit of a trained program, and of networks of these widths."""
    names = [v.name for v in r.program.returned]
    f, loss = ([name for name in names if name.startswith(f"{kind}[")] for kind in ("f", "loss"))
    outputs, losses = (np.stack([_floats(r.scalar(name)) for name in kind]) for kind in (f, loss))
    errors = np.stack([_floats(r.error("scalar", name)) for name in f])
    more = [name for name in names if name not in (*f, *loss)]
    kernels = {name: (_floats(r.scalar(name)), _floats(r.error("scalar", name))) for name in more}
    found = Curves(r.program.name, r.method, outputs, errors, losses.mean(1), {}, kernels)
    returned: Mapping[str, Any] = {v.name: v.value for v in r.program.returned}
    total = seeds * sum(w * w for w in widths)
    with torch.no_grad(), Progress(f"networks of {r.program.name}", total, "weights", progress) as shown:
        for width in widths:
            runs: list[list[float]] = []
            for seed in range(seeds):
                values = run(r.program, None, width, seed)
                runs.append([float(values[returned[name]].mean()) for name in loss])
                shown.done(width * width)
            found.finite[width] = np.array(runs)
    return found


def _floats(value: Any) -> Array:
    return np.asarray(value, dtype=float)[0]
