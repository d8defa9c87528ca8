"""Blocks of pairs of inputs with axes by a compiled C function: the same seam as `native.blocks.Native`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from netsor.compilers.budget.plan import blocks
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.assembled import Band, Near, symmetrised
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.expectation.blocks.fused import NEAR, TOLD
from netsor.compilers.expectation.report import report
from netsor.compilers.native.axes.library import Library, Source
from netsor.compilers.native.axes.printing.reader import PLAIN
from netsor.compilers.native.axes.sides import Shapes, Sides
from netsor.compilers.native.columns import Column, evaluate
from netsor.compilers.native.compiler import loads
from netsor.compilers.native.expectations import Missing

OFTEN = 16  # with more than one pair in so many too near |r| = 1 torch takes the band
FEW = (4, 32)  # elements of an axis of inputs that nobody has seen
SIDE = 256  # inputs of a side of a block


class Tiles:
    """The blocks of one kernel; `make` gives the library for a dtype and shapes. `needed`: torch takes no band where
    the compiler fails.
    """

    has_series = False

    def __init__(
        self, sides: Sides, make: Callable[[torch.dtype, Shapes], Library], threads: int | None = None,
        needed: bool = False,
    ) -> None:  # fmt: skip
        self.sides, self.make, self._threads, self.needed = sides, make, threads, needed
        self._libraries: dict[tuple[torch.dtype, Shapes], Library | str] = {}
        self._usual: dict[Any, Library | str] = {}

    @property
    def is_there(self) -> bool:
        """Is a library compiled?"""
        return any(isinstance(found, Library) and found.is_there for found in self._libraries.values())

    def obstacle(self) -> str | None:
        """What keeps the kernel, whatever the sizes of its inputs, from having tiles."""
        why = ""
        for size in FEW:
            found = self._at_size(size)
            if isinstance(found, Library):
                return None
            why = found
        return why

    def _at_size(self, size: int) -> Library | str:
        """The library of inputs all of whose axes have this size."""
        return self.library(next(iter(NEAR)), self.sides.nominal(lambda name: size))

    def usual(self, one: Inputs) -> Library | str:
        """The library for inputs of these sizes, both sides alike."""
        sizes = one.features()
        key = one.dtype, tuple(sizes.items())
        if key not in self._usual:
            self._usual[key] = self.library(one.dtype, self.sides.nominal(sizes.__getitem__))
        return self._usual[key]

    def library(self, dtype: torch.dtype, shapes: Shapes) -> Library | str:
        """The library, or why there is none."""
        key = dtype, shapes
        if key not in self._libraries:
            try:
                self._libraries[key] = self.make(dtype, shapes)
            except Missing as missing:
                self._libraries[key] = str(missing)
        return self._libraries[key]

    # ------------------------------------------------------------ quantities of each input

    def _tables(self, source: Source, a: Any, b: Any) -> list[list[Tensor]]:
        """What the tiles read of each input, `[samples, elements]`; of one batch with itself once."""
        known: dict[tuple[int, int], Tensor] = {}
        kept = [self.sides.flattened(a)]
        kept.append(kept[0] if a is b else self.sides.flattened(b))

        def table(each: Any, side: int, number: int, column: Column, size: int) -> Tensor:
            key = 0 if a is b else side, number
            if key not in known:
                found = evaluate(column, kept[side]).to(each.data.dtype)
                known[key] = found.expand(each.data.samples, size).contiguous()
            return known[key]

        sides = ((a, 0, 1), (b, 1, 2), (b, 1, PLAIN))
        return [[table(each, side, number, *column)
                 for number, column in zip(source.numbers[copy], source.columns[copy], strict=True)]
                for each, side, copy in sides]  # fmt: skip

    # ------------------------------------------------------------ bands

    def band(self, a: Any, b: Any, band: Band) -> Near | None:
        """Writes the kernels of all pairs of a band, and gives those near |ρ| = 1; None when torch has to take it."""
        library = self.library(a.data.dtype, self.sides.shapes(a, b))
        if isinstance(library, str):
            return None
        if not loads(library, self.needed):  # the compiler has failed since it made that of the usual sizes
            return None
        one, two, plain = self._tables(library.tiles, a, b)
        n, m = band.shape
        near: list[Tensor] = []
        for rows, cols in blocks(n, m, SIDE, band.own):
            first, second, third = [t[rows] for t in one], [t[cols] for t in two], [t[cols] for t in plain]
            same = band.own and rows == cols
            found = self._block(library, first, second, third, (rows.stop - rows.start, cols.stop - cols.start), same)
            for name, value in zip(library.results, found.kernels, strict=True):
                place = _moved(rows, band.rows.start), _moved(cols, band.cols.start)
                band.whole.put(name, symmetrised(value) if same else value, place)
            near.append(found.near.nonzero() + torch.tensor([rows.start, cols.start]))
            if sum(map(len, near)) * OFTEN > n * m + OFTEN:
                return None
            if cols.stop == m:
                band.done(range(rows.start, rows.stop))
        report("closed form", 0.0)
        return Near(*torch.cat(near).unbind(1))

    def entries(
        self, a: Any, b: Any, rows: Tensor, cols: Tensor, twice: Tensor
    ) -> tuple[dict[Key, Tensor], Tensor] | None:
        """The kernels of pairs (rows[k], cols[k]) of two batches in float64, to the digits of float32, and which are
        near |ρ| = 1 even so.

        None when torch has to take them.
        """
        library = self.library(torch.float64, self.sides.shapes(a, b))
        if isinstance(library, str) or not library.results:
            return None
        if not loads(library.single, self.needed):  # the compiler has failed since it made the other one
            return None
        out = [torch.empty((len(rows), *own), dtype=library.dtype) for own in library.shapes]
        near = torch.zeros(len(rows), dtype=torch.bool)
        pairs = rows.contiguous(), cols.contiguous(), twice.contiguous()
        one, two, plain = self._tables(library.single, a, b)
        library.entries(one, two, plain, out, near, pairs, 1 - TOLD, self.threads)
        return dict(zip(library.results, out, strict=True)), near

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self._threads is None else self._threads

    def _block(
        self, library: Library, one: list[Tensor], two: list[Tensor], plain: list[Tensor], shape: tuple[int, int],
        same: bool,
    ) -> _Block:  # fmt: skip
        """The kernels of some pairs; `same`: of inputs with themselves, those above the diagonal."""
        out = [torch.empty((*shape, *own), dtype=library.dtype) for own in library.shapes]
        near = torch.zeros(shape, dtype=torch.bool)
        library(one, two, plain, out, near, 0 if same else -1, same, 1 - NEAR[library.dtype], self.threads)
        return _Block(out, near)


class _Block(NamedTuple):
    """Kernels `[n, m, …]`, and which pairs are near |ρ| = 1."""

    kernels: list[Tensor]
    near: Tensor


def _moved(s: slice, by: int) -> slice:
    return slice(s.start + by, s.stop + by)
