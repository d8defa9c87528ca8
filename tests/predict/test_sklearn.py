"""The estimators of netsor.sklearn."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netsor as ns
from netsor.errors import InputError

sklearn = pytest.importorskip("sklearn")

from netsor import sklearn as nsk  # noqa: E402

ESTIMATORS = {name: getattr(nsk, name) for name in nsk.__all__ if name != "NetsorKernel"}
DATA = np.random.default_rng(0)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scikit_learn_accepts_the_estimator(name: str) -> None:
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(ESTIMATORS[name](), on_fail=None)
    failed = {r["check_name"]: str(r["exception"]) for r in results if r["status"] not in ("passed", "skipped")}
    assert failed == {}


def test_regression_is_the_prediction_of_the_kernel() -> None:
    x, y, t = DATA.normal(size=(20, 3)), DATA.normal(size=20), DATA.normal(size=(5, 3))
    program = ns.programs.mlp(depth=3, phi="erf")
    predictor = ns.predict(ns.compile(program), x, y, 1e-3)
    for estimator, want in (
        (nsk.NNGPRegressor(program, 1e-3), predictor.gp(t)),
        (nsk.NTKRegressor(program, 1e-3), predictor.ensemble(t)),
        (nsk.NTKRegressor(program, 1e-3, t=2.0), predictor.ensemble(t, t=2.0)),
    ):
        mean, std = estimator.fit(x, y).predict(t, return_std=True)
        np.testing.assert_allclose(mean, want.mean, atol=1e-12)
        np.testing.assert_allclose(std, want.std, atol=1e-12)


def test_images_and_sequences_are_samples() -> None:
    x, y = DATA.normal(size=(6, 4, 4, 2)), DATA.normal(size=6)
    fitted = nsk.NTKRegressor(ns.programs.cnn(depth=2, readout="mean")).fit(x, y)
    np.testing.assert_allclose(fitted.predict(x), y, atol=1e-3)


def test_probabilities_are_fractions_of_networks() -> None:
    """Against draws of the ensemble's outputs."""
    x, t = DATA.normal(size=(30, 2)), DATA.normal(size=(6, 2))
    labels = np.array(["a", "b", "c"])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0)]
    fitted = nsk.NNGPClassifier(diag_reg=1e-2).fit(x, labels)
    found = fitted.predictor_.gp(t)
    draws = found.mean.numpy() + found.std.numpy()[:, None] * DATA.normal(size=(200_000, 6, 3))
    share = np.stack([(draws.argmax(2) == c).mean(0) for c in range(3)], 1)
    proba = fitted.predict_proba(t)
    np.testing.assert_allclose(proba, share, atol=4 * 0.5 / 200_000**0.5)
    np.testing.assert_allclose(proba.sum(1), 1)
    assert (fitted.classes_[proba.argmax(1)] == fitted.predict(t)).all()


def test_a_gaussian_process_of_scikit_learn() -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

    x, y, t = DATA.normal(size=(15, 3)), DATA.normal(size=15), DATA.normal(size=(4, 3))
    plain = GaussianProcessRegressor(nsk.NetsorKernel("mlp"), alpha=1e-3, optimizer=None).fit(x, y)
    kernel = ns.compile(ns.programs.mlp())
    ridge = 1e-3 / float(kernel.diag(x, "nngp").nngp.mean())
    want = ns.predict(kernel, x, y, ridge).gp(t)
    mean, std = plain.predict(t, return_std=True)
    np.testing.assert_allclose(mean, want.mean, atol=1e-9)
    np.testing.assert_allclose(std, want.std, atol=1e-9)
    scaled = ConstantKernel(1.0) * nsk.NetsorKernel("mlp") + WhiteKernel(1e-2)
    fitted = GaussianProcessRegressor(scaled, random_state=0).fit(x, y)
    first = GaussianProcessRegressor(scaled, optimizer=None).fit(x, y)
    assert fitted.log_marginal_likelihood_value_ > first.log_marginal_likelihood_value_


