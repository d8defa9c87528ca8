"""Networks whose verdicts are known: what must pass, what must fail, and what the messages say."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import netsor as ns
from netsor.checker import Report, check
from netsor.programs import BUILTIN


def deep(layers: int) -> ns.Program:
    """Tensor Programs II, Program 1 with any number of hidden layers, the backward pass by hand."""
    p = ns.Program("deep")
    n = p.width("n")
    x = p.data("x")
    matrices, nodes = [], []
    for l in range(1, layers + 1):
        matrices.append(p.matrix(f"W{l}", n, x))
        nodes.append(p.let(f"h{l}", matrices[-1] @ x))
        x = p.let(f"x{l}", ns.relu(nodes[-1]))
    p.output(p.readout("v", n), x)
    dx = p["v"]
    for l in range(layers, 0, -1):
        dh = p.let(f"dh{l}", ns.relu.prime(nodes[l - 1]) * dx)
        p.gradient(of=nodes[l - 1], is_=dh)
        if l > 1:
            dx = p.let(f"dx{l - 1}", matrices[l - 1].T @ dh)
    return p


def test_three_hidden_layers_pass() -> None:
    """Read literally, with derived vectors held fixed, Definition A.3 rejects this."""
    report = check(deep(3))
    assert report.bp_like and report.gia_valid and report.simple_gia and report.ntk_ready and report.ok
    assert report.readouts == ("v",)
    assert report.theorem == "Theorem A.6 (NETSOR⊤)"


def test_tied_autoencoder() -> None:
    report = check(BUILTIN["tied_autoencoder"]())
    assert report.simple_gia is True
    assert report.bp_like is False
    assert report.gia_valid is False
    first = report.diagnostics[0]
    assert (first.code, first.variable) == ("NT201", "y")
    assert "W.T @ a" in first.message
    assert first.location is not None and "W.T) @ a" in first.location.text
    assert report.witnesses and all(w.replay(report.program.lines) for w in report.witnesses)


def section_63() -> ns.Program:
    """x¹ = W¹ξ + 1, h² = W²x¹, x² = (h²)², dh² = 2h², dx¹ = W²ᵀdh²."""
    p = ns.Program("section63")
    n = p.width("n")
    W2 = p.matrix("W2", n, n)
    x1 = p.let("x1", p.vector("g", n) + 1)
    h2 = p.let("h2", W2 @ x1)
    dh2 = p.let("dh2", 2 * h2)
    p.let("dx1", W2.T @ dh2)
    return p


def test_section_63_fails_clause_1_with_a_witness() -> None:
    report = check(section_63())
    assert report.bp_like is False and report.gia_valid is False
    first = report.violations[0]
    assert first.clause == "Definition A.3, clause 1" and first.variable == "dx1"
    witness = report.witnesses[0]
    assert witness.clause == 1 and witness.vector == "dh2" and witness.replay(report.program.lines)


@pytest.mark.parametrize("name", sorted(set(BUILTIN) - {"tied_autoencoder", "gia_counterexample"}))
def test_every_architecture_passes(name: str) -> None:
    report = check(BUILTIN[name]())
    assert report.ok, str(report)
    assert report.bp_like and report.simple_gia and report.gia_valid and report.ntk_ready
    assert report.polynomially_bounded is not False and report.parameter_controlled is not False


def layer_norm_mlp(eps: float) -> ns.Program:
    p = ns.Program("norm")
    n = p.width("n")
    x = p.data("x")
    h = p.let("h", p.matrix("U", n, x) @ x)
    nu = p.let("nu", ns.moment(h))
    s = p.let("s", ns.moment((h - nu) ** 2))
    y = p.let("y", (h - nu) / (s + eps).sqrt())
    z = p.let("z", ns.tanh(p.matrix("W", n, n) @ y))
    p.output(p.readout("v", n), z)
    return p


def test_layer_norm() -> None:
    report = check(layer_norm_mlp(0.1))
    assert report.parameter_controlled is True and report.polynomially_bounded is True
    undecided = check(layer_norm_mlp(0.0))
    assert undecided.parameter_controlled is None and "pass x=" in undecided.reasons["parameter_controlled"]
    given = check(layer_norm_mlp(0.0), x=np.array([1.0, -0.5, 2.0]))
    assert given.parameter_controlled is True and given.polynomially_bounded is True and given.rank_stable is True
    assert given.theorem == "Theorem B.2 (NETSOR⊤⁺)"
    zero = check(layer_norm_mlp(0.0), x=np.zeros(3))
    assert zero.parameter_controlled is not True


def test_widths_and_theorem() -> None:
    p = ns.Program("two")
    n1, n2 = p.width("n1"), p.width("n2", ratio=3)
    x = p.data("x")
    x1 = p.let("x1", ns.tanh(p.matrix("W1", n1, x) @ x))
    x2 = p.let("x2", ns.tanh(p.matrix("W2", n2, x1) @ x1))
    p.output(p.readout("v", n2), x2)
    report = check(p)
    assert [(c.width, c.ratio) for c in report.cdcs] == [("n1", 1), ("n2", 3)]
    assert "x1" in report.cdcs[0].vectors and "v" in report.cdcs[1].vectors
    assert report.theorem == "Theorem C.4 (NETSOR⊤, variable dimensions)"


def one_layer(phi: ns.Function) -> Report:
    p = ns.Program("one")
    n = p.width("n")
    x = p.data("x")
    p.output(p.readout("v", n), phi(p.matrix("W", n, x) @ x))
    return check(p)


def test_functions() -> None:
    assert one_layer(ns.gelu).theorem
    exponential = one_layer(ns.exp)
    assert exponential.polynomially_bounded is False and exponential.ok
    gaussian = one_layer(ns.function("bad", lambda x: ns.exp(x**2)))
    assert not gaussian.ok and "NT302" in {d.code for d in gaussian.diagnostics}
    jump = one_layer(ns.step)
    assert jump.ntk_ready is None and [d.code for d in jump.diagnostics] == ["NT305"]
    singular = one_layer(ns.function("inverse", lambda x: 1 / x))
    assert singular.polynomially_bounded is False and "NT303" in {d.code for d in singular.diagnostics}


def test_gradients() -> None:
    right = deep(2)
    assert check(right).ntk_ready is True
    wrong = ns.Program("wrong")
    n = wrong.width("n")
    x = wrong.data("x")
    h = wrong.let("h", wrong.matrix("W", n, x) @ x)
    y = wrong.let("y", ns.tanh(h + wrong.bias("b", n)))
    wrong.output(wrong.readout("v", n), y)
    dh = wrong.let("dh", ns.tanh(h + wrong["b"]) * wrong["v"])
    wrong.gradient(of=h, is_=dh)
    report = check(wrong)
    assert report.ntk_ready is False
    assert [d.code for d in report.diagnostics] == ["NT501", "NT502"]
    assert "gradient of b" in report.diagnostics[0].message


def test_check_is_callable_after_its_package_is_imported() -> None:
    importlib.import_module("netsor.checker.typing.lines")
    assert ns.check(deep(1)).ok


def test_elements_of_a_family_are_candidates() -> None:
    """The first element is used in the forward pass, the second as the readout."""
    p = ns.Program("elements")
    n = p.width("n")
    p.axis("t", 2)
    u = p.vector("u", n, axes="t")
    W = p.matrix("W", n, n)
    h = p.let("h", W @ ns.tanh(u.at("t", 0)))
    p.let("dx", W.T @ (ns.tanh.prime(h) * u.at("t", 1)))
    report = check(p)
    assert report.bp_like and report.readouts == ("u_1",)
    q = ns.Program("all")
    n = q.width("n")
    q.axis("t", 2)
    u = q.vector("u", n, axes="t")
    M = q.matrix("M", n, n)
    h = q.let("h", M @ ns.tanh(u.sum("t")))
    q.let("dx", M.T @ (ns.tanh.prime(h) * u.at("t", 1)))
    assert check(q).bp_like is False
