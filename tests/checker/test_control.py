"""Parameter control and rank stability, against regularity.json."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp
from instructions import formula, program
from load import load

from netsor import ir
from netsor.checker import check
from netsor.checker.regularity.control import control
from netsor.checker.regularity.scalars import neighbourhood

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