def test_search_over_programs_in_two_processes() -> None:
    """A grid over depths, each a Program: cloned, sent to workers, refitted."""
    from sklearn.model_selection import GridSearchCV

    x = DATA.normal(size=(24, 3))
    y = np.sin(x[:, 0])
    grid = {"program": [ns.programs.mlp(depth=d) for d in (1, 2)], "diag_reg": [1e-3]}
    found = GridSearchCV(nsk.NTKRegressor(), grid, cv=2, n_jobs=2).fit(x, y)
    again = pickle.loads(pickle.dumps(found.best_estimator_))
    np.testing.assert_array_equal(again.predict(x), found.predict(x))


def test_an_unknown_program_is_named() -> None:
    with pytest.raises(InputError, match="no program is called 'mpl'; known: batchnorm_mlp, cnn"):
        nsk.NTKRegressor("mpl").fit(DATA.normal(size=(3, 2)), [1.0, 2.0, 3.0])


def test_other_errors_are_scikit_learns() -> None:
    fit: Any = nsk.NTKRegressor().fit
    with pytest.raises(ValueError, match="NaN"):
        fit([[float("nan"), 1.0]], [1.0])


# ---------------------------------------------------------------- parameters, landmarks, stores


def test_estimators_take_what_predictions_take(tmp_path: Path) -> None:
    program = ns.programs.mlp(2, "erf", "w", "b")
    kernel, values = ns.compile(program), {"w": 1.5, "b": 0.2}
    rng = np.random.default_rng(3)
    x, t = rng.normal(size=(20, 3)), rng.normal(size=(4, 3))
    y = np.sin(x[:, 0])
    wanted = ns.predict(kernel, x, y, 1e-3, params=values).ensemble(t)
    kernel.gram(x, tile=8, store=tmp_path / "k.zarr", params=values)
    options: list[dict[str, Any]] = [{}, {"landmarks": 20}, {"solver": "cg"}, {"gram": str(tmp_path / "k.zarr")}]
    for more in options:
        model = nsk.NTKRegressor(program, 1e-3, params=values, **more).fit(x, y)
        mean, std = model.predict(t, return_std=True)
        np.testing.assert_allclose(mean, wanted.mean, rtol=1e-5)
        np.testing.assert_allclose(std, wanted.std, rtol=1e-4)
        np.testing.assert_allclose(model.predict(t), mean, rtol=1e-9)


def test_gradients_in_the_parameters_of_a_kernel() -> None:
    from sklearn.gaussian_process.kernels import WhiteKernel

    x = np.random.default_rng(3).normal(size=(5, 3))
    for kernel in (
        nsk.NetsorKernel(ns.programs.mlp(2, "erf", "w", "b"), params={"w": 1.5}),
        2.0 * nsk.NetsorKernel(ns.programs.mlp(2, "erf", "w", "b"), "ntk") + WhiteKernel(0.1),
    ):
        matrix, slopes = kernel(x, eval_gradient=True)
        np.testing.assert_allclose(matrix, kernel(x), rtol=1e-12)
        for i, theta in enumerate(kernel.theta):
            up, down = kernel.theta.copy(), kernel.theta.copy()
            up[i], down[i] = theta + 1e-5, theta - 1e-5
            moved = kernel.clone_with_theta(up)(x) - kernel.clone_with_theta(down)(x)
            np.testing.assert_allclose(slopes[:, :, i], moved / 2e-5, rtol=1e-6, atol=1e-8)


def test_a_fit_of_the_parameters() -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor

    x = np.random.default_rng(3).normal(size=(25, 3))
    y = np.sin(2 * x[:, 0])
    kernel = nsk.NetsorKernel(ns.programs.mlp(1, "erf", "w", "b", "v"), params_bounds=(1e-2, 1e2))
    model = GaussianProcessRegressor(kernel, alpha=1e-4).fit(x, y)
    before = model.log_marginal_likelihood(kernel.theta)
    assert model.log_marginal_likelihood(model.kernel_.theta) > before + 1
    params = model.kernel_.params
    found = ns.predict(nsk.as_kernel(kernel.program), x, y, params=params)
    assert set(params) == {"w", "b", "v"} and found.training.samples == 25
    fixed = nsk.NetsorKernel(kernel.program, params=params, params_bounds="fixed")
    assert fixed.n_dims == 0 and fixed(x, eval_gradient=True)[1].shape == (25, 25, 0)
