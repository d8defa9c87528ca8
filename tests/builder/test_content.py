"""What makes two programs equal: what they say, not where it was written or how it is printed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

import netsor as ns
from netsor.build.content import content


@pytest.mark.parametrize("name", ns.programs.BUILTIN)
def test_a_program_and_its_listing_say_the_same(name: str) -> None:
    p = ns.programs.BUILTIN[name]()
    assert content(p) == content(ns.programs.BUILTIN[name]()) == content(ns.parse(str(p)))
    assert hash(content(p)) == hash(content(ns.parse(str(p))))


def small(
    name: str = "p", var: Any = 0.5, ratio: Any = 1, axis: str = "t", by: int = 1, slope: Any = 0.1, scale: Any = 1,
    function: str = "bent", trainable: bool = True, accept: str | None = None,
) -> ns.Program:  # fmt: skip
    p = ns.Program(name)
    n, x = p.width("n", ratio), p.data("x", axes=(axis,))
    bent = ns.function(function, lambda z: slope * z + ns.relu.sym(z))
    h = p.let("h", p.matrix("W", n, x, var=var, trainable=trainable) @ x)
    p.output(p.readout("v", n), p.let("y", bent(h.shift(axis, by))).mean(axis), scale=scale)
    if accept is not None:
        p.accept(accept, because="seen")
    return p


CHANGES: dict[str, dict[str, Any]] = {
    "name": {"name": "q"}, "variance": {"var": 0.5000000001}, "ratio": {"ratio": 2}, "axis": {"axis": "u"},
    "shift": {"by": -1}, "definition": {"slope": 0.2}, "function": {"function": "crooked"}, "scale": {"scale": 2},
    "training": {"trainable": False},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_differs_is_seen(change: str) -> None:
    assert small() == small() != small(**CHANGES[change])


def test_a_number_is_one_number() -> None:
    assert small(var=0.5) == small(var=Fraction(1, 2))


def test_a_function_without_an_expression_is_itself() -> None:
    def make(f: Callable[[Any], Any]) -> ns.Program:
        g = ns.numeric("g", f)
        p = ns.Program("numeric")
        n, x = p.width("n"), p.data("x")
        p.output(p.readout("v", n), p.let("y", g(p.matrix("W", n, x) @ x)))
        return p

    p = make(lambda t: t)
    assert p == p.copy() != make(lambda t: 2 * t)
