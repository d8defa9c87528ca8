"""The NTK by the tangent recursion is the sum of its D·C terms: the library's programs, random compositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compositions import OutOfReachError, disagreement, each, error

import netsor as ns
from netsor import programs

LIBRARY = {
    "mlp": (programs.mlp(depth=3, phi=["relu", "erf", "gelu"]), (3, 4)),
    "mlp, tied": (programs.mlp(depth=4, phi="erf", tied=True), (3, 4)),
    "rnn, last": (programs.rnn(phi="erf"), (2, 4, 3)),
    "rnn, mean": (programs.rnn(phi="relu", readout="mean", var_b=None), (2, 4, 3)),
    "cnn, flatten": (programs.cnn(depth=2, stride=(2, 1), var_b=0.1), (2, 4, 5, 2)),
    "cnn, mean": (programs.cnn(depth=2, readout="mean", kernel=2, padding="circular"), (2, 4, 5, 2)),
    "cnn, one axis": (programs.cnn(depth=3, phi="gelu", axes=("row",), dilation=2, padding=2), (2, 6, 2)),
    "cntk": (programs.cntk(convolutions=3), (2, 4, 4, 2)),
    "cntk, flatten": (programs.cntk(convolutions=3, readout="flatten", train_ends=True), (2, 4, 4, 2)),
    "resnet, post": (programs.resnet(depth=3, var_b=0.1, scale=0.5), (3, 4)),
    "resnet, pre": (programs.resnet(depth=3, phi="erf", kind="pre", final_phi="relu"), (3, 4)),
    "transformer": (programs.transformer(depth=2), (2, 3, 4)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_library(name: str) -> None:
    p, shape = LIBRARY[name]
    assert disagreement(p, np.random.default_rng(0).normal(size=shape)) <= 1e-9


def test_graph_convolutions() -> None:
    rng = np.random.default_rng(0)
    edges = np.triu(rng.integers(0, 2, size=(2, 5, 5)), 1)
    x = {"x": rng.normal(size=(2, 5, 3)), "A": edges + edges.transpose(0, 2, 1)}
    for readout in ("sum", "mean"):
        assert disagreement(programs.gcn(depth=3, readout=readout, var_b=0.1), x) <= 1e-9


def test_random_compositions() -> None:
    def check(p: ns.Program, x: Any, x2: Any) -> None:
        assert disagreement(p, x, x2) <= 1e-9

    each(25, check, depth=3)


def test_random_compositions_against_the_reference() -> None:
    """C/D and tangent recursion share their rules for K; the literal theorem shares none."""
    compared = []

    def check(p: ns.Program, x: Any, x2: Any) -> None:
        try:
            compared.append(error(p, x, x2))
        except OutOfReachError:
            return
        assert compared[-1] <= 1e-8

    each(25, check, depth=3)
    assert len(compared) >= 20
