"""Predictions through landmarks, by conjugate gradients and from stores, against the whole kernels; likelihoods."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

import netsor as ns
from netsor.compilers.predict.conjugate import conjugate_gradients
from netsor.compilers.store import StoredKernel
from netsor.errors import InputError

RNG = np.random.default_rng(0)
X, T = RNG.normal(size=(30, 4)), RNG.normal(size=(7, 4))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], 1)
KERNEL = ns.compile(ns.programs.mlp(2))
ASKED: dict[str, Any] = {
    "gp": lambda p, **more: p.gp(T, **more),
    "ntk gp": lambda p, **more: p.gp(T, ntk=True, **more),
    "end": lambda p, **more: p.ensemble(T, **more),
    "t": lambda p, **more: p.ensemble(T, t=40.0, **more),
    "steps": lambda p, **more: p.ensemble(T, steps=9, learning_rate=2.0, **more),
}
SMALL: dict[str, Any] = {"memory": 40_000}  # blocks of a few samples


def close(found: Any, wanted: Any, tolerance: float = 1e-7) -> None:
    for name in ("mean", "variance", "covariance"):
        one, two = getattr(found, name), getattr(wanted, name)
        assert (one is None) == (two is None)
        if one is not None:
            torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def exact() -> Any:
    return ns.predict(KERNEL, X, Y, diag_reg=1e-3)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return KERNEL.gram(X, tile=8, store=tmp_path_factory.mktemp("grams") / "k.zarr")


@pytest.mark.parametrize("covariance", [False, True])
@pytest.mark.parametrize("question", ASKED)
def test_all_training_inputs_as_landmarks(exact: Any, question: str, covariance: bool) -> None:
    found = ns.predict(KERNEL, X, Y, diag_reg=1e-3, landmarks=len(X))
    close(ASKED[question](found, covariance=covariance), ASKED[question](exact, covariance=covariance))


@pytest.mark.parametrize("covariance", [False, True])
@pytest.mark.parametrize("question", ["gp", "ntk gp", "end"])
def test_conjugate_gradients(exact: Any, question: str, covariance: bool) -> None:
    found = ns.predict(KERNEL, X, Y, diag_reg=1e-3, solver="cg", landmarks=10, tol=1e-12, **SMALL)
    close(ASKED[question](found, covariance=covariance), ASKED[question](exact, covariance=covariance))
    close(ASKED[question](found, variance=False), ASKED[question](exact, variance=False))


@pytest.mark.parametrize("question", ASKED)
def test_some_landmarks_are_a_gaussian_process_of_low_rank(question: str) -> None:
    """The same formulas with K̂ = K_nm K_mm⁻¹ K_mn written out."""
    numbers = [1, 4, 5, 9, 20, 21, 28]
    found = ASKED[question](ns.predict(KERNEL, X, Y, 1e-2, landmarks=numbers, **SMALL), covariance=True)

    class Low:
        def __call__(self, x1: Any, x2: Any = None, get: Any = None) -> Any:
            out = KERNEL(x1, x1 if x2 is None else x2, get)
            if x2 is None and x1 is T:
                return out  # the prior is exact
            parts = [KERNEL(a, X[numbers], get) for a in (x1, x1 if x2 is None else x2)]
            inner = KERNEL(X[numbers], get=get)
            for name in out.asked:
                low = parts[0][name] @ torch.linalg.solve(inner[name], parts[1][name].T)
                setattr(out, name, low)
            return out

        def diag(self, x: Any, get: Any) -> Any:
            return KERNEL.diag(x, get)

    low: Any = Low()
    wanted: Any = ns.predict(low, X, Y)
    for which in ("nngp", "ntk"):  # the ridge is relative to the exact diagonal
        k = getattr(Low()(X, get=(which,)), which)
        ridge = 1e-2 * float(getattr(KERNEL.diag(X), which).mean())
        wanted._answers._kernels[which] = k
        wanted._answers._systems[which] = type(wanted._answers.system("nngp"))(k + ridge * torch.eye(len(X)), which)
    close(found, ASKED[question](wanted, covariance=True), 1e-8)


def test_outputs_with_axes() -> None:
    kernel = ns.compile(ns.programs.batchnorm_mlp(1, "relu", 0.1))
    x, t = RNG.normal(size=(5, 3, 4)), RNG.normal(size=(2, 3, 4))
    y = RNG.normal(size=(5, 3))
    wanted = ns.predict(kernel, x, y, 1e-2)
    options: list[dict[str, Any]] = [{"landmarks": 5}, {"solver": "cg", "landmarks": 2, "tol": 1e-12}]
    for more in options:
        found = ns.predict(kernel, x, y, 1e-2, **more)
        close(found.gp(t, covariance=True), wanted.gp(t, covariance=True), 1e-6)
        close(found.ensemble(t), wanted.ensemble(t), 1e-6)


@pytest.mark.parametrize(
    "more", [{}, {"landmarks": 30}, {"solver": "cg", "tol": 1e-12, **SMALL}], ids=["cholesky", "landmarks", "cg"]
)
def test_stores_are_read_by_blocks(
    stored: Any, exact: Any, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    plain = StoredKernel._read

    def counted(self: Any, rows: Any, cols: Any) -> Any:
        read.append(len(rows) * len(cols))
        return plain(self, rows, cols)

    monkeypatch.setattr(StoredKernel, "_read", counted)
    calls = KERNEL.calls
    found = ns.predict(KERNEL, X, Y, 1e-3, gram=stored, **(more | SMALL if more else {}))
    close(found.gp(T, variance=False), exact.gp(T, variance=False))
    assert read and max(read) <= (SMALL["memory"] // 64 if more else len(X) * 8)
    if not more:
        assert KERNEL.calls - calls <= 2  # test inputs alone
    close(ns.predict(KERNEL, X, Y, 1e-3, gram=stored.path, **more).ensemble(T), exact.ensemble(T))


def test_stores_of_other_inputs_are_refused(stored: Any) -> None:
    with pytest.raises(InputError, match="x1 is another"):
        ns.predict(KERNEL, X + 1, Y, gram=stored)
    with pytest.raises(InputError, match="convention is omega there and unit here"):
        ns.predict(ns.compile(KERNEL.program, convention="unit"), X, Y, gram=stored.path)


def test_predictors_travel(stored: Any) -> None:
    options: list[dict[str, Any]] = [{"landmarks": 9}, {"solver": "cg"}, {"gram": stored}]
    for more in options:
        found = ns.predict(KERNEL, X, Y, 1e-3, **more)
        first = found.gp(T)
        close(pickle.loads(pickle.dumps(found)).gp(T), first)


# ---------------------------------------------------------------- likelihoods


@pytest.mark.parametrize("ntk", [False, True])
def test_the_likelihood_is_that_of_a_gaussian(exact: Any, ntk: bool) -> None:
    k = np.asarray(KERNEL(X, get="ntk" if ntk else "nngp"))
    law = multivariate_normal(np.zeros(len(X)), k + 1e-3 * np.trace(k) / len(X) * np.eye(len(X)))
    wanted = law.logpdf(Y[:, 0]) + law.logpdf(Y[:, 1])
    assert float(exact.log_marginal_likelihood(ntk)) == pytest.approx(wanted, rel=1e-9)
    low = ns.predict(KERNEL, X, Y, 1e-3, landmarks=len(X))
    assert float(low.log_marginal_likelihood(ntk)) == pytest.approx(wanted, rel=1e-6)


def test_gradients_of_the_likelihood() -> None:
    kernel = ns.compile(ns.programs.mlp(2, "erf", "w", "b", "v"))
    values = {"w": 1.5, "b": 0.2, "v": 0.8, "reg": 0.05}

    def likelihood(given: dict[str, Any]) -> Tensor:
        params = {k: v for k, v in given.items() if k != "reg"}
        return ns.predict(kernel, X, Y, given["reg"], params=params).log_marginal_likelihood()

    tensors = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in values.items()}
    likelihood(tensors).backward()
    for name, value in values.items():
        up, down = (float(likelihood(values | {name: value * (1 + h)})) for h in (1e-5, -1e-5))
        grad = tensors[name].grad
        assert grad is not None and float(grad) == pytest.approx((up - down) / (2e-5 * value), rel=1e-6)


def test_predictions_with_parameters() -> None:
    kernel, values = ns.compile(ns.programs.mlp(2, "erf", "w", "b")), {"w": 1.5, "b": 0.2}
    wanted = ns.predict(ns.compile(ns.bind(kernel.program, values)), X, Y, 1e-2)
    options: list[dict[str, Any]] = [{}, {"landmarks": 30}, {"solver": "cg", "tol": 1e-12}]
    for more in options:
        close(ns.predict(kernel, X, Y, 1e-2, params=values, **more).ensemble(T), wanted.ensemble(T))
    tracked = {k: torch.tensor(v, requires_grad=True) for k, v in values.items()}
    moved = ns.predict(kernel, X, Y[:, 0], params=tracked).flow(T, 1.0, lambda f, y: ((f - y) ** 2).sum())
    assert not moved.requires_grad


# ---------------------------------------------------------------- errors


def test_wrong_arguments() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"landmarks": 31}, "from 1 to 30"), ({"landmarks": 0}, "from 1 to 30"), ({"landmarks": [1, 1]}, "different"),
        ({"landmarks": [30]}, "0 … 29"), ({"solver": "qr"}, "'cholesky' or 'cg'"), ({"solver": "cg"}, "diag_reg > 0"),
    ]  # fmt: skip
    for more, message in wrong:
        with pytest.raises(InputError, match=message):
            ns.predict(KERNEL, X, Y, **more)
    found = ns.predict(KERNEL, X, Y, 1e-3, solver="cg")
    for question in ("t", "steps"):
        with pytest.raises(InputError, match="conjugate gradients do not give this"):
            ASKED[question](found)
    for ask in (found.log_marginal_likelihood, lambda: found.max_learning_rate):
        with pytest.raises(InputError, match="conjugate gradients do not give this"):
            ask()
    with pytest.raises(InputError, match="a flow needs the whole kernel"):
        found.flow(T, 1.0, lambda f, y: ((f - y) ** 2).sum())
    with pytest.raises(InputError, match="needs diag_reg > 0"):
        ns.predict(KERNEL, X, Y, landmarks=3).log_marginal_likelihood()


def test_what_does_not_converge() -> None:
    hilbert = torch.tensor([[1 / (i + j + 1) for i in range(40)] for j in range(40)], dtype=torch.float64)
    with pytest.raises(InputError, match=r"NT622 .* at a residual of"):
        conjugate_gradients(lambda v: hilbert @ v, lambda v: v, torch.ones(40, 1, dtype=torch.float64), 1e-15, "NTK")


def test_conjugate_gradients_of_a_zero_kernel() -> None:
    low = ns.compile(ns.programs.mlp(depth=1, var_b=None))
    with pytest.raises(ns.NetsorError, match="NT620 the NNGP kernel of the training inputs is zero"):
        ns.predict(low, np.zeros((5, 2)), np.zeros(5), diag_reg=1e-3, solver="cg").gp(np.zeros((1, 2)))
