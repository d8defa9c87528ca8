"""Modules that together use every rule of `ns.from_torch`, by name: (make, inputs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch_layers import IMAGE, SIGNAL, TOKENS, Heads, drawn, image, tokens
from torch_modules import Make, Net
from torch_recurrent import X, cells, layer


def square(n: int) -> nn.Module:
    return nn.Linear(n, n)


def vector(n: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(n))


def functions(m: Any, x: torch.Tensor) -> Any:
    y = F.relu(x) + x.abs() + x.tanh() + x.sigmoid() + x.erf() + F.silu(x) + x.sin() + x.cos() + x.exp() + x.sign()
    y = y + F.gelu(x) + F.mish(x) + F.hardsigmoid(x) + F.hardswish(x) + F.tanhshrink(x) + F.logsigmoid(x)
    y = y + F.leaky_relu(x) + F.elu(x) + F.selu(x) + F.softplus(x) + F.relu6(x) + F.hardtanh(x) + x.clamp(-1, 1)
    y = y + x.clamp_min(0.5) + x.square() + x.pow(3) - x.neg() * 2 + x / 2 + x.clone() + (1 - x)
    y = y + F.prelu(x.transpose(1, 2), m.slope).transpose(1, 2)
    return y + F.glu(torch.cat([x, m.b(x)], -1)) + F.dropout(x, 0.1, False)


def of_several(m: Any, x: torch.Tensor) -> Any:
    y = torch.maximum(x, m.b(x)) + torch.minimum(x, m.c(x)) + x.lerp(m.b(x), 0.3) + torch.addcmul(x, m.b(x), m.c(x))
    size = x.pow(2).mean(-1, keepdim=True)
    y = (
        y / size.sqrt()
        + x * size.rsqrt()
        + x * size.reciprocal()
        + x / x.norm(dim=-1, keepdim=True) * x.shape[-1] ** 0.5
    )
    return torch.where(torch.arange(4)[:, None] < 2, y, x).masked_fill(torch.arange(4)[:, None] < 1, 0.0)


def dimensions(m: Any, x: torch.Tensor) -> Any:
    y = x.unsqueeze(1).expand(-1, 2, -1, -1).flatten(1, 2)[:, :4].permute(0, 2, 1).transpose(1, 2).contiguous()
    first, second = y.split([1, 3], 1)
    y = (
        torch.cat([second, first.expand(-1, 1, -1)], 1)
        + y[:, 1:2]
        + y.select(1, 0)[:, None]
        + torch.stack(y.unbind(1), 1)
    )
    y = y + torch.cat(y.chunk(2, 1)[::-1], 1) + y.flip(1).roll(1, 1) + y.index_select(1, torch.tensor([0, 0, 1, 2]))
    y = (
        y
        + y[:, :2].repeat_interleave(2, 1)
        + F.pad(y, (0, 0, 1, 0))[:, :-1]
        + torch.einsum("btn,mn->btm", y, m.b.weight)
    )
    return y + (y @ m.b.weight.t()) + torch.addmm(m.g, y.flatten(0, 1), m.b.weight).view(y.shape)


def reductions(m: Any, x: torch.Tensor) -> Any:
    y = x - x.mean(1, keepdim=True) + x.sum(1, keepdim=True) + x.amax(1, keepdim=True) + x.max(1, keepdim=True).values
    y = y * (x.var(-1, keepdim=True) + x.std(-1, keepdim=True)) + torch.var_mean(x, -1, keepdim=True)[1]
    y = y + F.layer_norm(x, x.shape[-1:]) + F.rms_norm(x, x.shape[-1:], m.g)
    h = y.transpose(1, 2)
    h = F.group_norm(h, 2) + F.instance_norm(h) + F.batch_norm(h, m.mean, m.var)
    return torch.tanh(h.transpose(1, 2))


def with_statistics(n: int) -> nn.Module:
    found: Any = tokens(reductions, g=vector)(n)
    found.register_buffer("mean", torch.zeros(n))
    found.register_buffer("var", torch.ones(n))
    return found  # type: ignore[no-any-return]


def attention(m: Any, x: torch.Tensor) -> Any:
    scores = torch.bmm(m.q(x), x.transpose(1, 2)) / x.shape[-1]
    return scores.softmax(-1) @ x + m.h(x)


def images(m: Any, x: torch.Tensor) -> Any:
    y = m.c(F.pad(x, (1, 1, 1, 1))) + m.t(x)[:, :, 1:, 1:]
    y = F.avg_pool2d(F.interpolate(y, size=(5, 5)), 2, 1) + F.max_pool2d(F.interpolate(y, size=(5, 5)), 2, 1)
    y = F.adaptive_avg_pool2d(y, (2, 1)) + F.adaptive_max_pool2d(y, (2, 1)) + F.adaptive_avg_pool2d(y, 1)
    return F.interpolate(y, size=(4, 4)) + F.interpolate(y, size=(4, 4), mode="bilinear")


def signals(n: int) -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> Any:
        y = m.c(F.relu(m.a(x)))
        y = F.adaptive_max_pool1d(F.avg_pool1d(y, 3, 1) + F.max_pool1d(y, 3, 1), 2)
        y = F.interpolate(F.interpolate(y, scale_factor=2), size=6, mode="linear")
        return m.out(F.adaptive_avg_pool1d(y, 4).mean(-1))

    return Net(forward, a=nn.Conv1d(3, n, 2), c=nn.ConvTranspose1d(n, n, 2), out=nn.Linear(n, 1))


def volumes(n: int) -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> Any:
        y = m.c(F.relu(m.a(x)))
        y = F.avg_pool3d(y, 2, 1) + F.max_pool3d(y, 2, 1)
        y = F.adaptive_avg_pool3d(y, (1, 2, 1)) + F.adaptive_max_pool3d(y, (1, 1, 1))
        return m.out(F.interpolate(y, scale_factor=2).mean((2, 3, 4)))

    return Net(forward, a=nn.Conv3d(3, n, 2), c=nn.ConvTranspose3d(n, n, 2), out=nn.Linear(n, 1))


def ids(n: int) -> nn.Module:
    return Net(lambda m, i: m.out(torch.tanh(m.e(i).mean(1))), e=nn.Embedding(5, n), out=nn.Linear(n, 1))


def of_indices(n: int) -> nn.Module:
    """Pools that return where the largest entries are, which nobody reads."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        y = F.relu(m.a(x))
        z = F.max_pool3d(y, 2, 1, return_indices=True)[0]
        z = F.max_pool2d(z[..., 0], 1, 1, return_indices=True)[0]
        return m.out(F.max_pool1d(z[..., 0], 1, 1, return_indices=True)[0].mean(-1))

    return Net(forward, a=nn.Conv3d(3, n, 1), out=nn.Linear(n, 1))


