"""Every built-in program converges to its limit, and a broken recursion is caught.

`benchmarks/convergence.py` is the same at larger widths with more seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor import programs
from netsor.compilers.experiment.convergence import Convergence, convergence, fit, jackknife
from netsor.compilers.experiment.result import Simulation
from netsor.compilers.experiment.simulate import simulate
from netsor.compilers.lowering.load import load
from netsor.compilers.lowering.module import Source

WIDTHS, SEEDS = [32, 64, 128, 256], 40
DRAWS = 2**14  # of a sampled limit

Network = tuple[Callable[[], ns.Program], Any]
EXACT: dict[str, Network] = {
    "mlp": (programs.mlp, (2, 4)),
    "rnn": (lambda: programs.rnn(phi="erf", readout="mean", var_b=0.25), (2, 3, 4)),
    "cnn": (lambda: programs.cnn(depth=2, axes=("row",), readout="mean", var_b=0.1), (2, 4, 3)),
    "cntk": (lambda: programs.cntk(2), (2, 3, 2, 3)),
    "resnet": (lambda: programs.resnet(depth=2), (2, 4)),
    "transformer": (programs.transformer, (2, 3, 4)),
    "batchnorm_mlp": (lambda: programs.batchnorm_mlp(depth=1, eps=0.1), (1, 4, 5)),
    "gcn": (programs.gcn, {"x": (2, 3, 4), "A": np.array([[[0, 1, 0], [1, 0, 1], [0, 1, 0]]] * 2)}),
}
SAMPLED: dict[str, Network] = {
    "gru": (programs.gru, (2, 2, 4)),
    "lstm": (programs.lstm, (2, 2, 4)),
    "maxpool_cnn": (lambda: programs.maxpool_cnn(depth=1, axes=("row",)), (2, 4, 3)),
}
NOT_BP_LIKE: dict[str, Network] = {
    "tied_autoencoder": (programs.tied_autoencoder, (2, 4)),
    "gia_counterexample": (programs.gia_counterexample, (2, 3)),
}
NETWORKS = EXACT | SAMPLED | NOT_BP_LIKE


def inputs(shape: Any) -> Any:
    if isinstance(shape, dict):
        return {key: value if isinstance(value, np.ndarray) else inputs(value) for key, value in shape.items()}
    return np.random.default_rng(0).normal(size=shape)


@cache
def simulated(name: str) -> Simulation:
    make, shape = NETWORKS[name]
    p, x = make(), inputs(shape)
    limit = ns.limit(p, x, samples=DRAWS) if name in NOT_BP_LIKE else ns.compile(p, samples=DRAWS)(x)
    return simulate(p, x, WIDTHS, SEEDS, limit=limit, methods=("backward",), progress=False)


def rows(found: list[Convergence]) -> str:
    return "\n".join(map(str, found))


def test_every_program_is_here() -> None:
    assert NETWORKS.keys() == programs.BUILTIN.keys()


@pytest.mark.parametrize("name", NETWORKS)
def test_converges(name: str) -> None:
    result = simulated(name)
    found = convergence(result, tests=len(NETWORKS))
    assert [c.key for c in found] == (["ntk"] if name == "gia_counterexample" else ["nngp", "ntk"])
    assert set(result.errors) == (set() if name in EXACT else {c.key for c in found})
    assert all(c.passes for c in found), rows(found)


# ---------------------------------------------------------------- it can fail

BROKEN = {
    "mlp": ("rt.E2(step, step, L_x1)", "1.0"),  # the derivative of the first layer
    "transformer": ("    K_x1 = K_x1 * K_x1_3\n", ""),  # half of a normalisation
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_factor_dropped_from_a_recursion_is_caught(name: str) -> None:
    make, shape = EXACT[name]
    source, (factor, without) = ns.compile(make()).source, BROKEN[name]
    assert factor in source
    broken = load(Source(source.replace(factor, without, 1), {}), "broken").kernel(inputs(shape))
    right = simulated(name)
    limits = {key: getattr(broken, key).double() for key in ("nngp", "ntk")}
    result = Simulation(name, right.widths, right.seeds, limits, right.samples)
    changed = [c for c in convergence(result) if not torch.allclose(limits[c.key], right.limits[c.key])]
    assert changed, "nothing was broken"
    for c in changed:
        assert not c.slope_passes and not c.mean_passes, rows(changed)


def test_a_limit_off_by_a_fifth_is_caught() -> None:
    right = simulated("mlp")
    limits = {key: 1.2 * value for key, value in right.limits.items()}
    found = convergence(Simulation("mlp", right.widths, right.seeds, limits, right.samples))
    assert not any(c.passes for c in found), rows(found)


# ---------------------------------------------------------------- the statistics


@pytest.mark.parametrize(
    ("curve", "slope"),
    [
        (lambda n: 1 / n, -1.0),
        (lambda n: 1 / n + 20 / n**2, -1.0),
        (lambda n: n**-0.5, -0.5),
        (lambda n: 1.0, 0.0),
        (lambda n: n**-2.0, math.nan),  # no a/n at all
    ],
)
def test_the_slope_after_the_term_in_the_square(curve: Callable[[float], float], slope: float) -> None:
    squares = torch.tensor([curve(n) for n in WIDTHS], dtype=torch.float64)
    assert fit(WIDTHS, squares)[2] == pytest.approx(slope, abs=1e-9, nan_ok=True)


def noisy(offset: float, seeds: int = 400) -> Simulation:
    """K_n = 1 + 5/n + noise/√n of a kernel of two samples, against a limit that is off by `offset`."""
    rng = torch.Generator().manual_seed(0)
    limits = {"ntk": torch.full((2, 2), 1 + offset).double()}
    result = Simulation("noisy", WIDTHS, list(range(seeds)), limits)
    for n in WIDTHS:
        for _ in range(seeds):
            noise = torch.randn(2, 2, generator=rng, dtype=torch.float64)
            result.add(n, {"ntk": 1 + 5 / n + noise / n**0.5})
    return result


@pytest.mark.parametrize(("offset", "passes"), [(0.0, True), (0.05, False)])
def test_the_bias_is_fitted_and_an_offset_is_not(offset: float, passes: bool) -> None:
    assert convergence(noisy(offset))[0].mean_passes is passes


def test_a_standard_error_of_the_limit_widens_the_test() -> None:
    result = noisy(0.05)
    result.errors = {"ntk": torch.full((2, 2), 0.05).double()}
    assert convergence(result)[0].mean_passes


def test_a_slope_lost_in_noise_asks_for_seeds() -> None:
    steep = Convergence("p", "ntk", 1.0, 0.0, -0.6, 0.05, 1.0, 3, 1.0, 0.01)
    assert steep.verdict == "FAIL" and replace(steep, slope=-0.7, slope_error=0.2).verdict == "more seeds"
    assert replace(steep, slope=-0.9).verdict == "pass" and replace(steep, slope=-0.9, p=0.001).verdict == "FAIL"


def test_the_error_of_the_slope_falls_with_the_seeds() -> None:
    few, many = (convergence(noisy(0.0, seeds))[0] for seeds in (40, 400))
    assert many.slope_passes and 2 < few.slope_error / many.slope_error < 5


def test_the_interval_of_the_slope_covers_it() -> None:
    """Of 60 intervals of 95% at most 9 miss −1 (one chance in 1,000), of which the squares of 30 seeds tell little."""
    rng = torch.Generator().manual_seed(1)
    curve = torch.tensor([1 / n + 20 / n**2 for n in WIDTHS], dtype=torch.float64)
    row, missed = convergence(noisy(0.0, 2))[0], 0
    for _ in range(60):
        squares = curve * torch.randn(30, len(WIDTHS), 4, generator=rng, dtype=torch.float64).square().mean(-1)
        slope = fit(WIDTHS, squares.mean(0))[2]
        low, high = replace(row, slope=slope, slope_error=jackknife(WIDTHS, squares)).interval
        missed += not low <= -1 <= high
    assert missed <= 9


def test_few_widths_are_refused() -> None:
    one = Simulation("one", [8, 16], [0, 1], {})
    with pytest.raises(ValueError, match="at least three widths and two seeds"):
        convergence(one)
