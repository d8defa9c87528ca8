"""Wrong programs, each with its exact message beside it.

`pytest tests/test_invalid.py --update-golden` writes the messages; look at the difference before it is kept.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import netsor as ns
from netsor.checker.render import render

FOLDER = Path(__file__).parent / "invalid"
PROGRAMS = sorted(p for p in FOLDER.iterdir() if p.suffix in (".py", ".netsor"))


def message(path: Path) -> str:
    """What a user sees: the error of a line that is refused, or the checker's findings."""
    try:
        program = (
            runpy.run_path(str(path))["p"] if path.suffix == ".py" else ns.parse(path.read_text("utf-8"), str(path))
        )
    except ns.NetsorError as error:
        return str(error).replace(f"{FOLDER}/", "")
    report = ns.check(program)
    text = render([report], "full")
    findings = text.split(f"\n\n{program.name}: ")[0] if report.diagnostics else ""
    return findings.replace(f"{FOLDER}/", "").replace("tests/invalid/", "")


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 40
    assert {p.with_suffix(p.suffix + ".txt") for p in PROGRAMS} == set(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.name)
def test_message(path: Path, request: pytest.FixtureRequest) -> None:
    expected = path.with_suffix(path.suffix + ".txt")
    found = message(path) + "\n"
    if request.config.getoption("--update-golden"):
        expected.write_text(found, encoding="utf-8")
    assert found.strip(), f"{path.name} has no finding"
    assert found == expected.read_text(encoding="utf-8")
