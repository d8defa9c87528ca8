"""What the language takes as an argument, and what it says to everything else."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import netsor as ns
from netsor import layers


def refused(code: str, *words: str) -> Any:
    """A NetsorError of this code whose message and hint hold all the words."""
    return pytest.raises(ns.NetsorError, match="(?s)" + ".*".join([code, *map(re.escape, words)]))


# ---------------------------------------------------------------- numbers

Place = Callable[[ns.Program, ns.Width, ns.Expr, Any], Any]
PLACES: dict[str, Place] = {
    "var of a matrix": lambda p, n, h, a: p.matrix("A", n, n, var=a),
    "multiplier of a matrix": lambda p, n, h, a: p.matrix("A", n, n, multiplier=a),
    "fan_in": lambda p, n, h, a: p.matrix("A", n, p.data("y"), fan_in=a),
    "var of a vector": lambda p, n, h, a: p.vector("A", n, var=a),
    "mean": lambda p, n, h, a: p.vector("A", n, mean=a),
    "multiplier of a vector": lambda p, n, h, a: p.vector("A", n, multiplier=a),
    "covariance": lambda p, n, h, a: p.vector("A", n, cov={p.vector("B", n): a}),
    "axis_cov": lambda p, n, h, a: p.vector("A", n, axes=(p.axis("t", 1),), axis_cov=[[a]]),
    "limit": lambda p, n, h, a: p.scalar("A", a),
    "constant": lambda p, n, h, a: p.constant([a], (p.axis("t", 1),)),
    "ratio": lambda p, n, h, a: p.width("m", ratio=a),
    "scale": lambda p, n, h, a: p.output(p.readout("v", n), h, scale=a),
    "arithmetic": lambda p, n, h, a: p.let("A", a * h + a),
    "power": lambda p, n, h, a: p.let("A", h**a),
    "slope": lambda p, n, h, a: p.let("A", ns.leaky_relu(a)(h)),
    "coefficient": lambda p, n, h, a: p.let("A", ns.polynomial([0, a])(h)),
    "eps": lambda p, n, h, a: p.let("A", layers.layer_norm(h, a)),
    "dense": lambda p, n, h, a: layers.dense(h, n, "A", var=a, bias_var=a),
}
HALVES = [
    0.5, Fraction(1, 2), Decimal("0.5"), sp.Rational(1, 2), sp.Float(0.5), np.float64(0.5), np.float32(0.5),
    np.array(0.5), torch.tensor(0.5), torch.tensor(0.5, dtype=torch.float64),
]  # fmt: skip


def made(place: Place, value: Any) -> ns.Program:
    p = ns.Program("numbers")
    n = p.width("n")
    h = p.let("h", p.matrix("W", n, p.data("x")) @ p["x"])
    place(p, n, h, value)
    return p


@pytest.mark.parametrize("place", PLACES)
def test_every_kind_of_number_is_the_same_number(place: str) -> None:
    texts = [str(made(PLACES[place], a)).replace("1/2", "0.5") for a in HALVES]
    assert set(texts) == {texts[0]}
    assert (
        str(made(PLACES[place], np.int64(2))) == str(made(PLACES[place], 2)) == str(made(PLACES[place], sp.Integer(2)))
    )


@pytest.mark.parametrize("place", PLACES)
def test_a_gradient_a_symbol_and_what_is_no_number_are_refused_where_they_are_given(place: str) -> None:
    make = PLACES[place]
    with refused("NT108", "requires_grad"):
        made(make, torch.tensor(0.5, requires_grad=True))
    with refused("NT108"):
        made(make, "0.5")
    with refused("NT108"):
        made(make, 1j)
    with refused("NT109", "finite"):
        made(make, float("nan"))
    with refused("NT109", "finite"):
        made(make, float("inf"))
    with refused("NT108", "sigma"):
        made(make, sp.Symbol("sigma"))


def test_an_irrational_number_is_a_variance_only_as_a_float() -> None:
    with refused("NT108", "sqrt(2)", "float"):
        made(PLACES["var of a matrix"], sp.sqrt(2))
    made(PLACES["arithmetic"], sp.sqrt(2))


def test_the_error_is_at_the_line_that_gives_the_number() -> None:
    with pytest.raises(ns.ProgramError) as caught:
        made(PLACES["var of a matrix"], torch.tensor(1.0, requires_grad=True))
    location = caught.value.diagnostic.location
    assert location is not None and location.file == __file__ and "p.matrix" in location.text
