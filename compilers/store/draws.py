"""Sampled kernels in a store: one set of draws for all inputs, as in a single call, and its kernels block by block.

Every scramble draws the variables of all inputs together; its kernels are kept beside the store, a file for each block,
until the blocks of the store are their means. What is kept is not drawn again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netsor.build.program import Program
from netsor.compilers.budget.progress import Progress
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.sampler.estimate import PILOT, Estimate, Forecast, Scrambles, estimate
from netsor.compilers.sampler.kernels import Of, Quantities, Quantity, Sampling, scales, warn
from netsor.compilers.sampler.normals import Normals
from netsor.compilers.store.files import Store, damaged, writing
from netsor.compilers.store.layout import STATE, Block
from netsor.compilers.store.zarr import put_whole
from netsor.errors import Diagnostic, InputError

DRAWS, ROUNDS = "draws", "rounds.json"
Part = tuple[str, int, int]  # "pairs" and a block; "first" or "second" and the inputs with themselves


@dataclass(frozen=True)
class Scramble:
    """So many draws along so many directions, by its number, and the parts of its kernels that are to be written."""

    count: int
    directions: int
    number: int
    parts: tuple[Part, ...]


Deal = Callable[[Sequence[Scramble]], Generator[object]]  # has them drawn, and yields once for each


@dataclass
class Draws:
    """The kernels `get` of a program, from `options` (tol, samples, seed) and the `memory` that draws may take.

    `folder`, the `tile` of its blocks, `count` draws in each of `runs` scrambles and their `relative` error are known
    once the draws are made.
    """

    program: Program
    get: tuple[str, ...]
    one: Inputs
    two: Inputs | None
    options: dict[str, Any]
    memory: float
    why: Diagnostic | None
    progress: bool | None = None
    folder: Path = field(default_factory=Path)
    tile: int = 1
    count: int = 0
    runs: int = 0
    relative: float = 0.0

    # ------------------------------------------------------------ all draws

    def make(self, store: Store, todo: Sequence[Block], deal: Deal) -> None:
        """Draw until the tolerance is met for all pairs, and have what the blocks to do are the means of."""
        self.folder, self.tile = store.path / STATE / DRAWS, store.layout.tile
        sampling = self.sampling
        made: list[_Stored] = []

        def scrambles(*plain: Any) -> _Stored:
            make: Any = _Stored
            made.append(make(*plain, self, store, deal))
            return made[0]

        with torch.no_grad(), Progress(kept=self._kept):
            found = estimate(
                lambda normals: _drawn(sampling, normals), lambda *_: 0.0, lambda: sampling.request.stored,
                device=self.one.device, memory=self.memory, announce=self._announce(store), scrambles=scrambles,
                shown=Progress(self.program.name, unit="draws", show=self.progress), **self.options,
            )  # fmt: skip
            made[0].complete(found.count, range(found.scrambles), todo)
        self.count, self.runs, self.relative = found.count, found.scrambles, found.relative

    def _kept(self) -> str:
        kept = sum(1 for _ in self.folder.glob("*/*"))
        what = f"the draws of {kept:,} scramble{'s' * (kept != 1)}"
        return f"{what} are kept in {self.folder}; the same call goes on with the others"

    def _announce(self, store: Store) -> Callable[[Forecast], None] | None:
        if self.why is None or (self.folder / ROUNDS).exists():
            return None
        why = self.why
        return lambda plan: warn(self.program.name, self.get, why, plan)

    @cached_property
    def sampling(self) -> Sampling:
        return self._sampling(self.one, self.two)

    def draw(self, scramble: Scramble, store: Store) -> None:
        """Draw the variables of all inputs once, and write the kernels of some parts."""
        count, number = scramble.count, scramble.number
        normals = Normals(count, scramble.directions, self.options["seed"], number, self.one.device)
        with torch.no_grad():
            drawn = self.sampling.paths.draw(normals)
            for part in scramble.parts:
                self.write(part, count, number, self._values(drawn, part, store))

    def _values(self, drawn: Any, part: Part, store: Store) -> Quantities:
        side, i, j = part
        rows, cols = store.layout.slices((i, j))
        if side == "pairs":
            return self.sampling.request.block(drawn, rows, cols)
        return self.sampling.request.own(drawn, side == "second", cols if side == "second" else rows)

    def _sampling(self, one: Inputs, two: Inputs | None) -> Sampling:
        return Sampling.of(self.program, one.arrays, None if two is None else two.arrays, self.get, one.device)

    def shapes(self) -> dict[Key, Tensor]:
        """The kernels of one input with itself, from few draws."""
        sampling = self._sampling(self.one.slice(slice(0, 1)), None)
        with torch.no_grad():
            drawn = sampling.paths.draw(Normals(PILOT, 0, 0, -1, self.one.device))
            return _named(sampling.request.block(drawn, slice(0, 1), slice(0, 1)))

    # ------------------------------------------------------------ means

    def block(self, rows: slice, cols: slice) -> dict[Key, Tensor]:
        part = ("pairs", rows.start // self.tile, cols.start // self.tile)
        return _named(self.statistics(part, self.count, range(self.runs))[0])

    def statistics(self, part: Part, count: int, numbers: range) -> tuple[Quantities, Quantities]:
        """Means and standard errors over scrambles."""
        found = [self.read(part, count, i) for i in numbers]
        stacks = {name: torch.stack([f[name] for f in found]) for name in found[0]}
        means = {name: stack.mean(0) for name, stack in stacks.items()}
        return means, {name: stack.std(0) / len(numbers) ** 0.5 for name, stack in stacks.items()}

    # ------------------------------------------------------------ files

    def file(self, part: Part, count: int, number: int) -> Path:
        return self.folder / f"{count}" / f"{number}" / f"{part[0]}-{part[1]}-{part[2]}.npz"

    def read(self, part: Part, count: int, number: int) -> Quantities:
        file = self.file(part, count, number)
        try:
            with np.load(file) as found:
                return {_quantity(str(x)): torch.from_numpy(found[f"array{i}"]) for i, x in enumerate(found["names"])}
        except Exception as problem:  # of the checksums of a zip file, or of its form
            raise damaged(file, str(problem)) from None

    def write(self, part: Part, count: int, number: int, values: Quantities) -> None:
        arrays = {f"array{i}": v.numpy(force=True) for i, v in enumerate(values.values())}
        save: Any = np.savez
        file = self.file(part, count, number)
        put_whole(file, lambda opened: save(opened, names=np.array([q.key.stored for q in values]), **arrays))

    def rounds(self) -> dict[str, float]:
        """The largest relative error by draws a scramble and scrambles."""
        try:
            found: dict[str, float] = json.loads((self.folder / ROUNDS).read_text())
        except FileNotFoundError:
            return {}
        return found

    def ended(self, key: str, relative: float) -> None:
        text = json.dumps(self.rounds() | {key: relative}).encode()
        put_whole(self.folder / ROUNDS, lambda file: file.write(text))

    def keep(self, count: int) -> None:
        """Only the scrambles of so many draws."""
        for other in self.folder.glob("*/"):
            if other.name != str(count):
                shutil.rmtree(other)


@dataclass
class _Stored(Scrambles[Quantity]):
    """Scrambles whose kernels are in files; a round that has ended is not gone through again."""

    draws: Draws
    store: Store
    deal: Deal

    def __call__(self, count: int, numbers: range, kept: dict[int, Quantities]) -> Estimate[Quantity]:
        key = f"{count} {len(numbers)}"
        known = self.draws.rounds()
        if key not in known:
            with writing(self.store.path):
                self.draws.keep(count)
                self.complete(count, numbers, list(self.store.layout.blocks()))
                known[key] = self._largest(count, numbers)
                self.draws.ended(key, known[key])
        return Estimate({}, {}, known[key], count, len(numbers))

    def complete(self, count: int, numbers: range, blocks: Iterable[Block]) -> None:
        """Have these blocks of these scrambles."""
        parts: list[Part] = [*self._sides(), *(("pairs", *block) for block in blocks)]
        lacking = {i: [p for p in parts if not self.draws.file(p, count, i).exists()] for i in numbers}
        todo = {i: some for i, some in lacking.items() if some}
        self.shown.goal(self.shown.count + count * len(todo))
        scrambles = [Scramble(count, self.directions, number, tuple(some)) for number, some in todo.items()]
        with closing(self.deal(scrambles)) as drawn:
            for _ in drawn:
                self.shown.done(count)

    def _sides(self) -> list[Part]:
        rows, cols = self.store.layout.grid
        first: list[Part] = [("first", i, 0) for i in range(rows)]
        return first + ([] if self.store.layout.symmetric else [("second", 0, j) for j in range(cols)])

    def _largest(self, count: int, numbers: range) -> float:
        """The largest standard error relative to √(K_ii K_jj)."""
        own = {p: self.draws.statistics(p, count, numbers)[0] for p in self._sides()}
        largest = 0.0
        for i, j in self.store.layout.blocks():
            _, error = self.draws.statistics(("pairs", i, j), count, numbers)
            two = own["first", j, 0] if self.store.layout.symmetric else own["second", 0, j]
            for name, value in error.items():
                share = value / scales(own["first", i, 0][name], two[name])
                largest = max(largest, float(share.nan_to_num(0, 0).max()))
        return largest


def _drawn(sampling: Sampling, normals: Normals) -> Quantities:
    """The variables alone, of which the number of directions is seen."""
    sampling.request.stored = sampling.paths.draw(normals).made
    return {}


def _named(values: Quantities) -> dict[Key, Tensor]:
    """By key, as in a block."""
    if any(q.of is Of.INPUTS for q in values):
        names = ", ".join(str(q.key) for q in values if q.of is Of.INPUTS)
        raise InputError(f"{names}: limits of single inputs are no kernels of pairs and have no store", code="NT640")
    return {q.key: value for q, value in values.items()}


def _quantity(text: str) -> Quantity:
    """A kernel by its stored key, which older draws of vectors have a mark in front of."""
    return Quantity(Key.of_stored(text.removeprefix("vector\n")))
