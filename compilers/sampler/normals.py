"""Standard normal numbers, a fresh direction at a time: scrambled Sobol points, plain ones beyond their dimension."""

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
        self._quasi = _sobol(count, min(directions, DIMENSIONS), int.from_bytes(key[8:12], "little") >> 1)

    def draw(self, k: int) -> Tensor:
        first = self._quasi[self.used : self.used + k]
        self.used += k
        if len(first) < k:
            rest = torch.randn(k - len(first), self.count, generator=self._generator, dtype=torch.float64)
            first = torch.cat([first, rest])
        return first.to(self.device)


def _sobol(count: int, directions: int, seed: int) -> Tensor:
    if directions == 0:
        return torch.zeros(0, count, dtype=torch.float64)
    engine = torch.quasirandom.SobolEngine(directions, scramble=True, seed=seed)
    uniform = engine.draw(count, dtype=torch.float64).T.contiguous()
    half = 2.0**-31  # the points are multiples of 2^-30: the middle of their cells
    return math.sqrt(2) * torch.erfinv(2 * (uniform + half) - 1)
