"""Torch modules that have no limit, or no rule, by name: (make, inputs)."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch_modules import Net

X, TOKENS, IMAGE = torch.randn(3, 4), torch.randn(3, 5, 4), torch.randn(3, 3, 4, 4)


def attention(n: int) -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> Any:
        q, k, v = m.q(x), m.k(x), m.v(x)
        a = F.scaled_dot_product_attention(q, k, v)
        return m.out(a.mean(1))

    return Net(forward, q=nn.Linear(4, n), k=nn.Linear(4, n), v=nn.Linear(4, n), out=nn.Linear(n, 1))


def finite_layer(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Linear(n, 3), nn.ReLU(), nn.Linear(3, 1))


def batch_norm(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, n), nn.BatchNorm1d(n, track_running_stats=False), nn.ReLU(), nn.Linear(n, 1))


def running_statistics(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, n), nn.BatchNorm1d(n), nn.ReLU(), nn.Linear(n, 1))


def dropout(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, n), nn.Dropout(0.1), nn.Linear(n, 1))


def noise(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(m.a(x + torch.randn_like(x))), a=nn.Linear(4, n), out=nn.Linear(n, 1))


def control_flow(n: int) -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> Any:
        h = m.a(x)
        return m.out(h if h.sum() > 0 else -h)

    return Net(forward, a=nn.Linear(4, n), out=nn.Linear(n, 1))


def coordinate(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(m.a(x)[:, :1] * m.b(x)), a=nn.Linear(4, n), b=nn.Linear(4, n), out=nn.Linear(n, 1))


def readout_used_twice(n: int) -> nn.Module:
    def forward(m: Any, ids: torch.Tensor) -> Any:
        return F.linear(torch.tanh(m.f(m.emb(ids).mean(1))), m.emb.weight)

    return Net(forward, emb=nn.Embedding(7, n), f=nn.Linear(n, n))


def growing(n: int) -> nn.Module:
    inner = nn.Linear(n, n)
    nn.init.normal_(inner.weight)
    return nn.Sequential(nn.Linear(4, n), nn.ReLU(), inner, nn.Tanh(), nn.Linear(n, 1))


def vanishing(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(torch.tanh(m.a(x) / n)), a=nn.Linear(4, n), out=nn.Linear(n, 1))


def orthogonal(n: int) -> nn.Module:
    inner = nn.Linear(n, n)
    nn.init.orthogonal_(inner.weight)
    return nn.Sequential(nn.Linear(4, n), nn.ReLU(), inner, nn.ReLU(), nn.Linear(n, 1))


def no_rule(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(torch.cumsum(m.a(x), 1)), a=nn.Linear(4, n), out=nn.Linear(n, 1))


def no_readout(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Linear(n, n))


def copied(n: int) -> nn.Module:
    first = nn.Linear(n, n)
    return nn.Sequential(nn.Linear(4, n), first, nn.ReLU(), copy.deepcopy(first), nn.Linear(n, 1))


def product(n: int) -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> Any:
        return m.out(F.linear(m.a(x), m.b.weight @ m.c.weight))

    return Net(forward, a=nn.Linear(4, n), b=nn.Linear(n, n), c=nn.Linear(n, n), out=nn.Linear(n, 1))


def finite_parameter(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(m.a(x) * m.s), a=nn.Linear(4, n), s=nn.Parameter(torch.ones(1)), out=nn.Linear(n, 1))


def after_the_output(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Linear(n, 2), nn.Softmax(-1))


def depends_on_the_width(n: int) -> nn.Module:
    layers = [layer for _ in range(n // 32) for layer in (nn.Linear(n, n), nn.ReLU())]
    return nn.Sequential(nn.Linear(4, n), *layers, nn.Linear(n, 1))


def odd_width(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Linear(n, n + 1), nn.ReLU(), nn.Linear(n + 1, 1))


def batch_mean(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(torch.relu(m.a(x - x.mean(0)))), a=nn.Linear(4, n), out=nn.Linear(n, 1))


def sum_over_batch(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(F.softmax(m.a(x), 0)), a=nn.Linear(4, n), out=nn.Linear(n, 1))


def wide_constant(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(m.a(x) + torch.arange(n)), a=nn.Linear(4, n), out=nn.Linear(n, 1))


def recurrent(layer: Any, read: Any = lambda r: r[0][:, -1]) -> Any:
    """A recurrent layer, by width, and a readout of its last state."""

    def make(n: int) -> nn.Module:
        return Net(lambda m, x: m.out(read(m.r(x))), r=layer(n), out=nn.Linear(n, 1))

    return make


def embedded(middle: Any, **parts: Any) -> Any:
    """A linear layer, something in the middle, and a readout."""

    def make(n: int) -> nn.Module:
        made = {k: part(n) for k, part in parts.items()}
        return Net(lambda m, x: m.out(middle(m, m.a(x))), a=nn.Linear(4, n), out=nn.Linear(n, 1), **made)

    return make


def images(middle: Any, out: Any = lambda n: nn.Linear(n, 1)) -> Any:
    """A convolution, a layer by width, the mean over positions and a readout."""

    def make(n: int) -> nn.Module:
        return Net(lambda m, x: m.out(torch.tanh(m.b(m.a(x))).mean((2, 3))), a=nn.Conv2d(3, n, 3), b=middle(n),
                   out=out(n))  # fmt: skip

    return make


def depthwise_of_data(n: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 3 * n, 3, groups=3), nn.Flatten(), nn.Linear(12 * n, 1))


def transposed_output(n: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, n, 3), nn.ReLU(), nn.ConvTranspose2d(n, 3, 3))


def encoder(n: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(n, 2, n, dropout=0.0, batch_first=True)
    return Net(lambda m, x: m.out(m.e(m.a(x)).mean(1)), a=nn.Linear(4, n), e=layer, out=nn.Linear(n, 1))


def packed(n: int) -> nn.Module:
    def forward(m: Any, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        words = nn.utils.rnn.pack_padded_sequence(m.a(x), lengths, batch_first=True, enforce_sorted=False)
        return m.out(m.r(words)[1][-1])

    return Net(forward, a=nn.Linear(4, n), r=nn.GRU(n, n, batch_first=True), out=nn.Linear(n, 1))


def padding_not_zero(n: int) -> nn.Module:
    emb = nn.Embedding(5, n, padding_idx=0)
    nn.init.normal_(emb.weight)
    return Net(lambda m, ids: m.out(m.emb(ids).mean(1)), emb=emb, out=nn.Linear(n, 1))


def torchvision_stem(n: int) -> nn.Module:
    """A first convolution of variance 2/fan-out, as torchvision's residual networks have."""
    first = nn.Conv2d(3, n, 3, bias=False)
    nn.init.kaiming_normal_(first.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(first, nn.BatchNorm2d(n), nn.ReLU(), nn.Flatten(), nn.Linear(4 * n, 1)).eval()


def constant_deviations(n: int) -> nn.Module:
    """Every matrix of deviation 0.02, as language models have."""
    layers = [nn.Linear(4, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 1)]
    for layer in layers[::2]:
        nn.init.normal_(layer.weight, std=0.02)  # type: ignore[arg-type]
    return nn.Sequential(*layers)


def masked_and_read(m: Any, h: torch.Tensor) -> Any:
    scores = (h @ h.transpose(1, 2) / h.shape[-1]).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    return (torch.sigmoid(scores) @ h).mean(1)


def lstm(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(m.r(x)[0][:, -1]), r=nn.LSTM(4, n, batch_first=True), out=nn.Linear(n, 1))


def mixed_orders(n: int) -> nn.Module:
    return Net(lambda m, x: m.out(m.a(x) + m.b(x) / n**0.5), a=nn.Linear(4, n), b=nn.Linear(4, n), out=nn.Linear(n, 1))


WITHOUT: dict[str, tuple[Any, Any]] = {
    "attention": (attention, TOKENS), "finite_layer": (finite_layer, X), "batch_norm": (batch_norm, X),
    "running_statistics": (running_statistics, X), "dropout": (dropout, X), "noise": (noise, X),
    "control_flow": (control_flow, X), "coordinate": (coordinate, X),
    "readout_used_twice": (readout_used_twice, torch.randint(7, (3, 4))), "growing": (growing, X),
    "vanishing": (vanishing, X), "orthogonal": (orthogonal, X), "no_rule": (no_rule, X), "no_readout": (no_readout, X),
    "copied": (copied, X), "product": (product, X), "finite_parameter": (finite_parameter, X),
    "after_the_output": (after_the_output, X), "depends_on_the_width": (depends_on_the_width, X),
    "odd_width": (odd_width, X), "batch_mean": (batch_mean, X), "sum_over_batch": (sum_over_batch, X),
    "wide_constant": (wide_constant, X), "lstm": (lstm, TOKENS),
    "mixed_orders": (mixed_orders, X), "encoder": (encoder, TOKENS),
    "relu_rnn": (recurrent(lambda n: nn.RNN(4, n, batch_first=True, nonlinearity="relu")), TOKENS),
    "time_first": (recurrent(lambda n: nn.GRU(4, n)), TOKENS),
    "projected": (recurrent(lambda n: nn.LSTM(4, n, batch_first=True, proj_size=5), lambda r: r[1][1][0]), TOKENS),
    "packed": (packed, (TOKENS, torch.tensor([5, 3, 2]))),
    "padding_not_zero": (padding_not_zero, torch.randint(5, (3, 4))),
    "two_outputs_added": (lambda n: Net(lambda m, x: (lambda y: y[:, :1] + y[:, 1:])(m.out(m.a(x))), a=nn.Linear(4, n),
                                        out=nn.Linear(n, 2, bias=False)), X),
    "torchvision_stem": (torchvision_stem, IMAGE), "constant_deviations": (constant_deviations, X),
    "dropped_states": (recurrent(lambda n: nn.GRU(4, n, 2, batch_first=True, dropout=0.1)), TOKENS),
    "softmax_of_a_width": (embedded(lambda m, h: h.softmax(-1)), X),
    "quotient": (embedded(lambda m, h: h / m.b(h), b=lambda n: nn.Linear(n, n)), X),
    "masked_and_read": (embedded(masked_and_read), TOKENS),
    "sorted": (embedded(lambda m, h: h.sort(-1).values), X),
    "depthwise_of_data": (depthwise_of_data, IMAGE), "transposed_output": (transposed_output, IMAGE),
    "growing_groups": (images(lambda n: nn.Conv2d(n, n, 1, groups=n // 4)), IMAGE),
    "growing_norm_groups": (images(lambda n: nn.GroupNorm(n // 4, n)), IMAGE),
    "ceil_mode": (images(lambda n: nn.AvgPool2d(2, ceil_mode=True)), IMAGE),
    "joined_with_data": (lambda n: Net(lambda m, x: m.out(torch.cat([m.a(x), x], -1)), a=nn.Linear(4, n),
                                       out=nn.Linear(n + 4, 1)), X),
}  # fmt: skip
