"""Verdicts do not depend on how a program is written down."""

from __future__ import annotations

import random

import pytest
from generate import programs
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import netsor as ns
from netsor import ir
from netsor.build.program import Program
from netsor.checker import Report, check
from netsor.errors import NetsorError
from netsor.facts import inputs_of

VERDICTS = ("well_typed", "bp_like", "simple_gia", "gia_valid", "polynomially_bounded", "parameter_controlled")
common = settings(max_examples=20)


def verdicts(report: Report) -> dict[str, bool | None]:
    return {name: report.verdict[name] for name in VERDICTS}


def checked(p: Program) -> Report:
    """The report; programs whose backward pass the language cannot write are left out."""
    report = check(p)
    assume(not any(d.code.startswith("NT7") for d in report.diagnostics))
    return report


def reordered(p: Program, seed: int) -> Program:
    """The same program with independent lines in another order."""
    rng = random.Random(seed)
    place = {line.out: i for i, line in enumerate(p.lines)}
    lines, done, order = list(p.lines), set[ir.Var](), list[ir.Line]()
    while lines:  # a scan's Shift reads a later line
        ready = [x for x in lines if all(v in done or place[v] > place[x.out] for v in inputs_of(x))]
        line = rng.choice(ready)
        lines.remove(line)
        done.add(line.out)
        order.append(line)
    outputs = [ir.Output(o.name, o.readout, o.vector, o.scale, len(order), o.loc) for o in p.outputs]
    return Program.from_parts(p.name, p.widths, order, outputs, p.gradients, p.returned, p.functions)


@common
@given(programs(lines=6))
def test_printing_and_parsing(p: Program) -> None:
    assert verdicts(checked(p)) == verdicts(check(ns.parse(str(p))))


@common
@given(programs(lines=6))
def test_renaming(p: Program) -> None:
    text = str(p)
    first = verdicts(checked(p))
    q = ns.parse(text)
    for i, line in enumerate(q.lines):
        object.__setattr__(line.out, "name", f"z{i}")
    q._names = {line.out.name: line.out for line in q.lines}
    assert first == verdicts(check(q))


@common
@given(programs(lines=6), st.integers(0, 3))
def test_order_of_independent_lines(p: Program, seed: int) -> None:
    assert verdicts(checked(p)) == verdicts(check(reordered(p, seed)))


@common
@given(programs(lines=5))
def test_unrolling(p: Program) -> None:
    """Decided verdicts agree: True of a family is True of its elements, and so is False."""
    rolled = checked(p)
    sizes = {a.name: 3 for a in p.axes if a.size is None}
    try:
        flat = p.unroll(sizes)
    except NetsorError:
        assume(False)
    found = check(flat)
    for name in VERDICTS:
        a, b = rolled.verdict[name], found.verdict[name]
        if None not in (a, b):
            assert a == b, (name, rolled.reasons[name], found.reasons[name])


@common
@given(programs(lines=6))
def test_true_is_never_contradicted_and_false_has_a_witness(p: Program) -> None:
    report = checked(p)
    if report.bp_like is False:
        assert all(w.replay(report.program.lines) for w in report.witnesses)
        assert report.violations or "no input vector" in report.reasons["bp_like"]
    if report.bp_like:
        from netsor.checker.independence.gia import gia_valid

        verdict, why, _ = gia_valid(report.program.lines, None)
        assert verdict is not False, why


@pytest.mark.parametrize("name", ["mlp", "rnn", "cnn", "resnet", "gcn", "gru", "lstm", "transformer", "batchnorm_mlp"])
def test_architectures_unrolled(name: str) -> None:
    from netsor.programs import BUILTIN

    p = BUILTIN[name]()
    sizes = {a.name: 3 for a in p.axes if a.size is None}
    rolled, flat = check(p), check(p.unroll(sizes))
    assert flat.bp_like and flat.gia_valid and flat.simple_gia
    assert rolled.readouts and flat.readouts
