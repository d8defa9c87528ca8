"""Functions whose Gaussian moments are infinite, or that have no value: an error that says so, never a number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp
import torch

import netsor as ns
from netsor import programs

X = np.random.default_rng(0).standard_normal((3, 4))


def net(phi: Callable[[sp.Expr], sp.Expr]) -> ns.Program:
    return programs.mlp(depth=1, phi=ns.function("f", phi))


NO_SECOND_MOMENT: dict[str, Callable[[sp.Expr], sp.Expr]] = {
    "1/x": lambda x: 1 / x,
    "1/(x-2)": lambda x: 1 / (x - 2),
    "tan": lambda x: sp.tan(x),
    "1/sqrt|x|": lambda x: 1 / sp.sqrt(sp.Abs(x)),
}


@pytest.mark.parametrize("name", NO_SECOND_MOMENT)
def test_an_infinite_second_moment_is_said(name: str) -> None:
    with pytest.raises(ns.InputError, match=r"(?s)NT303.*second moment is infinite"):
        ns.compile(net(NO_SECOND_MOMENT[name]))(X)


@pytest.mark.parametrize("phi", [lambda x: sp.log(x), lambda x: sp.sqrt(x)], ids=["log", "sqrt"])
def test_a_function_without_a_real_value_is_refused(phi: Callable[[sp.Expr], sp.Expr]) -> None:
    with pytest.raises(ns.InputError, match=r"(?s)NT303.*no real value at z = -"):
        ns.compile(net(phi))(X)


def test_an_unbounded_derivative_has_an_nngp_and_no_ntk() -> None:
    """E f(z)² = E|z| for f = √|z|, and E f′(z)² = ¼ E 1/|z| = ∞."""
    kernel = ns.compile(net(lambda x: sp.sqrt(sp.Abs(x))))
    variance = 1 + (X**2).mean(1)
    np.testing.assert_allclose(kernel(X, get="nngp").nngp.diagonal(), np.sqrt(2 / np.pi * variance), rtol=1e-6)
    with pytest.raises(ns.InputError, match=r"(?s)NT303.*f'.*second moment is infinite"):
        kernel(X, get="ntk")


def test_an_integral_that_does_not_converge_is_no_number() -> None:
    """E exp(2z²) is infinite from variance ¼ on, and 1/√(1 − 4σ²) below."""
    phi = ns.function("f", lambda x: sp.exp(x**2))
    with pytest.raises(ns.InputError, match=r"(?s)NT603.*does not converge"):
        ns.compile(programs.mlp(depth=1, phi=phi))(X)
    small = torch.tensor([[0.05]], dtype=torch.float64)
    assert float(ns.v_transform(phi, small)) == pytest.approx(1 / np.sqrt(1 - 4 * 0.05), rel=1e-9)


@pytest.mark.parametrize(
    "phi", [lambda x: x / sp.sqrt(x**2 + 1), lambda x: 1 / (1 + x**2), lambda x: sp.log(1 + sp.Abs(x))],
    ids=["x/sqrt(x²+1)", "1/(1+x²)", "log(1+|x|)"],
)  # fmt: skip
def test_what_is_bounded_is_computed(phi: Callable[[sp.Expr], sp.Expr]) -> None:
    z = np.linspace(-12, 12, 400_001)
    values = np.asarray(sp.lambdify(sp.Symbol("z"), phi(sp.Symbol("z")), "numpy")(z))
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    want = np.trapezoid(values**2 * density, z)
    got = ns.v_transform(ns.function("f", phi), torch.ones(1, 1, dtype=torch.float64))
    assert float(got) == pytest.approx(want, rel=1e-9)
