"""A short run of the fuzzing in fuzz_parse.py; NETSOR_FUZZ_CASES sets its length."""

from __future__ import annotations

import os

from fuzz_parse import fuzz


def test_every_text_is_a_program_or_one_clear_error() -> None:
    outcomes, findings = fuzz(seed=7, count=int(os.environ.get("NETSOR_FUZZ_CASES", "2000")))
    assert not findings, findings[0]
    assert outcomes["program"] > 20
