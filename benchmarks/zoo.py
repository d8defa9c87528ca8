"""Limits of torch modules against the modules: kernels over draws at some widths, extrapolated in 1/n, as |z|.

python benchmarks/zoo.py [--draws 200] [--keep DRAWS.pt] [NAME …]; the modules of the tests (`tests/torch_*.py`) and
larger ones. Draw k has the seed k; with --keep the kernels of the draws are saved as they come, and a run that was
stopped goes on from there. `--lift` only lifts, and prints the seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch_layers
import torch_modules
import torch_recurrent
from torch_modules import Make, Net, empirical, extrapolated

import netsor as ns

Inputs = torch.Tensor | tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A module by width, its inputs, the widths of the draws, and samples where the limit is sampled.

    A skip past the ReLU of a residual block makes expectations ones of up to six variables: sampled, for each pair of
    positions.
    """

    make: Make
    x: Inputs
    widths: tuple[int, ...] = (64, 128)
    samples: int | None = None


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(11), dtype=torch.float64)


# ---------------------------------------------------------------- images


class Block(nn.Module):
    """The basic block of a residual network, with batch normalisation."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.c2, self.b2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        other = (nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))
        self.down = nn.Sequential(*(() if a == b else other))

    def forward(self, x: torch.Tensor) -> Any:
        return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.down(x))


def kaiming(module: nn.Module) -> nn.Module:
    """Variance 2/fan-in for convolutions (torchvision's fan-out vanishes in the first layer)."""
    for m in module.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
    return module.eval()


def resnet18(n: int) -> nn.Module:
    """Four stages of two blocks on 16×16 images, as evaluated at initialisation."""
    widths = [n, n, 2 * n, 4 * n, 8 * n]
    stages = [
        nn.Sequential(Block(a, b, 1 if i == 0 else 2), Block(b, b, 1)) for i, (a, b) in enumerate(pairwise(widths))
    ]
    stem = nn.Sequential(nn.Conv2d(3, n, 3, 1, 1, bias=False), nn.BatchNorm2d(n), nn.ReLU())
    return kaiming(nn.Sequential(stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * n, 10)))


def wide_block(n: int) -> nn.Module:
    """A block of a Wide-ResNet, normalised before its activations, with dropout switched off."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        x = m.stem(x)
        y = F.relu(m.b1(x))
        y = m.c2(m.drop(F.relu(m.b2(m.c1(y))))) + m.down(y)
        return m.out(F.relu(y).mean((2, 3)))

    return kaiming(Net(
        forward, stem=nn.Conv2d(3, n, 3, padding=1, bias=False), b1=nn.BatchNorm2d(n), drop=nn.Dropout(0.3),
        c1=nn.Conv2d(n, 4 * n, 3, 2, 1, bias=False), b2=nn.BatchNorm2d(4 * n),
        c2=nn.Conv2d(4 * n, 4 * n, 3, 1, 1, bias=False), down=nn.Conv2d(n, 4 * n, 1, 2, bias=False),
        out=nn.Linear(4 * n, 1),
    ))  # fmt: skip


def unet(n: int) -> nn.Module:
    """Two levels down and up, the skips joined channel by channel; the output is a mean over positions."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        a = F.relu(m.a(x))
        b = F.relu(m.b(F.avg_pool2d(a, 2)))
        c = F.relu(m.c(F.avg_pool2d(b, 2)))
        y = F.relu(m.d(torch.cat([m.up1(c), b], 1)))
        y = F.relu(m.e(torch.cat([m.up2(y), a], 1)))
        return m.out(y).mean((2, 3))

    return Net(
        forward, a=nn.Conv2d(3, n, 3, padding=1), b=nn.Conv2d(n, 2 * n, 3, padding=1),
        c=nn.Conv2d(2 * n, 4 * n, 3, padding=1), up1=nn.ConvTranspose2d(4 * n, 2 * n, 2, 2),
        d=nn.Conv2d(4 * n, 2 * n, 3, padding=1), up2=nn.ConvTranspose2d(2 * n, n, 2, 2),
        e=nn.Conv2d(2 * n, n, 3, padding=1), out=nn.Conv2d(n, 1, 1),
    )  # fmt: skip


