"""Does a simulation converge to its limit? Two tests, per kernel.

Slope: the squared relative deviation follows E dev² = a/n + b/n², variance and squared bias, so a > 0 and b ≥ 0 (with
b < 0 the model follows any power of n). It is fitted with equal relative errors, and `slope` is that of dev² against n
on logarithmic axes once divided by 1 + b/(a n); it is −1 ± 0.2. A limit that is off by δ adds δ², and the slope rises.

Mean: entry by entry, E K_n = K + B/n. B is fitted on all widths but the largest, N, and the mean at N is compared with
K + B/N: a t-test over seeds of K_N − K − B/N, one value per seed, so that widths may share their random numbers. A
sampled limit adds its standard error. The p-value of the largest |t| is multiplied by the number of entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netsor.compilers.experiment.figure import drawn
from netsor.compilers.experiment.result import Simulation

SLOPE, LEVEL = 0.2, 0.01
ROUNDING = 1e-9  # of the largest entry: what float64 and quadrature may leave of an entry without variance


@dataclass(frozen=True)
class Convergence:
    """The tests of one kernel; `p` is corrected for the number of entries tested."""

    program: str
    key: str
    a: float
    b: float
    slope: float
    slope_error: float
    z: float
    entries: int
    p: float
    level: float

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the slope, from its jackknife error."""
        return self.slope - 1.96 * self.slope_error, self.slope + 1.96 * self.slope_error

    @property
    def slope_passes(self) -> bool:
        return abs(self.slope + 1) <= SLOPE

    @property
    def mean_passes(self) -> bool:
        return self.p >= self.level

    @property
    def passes(self) -> bool:
        return self.slope_passes and self.mean_passes

    @property
    def verdict(self) -> str:
        """ "pass", "FAIL", or "more seeds" when only the slope fails, by less than three of its standard errors."""
        if self.passes:
            return "pass"
        noise = not abs(self.slope + 1) > SLOPE + 3 * self.slope_error
        return "more seeds" if self.mean_passes and noise else "FAIL"

    def as_dict(self) -> dict[str, float | str]:
        named = {"slope": self.slope, "slope_error": self.slope_error, "z": self.z, "p": self.p}
        return named | {"verdict": self.verdict}

    def __str__(self) -> str:
        low, high = self.interval
        slope = f"{self.slope:>8.3f} [{low:.2f}, {high:.2f}]"
        return f"{self.program:<20}{self.key:<14}{slope:<26}{self.z:>5.2f}{self.p:>9.3g}  {self.verdict}"


HEAD = f"{'program':<20}{'kernel':<14}{'slope':>8}{'[95%]':>9}{'|z|':>14}{'p':>9}"


def convergence(result: Simulation, keys: Sequence[str] | None = None, tests: int = 1) -> list[Convergence]:
    """The tests of every kernel that has a limit (the NTK once); at least three widths and two seeds are needed.

    The 1% level is shared by the kernels of the simulation and by `tests` simulations (Bonferroni).
    """
    if not testable(result):
        raise ValueError("a test of convergence needs at least three widths and two seeds")
    chosen = list(drawn(result) if keys is None else keys)
    level = LEVEL / (tests * max(len(chosen), 1))
    return [_of(result, key, level) for key in chosen]


def testable(result: Simulation) -> bool:
    """Are there enough widths and seeds?"""
    return len(set(result.widths)) > 2 and len(result.seeds) > 1


def _of(result: Simulation, key: str, level: float) -> Convergence:
    squares = squared_deviations(result, key)
    a, b, slope = fit(result.widths, squares.mean(0))
    z, entries, p = largest(result, key)
    return Convergence(result.name, key, a, b, slope, jackknife(result.widths, squares), z, entries, p, level)


# ---------------------------------------------------------------- slope


def squared_deviations(result: Simulation, key: str) -> Tensor:
    """dev² `[seed, width]`, less what the standard errors of a sampled limit add to it."""
    limit = result.limit_of(key)
    error = result.error_of(key)
    noise = 0.0 if limit is None or error is None else float((error.norm() / limit.norm()) ** 2)
    return torch.stack([result.deviations(key, w) ** 2 - noise for w in result.widths], dim=1)


