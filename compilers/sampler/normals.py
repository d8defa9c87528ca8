"""Standard normal numbers, a fresh direction at a time: scrambled Sobol points, plain ones beyond their dimension.

The scrambling is Owen's nested one: every binary digit of a coordinate is flipped at random, independently for all
digits before it. Means over such points are nearly normal (Loh 2003), so that a few scrambles tell their error. Linear
matrix scramblings, which torch and scipy have, give the same variance with rare large errors, and standard errors from
16 of them are too small too often.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

DIMENSIONS = torch.quasirandom.SobolEngine.MAXDIM


class Normals:
    """`draw(k)` gives k new directions `[k, count]`; the first `directions` come from one scrambled Sobol sequence."""

    def __init__(self, count: int, directions: int, seed: int, scramble: int, device: torch.device) -> None:
        self.count = count
        self.used = 0
        self.device = device
        key = hashlib.sha256(f"{seed}/{scramble}".encode()).digest()
        self._generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "little") >> 1)
        self._quasi = _sobol(count, min(directions, DIMENSIONS), self._generator)
        self._plain: list[Tensor] = []

    def draw(self, k: int) -> Tensor:
        found = self.rows(self.used, k)
        self.used += k
        return found

    def rows(self, start: int, k: int) -> Tensor:
        """k directions from this one on."""
        known = len(self._quasi)
        while known + len(self._plain) < start + k:
            self._plain.append(torch.randn(self.count, generator=self._generator, dtype=torch.float64))
        rest = self._plain[max(0, start - known) : max(0, start + k - known)]
        first = self._quasi[start : start + k]
        return (torch.cat([first, torch.stack(rest)]) if rest else first).to(self.device)

    def halves(self) -> list[Normals]:
        """The first and the second half of the same draws, each a Sobol sequence like the whole."""
        return [Half(self, 0), Half(self, 1)]


class Half(Normals):
    """One half of the draws of `whole`, given once more."""

    def __init__(self, whole: Normals, which: int) -> None:
        super().__init__(0, 0, 0, 0, whole.device)
        self.count = whole.count // 2
        self._whole, self._start = whole, which * self.count

    def rows(self, start: int, k: int) -> Tensor:
        return self._whole.rows(start, k)[:, self._start : self._start + self.count]


def _sobol(count: int, directions: int, generator: torch.Generator) -> Tensor:
    if directions == 0:
        return torch.zeros(0, count, dtype=torch.float64)
    digits = max(1, (count - 1).bit_length())
    points = torch.quasirandom.SobolEngine(directions).draw(count, dtype=torch.float64).T
    cells = scrambled((points * 2**digits).long(), digits, generator)
    inside = torch.rand(cells.shape, generator=generator, dtype=torch.float64).clamp_min(2.0**-53)
    uniform = (cells + inside) / 2**digits
    return math.sqrt(2) * torch.erfinv((2 * uniform - 1).clamp(-1 + 2.0**-53, 1 - 2.0**-53))


def scrambled(cells: Tensor, digits: int, generator: torch.Generator) -> Tensor:
    """Owen's scrambling of numbers of so many binary digits, `[directions, count]`.

    A random bit for every beginning of a number, 1 followed by its first digits, says whether the next one is flipped.
    """
    flips = torch.randint(2, (cells.shape[0], 2**digits), generator=generator, dtype=torch.int32)
    masks = flips[:, :0].new_zeros(cells.shape[0], 1)
    for known in range(digits):
        masks = 2 * masks.repeat_interleave(min(2, 2**known), 1) + flips[:, 2**known : 2 ** (known + 1)]
    return cells ^ masks.gather(1, cells >> 1)
