"""ns.unit_variance: the same network, its scale in the multipliers."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from typing import Any

import pytest

import netsor as ns
from netsor import ir
from netsor.passes.unit_variance import root
from netsor.programs import mlp


def line(p: ns.Program, name: str) -> Any:
    return next(line for line in p.lines if line.out.name == name)


def test_variances_move_into_the_multipliers() -> None:
    p = ns.unit_variance(mlp(depth=2, var_w=(4, 0.5), var_b=0.09, var_v=Fraction(1, 4)))
    inputs = {x.out.name: x for x in p.lines if isinstance(x, ir.InputMatrix | ir.InputVector)}
    assert {name: x.var for name, x in inputs.items()} == dict.fromkeys(("W1", "b1", "W2", "b2", "v"), 1)
    assert inputs["W1"].multiplier == 2
    assert inputs["W2"].multiplier == sqrt(0.5)
    assert inputs["b1"].multiplier == pytest.approx(0.3, rel=1e-15)
    assert inputs["v"].multiplier == Fraction(1, 2)
    assert all(x.trainable for x in inputs.values())


def test_means_and_covariances_are_scaled() -> None:
    p = ns.Program("covariances")
    n = p.width("n")
    a = p.vector("a", n, mean=3, var=4, multiplier=5)
    b = p.vector("b", n, mean=0.5, var=9, cov={a: 3})
    p.vector("c", n, var=1, cov={a: 1, b: Fraction(1, 2)})
    q = ns.unit_variance(p)
    assert (line(q, "a").mean, line(q, "a").multiplier) == (Fraction(3, 2), 10)
    assert line(q, "b").mean == 0.5 / 3
    assert dict(line(q, "b").cov) == {a.var: Fraction(1, 2)}
    assert dict(line(q, "c").cov) == {a.var: Fraction(1, 2), b.var: Fraction(1, 6)}
    assert line(q, "c").mean == 0


def test_a_constant_stays_and_is_not_trained() -> None:
    p = mlp(depth=1, var_b=0)
    q = ns.unit_variance(p)
    b = line(q, "b1")
    assert (b.var, b.multiplier, b.trainable) == (0, 1, False)
    assert line(p, "b1").trainable  # the given program is as before


def test_covariance_over_an_axis_stays() -> None:
    p = ns.Program("positions")
    n, token = p.width("n"), p.axis("token", 2)
    p.vector("e", n, var=4, axes=(token,), axis_cov=((1.0, 0.5), (0.5, 1.0)))
    e = line(ns.unit_variance(p), "e")
    assert (e.var, e.multiplier) == (1, 2)
    assert e.axis_cov == ((token, ((1.0, 0.5), (0.5, 1.0))),)


def test_unit_variances_change_nothing() -> None:
    p = mlp(depth=2).backward()
    q = ns.unit_variance(p)
    assert str(q) == str(p)
    assert q.gradients == p.gradients


def test_twice_is_once() -> None:
    p = ns.unit_variance(mlp(depth=2, var_w=2.0, var_b=0.1, tied=True).backward())
    assert str(ns.unit_variance(p)) == str(p)


@pytest.mark.parametrize(("var", "expected"), [(4, 2), (Fraction(9, 16), Fraction(3, 4)), (2, sqrt(2)), (0.25, 0.5)])
def test_roots_of_rational_squares_are_exact(var: ir.Number, expected: ir.Number) -> None:
    assert root(var) == expected
    assert isinstance(root(var), type(expected))
