"""Predictions of infinitely wide networks, against brute force."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import netsor as ns
from netsor.compilers.predict.solve import JitterWarning
from netsor.errors import InputError

SETS = np.random.default_rng(0)
X, T = SETS.normal(size=(12, 5)), SETS.normal(size=(4, 5))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], 1)


@pytest.fixture(scope="module")
def kernel() -> Any:
    return ns.compile(ns.programs.mlp(depth=2))


@pytest.fixture(scope="module")
def blocks(kernel: Any) -> dict[str, np.ndarray[Any, Any]]:
    """K and Θ of the training inputs, between test and training inputs, and of the test inputs."""
    pairs = {"": (X, X), "_x": (T, X), "_t": (T, T)}
    return {w + k: getattr(kernel(*p), w).numpy() for w in ("nngp", "ntk") for k, p in pairs.items()}


@pytest.mark.parametrize("which", ["nngp", "ntk"])
def test_the_posterior_is_the_gaussian_conditional(kernel: Any, blocks: Any, which: str) -> None:
    k, across, prior = (blocks[which + s] for s in ("", "_x", "_t"))
    ridged = k + 1e-2 * np.trace(k) / len(k) * np.eye(len(k))
    found = ns.predict(kernel, X, Y, diag_reg=1e-2).gp(T, ntk=which == "ntk", covariance=True)
    np.testing.assert_allclose(found.mean, across @ np.linalg.solve(ridged, Y), rtol=1e-10)
    want = prior - across @ np.linalg.solve(ridged, across.T)
    np.testing.assert_allclose(found.covariance, want, atol=1e-12)
    np.testing.assert_allclose(found.variance, np.diag(want), atol=1e-12)


def test_predictions_of_neural_tangents() -> None:
    """benchmarks/peer_predictions.py says how they were made."""
    vectors = json.loads((Path(__file__).parents[1] / "vectors" / "predictions.json").read_text())
    x, y, t = (np.array(vectors["inputs"][k]) for k in ("x", "y", "test"))
    kernel = ns.compile(ns.programs.mlp(2, "erf", 1.5, 0.3, 0.8), convention="unit")
    assert ns.predict(kernel, x, y).max_learning_rate == pytest.approx(vectors["max_learning_rate"], rel=1e-8)
    for case in vectors["cases"]:
        predictor = ns.predict(kernel, x, y, case["diag_reg"])
        gp = case["get"] == "nngp"
        found = predictor.gp(t, covariance=True) if gp else predictor.ensemble(t, case["t"], covariance=True)
        np.testing.assert_allclose(found.mean, case["mean"], rtol=vectors["tolerance"], atol=1e-10)
        np.testing.assert_allclose(found.covariance, case["covariance"], rtol=vectors["tolerance"], atol=1e-10)


def propagated(blocks: Any, t: float, steps: int) -> tuple[Any, Any]:
    """Mean and covariance of f_t(T) by Euler steps of the linear flow of f(X) and f(T) from a Gaussian start."""
    theta = np.concatenate([blocks["ntk"], blocks["ntk_x"]])
    n = len(X)
    first = np.block([[blocks["nngp"], blocks["nngp_x"].T], [blocks["nngp_x"], blocks["nngp_t"]]])
    size, h = Y.size, t / steps
    move = np.eye(n + len(T))
    move[:, :n] -= h / size * theta
    drift = h / size * theta @ Y
    mean, total = np.zeros((n + len(T), Y.shape[1])), np.eye(n + len(T))
    for _ in range(steps):
        mean = move @ mean + drift
        total = move @ total
    return mean[n:], (total @ first @ total.T)[n:, n:]


@pytest.mark.parametrize("t", [0.5, 5.0])
def test_discrete_steps_are_the_steps_of_gradient_descent(kernel: Any, blocks: Any, t: float) -> None:
    mean, covariance = propagated(blocks, t, 20)
    found = ns.predict(kernel, X, Y).ensemble(T, steps=20, learning_rate=t / 20, covariance=True)
    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-12)


@pytest.mark.parametrize("t", [0.5, 5.0])
def test_the_flow_is_the_limit_of_small_steps(kernel: Any, blocks: Any, t: float) -> None:
    mean, covariance = propagated(blocks, t, 20_000)
    found = ns.predict(kernel, X, Y).ensemble(T, t=t, covariance=True)
    np.testing.assert_allclose(found.mean, mean, atol=1e-4)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-4)


def test_the_flow_of_a_loss(kernel: Any, blocks: Any) -> None:
    """Logistic loss against Euler; the squared loss against the closed form."""
    labels = torch.from_numpy(np.sign(Y[:, 0]))

    def logistic(f: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-f * y).sum()

    theta, n = torch.from_numpy(np.concatenate([blocks["ntk"], blocks["ntk_x"]])), len(X)
    f = torch.zeros(n + len(T), dtype=torch.float64)
    for _ in range(20_000):
        f = f + theta @ (labels * torch.sigmoid(-f[:n] * labels)) * (2.0 / 20_000)
    predictor = ns.predict(kernel, X, labels)
    np.testing.assert_allclose(predictor.flow(T, 2.0, logistic), f[n:], atol=1e-4)
    squared = ns.predict(kernel, X, Y)
    found = squared.flow(T, [0.0, 3.0, 1.0], lambda f, y: ((f - y) ** 2).sum() / (2 * Y.size))
    want = torch.stack([squared.ensemble(T, t=t).mean for t in (0.0, 3.0, 1.0)])
    np.testing.assert_allclose(found, want, atol=1e-7)


def test_the_ends_of_training(kernel: Any, blocks: Any) -> None:
    predictor = ns.predict(kernel, X, Y)
    start, end = predictor.ensemble(T, t=0.0, covariance=True), predictor.ensemble(T, covariance=True)
    assert not start.mean.any()
    np.testing.assert_allclose(start.covariance, blocks["nngp_t"])
    late = predictor.ensemble(T, t=1e9, covariance=True)
    np.testing.assert_allclose(late.mean, end.mean, rtol=1e-8)
    np.testing.assert_allclose(late.covariance, end.covariance, atol=1e-10)
    np.testing.assert_allclose(predictor.ensemble(X).mean, Y, atol=1e-10)
    np.testing.assert_allclose(end.mean, predictor.gp(T, ntk=True).mean, atol=1e-10)


def test_variances_without_the_covariance(kernel: Any) -> None:
    predictor = ns.predict(kernel, X, Y)
    for ask in (predictor.gp, predictor.ensemble):
        assert ask(T).covariance is None
        np.testing.assert_allclose(ask(T).variance, ask(T, covariance=True).variance, atol=1e-13)
        assert (ask(X).variance < 1e-10).all()


def test_posterior_variances_lie_between_zero_and_the_prior(kernel: Any) -> None:
    x = np.concatenate([X, X[:3], 1e3 * X[:1], 1e-3 * X[:1], np.zeros((1, 5))])
    y = np.concatenate([Y, Y[:3], Y[:3]])[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)
        found = ns.predict(kernel, x, y, diag_reg=1e-9).gp(np.concatenate([T, x]))
    prior = kernel.diag(np.concatenate([T, x]), "nngp").nngp
    assert bool(torch.isfinite(found.mean).all())
    assert bool((found.variance >= 0).all() and (found.variance <= prior * (1 + 1e-12)).all())


def test_duplicates_are_named_and_change_nothing(kernel: Any) -> None:
    plain, twice = ns.predict(kernel, X, Y), ns.predict(kernel, np.concatenate([X, X[:2]]), np.concatenate([Y, Y[:2]]))
    np.testing.assert_allclose(twice.ensemble(T).mean, plain.ensemble(T).mean, atol=1e-10)
    np.testing.assert_allclose(twice.ensemble(T).variance, plain.ensemble(T).variance, atol=1e-10)
    with pytest.warns(JitterWarning, match=r"samples 0 and 12 coincide\): 1e-\d\d times its mean diagonal"):
        found = twice.gp(T)
    np.testing.assert_allclose(found.mean, plain.gp(T).mean, atol=1e-8)


def test_one_sample(kernel: Any) -> None:
    predictor = ns.predict(kernel, X[:1], [2.0])
    assert predictor.gp(X[:1]).mean.tolist() == pytest.approx([2.0])
    assert predictor.ensemble(X[:1]).variance.tolist() == pytest.approx([0.0], abs=1e-12)
    k = kernel(X[:1]).ntk.item()
    assert predictor.max_learning_rate == pytest.approx(2 / k)
    assert predictor.convergence_rate == pytest.approx(k)


def test_the_learning_rate_at_which_gradient_descent_diverges(kernel: Any, blocks: Any) -> None:
    predictor = ns.predict(kernel, X, Y)
    rate = predictor.max_learning_rate
    assert rate == pytest.approx(2 * Y.size / np.linalg.eigvalsh(blocks["ntk"])[-1])
    assert predictor.convergence_rate == pytest.approx(np.linalg.eigvalsh(blocks["ntk"])[0] / Y.size)
    residual = predictor.ensemble(X, steps=100_000, learning_rate=0.99 * rate).mean - torch.from_numpy(Y)
    assert float(residual.abs().max()) < 1e-6
    with pytest.raises(InputError, match="diverges: the learning rate must be below"):
        predictor.ensemble(T, steps=3, learning_rate=1.01 * rate)


def test_outputs_with_axes_are_predicted_together() -> None:
    """A network with an output per row of a batch: batches and rows together are the points of one process."""
    kernel = ns.compile(ns.programs.batchnorm_mlp(depth=1, eps=0.1))
    x, t = SETS.normal(size=(3, 2, 4)), SETS.normal(size=(2, 2, 4))
    y = SETS.normal(size=(3, 2))
    k, across = (kernel(*p).nngp.permute(0, 2, 1, 3) for p in ((x, x), (t, x)))
    ridged = k.reshape(6, 6) + 1e-3 * k.reshape(6, 6).diagonal().mean() * torch.eye(6)
    want = across.reshape(4, 6) @ torch.linalg.solve(ridged, torch.from_numpy(y).reshape(6))
    found = ns.predict(kernel, x, y, diag_reg=1e-3).gp(t, covariance=True)
    np.testing.assert_allclose(found.mean, want.reshape(2, 2), rtol=1e-8)
    assert found.variance.shape == (2, 2)
    assert found.covariance.shape == (2, 2, 2, 2)


def test_trained_finite_networks(kernel: Any) -> None:
    """400 networks of width 256 trained by gradient descent: mean and variance within four standard errors + 5/n."""
    g = torch.Generator().manual_seed(0)
    nets, n, d, steps, rate = 400, 256, 5, 60, 1.0
    x, t, y = (torch.from_numpy(a).float() for a in (X[:4], T, Y[:4, :1]))
    shapes = [(nets, n, d), (nets, n, 1), (nets, n, n), (nets, n, 1), (nets, 1, n)]
    w = [torch.randn(s, generator=g).requires_grad_() for s in shapes]

    def network(x: Tensor) -> Tensor:
        h = torch.relu(w[0] @ x.T / d**0.5 + w[1])
        h = torch.relu(w[2] @ h / n**0.5 + w[3])
        out: Tensor = (w[4] @ h / n**0.5)[:, 0]
        return out

    for _ in range(steps):
        loss = ((network(x) - y[:, 0]) ** 2).sum() / (2 * len(x))
        slopes = torch.autograd.grad(loss, w)
        with torch.no_grad():
            for a, s in zip(w, slopes, strict=True):
                a -= rate * s
    with torch.no_grad():
        f = network(t).double()
    found = ns.predict(kernel, X[:4], Y[:4, 0]).ensemble(T, steps=steps, learning_rate=rate)
    error = f.std(0) / nets**0.5
    assert bool(((f.mean(0) - found.mean).abs() < 4 * error + 5 / n).all())
    spread = f.var(0)
    assert bool(((spread - found.variance).abs() < 4 * spread * (2 / nets) ** 0.5 + 5 / n).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": Y[:5]}, r"y_train has shape \(5, 2\), there are 12 training samples"),
        ({"y": np.full((12, 2), np.nan)}, "y_train is not finite in sample 0"),
        ({"y": ["a"] * 12}, "y_train is not an array of numbers"),
        ({"y": np.zeros((12, 2, 2))}, r"wanted \[12\] or \[12, k\]"),
        ({"diag_reg": -1.0}, "diag_reg is a number ≥ 0"),
        ({"x": X[:0], "y": Y[:0]}, "no training samples"),
    ],
)
def test_wrong_arguments(kernel: Any, change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"x": X, "y": Y, "diag_reg": 0.0} | change
    with pytest.raises(InputError, match=message):
        ns.predict(kernel, given["x"], given["y"], given["diag_reg"])


def test_wrong_questions(kernel: Any) -> None:
    predictor = ns.predict(kernel, X, Y)
    wrong: list[dict[str, Any]] = [
        {"t": -1.0}, {"steps": 3}, {"t": 1.0, "steps": 3, "learning_rate": 0.1}, {"t": float("nan")},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(InputError):
            predictor.ensemble(T, **arguments)
    with pytest.raises(InputError, match="one number that depends on f"):
        predictor.flow(T, 1.0, lambda f, y: f - y)


PROGRAMS: dict[str, tuple[ns.Program, Any]] = {
    "mlp": (ns.programs.mlp(), X[:5]),
    "tanh": (ns.programs.mlp(phi="tanh"), X[:5]),
    "resnet": (ns.programs.resnet(), X[:5]),
    "cnn": (ns.programs.cnn(depth=2, readout="mean"), SETS.normal(size=(5, 3, 4, 2))),
    "rnn": (ns.programs.rnn(), SETS.normal(size=(5, 3, 2))),
    "ragged rnn": (ns.programs.rnn(), [SETS.normal(size=(k, 2)) for k in (3, 2, 3, 4)]),
    "transformer": (ns.programs.transformer(), SETS.normal(size=(5, 3, 2))),
    "batchnorm": (ns.programs.batchnorm_mlp(depth=1, eps=0.1), SETS.normal(size=(2, 4, 6))),
    "gcn": (ns.programs.gcn(), {"x": SETS.normal(size=(5, 3, 2)), "A": np.ones((5, 3, 3)) - np.eye(3)}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_diagonal_alone(name: str) -> None:
    """`kernel.diag` against the diagonal of the whole call."""
    program, x = PROGRAMS[name]
    kernel = ns.compile(program)
    whole, own = kernel(x), kernel.diag(x)
    for key, value in whole.items():
        want = torch.stack([value[i, i] for i in range(len(value))])
        torch.testing.assert_close(dict(own.items())[key], want, rtol=1e-12, atol=1e-14)


def test_landmarks_of_a_kernel_that_is_zero() -> None:
    zeros = np.zeros((12, 5))
    predictor = ns.predict(ns.compile(ns.programs.mlp(var_b=None)), zeros, Y, diag_reg=1e-2, landmarks=5)
    for found in (predictor.gp(zeros[:4]), predictor.ensemble(zeros[:4])):
        np.testing.assert_array_equal(found.mean, np.zeros((4, 2)))
        np.testing.assert_array_equal(found.variance, np.zeros(4))


@pytest.mark.parametrize("landmarks", [2.5, "3", [0.5, 1], True, [True, False]])
def test_landmarks_are_numbers_of_samples(kernel: Any, landmarks: Any) -> None:
    with pytest.raises(InputError, match="landmarks is a number of training samples or a list") as caught:
        ns.predict(kernel, X, Y, landmarks=landmarks)
    assert "NT621" in str(caught.value)
