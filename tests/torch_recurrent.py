"""Recurrent torch modules by name: (make, inputs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch_modules import Make, Net

KINDS: dict[str, Callable[..., nn.Module]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
X = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def constant_variance(module: nn.Module) -> nn.Module:
    """Input weights of variance 1/fan-in: torch's own vanish with the width."""
    for name, p in module.named_parameters():
        if name.endswith(("weight_ih", "weight_ih_l0", "weight_ih_l0_reverse")):
            nn.init.normal_(p, std=p.shape[1] ** -0.5)
    return module


def layer(kind: str, read: Callable[[Any], Any], default: bool = False, **more: Any) -> Make:
    """A recurrent layer, what is read of its result, and a readout."""

    def make(n: int) -> nn.Module:
        found = KINDS[kind](3, n, **{"batch_first": True, **more})
        states = n * (2 if more.get("bidirectional") else 1)
        return Net(
            lambda m, x: m.out(read(m.r(x))), r=found if default else constant_variance(found), out=nn.Linear(states, 1)
        )

    return make


def last(result: Any) -> Any:
    return result[0][:, -1]


def cells(kind: str) -> Make:
    """A cell in a Python loop over time."""

    def make(n: int) -> nn.Module:
        cell = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[kind](3, n)

        def forward(m: Any, x: torch.Tensor) -> Any:
            h, c = x.new_zeros(len(x), n), x.new_zeros(len(x), n)
            for t in range(x.shape[1]):
                if kind == "lstm":
                    h, c = m.c(x[:, t], (h, c))
                else:
                    h = m.c(x[:, t], h)
            return m.out(h)

        return Net(forward, c=constant_variance(cell), out=nn.Linear(n, 1))

    return make


def by_hand(n: int) -> nn.Module:
    """One matrix of the input and one of the state, applied in a loop."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        h = torch.tanh(m.u(x[:, 0]))
        for t in range(1, x.shape[1]):
            h = torch.tanh(m.u(x[:, t]) + m.w(h))
        return m.out(h)

    return Net(forward, u=nn.Linear(3, n), w=nn.Linear(n, n), out=nn.Linear(n, 1))


def gru_by_hand(n: int) -> nn.Module:
    """Three gates from one matrix each, the input and the state concatenated."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        h = torch.tanh(m.start)
        for t in range(x.shape[1]):
            z, r = torch.sigmoid(m.uz(x[:, t]) + m.wz(h)), torch.sigmoid(m.ur(x[:, t]) + m.wr(h))
            h = z * h + (1 - z) * torch.tanh(m.uh(x[:, t]) + m.wh(r * h))
        return m.out(h)

    inputs = {k: nn.Linear(3, n) for k in ("uz", "ur", "uh")}
    states = {k: nn.Linear(n, n, bias=False) for k in ("wz", "wr", "wh")}
    return Net(forward, **inputs, **states, start=nn.Parameter(torch.randn(n)), out=nn.Linear(n, 1))


def transposed(result: Any) -> Any:
    return result[1][0].transpose(0, 1).flatten(1)


def projected(**more: Any) -> Make:
    """States of the width n of cells of the width 2n."""

    def make(n: int) -> nn.Module:
        r = constant_variance(nn.LSTM(3, 2 * n, batch_first=True, proj_size=n, **more))
        return Net(
            lambda m, x: m.out(m.r(x)[0][:, -1] + m.r(x)[0][:, 0]), r=r,
            out=nn.Linear(n * (2 if more.get("bidirectional") else 1), 1),
        )  # fmt: skip

    return make


RECURRENT: dict[str, Make] = {
    "rnn": layer("rnn", last), "gru": layer("gru", last), "lstm": layer("lstm", last),
    "rnn_default": layer("rnn", last, default=True), "lstm_default": layer("lstm", last, default=True),
    "gru_default": layer("gru", last, default=True),
    "relu": layer("rnn", last, nonlinearity="relu"),
    "mean": layer("rnn", lambda r: r[0].mean(1)), "final": layer("gru", lambda r: r[1][0]),
    "cell_state": layer("lstm", lambda r: torch.tanh(r[1][1][0])),
    "time_first": (lambda n: Net(
        lambda m, x: m.out(m.r(x.transpose(0, 1))[0][-1]), r=constant_variance(nn.RNN(3, n)), out=nn.Linear(n, 1))),
    "both_ways": layer("rnn", lambda r: r[0].mean(1), bidirectional=True),
    "both_ends": layer("lstm", transposed, bidirectional=True),
    "forward_half": layer("rnn", lambda r: torch.cat([r[0][:, -1, : r[0].shape[-1] // 2],
                                                      r[0][:, 0, r[0].shape[-1] // 2 :]], -1), bidirectional=True),
    "two_layers": layer("gru", last, num_layers=2), "without_biases": layer("lstm", last, bias=False),
    "projected": projected(), "projected_without_biases": projected(bias=False, num_layers=2),
    "projected_both_ways": projected(bidirectional=True),
    "two_layers_both_ways": layer("rnn", last, num_layers=2, bidirectional=True),
    "rnn_cells": cells("rnn"), "gru_cells": cells("gru"), "lstm_cells": cells("lstm"),
    "by_hand": by_hand, "gru_by_hand": gru_by_hand,
}  # fmt: skip
