"""Small torch modules, one for an operation or two, by name: (make, inputs)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch_modules import Make, Net, gaussian


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


IMAGE, SIGNAL, TOKENS, POINTS = drawn(2, 3, 4, 4), drawn(2, 3, 6), drawn(2, 4, 3), drawn(2, 3)


def image(middle: Callable[[Any, torch.Tensor], Any], width: int = 1, **parts: Callable[[int], Any]) -> Make:
    """A convolution of images, something in the middle, the mean over positions and a readout of width·n channels."""

    def make(n: int) -> nn.Module:
        def forward(m: Any, x: torch.Tensor) -> Any:
            return m.out(torch.tanh(middle(m, torch.tanh(m.a(x)))).mean((2, 3)))

        a = nn.Conv2d(3, n, 2)
        return Net(forward, a=a, out=nn.Linear(width * n, 1), **{k: part(n) for k, part in parts.items()})

    return make


def tokens(middle: Callable[[Any, torch.Tensor], Any], width: int = 1, **parts: Callable[[int], Any]) -> Make:
    """A linear layer of each token, something in the middle, the mean over tokens and a readout."""

    def make(n: int) -> nn.Module:
        def forward(m: Any, x: torch.Tensor) -> Any:
            return m.out(middle(m, m.a(x)).mean(1))

        a = nn.Linear(3, n)
        return Net(forward, a=a, out=nn.Linear(width * n, 1), **{k: part(n) for k, part in parts.items()})

    return make


def conv(m: Any, x: torch.Tensor) -> Any:
    return m.b(x)


def transposed_of_data(n: int) -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> Any:
        return m.out(torch.relu(m.b(torch.relu(m.a(x)))).flatten(1))

    a = nn.ConvTranspose1d(3, n, 2, stride=2)  # torch's own variance is 1/(3 · outputs · taps)
    nn.init.normal_(a.weight, std=3**-0.5)
    assert a.bias is not None
    nn.init.normal_(a.bias)
    return Net(forward, a=a, b=nn.ConvTranspose1d(n, n, 3, padding=1), out=nn.Linear(12 * n, 1))


def output_at_positions(n: int) -> nn.Module:
    a, out = nn.Conv1d(3, n, 3, padding=1), nn.Conv1d(n, 2, 3)
    return Net(lambda m, x: m.out(torch.relu(m.a(x))).mean(2), a=a, out=out)


class Heads(nn.Module):
    """nn.MultiheadAttention with scores times 1/d: it scales by 1/√d, so the queries are divided once more."""

    def __init__(self, n: int, **more: Any) -> None:
        super().__init__()
        self.d = n // 2
        self.a = nn.MultiheadAttention(n, 2, batch_first=True, **more)

    def forward(self, x: torch.Tensor, mask: Any = None, padded: Any = None) -> Any:
        with scores_by_width():
            return self.a(x, x, x, attn_mask=mask, key_padding_mask=padded, need_weights=False)[0]


@contextmanager
def scores_by_width() -> Generator[None]:
    """Inside, torch's attention divides scores by d and not by √d."""
    plain = F.scaled_dot_product_attention

    def by_width(q: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        return plain(q, *more, **{**named, "scale": 1 / q.shape[-1]})

    F.scaled_dot_product_attention = by_width  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = plain


class Encoder(nn.Module):
    """nn.TransformerEncoderLayer with scores times 1/d, on embedded tokens."""

    def __init__(self, n: int, norm_first: bool) -> None:
        super().__init__()
        self.a = gaussian(nn.Linear(3, n))
        self.e = nn.TransformerEncoderLayer(n, 2, 2 * n, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.out = nn.Linear(n, 1)

    def forward(self, x: torch.Tensor) -> Any:
        with scores_by_width():
            return self.out(self.e(self.a(x)).mean(1))


def masked_scores(m: Any, x: torch.Tensor) -> Any:
    """Causal attention written out, the mask as −∞ before the softmax and as a sum."""
    d, t = x.shape[-1], x.shape[1]
    late = torch.ones(t, t, dtype=torch.bool).triu(1)
    one = (m.q(x) @ m.k(x).transpose(1, 2) / d).masked_fill(late, -torch.inf).softmax(-1)
    two = (m.k(x) @ m.q(x).transpose(1, 2) / d + torch.zeros(t, t).masked_fill(late, -torch.inf)).softmax(-1)
    return one @ m.v(x) + two @ x


def padded_tokens(n: int) -> nn.Module:
    """Ragged lengths: a mask of the tokens that count, in the attention and in the mean."""

    def forward(m: Any, x: torch.Tensor, keep: torch.Tensor) -> Any:
        h = m.h(m.a(x), None, ~keep)
        h = h.masked_fill(~keep[..., None], 0.0)
        return m.out((h * keep[..., None]).sum(1) / keep.sum(1, keepdim=True))

    return Net(forward, a=nn.Linear(3, n), h=Heads(n), out=nn.Linear(n, 1))


def gcn(n: int) -> nn.Module:
    """Two layers over a dense adjacency, normalised in torch."""

    def forward(m: Any, x: torch.Tensor, a: torch.Tensor) -> Any:
        a = a + torch.eye(a.shape[-1], dtype=a.dtype)
        d = a.sum(-1).rsqrt()
        a = d[:, :, None] * a * d[:, None, :]
        return m.out(torch.relu(torch.bmm(a, m.g(torch.relu(a @ m.f(x))))).sum(1))

    return Net(forward, f=nn.Linear(3, n, bias=False), g=nn.Linear(n, n), out=nn.Linear(n, 1))


def written_norms(m: Any, x: torch.Tensor) -> Any:
    """RMS and layer normalisation written out."""
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)
    y = (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, keepdim=True, unbiased=False) + 1e-2)
    return y * m.g