def fit(widths: Sequence[int], squares: Tensor) -> tuple[float, float, float]:
    """a, b of a/n + b/n², b ≥ 0, with equal relative errors, and the slope that is left; NaN where there is no fit."""
    a, b, slope = (float(x) for x in fits(widths, squares[None]).T)
    return a, b, slope


def fits(widths: Sequence[int], squares: Tensor) -> Tensor:
    """`fit` of every row of `[row, width]`: a, b and slope `[row, 3]`."""
    n = torch.tensor(widths, dtype=torch.float64)
    squares = squares.where((squares > 0).all(1, keepdim=True), math.nan)
    two, one = _coefficients(n, squares, 2), _coefficients(n, squares, 1)
    a, b = torch.where(two[:, 1:] >= 0, two, one).T
    x, y = n.log() - n.log().mean(), (squares / (1 + (b / a)[:, None] / n)).log()
    some = a * n.max() > 1e-9 * b  # less of a/n is rounding
    slope = ((x * y).sum(1) / (x * x).sum()).where(some, math.nan)
    return torch.stack([a, b, slope], 1)


def jackknife(widths: Sequence[int], squares: Tensor) -> float:
    """The standard error of the slope, from the slopes without one seed each."""
    seeds = squares.shape[0]
    slopes = fits(widths, (squares.sum(0) - squares) / (seeds - 1))[:, 2]
    return float(((slopes - slopes.mean()) ** 2).sum() * (seeds - 1) / seeds) ** 0.5


def _coefficients(n: Tensor, m: Tensor, terms: int) -> Tensor:
    """The first `terms` of a/n + b/n², weighted by the curve's own height, `[row, 2]`; NaN when it is not positive."""
    basis = torch.stack([1 / n, 1 / n**2], dim=1)[:, :terms]
    curve, solution = m, m.new_zeros(len(m), terms)
    for _ in range(20):
        lost = ~(curve > 0).all(1, keepdim=True)
        safe = curve.masked_fill(lost, 1.0)
        weighted, target = basis / safe[..., None], (m / safe).masked_fill(lost, 1.0)
        solution = torch.linalg.lstsq(weighted, target[..., None]).solution[..., 0].masked_fill(lost, math.nan)
        curve = solution @ basis.T
    solution = solution.masked_fill(~(curve > 0).all(1, keepdim=True), math.nan)
    return torch.nn.functional.pad(solution, (0, 2 - terms))


# ---------------------------------------------------------------- mean


def residuals(result: Simulation, key: str) -> tuple[Tensor, float]:
    """K_N − K − B/N of every seed, B fitted on the smaller widths, and the weight of K in it.

    The entries' variances fall like 1/n, so the fitted B is Σ (K_n − K) / Σ 1/n, and K enters with −(1 − m/(N Σ 1/n)).
    """
    limit = result.limit_of(key)
    if limit is None:
        raise KeyError(f"no limit of {key} is known")
    *smaller, largest = sorted(result.widths)
    inverse = sum(1 / w for w in smaller)
    differences = sum((result.kernels(key, w).to(limit) - limit for w in smaller), torch.zeros_like(limit))
    at_largest = result.kernels(key, largest).to(limit) - limit
    return at_largest - differences / (inverse * largest), 1 - len(smaller) / (inverse * largest)


def scores(result: Simulation, key: str) -> Tensor:
    """t of every entry, `[sample, sample′, …]`."""
    r, weight = residuals(result, key)
    limit = result.limit_of(key)
    assert limit is not None
    variance = r.var(0) / r.shape[0] + (ROUNDING * limit.abs().max()) ** 2
    error = result.error_of(key)
    if error is not None:
        variance = variance + (weight * error) ** 2
    return r.mean(0) / variance.sqrt().clamp_min(torch.finfo(torch.float64).tiny)


def largest(result: Simulation, key: str) -> tuple[float, int, float]:
    """The largest |t| over pairs of samples i ≤ j, the number of entries, and the corrected p-value."""
    from scipy import stats

    t = scores(result, key)
    above = torch.ones(t.shape[:2]).triu().bool()
    found = t[above].abs()
    z = float(found.max())
    return z, found.numel(), min(1.0, found.numel() * 2 * float(stats.t.sf(z, len(result.seeds) - 1)))
