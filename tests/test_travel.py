"""Objects that cross processes: pickled, copied, sent to workers, with equal numbers afterwards."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns

X = np.random.default_rng(0).normal(size=(3, 4))
NAMES = [n for n in ns.programs.__all__ if callable(getattr(ns.programs, n))]
WAYS: dict[str, Callable[[Any], Any]] = {"pickle": lambda o: pickle.loads(pickle.dumps(o)), "copy": copy.deepcopy}


def slope(x: torch.Tensor) -> torch.Tensor:
    return 1 - torch.tanh(x) ** 2


def functions() -> list[Any]:
    mish = ns.function("mish", lambda x: x * ns.tanh(ns.softplus(x)))
    numeric = ns.numeric("tanh_torch", torch.tanh, derivative=slope, parity="odd", growth="bounded")
    return ["relu", "elu", ns.leaky_relu(0.2), ns.polynomial([0, 1, 0.5]), mish, numeric, mish.prime]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_programs_reports_and_recursions(name: str, way: str) -> None:
    program = getattr(ns.programs, name)()
    again = WAYS[way](program)
    assert again == program
    report = ns.check(program)
    other = WAYS[way](report)
    assert other.reasons == report.reasons
    assert list(map(str, other.diagnostics)) == list(map(str, report.diagnostics))
    if name not in ("gru", "lstm", "maxpool_cnn", "tied_autoencoder", "gia_counterexample"):
        recursion = ns.derive(program)
        assert str(WAYS[way](recursion)) == str(recursion) == str(ns.derive(again))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phi", functions(), ids=str)
def test_kernels_and_their_functions(phi: Any, way: str) -> None:
    kernel = ns.compile(ns.programs.mlp(2, phi), assume_gia=True)
    found = kernel(X)
    again = WAYS[way](kernel)(X)
    assert torch.equal(again.nngp, found.nngp) and torch.equal(again.ntk, found.ntk)
    assert torch.equal(WAYS[way](found).ntk, found.ntk)


@pytest.mark.parametrize("way", WAYS)
def test_limits_simulations_and_predictors(way: str) -> None:
    limit = ns.limit(ns.programs.tied_autoencoder(), X)
    assert np.array_equal(WAYS[way](limit).nngp, limit.nngp)
    simulation = ns.simulate(ns.programs.mlp(1), X, widths=[16], seeds=2)
    assert str(WAYS[way](simulation)) == str(simulation)
    predictor = ns.predict(ns.compile(ns.programs.mlp(1)), X, [1.0, 2.0, 3.0])
    assert torch.equal(WAYS[way](predictor).gp(X).mean, predictor.gp(X).mean)


def test_a_fresh_process() -> None:
    kernel = ns.compile(ns.programs.mlp(2, "tanh"))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert torch.equal(pool.apply(kernel, (X,)).ntk, kernel(X).ntk)


def test_a_lambda_is_named_where_it_cannot_travel() -> None:
    phi = ns.numeric("local", lambda x: torch.tanh(x), derivative=slope, parity="odd", growth="bounded")
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(ns.programs.mlp(1, phi))