def drawing(f: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Make, Any]:
    """A module whose forward pass draws."""
    return tokens(lambda m, x: x + f(x)), TOKENS


USERS: dict[str, tuple[Make, Any]] = {
    "functions": (tokens(functions, b=square, slope=vector), TOKENS),
    "of_several": (tokens(of_several, b=square, c=square), TOKENS),
    "dimensions": (tokens(dimensions, b=square, g=vector), TOKENS),
    "reductions": (with_statistics, TOKENS), "attention": (tokens(attention, q=square, h=Heads), TOKENS),
    "images": (image(images, c=lambda n: nn.Conv2d(n, n, 3), t=lambda n: nn.ConvTranspose2d(n, n, 2)), IMAGE),
    "signals": (signals, SIGNAL), "volumes": (volumes, drawn(2, 3, 3, 3, 3)), "ids": (ids, torch.randint(5, (2, 3))),
    "of_indices": (of_indices, drawn(2, 3, 3, 3, 3)),
    **{k: (layer(k, lambda r: r[0][:, -1]), X[:, :2]) for k in ("rnn", "gru", "lstm")},
    "relu_rnn": (layer("rnn", lambda r: r[0][:, -1], nonlinearity="relu"), X[:, :2]),
    **{f"{k}_cell": (cells(k), X[:, :2]) for k in ("rnn", "gru", "lstm")},
    "relu_cell": (lambda n: Net(lambda m, x: m.out(m.c(m.a(x[:, 0]), m.a(x[:, 1]))), a=nn.Linear(3, n),
                                c=nn.RNNCell(n, n, nonlinearity="relu"), out=nn.Linear(n, 1)), X[:, :2]),
}  # fmt: skip

# What no program has: the rule is the finding.
REFUSED: dict[str, tuple[tuple[Make, Any], str]] = {
    "dropout": (drawing(lambda x: F.dropout(x, 0.1, True)), "NT816"),
    "feature_dropout": (drawing(lambda x: F.dropout1d(x, 0.1, True)), "NT816"),
    "native_dropout": (drawing(lambda x: torch.native_dropout(x, 0.1, True)[0]), "NT816"),
    "rand": (drawing(lambda x: torch.rand(3, 4, 1)[:1]), "NT816"),
    "randn": (drawing(lambda x: torch.randn(3, 4, 1)[:1]), "NT816"),
    "rand_like": (drawing(torch.rand_like), "NT816"), "randn_like": (drawing(torch.randn_like), "NT816"),
    "bernoulli": (drawing(lambda x: torch.bernoulli(torch.sigmoid(x))), "NT816"),
    "normal": (drawing(lambda x: torch.normal(x, 1.0)), "NT816"),
    "uniform": (drawing(lambda x: torch.ops.aten.uniform(x)), "NT816"),
    "randint": (drawing(lambda x: torch.randint(3, (1, 4, 1))), "NT816"),
    "rrelu": (drawing(lambda x: F.rrelu(x, training=True)), "NT816"),
    "batch_norm": ((tokens(lambda m, x: F.batch_norm(x.transpose(1, 2), None, None, training=True).transpose(1, 2)),
                    TOKENS), "NT815"),
}  # fmt: skip

# What torch.export of this version writes as other operations.
OTHER_VERSIONS = frozenset({"tanhshrink", "log_sigmoid_forward"})

__all__ = ["OTHER_VERSIONS", "REFUSED", "USERS"]
