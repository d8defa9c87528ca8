"""`ns.check.independence`: the verdicts about gradient independence alone."""

from __future__ import annotations

import pytest

import netsor as ns


@pytest.mark.parametrize("name", ns.programs.BUILTIN)
def test_it_says_what_the_whole_check_says(name: str) -> None:
    program = ns.programs.BUILTIN[name]()
    whole, found = ns.check(program), ns.check.independence(program)
    assert (found.bp_like, found.simple_gia, found.gia_valid) == (whole.bp_like, whole.simple_gia, whole.gia_valid)
    assert found.reasons == {k: whole.reasons[k] for k in found.reasons}
    assert [str(d) for d in found.diagnostics] == [str(d) for d in whole.diagnostics if d.code.startswith("NT2")]


def test_a_program_without_lines_or_types_is_undecided() -> None:
    found = ns.check.independence(ns.Program("empty"))
    assert (found.bp_like, found.simple_gia, found.gia_valid) == (None, None, None)
    assert [d.code for d in found.diagnostics] == ["NT011"]
