"""Growth of functions and of weak derivatives, against regularity.json."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp
from instructions import formula
from load import load

from netsor import functions as f
from netsor.checker.regularity import growth
from netsor.checker.regularity.growth import regularity

CASES: dict[str, dict[str, Any]] = {c["formula"]: c for c in load("regularity").data["nonlinearities"]}


@pytest.mark.parametrize("text", CASES)
def test_growth(text: str) -> None:
    case = CASES[text]
    found = regularity(formula(text, case["variables"], []))
    assert found.value.verdict is case["polynomially_bounded"], found.value.reason
    assert found.derivative.verdict is case["weak_derivative_polynomially_bounded"], found.derivative.reason


@pytest.mark.parametrize("name", [n for n in f.builtin_names() if n not in ("polynomial",)])
def test_builtin_functions(name: str) -> None:
    phi = f.builtin(name)
    found = regularity(phi.sym(formula("x", ["x"], [])))
    assert found.value.verdict is (name != "exp")
    assert found.derivative.verdict is (None if phi.jumps else name != "exp")


def test_a_form_that_proves_derivatives_agrees_with_the_derivatives() -> None:
    """Where the form of an expression says that its weak derivatives are bounded, differentiating it says so too."""
    x = f.argument_symbols(1)[0]
    units = [f.builtin(name) for name in f.builtin_names() if name != "polynomial"]
    values = [phi.sym(h) for phi in units for h in (x, 2 * x + 1, x**3)]
    told = [e for v in values for e in (v, x * v**2) if growth.tame(e)]
    assert len(told) > 50
    for e in told:
        assert growth.growth(e).verdict and growth.growth(growth.derivative(e, x)).verdict, e
    assert not any(map(growth.tame, (sp.exp(x), x**-1, sp.sqrt(x), sp.Abs(x) ** sp.Rational(1, 2), f.step.sym(x))))
