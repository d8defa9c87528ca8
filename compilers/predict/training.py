"""Kernels of the training inputs, by blocks: computed, or read from a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from netsor.compilers.budget.plan import parse_memory
from netsor.compilers.budget.progress import Progress
from netsor.compilers.evaluate.arguments import Params, as_parameters
from netsor.compilers.predict.samples import chosen, count, matrix, part
from netsor.compilers.store import StoredGram, open_gram
from netsor.errors import InputError

Which = Literal["nngp", "ntk"]
NAMES: tuple[Which, ...] = ("nngp", "ntk")
SHARE = 8  # a block takes at most one part in so many of the budget


class Training:
    """The kernels K and Θ of n training inputs with p outputs each, as matrices in float64.

    `stored` is a store that `kernel.gram(x, store=…)` wrote for these very inputs; what it lacks is computed.
    """

    def __init__(self, kernel: Any, x: Any, params: Params | None, stored: Any, memory: int | str) -> None:
        self.samples = count(x)
        if self.samples == 0:
            raise InputError("there are no training samples", code="NT601")
        self.kernel, self.x, self.memory = kernel, x, parse_memory(memory)
        self.name = str(getattr(getattr(kernel, "program", None), "name", "the kernel"))
        self._device = _device(kernel, x)
        if isinstance(known := getattr(kernel, "parameters", None), tuple):
            as_parameters(self.name, known, params, "ns.predict(kernel, x, y, params=…)")
        self._more: dict[str, Any] = {} if params is None else {"params": params}
        self.stored = {} if stored is None else self._opened(stored)
        self._kept: dict[tuple[Which, int, int], Tensor] = {}

    def _opened(self, stored: StoredGram | str | Path) -> dict[str, Any]:
        """The kernels of a store, which has to be that of these inputs: the same call continues it."""
        found = stored if isinstance(stored, StoredGram) else open_gram(stored)
        tile = found.store.layout.tile
        again = self.kernel.gram(self.x, memory=2**62, get=found.asked, tile=tile, store=found.path, **self._more)
        return {name: again[name] for name in NAMES if name in again.names}

    def call(self, x1: Any, x2: Any, names: Sequence[str]) -> Any:
        """The kernels of two batches within the budget."""
        return self.kernel.gram(x1, x2, memory=self.memory, get=tuple(names), progress=False, **self._more)

    def plain(self, x1: Any, x2: Any, names: Sequence[str]) -> Any:
        """The kernels of two batches, of which the results are all that needs memory worth speaking of."""
        return self.kernel(x1, x2, get=tuple(names), **self._more)

    def diagonal(self, x: Any, which: Which) -> Tensor:
        """`[m, *axes, *axes′]`."""
        value: Tensor = self.kernel.diag(x, get=(which,), **self._more)[which]
        return value

    # ------------------------------------------------------------ whole

    def whole(self, names: tuple[Which, ...]) -> dict[Which, Tensor]:
        """Kernels `[n, n, *axes, *axes′]`, of a store read block by block."""
        computed: tuple[Which, ...] = tuple(n for n in names if n not in self.stored)
        out: dict[Which, Tensor] = (
            dict(zip(computed, self.plain(self.x, None, computed), strict=True)) if computed else {}
        )
        loaded: dict[Which, Tensor] = {n: self._loaded(n) for n in names if n in self.stored}
        return out | loaded

    def _loaded(self, which: Which) -> Tensor:
        source = self.stored[which]
        found = torch.empty(source.shape, dtype=torch.float64, device=self._device)
        for rows in self.rows(source.store.layout.tile):
            found[rows] = self._read(which, rows, slice(None))
        return found

    def _read(self, which: Which, rows: slice, cols: Any) -> Tensor:
        return torch.from_numpy(self.stored[which][rows, cols]).to(self._device)

    # ------------------------------------------------------------ blocks

    def rows(self, size: int) -> Iterator[slice]:
        """The samples, at most `size` at a time."""
        yield from (slice(i, min(i + size, self.samples)) for i in range(0, self.samples, size))

    def size(self, columns: int, outputs: int, least: int = 1) -> int:
        """How many samples a block with so many columns may have."""
        return max(least, self.memory // (SHARE * 8 * columns * outputs**2))

    def with_some(self, names: tuple[Which, ...], rows: slice, numbers: list[int]) -> dict[Which, Tensor]:
        """Kernels `[b·p, m·p]` of some samples with numbered ones."""
        found = {n: self._read(n, rows, numbers) for n in names if n in self.stored}
        rest = tuple(n for n in names if n not in self.stored)
        if rest:
            out = self.call(part(self.x, rows), chosen(self.x, numbers), rest)
            found |= {n: out[n] for n in rest}
        return {n: matrix(found[n]) for n in names}

    def mean_diagonal(self, which: Which) -> Tensor:
        """The mean of the diagonal of `[n·p, n·p]`."""
        if which in self.stored:
            value = torch.from_numpy(self.stored[which].diagonal()).to(self._device)
        else:
            value = self.diagonal(self.x, which)
        flat = value.reshape(len(value), round((value[0].numel()) ** 0.5), -1)
        return flat.diagonal(dim1=1, dim2=2).to(torch.float64).mean()

    def applied(self, which: Which, right: Tensor, outputs: int) -> Tensor:
        """K R for R `[n·p, k]`, block by block; each pair of samples once, blocks kept while the budget has room."""
        out = torch.zeros_like(right)
        side = min(self.samples, max(1, int((self.memory / (SHARE * 8 * outputs**2)) ** 0.5)))
        pairs = [(i, j) for i in self.rows(side) for j in self.rows(side) if j.start >= i.start]
        with Progress(f"{which} of {self.name}", len(pairs), "blocks") as shown:
            for i, j in pairs:
                block = self._block(which, i, j)
                a, b = (slice(s.start * outputs, s.stop * outputs) for s in (i, j))
                out[a] += block @ right[b]
                if i != j:
                    out[b] += block.T @ right[a]
                shown.done(1)
        return out

    def _block(self, which: Which, i: slice, j: slice) -> Tensor:
        key = which, i.start, j.start
        if key in self._kept:
            return self._kept[key]
        if which in self.stored:
            return matrix(self._read(which, i, j))
        x1 = part(self.x, i)
        block = matrix(self.call(x1, None if i == j else part(self.x, j), (which,))[which]).detach()
        kept = sum(b.numel() for b in self._kept.values())
        if 8 * (kept + block.numel()) <= self.memory // 2:
            self._kept[key] = block
        return block


def _device(kernel: Any, x: Any) -> torch.device:
    """Where the kernels of these inputs are computed."""
    first = next(iter(x.values())) if isinstance(x, Mapping) else x
    own = getattr(kernel, "device", None)
    return own or (first.device if isinstance(first, Tensor) else torch.device("cpu"))
