"""The whole story in a few seconds: a network as a program, its check, its recursion, its kernels, the experiment."""

from __future__ import annotations

import math

import numpy as np
import sympy as sp

import netsor as ns
from netsor.compilers.reference import reference

X = np.array([[1.0, 2.0, -0.5], [0.3, -1.0, 0.8]])

LISTING = """\
program tiny
width n
data x
W : A(n, x) var 2
b : G(n) var 0.1 trainable
v : G(n) var 1 readout
h := W @ x
z := relu(h + b)
output v . z
dh := step(h + b) * v
gradient h = dh
gradient b = dh
"""


def tiny() -> ns.Program:
    """f = v·relu(Wx + b)/√n"""
    p = ns.Program("tiny")
    n, x = p.width("n"), p.data("x")
    h = p.let("h", p.matrix("W", n, x, var=2) @ x)
    z = p.let("z", ns.relu(h + p.bias("b", n, var=0.1)))
    p.output(p.readout("v", n), z)
    return p


def by_hand(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """NNGP and NTK: the arc-cosine kernels of degree 1 and 0 (Cho and Saul 2009) of K = 2 x·y/d + 0.1."""

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return 2 * float(a @ b) / len(a) + 0.1

    scale = math.sqrt(k(x, x) * k(y, y))
    angle = math.acos(min(1.0, k(x, y) / scale))
    relu = scale * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / (2 * math.pi)
    step = (math.pi - angle) / (2 * math.pi)
    return relu, relu + step * (float(x @ y) / len(x) + 1)


WANTED = np.array([[by_hand(a, b) for b in X] for a in X])


def test_a_network_is_a_program() -> None:
    """A listing is its program; a backward pass written by hand gives the terms of the one that `ns.backprop` adds."""
    assert ns.parse(str(tiny())) == tiny()
    made, written = (ns.compile(p)(X, get="terms").terms for p in (ns.backprop(tiny()), ns.parse(LISTING)))
    assert made.keys() == written.keys() == {"W", "b", "v"}
    assert all(np.array_equal(made[k], written[k]) for k in made)


def test_its_check() -> None:
    report = ns.check(tiny())
    assert report.ok and report.bp_like and report.theorem == "Theorem A.6 (NETSOR⊤)"


def test_its_recursion() -> None:
    assert "Θ_z = (K_x + 1)·E[step(u) step(v)]" in str(ns.derive(tiny()))


def test_its_kernels() -> None:
    """The compiled kernels, by the tangent recursion and by D·C, the literal theorem, and the formulas by hand."""
    out = ns.compile(tiny())(X, get=("nngp", "ntk", "terms"))
    np.testing.assert_allclose(out.nngp, WANTED[..., 0], rtol=1e-14)
    np.testing.assert_allclose(out.ntk, WANTED[..., 1], rtol=1e-14)
    np.testing.assert_allclose(sum(t.numpy() for t in out.terms.values()), WANTED[..., 1], rtol=1e-14)
    literal = reference(ns.backprop(tiny()), X)
    assert literal.ntk is not None
    np.testing.assert_allclose(literal.ntk, WANTED[..., 1], rtol=1e-8)


def test_the_limit_is_exact_where_functions_are_polynomials() -> None:
    """E f² of v·(Wx)²/√n is 3 K²: a rational number."""
    p = ns.Program("square")
    n, x = p.width("n"), p.data("x")
    p.output(p.readout("v", n), (p.matrix("W", n, x) @ x) ** 2)
    found = ns.limit(p, [[1, 2, 3]])
    assert found.method == "exact" and found.nngp.item() == 3 * sp.Rational(14, 3) ** 2


def test_the_experiment() -> None:
    """Twenty networks of width 512 are near the limit; those of width 32 are about four times further away."""
    found = ns.simulate(tiny(), X, widths=[32, 512], seeds=20)
    near, far = found.mean("ntk", 512), found.mean("ntk", 32)
    assert near < 0.1 and 2 < far / near < 8
