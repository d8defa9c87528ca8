"""Facts of small programs, against what their lines say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import netsor as ns
from netsor import facts, ir, sizes
from netsor.compilers.reference import reference


def _network() -> tuple[ns.Program, dict[str, ir.Var]]:
    """U embeds data, W is applied as W, as Wᵀ and as (Wᵀ)ᵀ; z does not reach the output."""
    p = ns.Program("network")
    n, m = p.width("n"), p.width("m", 2)
    x = p.data("x")
    U, W = p.matrix("U", n, x), p.matrix("W", m, n, trainable=False)
    h = p.let("h", U @ x)
    y = p.let("y", W @ ns.tanh(h))
    p.let("z", W.T @ ns.tanh(y))
    twice = p.add(ir.Trsp(p.new_var("Wtt", "A", m, n), p.var_of(W.T)))
    p.let("w", p.handle(p.var_of(twice)) @ ns.tanh(h))
    p.output(p.readout("v", m), ns.relu(y))
    return p, {line.out.name: line.out for line in p.lines}


def test_matrices_and_uses() -> None:
    p, v = _network()
    made = {line.out: line for line in p.lines}
    known = facts.matrices(p.lines)
    transpose = facts.transposes(p.lines)[v["W"]]
    assert known[v["W"]] == (made[v["W"]], False)
    assert known[transpose] == (made[v["W"]], True)
    assert known[v["Wtt"]] == (made[v["W"]], False)
    assert facts.transposes(p.lines)[transpose] is v["W"]
    found = [(use.line.out.name, use.matrix.name, use.transposed) for use in facts.uses(p.lines)]
    assert found == [("h", "U", False), ("y", "W", False), ("z", "W", True), ("w", "W", False)]
    assert [(w.out.name, [u.line.out.name for u in of]) for w, of in facts.trained_uses(p.lines).items()] == [
        ("U", ["h"])
    ]
    assert [x.out.name for x in facts.trained(p.lines)] == ["U", "v"]


def test_forward_and_backward() -> None:
    p, v = _network()
    whole = ns.backprop(p)
    forward = {a.name for a in facts.forward(whole)}
    assert {"h", "y", "x", "U", "W"} <= forward and forward.isdisjoint({"z", "w", "v", "Wtt"})
    assert facts.reached(whole) == facts.forward(whole) | {v["v"]}
    stated = {g.is_ for g in whole.gradients}
    assert stated <= facts.backward(whole) | {v["v"]}
    assert facts.backward(whole).isdisjoint(facts.forward(whole))


def test_what_is_given() -> None:
    p = ns.Program("given")
    x, s = p.data("x"), p.scalar("s", per_sample=True)
    p.scalar("c", 2)
    assert [line.out for line in facts.given(p.lines)] == [p.var_of(x), p.var_of(s)]


def test_fan_in_and_ratio() -> None:
    p = ns.Program("fan")
    m, x = p.width("m", 3), p.data("x")
    lines = {line.out.name: line for line in p.lines}
    for fan, expected in (("cols", 7), (None, 1), (5, 5)):
        W = ir.InputMatrix(ir.Var("W", "A", m, lines["x"].out.rows), fan_in=fan)  # type: ignore[arg-type]
        assert facts.fan_in(W, 7) == expected
    assert (facts.ratio(m), facts.ratio(p.var_of(x).rows), facts.ratio(None)) == (3, 1, 1)


def _vector(name: str, *cov: tuple[ir.InputVector, float]) -> ir.InputVector:
    return ir.InputVector(ir.Var(name, "G", ir.Width("n")), var=2, cov=tuple((v.out, c) for v, c in cov))


def test_covariances() -> None:
    a, b = _vector("a"), _vector("b")
    c = _vector("c", (a, 0.0), (b, 0.5))
    d = _vector("d")
    e = _vector("e", (c, -0.25))
    lines = [a, b, c, d, e]
    assert [{x.out.name for x in block} for block in facts.covariance_blocks(lines)] == [{"a"}, {"b", "c", "e"}, {"d"}]
    assert (facts.covariance(a, a), facts.covariance(a, c), facts.covariance(a, d)) == (2, 0, 0)
    assert facts.covariance(b, c) == facts.covariance(c, b) == 0.5
    assert facts.covariance(c, e) == -0.25 and facts.covariance(b, e) == 0


def test_a_covariance_that_is_stated_twice_counts_once() -> None:
    """f = (v + w)·h/√n with Var v = Var w = 1 and Cov(v, w) = ½: E f² = (1 + 1 + 2·½) ‖ξ‖²/d = 3 · 5/2."""
    p = ns.Program("twice")
    n, x = p.width("n"), p.data("x")
    h, v, w = p.let("h", p.matrix("W", n, x) @ x), p.readout("v", n), p.readout("w", n)
    p.output(v, h)
    p.output(w, h)
    cov = ((p.var_of(v), 0.5),) * 2
    lines = [dataclasses.replace(x, cov=cov) if isinstance(x, ir.InputVector) and x.out.name == "w" else x
             for x in p.lines]  # fmt: skip
    twice = ns.Program.from_parts("twice", p.widths, lines, p.outputs)
    data = np.array([[1.0, 2.0]])
    for result in (ns.limit(twice, data), ns.compile(twice)(data), reference(twice, data)):
        assert float(result.nngp[0, 0]) == pytest.approx(7.5, rel=1e-12)


def test_axes_of_variables() -> None:
    s, t = ir.Axis("s"), ir.Axis("t", 3)
    known = ir.Var("known", "H", dims=(ir.Dim(s, ir.SizeOf("s")), ir.Dim(t, 3)))
    open_ = ir.Var("open", "H", dims=(ir.Dim(s, None), ir.Dim(t, 3)))  # type: ignore[arg-type]  # a scan's state
    assert facts.merge_dims((open_, known)) == (ir.Dim(s, ir.SizeOf("s")), ir.Dim(t, 3))
    assert sizes.axis_dim(t) == ir.Dim(t, 3) and sizes.axis_dim(s) == ir.Dim(s, ir.SizeOf("s"))


def test_sizes() -> None:
    """⌈(⌈(7 − 2)/2⌉ − (−1))/3⌉ = ⌈4/3⌉ = 2."""
    size = ir.Strided(ir.Strided(ir.SizeOf("row"), 2, 2), -1, 3)
    assert sizes.number(size, {"row": 7}.__getitem__) == 2
    assert sizes.number(5, dict[str, int]().__getitem__) == 5
    assert sizes.fold(size, str, str.upper, "({0} - {1})/{2}".format) == "((ROW - 2)/2 - -1)/3"
