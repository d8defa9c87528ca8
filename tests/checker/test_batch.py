"""`ns.check(p, x=batch)`: what holds for each sample, and which sample fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor import layers, programs

BATCH = np.array([[1.0, -0.5, 2.0], [0.0, 0.0, 0.0], [0.3, 1.0, 1.0]])


def normalised(eps: float = 0.0) -> ns.Program:
    p = ns.Program("normalised")
    n = p.width("n")
    h = layers.dense(p.data("x"), n, "W")
    p.output(p.readout("v", n), ns.tanh(layers.layer_norm(h, eps)))
    return p


@pytest.mark.parametrize(
    "given", [BATCH, torch.tensor(BATCH), BATCH.tolist(), {"x": BATCH}], ids=lambda x: type(x).__name__
)
def test_a_batch_names_the_sample_that_fails(given: Any) -> None:
    report = ns.check(normalised(), x=given)
    single = [ns.check(normalised(), x=x) for x in BATCH]
    assert [r.parameter_controlled for r in single] == [True, None, True]
    assert report.parameter_controlled is None and report.theorem is None
    assert report.reasons["parameter_controlled"].startswith("in sample 1, ")
    assert report.bp_like is True and report.reasons["bp_like"] == single[0].reasons["bp_like"]


def test_a_batch_without_the_sample_holds() -> None:
    report = ns.check(normalised(), x=BATCH[[0, 2]])
    assert report.parameter_controlled is True and report.theorem == "Theorem B.2 (NETSOR⊤⁺)"
    assert report.reasons == ns.check(normalised(), x=BATCH[0]).reasons or report.ok


def test_findings_of_some_samples_name_the_first() -> None:
    """x/√(mean of squares) divides by zero at the zero input; findings of all samples stay as they are."""
    p = ns.Program("divided")
    n = p.width("n")
    h = p.let("h", layers.dense(p.data("x"), n, "W"))
    y = p.let("y", h / ns.moment(h**2).sqrt())
    p.output(p.readout("v", n), ns.step(y))
    report = ns.check(p, x=BATCH)
    single = [ns.check(p, x=x) for x in BATCH]
    common = set.intersection(*({(d.code, d.variable) for d in r.diagnostics} for r in single))
    for d in report.diagnostics:
        assert d.message.startswith("in sample ") == ((d.code, d.variable) not in common)
    every = set.union(*({(d.code, d.variable) for d in r.diagnostics} for r in single))
    assert {(d.code, d.variable) for d in report.diagnostics} == every


def test_one_sample_of_several_inputs_and_axes() -> None:
    p = programs.gcn()
    x, A = np.ones((2, 4, 3)), np.zeros((2, 4, 4))
    assert ns.check(p, x={"x": x, "A": A}).ok and ns.check(p, x={"x": x[0], "A": A[0]}).ok
    assert ns.check(p, x={"x": x, "A": A[0]}).ok  # one graph for all samples


@pytest.mark.parametrize(
    ("x", "code"),
    [
        (np.ones((2, 3, 4)), "NT601"),
        (np.ones(()), "NT601"),
        ("abc", "NT601"),
        (BATCH + 0j, "NT601"),
        (np.ones((0, 3)), "NT602"),
        (BATCH * np.nan, "NT603"),
        ({"y": BATCH}, "NT604"),
    ],
    ids=str,
)
def test_what_is_no_batch(x: Any, code: str) -> None:
    with pytest.raises(ns.InputError, match=code):
        ns.check(programs.mlp(), x=x)
