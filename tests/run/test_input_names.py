"""What is given for a program's inputs is matched to their names in one way, with one wording, wherever it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import netsor as ns
from netsor.compilers.reference import reference

X = np.eye(2)


def two_inputs() -> ns.Program:
    p = ns.Program("two")
    n = p.width("n")
    x, y = p.data("x"), p.data("y")
    p.output(p.readout("v", n), p.let("z", ns.relu(p.matrix("U", n, x) @ x + p.matrix("V", n, y) @ y)))
    return p


READERS: dict[str, Callable[[ns.Program, Any], object]] = {
    "compiled": lambda p, x: ns.compile(p)(x),
    "symbolic": lambda p, x: ns.derive(p).symbolic({k: v[0] for k, v in x.items()} if isinstance(x, dict) else x[0]),
    "limit": lambda p, x: ns.limit(p, x).nngp,
    "finite": lambda p, x: ns.simulate(p, x, widths=(4,), seeds=1),
    "reference": lambda p, x: reference(p, x),
    "checker": lambda p, x: ns.check(p, x=x),
    "trained": lambda p, x: ns.train(p, x, [1.0, 0.0], steps=1, lr=0.1),
}
WRONG = {
    "one array": (X, "the program's inputs are x, y, and one array was given"),
    "unknown": ({"x": X, "y": X, "z": X}, "the program's inputs are x, y: unknown z"),
    "missing": ({"x": X}, "the program's inputs are x, y: missing y"),
    "both": ({"x": X, "z": X}, "the program's inputs are x, y: missing y; unknown z"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("wrong", WRONG)
def test_one_wording(reader: str, wrong: str) -> None:
    given, message = WRONG[wrong]
    if reader == "checker" and wrong == "missing":
        return  # a check may be asked about some of the inputs
    with pytest.raises(ns.InputError) as error:
        READERS[reader](two_inputs(), given)
    assert error.value.diagnostic.code == "NT604"
    assert error.value.diagnostic.message == message.replace(
        "missing y; ", "" if reader == "checker" else "missing y; "
    )
