"""What a simulation found: kernels by width and seed, deviations from the limit, intervals, slopes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import torch

from netsor.compilers.experiment.keys import VECTORS, arrays, of_limit
from netsor.markup import one_line
from netsor.text.display import Table, Tabled


class Curve(TypedDict):
    """A kernel's deviation by width, with its 95% intervals."""

    slope: float
    mean: list[float]
    interval: list[list[float]] | None


class Summary(TypedDict):
    """A simulation as plain numbers."""

    program: str
    widths: list[int]
    seeds: int
    deviation: dict[str, Curve]


@dataclass
class Simulation(Tabled):
    """Kernels `[seed, sample, sample′, …]` by width and name.

    Names: `nngp` (covariance of the output given the last layer), `ntk` (backward lines), `ntk_autograd`,
    `terms.<array>`, `terms_autograd.<array>`, `output` (`[seed, sample, …]`) and `vectors.<name>`; with several
    outputs `.<output>` follows the first part. Scalars have their own names, with `scalars.` in front where one of
    these would begin so. `errors` are the standard errors of limits that are sampled.
    """

    name: str
    widths: list[int]
    seeds: list[int]
    limits: Mapping[str, torch.Tensor]
    samples: dict[int, dict[str, list[torch.Tensor]]] = field(default_factory=dict)
    errors: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def add(self, width: int, kernels: Mapping[str, torch.Tensor]) -> None:
        at = self.samples.setdefault(width, {})
        for key, value in kernels.items():
            at.setdefault(key, []).append(value)

    def keys(self) -> list[str]:
        return list(next(iter(self.samples.values()), {}))

    def kernels(self, key: str, width: int) -> torch.Tensor:
        """All seeds' kernels at a width, `[seed, sample, sample′, …]`."""
        return torch.stack(self.samples[width][key])

    def kernel(self, key: str, width: int | None = None) -> torch.Tensor:
        """The mean over seeds, at the largest width by default."""
        return self.kernels(key, max(self.widths) if width is None else width).mean(0)

    @property
    def nngp(self) -> torch.Tensor:
        return self.kernel("nngp")

    @property
    def ntk(self) -> torch.Tensor:
        return self.kernel("ntk" if "ntk" in self.keys() else "ntk_autograd")

    @property
    def terms(self) -> dict[str, torch.Tensor]:
        """The NTK by trained array: mean over seeds at the largest width."""
        found = arrays("terms", self.keys()) or arrays("terms_autograd", self.keys())
        return {name: self.kernel(key) for name, key in found.items()}

    @property
    def vectors(self) -> dict[str, torch.Tensor]:
        """Second moments of the named vectors: mean over seeds at the largest width."""
        return {name: self.kernel(key) for name, key in arrays(VECTORS, self.keys()).items()}

    def output_kernel(self, width: int | None = None, key: str = "output") -> torch.Tensor:
        """The mean of f f̄ over seeds, `[sample, sample′, …]`: the NNGP from the outputs themselves."""
        f = self.kernels(key, max(self.widths) if width is None else width)
        flat = f.reshape(f.shape[0], f.shape[1], -1)
        product = torch.einsum("aio,ajq->ijoq", flat, flat) / f.shape[0]
        return product.reshape(f.shape[1], f.shape[1], *f.shape[2:], *f.shape[2:])

    # ------------------------------------------------------------ against the limit

    def limit_of(self, key: str) -> torch.Tensor | None:
        return self.limits.get(of_limit(key))

    def error_of(self, key: str) -> torch.Tensor | None:
        """The standard errors of a sampled limit, else None."""
        return self.errors.get(of_limit(key))

    def deviations(self, key: str, width: int) -> torch.Tensor:
        """‖K_n − K‖_F / ‖K‖_F of every seed."""
        limit = self.limit_of(key)
        if limit is None:
            raise KeyError(f"no limit of {key} is known")
        difference = (self.kernels(key, width).to(limit) - limit).flatten(1)
        return torch.linalg.vector_norm(difference, dim=1) / torch.linalg.vector_norm(limit)

    def mean(self, key: str, width: int) -> float:
        return float(self.deviations(key, width).mean())

    def interval(self, key: str, width: int) -> tuple[float, float]:
        """The 95% interval of the mean deviation (Student's t)."""
        from scipy import stats

        d = self.deviations(key, width)
        if len(d) < 2:
            return (math.nan, math.nan)
        half = float(stats.t.ppf(0.975, len(d) - 1) * d.std() / math.sqrt(len(d)))
        return (float(d.mean()) - half, float(d.mean()) + half)

    def slope(self, key: str) -> float:
        """The least-squares slope of log mean deviation against log width."""
        x = torch.tensor([math.log(w) for w in self.widths], dtype=torch.float64)
        y = torch.tensor([math.log(self.mean(key, w)) for w in self.widths], dtype=torch.float64)
        x = x - x.mean()
        return float((x * y).sum() / (x * x).sum()) if len(self.widths) > 1 else math.nan

    def agreement(self) -> float:
        """The largest relative difference between the NTK by backward lines and by autograd, over all runs."""
        worst = 0.0
        for width in self.widths:
            a, b = self.kernels("ntk", width).flatten(1), self.kernels("ntk_autograd", width).flatten(1)
            worst = max(worst, float(((a - b).norm(dim=1) / b.norm(dim=1)).max()))
        return worst

    def compared(self) -> list[str]:
        """The names that have a limit."""
        return [k for k in self.keys() if self.limit_of(k) is not None]

    # ------------------------------------------------------------ for people and files

    def as_dict(self) -> Summary:
        """Mean deviation, interval and slope by name, as plain numbers."""
        table: dict[str, Curve] = {
            key: {
                "slope": self.slope(key),
                "mean": [self.mean(key, w) for w in self.widths],
                "interval": [list(self.interval(key, w)) for w in self.widths] if len(self.seeds) > 1 else None,
            }
            for key in self.compared()
        }
        return {"program": self.name, "widths": self.widths, "seeds": len(self.seeds), "deviation": table}

    def __repr__(self) -> str:
        ends = sorted({min(self.widths), max(self.widths)})
        widths = f"width{'s' if len(ends) > 1 else ''} {' to '.join(map(str, ends))}"
        return f"<Simulation of {one_line(self.name)}: {widths}, {len(self.seeds)} seeds; {', '.join(self.keys())}>"

    def table(self) -> Table:
        """The mean relative deviation from the limit by width, and its slope."""
        keys = self.compared()
        rows = [(str(w), *(f"{self.mean(key, w):.3e}" for key in keys)) for w in self.widths]
        if len(self.widths) > 1:
            rows.append(("slope", *(f"{self.slope(key):.3f}" for key in keys)))
        return Table(f"{self.name}: relative deviation from the limit", ("width", *keys), tuple(rows))

    def __str__(self) -> str:
        several = len(self.seeds) > 1
        over = f"mean over {len(self.seeds)} seeds [95% interval]" if several else "one seed"
        rows = [f"{self.name}: relative deviation from the limit, {over}"]
        keys = self.compared()
        rows.append("width".rjust(8) + "".join(key.rjust(34) for key in keys))
        for w in self.widths:
            cells = []
            for key in keys:
                low, high = self.interval(key, w)
                interval = f" [{low:.2e}, {high:.2e}]" if several else ""
                cells.append(f"{self.mean(key, w):.3e}{interval}".rjust(34))
            rows.append(str(w).rjust(8) + "".join(cells))
        if keys and len(self.widths) > 1:
            rows.append("slope".rjust(8) + "".join(f"{self.slope(key):.3f}".rjust(34) for key in keys))
        return "\n".join(rows)
