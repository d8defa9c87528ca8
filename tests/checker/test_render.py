"""Formats of reports, and the explanations of codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import netsor as ns
from netsor.build.declared import is_declared
from netsor.checker import Report, check
from netsor.checker.codes.table import CODES, explain, page
from netsor.checker.render import formats, render

ROOT = Path(__file__).parents[2]


@ns.program
def wrong() -> ns.Program:
    p = ns.Program("wrong")
    n = p.width("n")
    u = p.vector("u", n)
    W = p.matrix("W", n, n)
    h = p.let("h", W @ u)
    p.let("y", W.T @ ns.relu(h))
    return p


def right() -> Report:
    p = ns.Program("right")
    n = p.width("n")
    x = p.data("x")
    p.output(p.readout("v", n), ns.tanh(p.matrix("U", n, x) @ x))
    return check(p)


def test_full_shows_source_and_listing() -> None:
    text = render([check(wrong())], "full")
    assert 'p.let("y", W.T @ ns.relu(h))' in text and "^^^^" in text
    assert "clause: Definition A.3, clause 1" in text and "hint:" in text
    assert re.search(r"line \d+: y := ", text)
    assert "theorem" in render([right()], "full")


def test_concise_is_one_line_each() -> None:
    report = check(wrong())
    rows = render([report], "concise").splitlines()
    assert len(rows) == len(report.diagnostics)
    assert re.match(r".+test_render\.py:\d+:\d+: NT201 clause 1", rows[0])
    assert render([right()], "concise") == ""


def test_json() -> None:
    report = check(wrong())
    (one,) = json.loads(render([report], "json"))
    assert set(one) >= {"program", "file", "verdict", "reasons", "theorem", "readouts", "diagnostics"}
    assert set(one["verdict"]) == {
        "well_typed", "bp_like", "simple_gia", "gia_valid", "polynomially_bounded", "parameter_controlled",
        "rank_stable", "ntk_ready",
    }  # fmt: skip
    first = one["diagnostics"][0]
    assert set(first) == {"code", "severity", "message", "variable", "line", "clause", "location", "hint"}
    assert set(first["location"]) == {"file", "line", "column"}
    assert report.program.lines[first["line"]].out.name == first["variable"] == "y"
    assert isinstance(json.loads(render([report, right()], "json")), list)


def test_github() -> None:
    rows = render([check(wrong())], "github").splitlines()
    assert all(row.startswith("::error file=") for row in rows)
    assert "title=NT201" in rows[0] and ",line=" in rows[0] and ",col=" in rows[0]


def test_sarif() -> None:
    document = json.loads(render([check(wrong())], "sarif"))
    run = document["runs"][0]
    assert document["version"] == "2.1.0"
    assert {r["id"] for r in run["tool"]["driver"]["rules"]} == {r["ruleId"] for r in run["results"]}
    region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region["startLine"] > 0 and region["endColumn"] > region["startColumn"]


@pytest.mark.parametrize("form", formats())
def test_every_format_takes_no_reports_and_several(form: str) -> None:
    render([], form)
    render([right(), check(wrong())], form)


def test_declared() -> None:
    assert is_declared(wrong) and not is_declared(right)


def test_codes_of_the_source_are_explained() -> None:
    used: set[str] = set()
    for folder in ("netsor", "compilers", "programs"):
        for path in (ROOT / folder).glob("**/*.py"):
            used |= set(re.findall(r'"(NT\d{3})"', path.read_text(encoding="utf-8")))
    assert used <= set(CODES), sorted(used - set(CODES))


@pytest.mark.parametrize("code", sorted(CODES))
def test_explanations(code: str) -> None:
    text = explain(code.lower())
    assert text.startswith(f"{code}: ") and "Example" in text and "Where: " in text and "Remedy: " in text


def test_the_page_of_codes_agrees() -> None:
    """`python -c "from netsor.checker.codes.table import page; print(page(), end='')" > docs/codes.md` writes it."""
    assert (ROOT / "docs" / "codes.md").read_text(encoding="utf-8") == page()