def vit(n: int) -> nn.Module:
    """Patches of 2×2, a class token, learned positions, one block with two heads, scores times 1/d."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        x = m.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([m.token.expand(len(x), -1, -1), x], 1) + m.pos
        x = x + m.heads(m.l1(x))
        x = x + m.b(F.gelu(m.a(m.l2(x))))
        return m.head(m.norm(x)[:, 0])

    token, pos = nn.Parameter(torch.randn(1, 1, n) * 0.7), nn.Parameter(torch.randn(1, 5, n) * 0.5)
    return Net(
        forward, patch=nn.Conv2d(3, n, 2, 2), token=token, pos=pos, l1=nn.LayerNorm(n), heads=torch_layers.Heads(n),
        l2=nn.LayerNorm(n), a=nn.Linear(n, 2 * n), b=nn.Linear(2 * n, n), norm=nn.LayerNorm(n), head=nn.Linear(n, 1),
    )  # fmt: skip


# ---------------------------------------------------------------- sequences


def mixer(n: int) -> nn.Module:
    """Tokens mixed by a fixed cosine transform (a trained finite mixing stays random), channels by an MLP."""
    t = torch.arange(4.0)
    cosines = torch.cos(torch.pi * (t[:, None] + 0.5) * t / 4) / 2**0.5

    def forward(m: Any, x: torch.Tensor) -> Any:
        x = m.a(x)
        x = x + (m.l1(x).transpose(1, 2) @ cosines.to(x.dtype)).transpose(1, 2)
        x = x + m.c(F.gelu(m.b(m.l2(x))))
        return m.out(m.norm(x).mean(1))

    return Net(forward, a=nn.Linear(3, n), l1=nn.LayerNorm(n), l2=nn.LayerNorm(n), b=nn.Linear(n, 2 * n),
               c=nn.Linear(2 * n, n), norm=nn.LayerNorm(n), out=nn.Linear(n, 1))  # fmt: skip


def character_cnn(n: int) -> nn.Module:
    """Characters embedded, a convolution over them, the mean of the positions, two layers."""

    def forward(m: Any, ids: torch.Tensor) -> Any:
        h = F.relu(m.conv(m.emb(ids).transpose(1, 2)))
        return m.out(F.relu(m.f(h.mean(2))))

    return Net(forward, emb=nn.Embedding(9, n), conv=nn.Conv1d(n, 2 * n, 3, padding=1), f=nn.Linear(2 * n, n),
               out=nn.Linear(n, 1))  # fmt: skip


def tests() -> dict[str, Case]:
    """The modules of the tests."""
    found = {name: Case(make, torch_modules.inputs(name)) for name, (make, _) in torch_modules.ZOO.items()}
    layers, recurrent = torch_layers.LAYERS, torch_recurrent.RECURRENT
    found |= {name: Case(*layers[name]) for name in ("gcn", "encoder", "encoder_pre", "padded_tokens", "depthwise")}
    found |= {name: Case(recurrent[name], torch_recurrent.X) for name in ("rnn", "rnn_default", "both_ways")}
    gated = ("gru", "gru_cells", "lstm")
    return found | {name: Case(recurrent[name], torch_recurrent.X[:, :3], samples=2**15) for name in gated}


IMAGES, SMALL = drawn(2, 3, 16, 16), drawn(2, 3, 4, 4)
CHARACTERS = torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(2))
ZOO: dict[str, Case] = {
    **tests(), "vit": Case(vit, SMALL), "mixer": Case(mixer, drawn(2, 4, 3)),
    "character_cnn": Case(character_cnn, CHARACTERS), "unet": Case(unet, SMALL, (16, 32)),
    "wide_block": Case(wide_block, drawn(2, 3, 8, 8), (8, 16)),
    "resnet18": Case(resnet18, IMAGES, (16, 32, 64, 128), 2**9),
}  # fmt: skip


Kept = dict[tuple[str, int], list[torch.Tensor]]
TOGETHER = 20


def kernels(
    name: str, n: int, draws: int, rates: Mapping[str, float], kept: Kept, file: Path | None
) -> list[torch.Tensor]:
    """NNGP and NTK of draws 0, 1, … at width n, from `kept` as far as they are there."""
    case, found = ZOO[name], kept.get((name, n), [])
    while not found or len(found[0]) < draws:
        torch.manual_seed(len(found[0]) if found else 0)
        new = empirical(case.make, case.x, n, TOGETHER, rates)
        found = [torch.cat([a, b]) for a, b in zip(found, new, strict=True)] if found else list(new)
        kept[name, n] = found
        if file is not None:
            torch.save(kept, file.with_suffix(".part"))
            os.replace(file.with_suffix(".part"), file)
    return [part[:draws] for part in found]


def compared(name: str, draws: int, file: Path | None, only_lift: bool) -> str:
    """One row: |z| of NNGP and NTK, seconds to lift, to compute the limit and to draw."""
    case, clock = ZOO[name], [time.process_time()]

    def lap() -> str:
        clock.append(time.process_time())
        return f"{clock[-1] - clock[-2]:.1f}"

    lifted = ns.from_torch(case.make, torch_modules.floats(case.x), parametrisation="ntk")
    lift = lap()
    if only_lift:
        return f"| {name} | {lift} |"
    x = lifted.arrange(*(case.x if isinstance(case.x, tuple) else (case.x,)))
    result = ns.compile(lifted, samples=case.samples)(x)
    limit = lap()
    kept: Kept = torch.load(file) if file is not None and file.exists() else {}
    drawn = {n: kernels(name, n, draws, lifted.rates(n), kept, file) for n in case.widths}
    own = [result.errors.get(k, torch.zeros(())) for k in ("nngp", "ntk")]
    nngp, ntk = (float(z.abs().max()) for z in extrapolated(drawn, (result.nngp, result.ntk), own))
    widths = ", ".join(map(str, case.widths))
    return f"| {name} | {widths} | {draws} | {nngp:.1f} | {ntk:.1f} | {lift} | {limit} | {lap()} |"


def main(names: list[str], draws: int, file: Path | None, only_lift: bool) -> None:
    head = ["module", "widths", "draws", "abs(z) NNGP", "abs(z) NTK", "lift (s)", "limit (s)", "draws (s)"]
    head = ["module", "lift (s)"] if only_lift else head
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name in names or ZOO:
        print(compared(name, draws, file, only_lift), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--keep", type=Path, default=None, metavar="DRAWS.pt")
    parser.add_argument("--lift", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ZOO))
    arguments = parser.parse_args()
    main(arguments.names, arguments.draws, arguments.keep, arguments.lift)
