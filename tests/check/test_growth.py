"""Growth of functions and of weak derivatives, against regularity.json."""

from __future__ import annotations

from typing import Any

import pytest
from instructions import formula
from load import load

from netsor import functions as f
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
