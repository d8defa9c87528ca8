"""The checker's runs at finite width against the literal interpreter of the tests, and its ranges against the runs."""

from __future__ import annotations

import numpy as np
import pytest
from generate import programs
from hypothesis import given, settings
from interp import Interpreter

from netsor import ir
from netsor.build.program import Program
from netsor.checker.regularity.scalars import ranges
from netsor.passes.backward import backprop
from netsor.programs import BUILTIN
from netsor.run.lines import execute, generic
from netsor.run.shapes import Sizes, fitting


def compare(p: Program) -> None:
    """All variables of the two interpreters, given the same arrays."""
    sizes: Sizes = fitting(p.lines, 6)
    inputs = generic(p.lines, sizes, np.random.default_rng(0))
    given_ = {
        line.out.name: inputs[line.out]
        for line in p.lines
        if isinstance(line, ir.Data) or (isinstance(line, ir.InputScalar) and line.limit is None)
    }
    other = Interpreter(p, given_, n=6)
    arrays = {v: np.asarray(x.detach()) for v, x in other.values.items() if isinstance(_line(p, v), ir.InputMatrix)}
    arrays |= {v: np.asarray(x.detach()) for v, x in other.values.items() if isinstance(_line(p, v), ir.InputVector)}
    scalars = {v: np.asarray(x.detach()) for v, x in other.values.items() if isinstance(_line(p, v), ir.InputScalar)}
    values = execute(p.lines, inputs | arrays | scalars, sizes)
    for v, expected in other.values.items():
        found, right = values[v], np.asarray(expected.detach())
        both = np.isfinite(found) & np.isfinite(right)
        np.testing.assert_allclose(found[both], right[both], rtol=1e-9, atol=1e-9, err_msg=f"{v}")


def _line(p: Program, v: ir.Var) -> ir.Line:
    return next(line for line in p.lines if line.out is v)


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_architectures(name: str) -> None:
    compare(backprop(BUILTIN[name]()))


@settings(max_examples=30)
@given(programs(lines=6, scans=False))
def test_generated(p: Program) -> None:
    sizes = fitting(p.lines, 6)
    values = execute(p.lines, generic(p.lines, sizes, np.random.default_rng(0)), sizes)
    for v, b in ranges(p.lines).items():
        finite = values[v][np.isfinite(values[v])]
        slack = 1e-9 * (1 + np.abs(finite).max(initial=0.0))
        given_scalar = isinstance(_line(p, v), ir.InputScalar) or v.kind == "C"
        if not given_scalar:
            assert (finite >= b.low - slack).all() and (finite <= b.high + slack).all(), v
