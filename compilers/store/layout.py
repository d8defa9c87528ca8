"""Which pairs a chunk holds, and where its file lies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netsor.compilers.derive.outputs import Key

Block = tuple[int, int]  # the numbers of its rows and of its columns of blocks
PLAIN = re.compile(r"(?!__)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")  # what every file system takes as it is
STATE = "state"  # the folder of the lock and the reports


@dataclass(frozen=True)
class Array:
    """One kernel `[n, m, *axes]`: its folder and the name of its dtype."""

    key: Key
    path: str
    dtype: str
    axes: tuple[int, ...]

    @property
    def name(self) -> str:
        """As in `KernelResult.items`."""
        return str(self.key)


@dataclass(frozen=True)
class Layout:
    """Kernels of n × m inputs in blocks of tile × tile pairs; of a symmetric call those on and above the diagonal."""

    n: int
    m: int
    tile: int
    symmetric: bool
    arrays: tuple[Array, ...]

    @property
    def chunk(self) -> tuple[int, int]:
        return max(1, min(self.tile, self.n)), max(1, min(self.tile, self.m))

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along both sides."""
        return -(-self.n // self.tile), -(-self.m // self.tile)

    def blocks(self) -> Iterator[Block]:
        rows, cols = self.grid
        return ((i, j) for i in range(rows) for j in range(i if self.symmetric else 0, cols))

    def slices(self, block: Block) -> tuple[slice, slice]:
        """The inputs of a block."""
        i, j = (k * self.tile for k in block)
        return slice(i, min(i + self.tile, self.n)), slice(j, min(j + self.tile, self.m))

    def pairs(self, block: Block) -> int:
        """Pairs of a block, each once."""
        rows, cols = (s.stop - s.start for s in self.slices(block))
        return rows * (rows + 1) // 2 if self.symmetric and block[0] == block[1] else rows * cols

    def as_dict(self) -> dict[str, Any]:
        arrays = [asdict(a) | {"key": a.key.stored} for a in self.arrays]
        return asdict(self) | {"arrays": arrays}

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> Layout:
        arrays = tuple(Array(Key.of_stored(a["key"]), a["path"], a["dtype"], tuple(a["axes"])) for a in found["arrays"])
        return Layout(found["n"], found["m"], found["tile"], found["symmetric"], arrays)


def folders(keys: Sequence[Key]) -> list[str]:
    """A folder for each kernel: its name where that is a plain word and no other's, else a number."""
    out: list[str] = []
    taken = {STATE}
    for i, key in enumerate(keys):
        name = str(key)
        plain = len(name) < 100 and PLAIN.fullmatch(name) is not None and name.casefold() not in taken
        out.append(name if plain else f"kernel-{i}")
        taken.add(out[-1].casefold())
    return out
