"""The checker's runs at finite width against the literal interpreter of the tests, and its ranges against the runs."""

from __future__ import annotations

import numpy as np
import pytest
from generate import programs
from hypothesis import given, settings
from interp import Interpreter

import netsor as ns
from netsor import ir
from netsor.build.program import Program
from netsor.checker.regularity.scalars import ranges
from netsor.facts import input_vectors
from netsor.passes.backward import backprop
from netsor.programs import BUILTIN
from netsor.run.draws import covariance
from netsor.run.lines import execute, generic, natural
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


# ---------------------------------------------------------------- what is drawn


def _family(c: float) -> Program:
    """A vector that covaries with all elements of a family, and a family with a covariance over its axis."""
    p = ns.Program("family")
    n, x = p.width("n"), p.data("x", axes=("t",))
    a = p.vector("a", n, var=1, mean=0.5, axes=("t",))
    b = p.vector("b", n, var=1, multiplier=2, cov={a: c})
    d = p.vector("d", n, axes=("s",), axis_cov=[[2, 1], [1, 3]])
    h = p.matrix("U", n, x) @ x + ns.tanh(a + b)
    p.output(p.readout("v", n), ns.tanh(p.matrix("W", n, n) @ ns.tanh(h)).mean("t") + d.mean("s"))
    return p


def test_vectors_have_the_covariances_of_their_lines() -> None:
    """Of all elements, between a vector and a family too: E u v over 10⁵ coordinates, to five standard errors."""
    vectors, n = [v for v in input_vectors(_family(0.3).lines) if not v.readout], 100_000
    sizes = fitting(vectors, n)
    values = natural(vectors, sizes, np.random.default_rng(0))
    rows = {v.out: (values[v.out] / float(v.multiplier) - float(v.mean)).reshape(-1, n) for v in vectors}
    for u in vectors:
        for v in vectors:
            want, bound = covariance(u, v, sizes), 5 * np.sqrt(2 * float(3 * 3) / n)
            np.testing.assert_allclose(rows[u.out] @ rows[v.out].T / n, want, atol=bound)


def test_covariances_with_a_family_are_those_of_its_elements() -> None:
    """b covaries 0.9 with each of independent a[t]: Σ 0.81 > 1."""
    assert ns.check(_family(0.3)).ok
    (found,) = [d for d in ns.check(_family(0.9)).diagnostics if d.severity == "error"]
    assert found.code == "NT112" and "a, b" in found.message


@pytest.mark.parametrize("array", [[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, -1.0], "position"])
def test_arrays_over_axes_of_the_data_say_their_sizes(array: list[float] | str) -> None:
    p = ns.Program("array")
    n, x = p.width("n"), p.data("x", axes=("t",))
    w = p.matrix("W", n, n)
    y = w @ (p.constant(array, axes=("t",)) * ns.tanh(p.matrix("U", n, x) @ x))
    p.output(p.readout("v", n), (w.T @ ns.tanh(y)).mean("t"))
    assert fitting(p.lines, 4).shape(y.var)[0] == (3 if array == "position" else len(array))
    assert ns.check(p) is not None
