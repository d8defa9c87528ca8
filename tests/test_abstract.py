"""Functions of which nothing is known: checked and derived, never evaluated."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import netsor as ns
from netsor import programs
from netsor.errors import InputError, NetsorError

PHI = ns.function("phi")
MLP = programs.mlp(2, PHI, "w", "b")


def test_the_recursion_is_that_of_any_function() -> None:
    """Line by line that of a function with an expression, under another name."""
    tanh = programs.mlp(2, "tanh", "w", "b")
    for get in (("nngp", "ntk"), ("terms",)):
        abstract, concrete = str(ns.derive(MLP, get)), str(ns.derive(tanh, get))
        assert abstract == concrete.replace("tanh", "phi")
    latex = ns.derive(MLP).latex()
    assert r"C^{x^{1}} &= \mathrm{V}_{\phi}(C^{h^{1}+b^{1}})" in latex
    assert r"\mathrm{V}_{\phi'}(C^{h^{1}+b^{1}})" in latex
    assert r"\mathrm{V}_{\mathrm{g}}" in ns.derive(programs.mlp(1, ns.function("g"))).latex()


def test_other_architectures() -> None:
    for make in (programs.cnn, programs.rnn, programs.resnet, programs.gcn):
        text = str(ns.derive(make(phi=PHI)))
        assert "phi(u) phi(v)" in text and "phi'(u) phi'(v)" in text


def test_two_arguments() -> None:
    p = ns.Program("gate")
    n, x = p.width("n"), p.data("x")
    h, k = (p.matrix(name, n, x) @ x for name in ("W", "U"))
    p.output(p.readout("v", n), ns.function("f", arity=2)(h, k))
    assert "E[f(u1, u2)·f(u3, u4)]" in str(ns.derive(p, "nngp"))
    p.backward()
    assert "f'1(" in str(p) and "f'2(" in str(p)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p)), lambda p: ns.parse(str(p))])
@pytest.mark.parametrize("phi", [PHI, ns.function("g", parity="odd", growth="polynomial", kinks=(0.0,))], ids=str)
def test_it_travels(phi: Any, way: Callable[[Any], Any]) -> None:
    p = programs.mlp(1, phi)
    again = way(p)
    assert again == p and str(ns.derive(again)) == str(ns.derive(p))
    (found,) = again.functions.values()
    assert (found.abstract, found.parity, found.growth, found.kinks) == (True, phi.parity, phi.growth, phi.kinks)


def test_checks() -> None:
    report = ns.check(MLP)
    assert report.gia_valid is True and report.polynomially_bounded is None
    stated = ns.check(programs.mlp(2, ns.function("phi", growth="polynomial")))
    assert stated.polynomially_bounded is True
    assert ns.function("phi", parity="odd").prime.parity == "even"


def test_what_needs_values_says_so() -> None:
    x = np.ones((2, 3))
    p = programs.mlp(1, PHI)
    asked: list[Callable[[], object]] = [
        lambda: ns.compile(p), lambda: ns.simulate(p, x), lambda: ns.limit(p, x),
        lambda: ns.train(p, x, x[:, 0], 1, 0.1),
    ]  # fmt: skip
    for call in asked:
        with pytest.raises(InputError, match="needs values of the abstract function phi of mlp"):
            call()
    with pytest.raises(NetsorError):
        ns.derive(p, "nngp").symbolic(gram=1)
    with pytest.raises(NetsorError, match="NT002"):
        ns.parse("program p\nfunction f()")
