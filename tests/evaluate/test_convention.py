"""ns.unit_variance: the same network, its scale in the multipliers; convention= of kernels."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netsor as ns
from netsor import ir
from netsor.cli import main
from netsor.passes.unit_variance import root
from netsor.programs import mlp


def line(p: ns.Program, name: str) -> Any:
    return next(line for line in p.lines if line.out.name == name)


def test_variances_move_into_the_multipliers() -> None:
    p = ns.unit_variance(mlp(depth=2, var_w=(4, 0.5), var_b=0.09, var_v=Fraction(1, 4)))
    inputs = {x.out.name: x for x in p.lines if isinstance(x, ir.InputMatrix | ir.InputVector)}
    assert {name: x.var for name, x in inputs.items()} == dict.fromkeys(("W1", "b1", "W2", "b2", "v"), 1)
    assert inputs["W1"].multiplier == 2
    assert inputs["W2"].multiplier == sqrt(0.5)
    assert inputs["b1"].multiplier == pytest.approx(0.3, rel=1e-15)
    assert inputs["v"].multiplier == Fraction(1, 2)
    assert all(x.trainable for x in inputs.values())


def test_means_and_covariances_are_scaled() -> None:
    p = ns.Program("covariances")
    n = p.width("n")
    a = p.vector("a", n, mean=3, var=4, multiplier=5)
    b = p.vector("b", n, mean=0.5, var=9, cov={a: 3})
    p.vector("c", n, var=1, cov={a: 1, b: Fraction(1, 2)})
    q = ns.unit_variance(p)
    assert (line(q, "a").mean, line(q, "a").multiplier) == (Fraction(3, 2), 10)
    assert line(q, "b").mean == 0.5 / 3
    assert dict(line(q, "b").cov) == {a.var: Fraction(1, 2)}
    assert dict(line(q, "c").cov) == {a.var: Fraction(1, 2), b.var: Fraction(1, 6)}
    assert line(q, "c").mean == 0


def test_a_constant_stays_and_is_not_trained() -> None:
    p = mlp(depth=1, var_b=0)
    q = ns.unit_variance(p)
    b = line(q, "b1")
    assert (b.var, b.multiplier, b.trainable) == (0, 1, False)
    assert line(p, "b1").trainable  # the given program is as before


def test_covariance_over_an_axis_stays() -> None:
    p = ns.Program("positions")
    n, token = p.width("n"), p.axis("token", 2)
    p.vector("e", n, var=4, axes=(token,), axis_cov=((1.0, 0.5), (0.5, 1.0)))
    e = line(ns.unit_variance(p), "e")
    assert (e.var, e.multiplier) == (1, 2)
    assert e.axis_cov == ((token, ((1.0, 0.5), (0.5, 1.0))),)


def test_unit_variances_change_nothing() -> None:
    p = mlp(depth=2).backward()
    q = ns.unit_variance(p)
    assert str(q) == str(p)
    assert q.gradients == p.gradients


def test_twice_is_once() -> None:
    p = ns.unit_variance(mlp(depth=2, var_w=2.0, var_b=0.1, tied=True).backward())
    assert str(ns.unit_variance(p)) == str(p)


@pytest.mark.parametrize(("var", "expected"), [(4, 2), (Fraction(9, 16), Fraction(3, 4)), (2, sqrt(2)), (0.25, 0.5)])
def test_roots_of_rational_squares_are_exact(var: ir.Number, expected: ir.Number) -> None:
    assert root(var) == expected
    assert isinstance(root(var), type(expected))


# ---------------------------------------------------------------- of kernels

X = np.random.default_rng(0).normal(size=(4, 3))
VARIANCES = {"W1": 1.5, "b1": 0.2, "W2": 1.5, "b2": 0.2, "v": 0.7}
PROGRAM = mlp(2, "erf", 1.5, 0.2, 0.7)


def test_terms_of_both_conventions() -> None:
    """A unit array σω′ has σ² times the term of ω, and the same NNGP."""
    omega, unit = (ns.compile(PROGRAM, convention=c)(X, get=("nngp", "terms")) for c in ("omega", "unit"))
    np.testing.assert_allclose(unit.nngp, omega.nngp, rtol=1e-12)
    for name, var in VARIANCES.items():
        np.testing.assert_allclose(unit.terms[name], var * omega.terms[name], rtol=1e-12)


def test_the_flag_is_the_pass() -> None:
    by_flag, by_pass = ns.compile(PROGRAM, convention="unit"), ns.compile(ns.unit_variance(PROGRAM))
    assert np.array_equal(by_flag(X).ntk, by_pass(X).ntk)
    assert by_flag.source == by_pass.source
    assert not np.array_equal(by_flag(X).ntk, ns.compile(PROGRAM)(X).ntk)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k))])
def test_it_travels(way: Any) -> None:
    kernel = ns.compile(PROGRAM, convention="unit")
    again = way(kernel)
    assert again.convention == "unit" and repr(again) == "<Kernel of mlp, unit convention>"
    assert np.array_equal(again(X).ntk, kernel(X).ntk)


def test_unknown() -> None:
    with pytest.raises(ns.InputError, match="convention is 'omega' or 'unit', got 'ntk'"):
        ns.compile(PROGRAM, convention="ntk")  # type: ignore[arg-type]


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    settings = [x for name, value in (("var_w", 1.5), ("var_b", 0.2)) for x in ("--set", f"{name}={value}")]
    assert main(["kernel", "mlp", *settings, "--x", "X.npy", "--convention", "unit", "-o", "K.npz"]) == 0
    kernel = ns.compile(mlp(var_w=1.5, var_b=0.2), convention="unit")
    with np.load("K.npz") as found:
        assert np.array_equal(found["ntk"], kernel(X).ntk)
    assert main(["compile", "mlp", *settings, "--convention", "unit", "-o", "k.py"]) == 0
    assert Path("k.py").read_text() == kernel.source


def test_estimators() -> None:
    sklearn = pytest.importorskip("netsor.sklearn")
    y = X[:, 0]
    unit = sklearn.NTKRegressor(PROGRAM, convention="unit").fit(X, y)
    kernel = ns.compile(PROGRAM, convention="unit")
    np.testing.assert_allclose(unit.predict(X + 0.1), ns.predict(kernel, X, y, 1e-6).ensemble(X + 0.1).mean, rtol=1e-9)
    assert np.array_equal(sklearn.NTKRegressor(kernel).fit(X, y).predict(X + 0.1), unit.predict(X + 0.1))
    assert np.array_equal(sklearn.NetsorKernel(PROGRAM, "ntk", "unit")(X), kernel(X).ntk)
    with pytest.raises(ns.InputError, match="was not compiled with convention='unit'"):
        sklearn.NTKRegressor(ns.compile(PROGRAM), convention="unit").fit(X, y)
