"""Recurrent modules against programs by hand, and their findings."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import nn
from torch_modules import Make, Net, same_as_module, scores
from torch_recurrent import RECURRENT, X, constant_variance, layer

import netsor as ns
from netsor.errors import UnsupportedError
from netsor.layers import lstm_cell

THIRD = Fraction(1, 3)


def kernels(p: ns.Program, x: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    found = ns.compile(p, **more)(x)
    return found.nngp, found.ntk


def same(name: str, p: ns.Program, rtol: float = 1e-12, **more: Any) -> None:
    lifted = ns.from_torch(RECURRENT[name], X.float(), parametrisation="ntk")
    for a, b in zip(kernels(lifted.program, lifted.arrange(X), **more), kernels(p, X, **more), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=1e-14)


def ended(p: ns.Program, n: ns.Width, end: Any) -> ns.Program:
    p.output(p.readout("v", n, var=THIRD), end)
    p.output(p.readout("b_out", n, var=0), p.vector("one", n, mean=1, var=0))
    return p


def simple(read: str) -> ns.Program:
    """U of variance 1, W of variance 1/(3n), two biases that start at 0."""
    p = ns.Program("rnn")
    n, x = p.width("n"), p.data("x", axes=("time",))
    u = p.matrix("U", n, x) @ x
    W, b, c = p.matrix("W", n, n, var=THIRD), p.bias("b", n, var=0), p.bias("c", n, var=0)
    s = p.scan("time", 0, lambda h: ns.tanh(W @ h + u + b + c))
    return ended(p, n, s.mean("time") if read == "mean" else s.at("time", -1))


@pytest.mark.parametrize("name", RECURRENT)
def test_the_program_is_the_module(name: str) -> None:
    """Outputs and Θ of both at width 12; every parameter is accounted for."""
    same_as_module(RECURRENT[name], X)


@pytest.mark.parametrize("name", ["rnn", "mean", "time_first", "rnn_cells"])
def test_rnn_by_hand(name: str) -> None:
    """nn.RNN is the program of `ns.programs.rnn`; a loop over a cell is the same, unrolled."""
    same(name, simple(name))


def test_lstm_by_hand() -> None:
    """The gates of `layers.lstm_cell`, each with its own arrays; sampled with the same number of draws."""
    p = ns.Program("lstm")
    n, x = p.width("n"), p.data("x", axes=("time",))
    x2 = X[:, :2]

    def step(h: Any, c: Any) -> Any:
        return lstm_cell(x, h, c, n, var_w=THIRD, var_u=1, var_b=None)

    h, _ = p.scan("time", (0, 0), step)
    p.output(p.readout("v", n, var=THIRD), h.at("time", -1))
    lifted = ns.from_torch(
        lambda n: Net(lambda m, x: m.out(m.r(x)[0][:, -1]), out=nn.Linear(n, 1, bias=False),
                      r=constant_variance(nn.LSTM(3, n, batch_first=True, bias=False))), x2.float(),
        parametrisation="ntk",
    )  # fmt: skip
    mine, theirs = ns.compile(lifted.program, samples=2**12)(lifted.arrange(x2)), ns.compile(p, samples=2**12)(x2)
    for part in ("nngp", "ntk"):
        error = (mine.errors[part] ** 2 + theirs.errors[part] ** 2) ** 0.5
        assert float(((getattr(mine, part) - getattr(theirs, part)) / error).abs().max()) < 4


@pytest.mark.parametrize("name", ["rnn", "rnn_default", "both_ways"])
def test_kernels_are_those_of_the_modules(name: str) -> None:
    """Kernels of 100 draws at widths 32 and 64, extrapolated in 1/n: |z| ≤ 4 for every entry."""
    make, x = RECURRENT[name], X
    lifted = ns.from_torch(make, x.float(), parametrisation="ntk")
    torch.manual_seed(0)
    assert scores(lifted, make, x, kernels(lifted.program, lifted.arrange(x)), 32, 100) < 4


def test_input_weights_of_torch_vanish() -> None:
    """torch draws them with variance 1/(3n): in its own parametrisation the input never enters."""
    make: Make = layer("gru", lambda r: r[0][:, -1], default=True)
    with pytest.raises(UnsupportedError, match=r"r: the first layer r.weight_ih_l0 vanishes .* variance 1/3·n\^-1"):
        ns.from_torch(make, X.float())
    lifted = ns.from_torch(make, X.float(), parametrisation="ntk")
    assert "0 in the limit, and it is trained" in next(f.message for f in lifted.findings if f.code == "NT818")


def test_samples_are_first() -> None:
    with pytest.raises(UnsupportedError, match="runs over the samples"):
        ns.from_torch(layer("rnn", lambda r: r[0][-1], batch_first=False), X.float())


def test_one_step_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a recurrence of one step"):
        ns.from_torch(RECURRENT["rnn"], X[:, :1].float())
