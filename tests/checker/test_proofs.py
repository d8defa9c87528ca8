"""Verdicts that are proofs: growth, control, parity and dependence, for which the answer is known by hand."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp

import netsor as ns
from netsor import functions as f
from netsor import ir
from netsor.checker import check
from netsor.checker.regularity.control import control
from netsor.checker.regularity.growth import regularity
from netsor.checker.regularity.scalars import neighbourhood

X, Y, C = ir.arg(0), ir.arg(1), ir.param(0)
INVERSE, TANGENT = f.function("inverse", lambda x: 1 / x), f.function("tangent", lambda x: sp.tan(x))

GROWTH: dict[str, tuple[Any, bool | None, bool | None]] = {
    "removable root": ((X**2 - 1) / (X - 1), True, True),
    "removable cosine": ((1 - sp.cos(X)) / X**2, True, True),
    "sine over x": (sp.sin(X) / X, True, True),
    "one root stays": ((X**2 - 1) / (X - 1) ** 2, False, False),
    "cosine, too high a power": ((1 - sp.cos(X)) / X**3, False, False),
    "exponential over x": ((sp.exp(X) - 1) / X, False, False),
    "pole at a point of the plane": (1 / (X**2 + Y**2), False, False),
    "direction": (X / sp.sqrt(X**2 + Y**2), True, False),
    "product of directions": (X * Y / (X**2 + Y**2), True, False),
    "cube over square": (X**3 / (X**2 + Y**2), True, True),
    "decaying half-line": (sp.exp(X) * f.step.sym(-X), True, None),
    "decaying ramp": (sp.exp(X) * f.relu.sym(-X), True, True),
    "growing half-line": (sp.exp(X) * f.step.sym(X), False, None),
    "pole at the end of a half-line": (f.relu.sym(X - sp.Rational(1, 3)) / (X - sp.Rational(1, 3)) ** 3, False, False),
    "flat": (sp.exp(-1 / X**2), True, True),
    "flat over a power": (sp.exp(-1 / X**2) / X**7, True, True),
    "steep": (sp.exp(1 / X**2), False, False),
    "derivative of an inverse": (INVERSE.prime.sym(X), False, False),
    "derivative of a tangent": (TANGENT.prime.sym(X), False, False),
}  # fmt: skip


@pytest.mark.parametrize("name", GROWTH)
def test_growth(name: str) -> None:
    e, value, derivative = GROWTH[name]
    found = regularity(e)
    assert found.value.verdict is value, found.value.reason
    assert found.derivative.verdict is derivative, found.derivative.reason


CONTROL: dict[str, tuple[Any, float, bool]] = {
    "sign away from its jump": (f.sign.sym(C) * X, -1.0, True),
    "sign at its jump": (f.sign.sym(C) * X, 0.0, False),
    "root": (sp.sqrt(f.abs.sym(C)) * X, 0.0, True),
    "root inside": (f.tanh.sym(sp.sqrt(f.abs.sym(C)) * X), 0.0, True),
    "inverse": (X / C, 0.0, False),
    "jump inside": (f.step.sym(C * X), 0.0, False),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control(name: str) -> None:
    e, limit, controlled = CONTROL[name]
    found = control(e, {C: neighbourhood(limit)}, {C: limit})
    assert found.verdict is controlled, found.reason


def applied(z: Any, transposed: bool, var: float = 1.0) -> ns.Program:
    """W or Wᵀ of z(u, v), and Wᵀv so that v is the readout."""
    p = ns.Program("p")
    n = p.width("n")
    u, v, W, V = p.vector("u", n), p.vector("v", n, var=var), p.matrix("W", n, n), p.matrix("V", n, n)
    h = p.let("h", (W.T if transposed else W) @ z(u, v))
    p.let("g", (V.T if transposed else V) @ ns.tanh(h))
    p.let("k", W.T @ v)
    return p


@pytest.mark.parametrize("readouts", [None, ["v"]], ids=["searched", "named"])
@pytest.mark.parametrize(
    ("z", "transposed", "verdict"),
    [
        (lambda u, v: (u + v) ** 2 - v**2 - 2 * u * v, False, True),
        (lambda u, v: (u + v) ** 2 - v**2 - u * v, False, False),
        (lambda u, v: ns.step(v) - 0.5, True, True),
        (lambda u, v: 2 * ns.step(v) - 1, True, True),
        (lambda u, v: u**2 * (2 * ns.step(3 * v) - 1), True, True),
        (lambda u, v: ns.step(v) - 0.25, True, False),
        (lambda u, v: ns.step(v * ns.step(u)) - 0.5, True, True),  # step(0) = 1/2: odd also where its argument is 0
    ],
)  # fmt: skip
def test_readouts(z: Any, transposed: bool, verdict: bool, readouts: list[str] | None) -> None:
    """The same verdict when v is named and when it is found; also behind a second matrix."""
    report = check(applied(z, transposed), readouts)
    assert report.bp_like is verdict, report.reasons["bp_like"]


def test_a_step_of_what_is_zero_is_odd() -> None:
    """step(0) = 1/2."""
    assert check(applied(lambda u, v: ns.step(v) - 0.5, True, var=0.0), ["v"]).bp_like is True


def network(phi: Any) -> ns.Program:
    p = ns.Program("net")
    n = p.width("n")
    x = p.data("x")
    p.output(p.readout("v", n), phi(p.matrix("W", n, x) @ x))
    return p


def test_an_undecided_derivative_is_a_finding() -> None:
    """arctan exp x is bounded, and so is its derivative 1/(2 cosh x), which the checker does not see."""
    report = check(network(f.function("gudermann", lambda x: sp.atan(sp.exp(x)))))
    (finding,) = [d for d in report.diagnostics if d.code == "NT308"]
    assert finding.severity == "warning" and "undecided" in finding.message
    assert report.ntk_ready is None and "undecided" in report.reasons["ntk_ready"]


def test_an_unbounded_derivative_leaves_the_ntk_open() -> None:
    report = check(network(f.function("root", lambda x: sp.sqrt(f.abs.sym(x)))))
    assert report.ntk_ready is None and "NT306" in {d.code for d in report.diagnostics}