def einsums(m: Any, x: torch.Tensor) -> Any:
    y = torch.einsum("btn,mn->mbt", x, m.w.weight)
    s = torch.einsum("nbs,btn->bst", y, x) / x.shape[-1]
    return torch.einsum("bst,btn->bsn", s, x) + torch.einsum("mbt->btm", y)


def positions(m: Any, x: torch.Tensor) -> Any:
    """A table of positions, tokens rolled, and one of them read."""
    y = x + m.p(torch.arange(x.shape[1]))
    return torch.tanh(y.roll(1, 1)) + y[:, 1:2] + y.index_select(1, torch.tensor([3, 0, 0, 1]))


def widths(m: Any, x: torch.Tensor) -> Any:
    """Widths joined, cut and halved."""
    y = torch.cat([x, m.b(x)], -1)
    first, rest = y.split([x.shape[-1] // 2, y.shape[-1] - x.shape[-1] // 2], -1)
    return torch.cat([torch.tanh(m.c(y)), first, torch.relu(rest[..., : x.shape[-1] // 2])], -1)


def zero_padded(m: Any, x: torch.Tensor) -> Any:
    """Channels padded with zeros, as the shortcuts of small residual networks."""
    n = x.shape[1]
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, n // 2, n - n // 2)) + m.b(x)


def cross(middle: Callable[[Any, torch.Tensor, torch.Tensor], Any], **parts: Callable[[int], Any]) -> Make:
    """The last two tokens are queries, the first two keys and values; scores times 1/d."""

    def run(m: Any, x: torch.Tensor) -> Any:
        with scores_by_width():
            return middle(m, x[:, 2:], x[:, :2])

    return tokens(run, 1, **parts)


def heads_of(n: int) -> nn.Module:
    return nn.MultiheadAttention(n, 2, batch_first=True)


def decoder_layer(n: int) -> nn.Module:
    return nn.TransformerDecoderLayer(n, 2, 2 * n, dropout=0.0, batch_first=True, norm_first=True)


def grouped_queries(repeat: Callable[[torch.Tensor], torch.Tensor] | None) -> Callable[[Any, torch.Tensor], Any]:
    """Four heads of queries for two of keys and values, by torch or repeated by hand."""

    def middle(m: Any, x: torch.Tensor) -> Any:
        q, k, v = (f(x).unflatten(-1, (h, -1)).transpose(1, 2) for f, h in ((m.q, 4), (m.k, 2), (m.v, 2)))
        k, v = (k, v) if repeat is None else (repeat(k), repeat(v))
        a = F.scaled_dot_product_attention(q, k, v, scale=1 / q.shape[-1], enable_gqa=repeat is None)
        return a.transpose(1, 2).flatten(2)

    return middle


def expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2)


def of_queries(repeat: Callable[[torch.Tensor], torch.Tensor] | None) -> Make:
    q, k, v = lambda n: nn.Linear(n, 2 * n), lambda n: nn.Linear(n, n), lambda n: nn.Linear(n, n)
    return tokens(grouped_queries(repeat), 2, q=q, k=k, v=v)


def padded_ids(n: int) -> nn.Module:
    def forward(m: Any, ids: torch.Tensor) -> Any:
        return m.out(torch.tanh(m.f(m.emb(ids).sum(1))))

    return Net(forward, emb=nn.Embedding(5, n, padding_idx=2), f=nn.Linear(n, n), out=nn.Linear(n, 1))


def held_states(n: int) -> nn.Module:
    """Ragged lengths: after the last word the state stays."""

    def forward(m: Any, x: torch.Tensor, keep: torch.Tensor) -> Any:
        h = x.new_zeros(len(x), n)
        for t in range(x.shape[1]):
            h = torch.where(keep[:, t, None], m.c(m.a(x[:, t]), h), h)
        return m.out(h)

    return Net(forward, a=nn.Linear(3, n), c=nn.RNNCell(n, n), out=nn.Linear(n, 1))


def one_output(n: int) -> nn.Module:
    """The second of three outputs, twice."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        y = m.out(torch.tanh(m.a(x)))
        return y[:, 1] + 2 * y[:, 1:].select(1, 0)

    return Net(forward, a=nn.Linear(3, n), out=nn.Linear(n, 3, bias=False))


LAYERS: dict[str, tuple[Make, Any]] = {
    "depthwise": (image(conv, b=lambda n: nn.Conv2d(n, n, 3, padding=1, groups=n)), IMAGE),
    "depthwise_multiplied": (image(conv, 2, b=lambda n: nn.Conv2d(n, 2 * n, 2, groups=n)), IMAGE),
    "two_groups": (image(conv, b=lambda n: nn.Conv2d(n, n, 3, padding=1, groups=2)), IMAGE),
    "transposed": (image(conv, 2, b=lambda n: nn.ConvTranspose2d(n, 2 * n, 3, stride=2, padding=1, output_padding=1)),
                   IMAGE),
    "transposed_of_data": (transposed_of_data, SIGNAL),
    "tied_transposed": (image(lambda m, x: F.conv_transpose2d(torch.tanh(m.b(x)), m.b.weight),
                              b=lambda n: nn.Conv2d(n, n, 2, bias=False)), IMAGE),
    "dilated": (image(conv, b=lambda n: nn.Conv2d(n, n, (2, 1), (1, 2), (1, 0), dilation=(2, 1))), IMAGE),
    "same": (image(conv, b=lambda n: nn.Conv2d(n, n, 2, padding="same")), IMAGE),
    "circular": (image(conv, b=lambda n: nn.Conv2d(n, n, 3, padding=1, padding_mode="circular")), IMAGE),
    "reflect": (image(conv, b=lambda n: nn.Conv2d(n, n, 3, padding=1, padding_mode="reflect")), IMAGE),
    "replicate": (image(conv, b=lambda n: nn.Conv2d(n, n, 3, padding=1, padding_mode="replicate")), IMAGE),
    "one_position": (image(conv, b=lambda n: nn.Sequential(nn.Conv2d(n, n, 3), nn.Tanh(), nn.Conv2d(n, n, 1))), IMAGE),
    "output_at_positions": (output_at_positions, SIGNAL),
    "upsampled": (image(lambda m, x: F.interpolate(m.b(x), scale_factor=2),
                        b=lambda n: nn.Conv2d(n, n, 2)), IMAGE),
    "bilinear": (image(lambda m, x: F.interpolate(x, size=(5, 4), mode="bilinear")), IMAGE),
    "adaptive": (image(lambda m, x: F.adaptive_avg_pool2d(x, (2, 3))), IMAGE),
    "ceil": (image(lambda m, x: F.max_pool2d(x, 2, ceil_mode=True)), IMAGE),
    "adaptive_max": (image(lambda m, x: F.adaptive_max_pool2d(F.pad(x, (0, 1, 1, 0)), (2, 1))), IMAGE),
    "group_norm": (image(conv, b=lambda n: nn.Sequential(nn.Conv2d(n, n, 2), nn.GroupNorm(2, n))), IMAGE),
    "group_norm_of_one": (image(conv, b=lambda n: nn.Sequential(nn.Conv2d(n, n, 2), nn.GroupNorm(1, n))), IMAGE),
    "instance_norm": (image(conv, b=lambda n: nn.Sequential(nn.Conv2d(n, n, 2), nn.InstanceNorm2d(n, affine=True))),
                      IMAGE),
    "batch_norm_evaluated": (image(conv, b=lambda n: nn.BatchNorm2d(n).eval()), IMAGE),
    "heads": (tokens(lambda m, x: m.h(x), h=Heads), TOKENS),
    "causal_heads": (tokens(lambda m, x: m.h(x, torch.ones(4, 4, dtype=torch.bool).triu(1)), h=Heads), TOKENS),
    "causal": (tokens(lambda m, x: F.scaled_dot_product_attention(m.q(x), x, x, is_causal=True, scale=1 / x.shape[-1]),
                      q=lambda n: nn.Linear(n, n)), TOKENS),
    "masked_scores": (tokens(masked_scores, q=lambda n: nn.Linear(n, n), k=lambda n: nn.Linear(n, n),
                             v=lambda n: nn.Linear(n, n)), TOKENS),
    "encoder": (lambda n: Encoder(n, False), TOKENS), "encoder_pre": (lambda n: Encoder(n, True), TOKENS),
    "padded_tokens": (padded_tokens, (TOKENS, torch.arange(4) < torch.tensor([[2], [4]]))),
    "gcn": (gcn, (TOKENS, (drawn(2, 4, 4) > 0).double())),
    "written_norms": (tokens(written_norms, g=lambda n: nn.Parameter(torch.ones(n))), TOKENS),
    "einsums": (tokens(einsums, w=lambda n: nn.Linear(n, n)), TOKENS),
    "positions": (tokens(positions, p=lambda n: nn.Embedding(4, n)), TOKENS),
    "widths": (tokens(widths, 2, b=lambda n: nn.Linear(n, n), c=lambda n: nn.Linear(2 * n, n)), TOKENS),
    "zero_padded": (image(zero_padded, 2, b=lambda n: nn.Conv2d(n, 2 * n, 1, stride=2)), IMAGE),
    "activations": (tokens(lambda m, x: F.gelu(x, approximate="tanh") + F.mish(x) * F.hardswish(x)
                           + F.tanhshrink(x) + F.glu(torch.cat([x, m.b(x)], -1)), b=lambda n: nn.Linear(n, n)), TOKENS),
    "where": (tokens(lambda m, x: torch.where(torch.arange(4)[:, None] < 2, x, torch.tanh(x))), TOKENS),
    "cross": (cross(lambda m, q, k: m.h(q, k, k, need_weights=False)[0], h=heads_of), TOKENS),
    "cross_of_three": (cross(lambda m, q, k: m.h(q, k, torch.tanh(k), need_weights=False)[0], h=heads_of), TOKENS),
    "decoder_layer": (cross(lambda m, q, k: m.h(q, k), h=decoder_layer), TOKENS),
    "grouped_queries": (of_queries(None), TOKENS),
    "repeated_keys": (of_queries(expanded), TOKENS),
    "interleaved_keys": (of_queries(lambda x: x.repeat_interleave(2, 1)), TOKENS),
    "padded_ids": (padded_ids, torch.tensor([[0, 2, 4, 2], [2, 3, 4, 4]])),
    "held_states": (held_states, (TOKENS, torch.arange(4) < torch.tensor([[2], [4]]))),
    "grouped_transposed": (image(conv, b=lambda n: nn.ConvTranspose2d(n, n, 3, 2, groups=2)), IMAGE),
    "depthwise_transposed": (image(conv, 2, b=lambda n: nn.ConvTranspose2d(n, 2 * n, 2, 2, groups=n)), IMAGE),
    "one_output": (one_output, POINTS),
    "largest": (tokens(lambda m, x: x.amax(1, keepdim=True) + x.max(1, keepdim=True).values), TOKENS),
}  # fmt: skip
