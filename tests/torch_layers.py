"""Small torch modules, one for an operation or two, by name: (make, inputs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch_modules import Make, Net


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
    nn.init.normal_(a.bias)
    return Net(forward, a=a, b=nn.ConvTranspose1d(n, n, 3, padding=1), out=nn.Linear(12 * n, 1))


def output_at_positions(n: int) -> nn.Module:
    a, out = nn.Conv1d(3, n, 3, padding=1), nn.Conv1d(n, 2, 3)
    return Net(lambda m, x: m.out(torch.relu(m.a(x))).mean(2), a=a, out=out)


LAYERS: dict[str, tuple[Make, Any]] = {
    "depthwise": (image(conv, b=lambda n: nn.Conv2d(n, n, 3, padding=1, groups=n)), IMAGE),
    "depthwise_multiplied": (image(conv, 2, b=lambda n: nn.Conv2d(n, 2 * n, 2, groups=n)), IMAGE),
    "two_groups": (image(conv, b=lambda n: nn.Conv2d(n, n, 3, padding=1, groups=2)), IMAGE),
    "transposed": (image(conv, 2, b=lambda n: nn.ConvTranspose2d(n, 2 * n, 3, stride=2, padding=1, output_padding=1)),
                   IMAGE),
    "transposed_of_data": (transposed_of_data, SIGNAL),
    "tied_transposed": (image(lambda m, x: F.conv_transpose2d(torch.tanh(m.b(x)), m.b.weight),
                              b=lambda n: nn.Conv2d(n, n, 2, bias=False)), IMAGE),
    "dilated": (image(conv, b=lambda n: nn.Conv2d(n, n, (2, 1), dilation=(2, 1), padding=(1, 0), stride=(1, 2))), IMAGE),
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
    "largest": (tokens(lambda m, x: x.amax(1, keepdim=True) + x.max(1, keepdim=True).values), TOKENS),
}  # fmt: skip
