"""What fills a store of sampled kernels: draws first, then the blocks that are their means."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from netsor.compilers.budget.plan import Limits
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.assembled import symmetrised
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.store.draws import DRAWS, Draws, Scramble
from netsor.compilers.store.files import Report, Store, writing
from netsor.compilers.store.identity import Identity
from netsor.compilers.store.layout import STATE, Block
from netsor.compilers.store.task import LARGEST, Hands, Task, one_thread
from netsor.compilers.store.workers import dealt

RUNS = 256  # scrambles that a block is the mean of, at most
SHARE = 4  # they take at most one part in so many of the memory


@dataclass(frozen=True)
class SampledTask(Task):
    """Kernels of which some are sampled; the others are computed block by block."""

    draws: Draws

    def begin(self, store: Store, todo: list[Block], hands: Hands) -> None:
        self.draws.make(store, todo, lambda scrambles: dealt(self, store, hands.processes, scrambles))

    def having(self, one: Inputs, two: Inputs | None) -> SampledTask:
        return replace(self, one=one, two=two, draws=replace(self.draws, one=one, two=two))

    def write(self, store: Store, what: Block | Scramble) -> None:
        """A block, or the kernels of a scramble, which are kept until the blocks are their means."""
        if isinstance(what, Scramble):
            with one_thread(), writing(store.path):
                self.draws.draw(what, store)
        else:
            super().write(store, what)

    def end(self, store: Store) -> None:
        self.draws.folder = store.path / STATE / DRAWS
        self.draws.keep(0)

    def block(self, rows: slice, cols: slice) -> tuple[dict[Key, Any], Report]:
        means = self.draws.block(rows, cols)
        if self.two is None and rows == cols:
            means = {name: symmetrised(value) for name, value in means.items()}
        found, (method, error) = self._exact(rows, cols)
        methods = [m for m in (method, "sampled") if m]
        return found | self._plain(means), ("+".join(methods), max(error or 0.0, self.draws.relative))

    def probe(self) -> dict[Key, Any]:
        return self._exact(slice(0, 2), slice(0, 2))[0] | self._plain(self.draws.shapes())

    def identity(self, tile: int) -> Identity:
        """The memory bounds how many draws there are at once, which the numbers depend on."""
        return super().identity(tile) | {"memory": self.draws.memory}

    def _exact(self, rows: slice, cols: slice) -> tuple[dict[Key, Any], Report]:
        names = tuple(name for name in self.names if name not in self.draws.get)
        return self.computed(names, rows, cols) if names else ({}, ("", None))

    def _plain(self, found: dict[Key, Tensor]) -> dict[Key, Any]:
        return {name: value.to(self.one.dtype).numpy(force=True) for name, value in found.items()}

    def tile(self, limits: Limits, processes: int, known: int | None) -> int:
        """Inputs per side of a block: as said, as in the store, or so many that a block's scrambles fit the memory."""
        if limits.tile or known:
            return limits.tile or known or 1
        pair = sum(v.numel() for v in self.draws.shapes().values()) * 8 * RUNS
        side = max(1, math.isqrt(int(self.draws.memory / SHARE / pair)))
        return min(LARGEST, 2 ** int(math.log2(side)))
