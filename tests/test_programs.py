"""The programs of the library: their arrays, their hyperparameters, their values at finite width, their listings."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from interp import Interpreter
from passes.test_backprop import GRAPH, PROGRAMS, normal

import netsor as ns
from netsor import ir, programs
from netsor.build.program import Program
from netsor.programs import BUILTIN


def variances(p: Program) -> dict[str, float]:
    """var by the name of the array."""
    return {
        line.out.name: float(line.var) for line in p.lines if isinstance(line, ir.InputMatrix | ir.InputVector)
    }  # fmt: skip


def test_the_table_is_the_module() -> None:
    assert set(BUILTIN) == set(programs.__all__) - {"BUILTIN"}
    for name, function in BUILTIN.items():
        assert getattr(programs, name) is function
        assert function.__doc__


@pytest.mark.parametrize("name", BUILTIN)
def test_every_parameter_has_a_default_and_every_variance_a_keyword(name: str) -> None:
    assert all(p.default is not p.empty for p in inspect.signature(BUILTIN[name]).parameters.values())
    assert len(BUILTIN[name]().outputs) == 1


@pytest.mark.parametrize("name", BUILTIN)
def test_round_trip_with_the_backward_pass(name: str) -> None:
    for p in (BUILTIN[name](), ns.backprop(BUILTIN[name]())):
        assert str(ns.parse(str(p))) == str(p)


@pytest.mark.parametrize("name", BUILTIN)
def test_equal_arguments_give_equal_programs(name: str) -> None:
    assert BUILTIN[name]() == BUILTIN[name]()


def test_hyperparameters_per_layer() -> None:
    p = programs.mlp(depth=3, phi=["relu", ns.tanh, "erf"], var_w=[1, 2, 3], var_b=[0, None, 4], var_v=5)
    assert variances(p) == {"W1": 1, "W2": 2, "W3": 3, "b1": 0, "b3": 4, "v": 5}
    assert [str(line.expr) for line in p.lines if isinstance(line, ir.Nonlin)] == [
        "relu(x0 + x1)", "tanh(x0)", "erf(x0 + x1)",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="var_w has 2 entries for 3 layers"):
        programs.mlp(depth=3, var_w=[1, 2])
    with pytest.raises(ns.InputError, match="no function is called 'rleu'"):
        programs.mlp(phi="rleu")


def test_tied_layers_share_their_arrays() -> None:
    assert set(variances(programs.mlp(depth=4, tied=True))) == {"W1", "b1", "W", "b", "v"}


ARRAYS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "rnn": ({}, {"W", "U", "b", "v"}),
    "cnn": ({"depth": 2, "var_b": 1}, {"W1", "b1", "W2", "b2", "v"}),
    "cntk": ({"convolutions": 2}, {"W1", "W2", "v"}),
    "resnet": ({"depth": 2, "var_b": 1}, {"W0", "W1", "b1", "W2", "b2", "v"}),
    "transformer": ({}, {"U1", "W1a", "W1b", "v"}),
    "batchnorm_mlp": ({"depth": 2}, {"W1", "W2", "v"}),
    "gru": ({"var_b": None}, {f"{a}_{g}" for a in "UW" for g in "zrh"} | {"v"}),
    "lstm": ({}, {f"{a}_{g}" for a in "UWb" for g in "ifog"} | {"v"}),
    "gcn": ({}, {"W1", "W2", "v"}),
    "maxpool_cnn": ({"depth": 1, "var_b": 0.1}, {"W1", "b1", "v"}),
    "tied_autoencoder": ({}, {"W1", "W", "v"}),
    "gia_counterexample": ({}, {"W1", "W2", "v"}),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str) -> None:
    keywords, names = ARRAYS[name]
    assert set(variances(BUILTIN[name](**keywords))) == names


def test_gates_have_their_own_hyperparameters() -> None:
    p = programs.gru(
        var_w={"z": 1, "r": 2, "h": 3}, var_b={"z": 0.1, "r": None, "h": 0.3}, mean_b={"z": 1, "r": 0, "h": 2}
    )
    found = variances(p)
    assert (found["W_z"], found["W_r"], found["W_h"]) == (1, 2, 3)
    assert "b_r" not in found
    means = {line.out.name: line.mean for line in p.lines if isinstance(line, ir.InputVector)}
    assert (means["b_z"], means["b_h"]) == (1, 2)


def output(name: str, data: dict[str, Any], **keywords: Any) -> tuple[Interpreter, torch.Tensor]:
    run = Interpreter(BUILTIN[name](**keywords), data, 16)
    return run, run.output().detach()


def test_value_of_the_network_of_arora_et_al() -> None:
    """Entries N(0, 1), x^h = sqrt(2/(n q^2)) relu, no 1/sqrt(|P|) in the flattening readout."""
    image = normal(4, 5, 3)
    q, n = 3, 16
    for readout in ("mean", "flatten"):
        run, f = output("cntk", {"x": image}, convolutions=2, kernel=q, readout=readout)
        a = run.arrays
        scale = (2 / (n * q**2)) ** 0.5
        w1 = a["W1"].reshape(q, q, n, 3).permute(2, 3, 0, 1)
        w2 = a["W2"].reshape(q, q, n, n).permute(2, 3, 0, 1) / (2 / (n * q**2)) ** 0.5  # the entries N(0, 1)
        x = torch.nn.functional.conv2d(image.movedim(-1, 0).unsqueeze(0), w1, padding=1).relu() * scale
        x = torch.nn.functional.conv2d(x, w2, padding=1).relu() * scale
        x = x[0].movedim(0, -1)
        right = (a["v"] * x.mean((0, 1))).sum() if readout == "mean" else (a["v"] * x).sum()
        torch.testing.assert_close(f, right)
        ends = [line.trainable for line in run.p.lines if isinstance(line, ir.InputMatrix | ir.InputVector)]
        assert ends == [False, True, False]


def test_value_of_the_flattening_readout() -> None:
    image = normal(4, 5, 3)
    run, f = output("cnn", {"x": image}, depth=1, stride=2, readout="flatten")
    x = run.values[run.p["x1"].var].detach()
    assert x.shape == (2, 3, 16)
    torch.testing.assert_close(f, (run.arrays["v"] * x).sum() / (6 * 16) ** 0.5)


def test_value_of_the_counterexample() -> None:
    """At xi = 0: dh2 = 2 h2, dx1 = W2.T dh2."""
    q = ns.backprop(programs.gia_counterexample())
    run = Interpreter(q, {"xi": torch.zeros(2)}, 2048)
    dx1 = run.values[next(g.is_ for g in q.gradients if g.of.name == "h1")].detach()
    assert dx1.mean() == pytest.approx(2, abs=0.2)
    assert (dx1**2).mean() == pytest.approx(8, abs=1.5)


@pytest.mark.parametrize("name", BUILTIN)
def test_runs_at_finite_width(name: str) -> None:
    p = BUILTIN[name]()
    data = {line.out.name: PROGRAMS[name][1] for line in p.lines if line.out.kind == "X"}
    run = Interpreter(p, data | ({"A": GRAPH} if name == "gcn" else {}), 16)
    assert run.output().isfinite().all()
    assert run.output().shape == ((4,) if name == "batchnorm_mlp" else ())
