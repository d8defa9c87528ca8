"""Parameter control and rank stability, against regularity.json."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp
from instructions import formula, program
from load import load

import netsor as ns
from netsor import ir
from netsor.checker import check
from netsor.checker.regularity.control import control
from netsor.checker.regularity.scalars import neighbourhood
from netsor.functions import Function
from netsor.layers import layer_norm

CONTROL: list[dict[str, Any]] = load("regularity").data["parameter_control"]


@pytest.mark.parametrize("case", CONTROL, ids=lambda c: f"{c['formula']} at {c['limit_parameters']}")
def test_parameter_control(case: dict[str, Any]) -> None:
    params = list(case["limit_parameters"])
    e = formula(case["formula"], ["x"], params)
    limit: dict[sp.Symbol, float] = {ir.param(j): case["limit_parameters"][c] for j, c in enumerate(params)}
    found = control(e, {c: neighbourhood(v) for c, v in limit.items()}, limit)
    assert found.verdict is case["parameter_controlled"], found.reason


RANK: list[dict[str, Any]] = load("regularity").data["rank_stability"]


@pytest.mark.parametrize("case", RANK, ids=lambda c: c["S"])
def test_rank_stability(case: dict[str, Any]) -> None:
    report = check(program("rank", case["instructions"]))
    assert report.rank_stable is case["stable"], report.reasons["rank_stable"]
    assert ("NT401" in {d.code for d in report.diagnostics}) is not case["stable"]


def normalised(f: Function, apart: bool, eps: float) -> ns.Program:
    """f of a layer norm, in one line or in two."""
    p = ns.Program("norm")
    n, x = p.width("n"), p.data("x")
    y = layer_norm(p.let("h", p.matrix("W", n, x) @ x), eps)
    p.output(p.readout("v", n), p.let("z", f(p.let("y", y) if apart else y)))
    return p


@pytest.mark.parametrize("eps", [0, 0.5])
@pytest.mark.parametrize("f", [ns.relu, ns.tanh, ns.sign, ns.gelu], ids=str)
def test_a_function_cut_into_lines_is_the_same_function(f: Function, eps: float) -> None:
    """Theorem B.2 asks of the function of G-vars that a vector is: its cut into lines is notation."""
    x = np.random.default_rng(0).standard_normal((2, 3))
    one, two = (check(normalised(f, apart, eps), x=x) for apart in (False, True))
    assert one.parameter_controlled is two.parameter_controlled
    assert (two.parameter_controlled is True) is (f in (ns.tanh, ns.gelu)), two.reasons["parameter_controlled"]


def moved(f: Function, by: str) -> ns.Program:
    """y = f(u) behind u = h − c or u = c h; the scalar c has the limit 1."""
    p = ns.Program("moved")
    n, x = p.width("n"), p.data("x")
    h, c = p.let("h", p.matrix("W", n, x) @ x), p.scalar("c", limit=1)
    p.let("y", f(p.let("u", h - c if by == "shift" else c * h)))
    return p


@pytest.mark.parametrize("f, by, want", [
    (ns.relu, "shift", True), (ns.tanh, "shift", True), (ns.relu, "scale", True),  # |f(u) − f(u°)| ≤ |u − u°|
    (ns.step, "shift", False), (ns.sign, "shift", False),  # they differ by 1 between the thresholds
    (ns.step, "scale", True),  # Example B.6
], ids=str)  # fmt: skip
def test_control_composes_with_what_has_derivatives(f: Function, by: str, want: bool) -> None:
    report = check(moved(f, by))
    assert report.parameter_controlled is want, report.reasons["parameter_controlled"]
