"""The checker against the reference vectors bplike_programs.json and regularity.json."""

from __future__ import annotations

from typing import Any

import pytest
from instructions import program
from load import load

from netsor.checker import Report, check
from netsor.checker.independence.bplike import bp_like

DIALECT = {"err_moment_in_netsorT", "err_cvar_as_arg", "err_nonlin_on_hvar"}
PROGRAMS: dict[str, dict[str, Any]] = {
    c["name"]: c for c in load("bplike_programs").data["programs"] if c["name"] not in DIALECT
}
WELL_TYPED = [n for n, c in PROGRAMS.items() if c["expected"]["well_typed"]]
ILL_TYPED = [n for n in PROGRAMS if n not in WELL_TYPED]


def _report(name: str, readouts: list[str] | None = None) -> Report:
    return check(program(name, PROGRAMS[name]["instructions"]), readouts)


@pytest.mark.parametrize("name", ILL_TYPED)
def test_ill_typed(name: str) -> None:
    report = _report(name)
    assert report.well_typed is False
    assert report.diagnostics[0].line == PROGRAMS[name]["expected"]["line"]
    assert not report.ok


@pytest.mark.parametrize("name", WELL_TYPED)
def test_verdicts(name: str) -> None:
    expected = PROGRAMS[name]["expected"]
    report = _report(name)
    assert report.well_typed
    assert report.polynomially_bounded is expected["polynomially_bounded"]
    assert report.bp_like is expected["bp_like"], report.reasons["bp_like"]
    if report.bp_like:
        assert sorted(report.readouts) in [sorted(s) for s in expected["valid_readout_sets"]]
    if "primary_witness" in expected:
        first = report.violations[0]
        assert (first.line, first.clause) == (
            expected["primary_witness"]["line"], f"Definition A.3, clause {expected['primary_witness']['clause']}",
        )  # fmt: skip


@pytest.mark.parametrize("name", WELL_TYPED)
def test_every_candidate_set(name: str) -> None:
    expected = PROGRAMS[name]["expected"]
    lines = program(name, PROGRAMS[name]["instructions"]).lines
    by_name = {line.out.name: line.out for line in lines}
    for members in expected["valid_readout_sets"]:
        assert bp_like(lines, [by_name[m] for m in members]).verdict is True
    for key, where in expected["violation_per_candidate_set"].items():
        found = bp_like(lines, [by_name[m] for m in key.split("+")])
        assert found.verdict is False, (key, found.reason)
        first = found.violations[0]
        assert (first.index, first.clause) == (where["line"], where["clause"]), key


@pytest.mark.parametrize("name", WELL_TYPED)
def test_gia(name: str) -> None:
    right = PROGRAMS[name]["expected"].get("gia_limits_correct")
    report = _report(name)
    if right is False:
        assert report.gia_valid is False
    elif right is True:
        assert report.gia_valid is not False
    if report.bp_like:
        assert report.gia_valid is True


@pytest.mark.parametrize("name", WELL_TYPED)
def test_witnesses_replay(name: str) -> None:
    report = _report(name)
    assert all(w.replay(report.program.lines) for w in report.witnesses)
