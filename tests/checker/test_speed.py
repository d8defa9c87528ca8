"""The check is quick: processor seconds, with room for slow machines."""

from __future__ import annotations

import time

from netsor.checker import check
from netsor.programs import BUILTIN


def test_all_programs() -> None:
    start = time.process_time()
    for make in BUILTIN.values():
        check(make())
    assert time.process_time() - start < 10.0  # 3 s as measured


def test_long_unrolled_program() -> None:
    p = BUILTIN["rnn"]().unroll({"time": 830})
    start = time.process_time()
    report = check(p)
    assert time.process_time() - start < 30.0  # 3 s as measured
    assert report.ok and report.bp_like and len(report.program.lines) > 4900
