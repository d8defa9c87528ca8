"""Blocks of pairs of inputs with axes by a compiled C function: the same seam as `native.blocks.Native`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from netsor.compilers.budget.plan import blocks
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.assembled import Band, Near, symmetrised
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.expectation.blocks.fused import NEAR, TOLD
from netsor.compilers.expectation.report import record, report
from netsor.compilers.expectation.series import hermite
from netsor.compilers.native.axes.library import Library, Source
from netsor.compilers.native.axes.printing.reader import PLAIN
from netsor.compilers.native.axes.series import Sum, sums
from netsor.compilers.native.axes.sides import Shapes, Sides
from netsor.compilers.native.columns import Column, Reach, evaluate
from netsor.compilers.native.compiler import loads
from netsor.compilers.native.expectations import Missing

DEGREES = hermite.DEGREES
PROBED = 24  # inputs of a side that show how many coefficients are enough
HELD = 1 << 26  # bytes of coefficients of the inputs of a block
OFTEN = 16  # with more than one pair in so many too near |r| = 1 torch takes the band
FEW = (4, 32)  # elements of an axis of inputs that nobody has seen
SIDE = 256  # inputs of a side of a block


class Tiles:
    """The blocks of one kernel; `make` gives the library for a dtype and shapes. `needed`: torch takes no band where
    the compiler fails.
    """

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

    # ------------------------------------------------------------ bands

    def band(self, a: Any, b: Any, band: Band) -> Near | None:
        """Writes the kernels of all pairs of a band, and gives those near |ρ| = 1; None when torch has to take it."""
        library = self.library(a.data.dtype, self.sides.shapes(a, b))
        if isinstance(library, str):
            return None
        if not loads(library, self.needed):  # the compiler has failed since it made that of the usual sizes
            return None
        quantities = _Quantities(self.sides, a, b)
        first = self._degree(library, quantities, band)
        return next(filter(None, (self._blocks(library, quantities, band, d) for d in DEGREES if d >= first)), None)

    def _blocks(self, library: Library, quantities: _Quantities, band: Band, degree: int) -> Near | None:
        """The pairs of a band by so many coefficients; None where these are too few for many pairs."""
        n, m = band.shape
        near: list[Tensor] = []
        for rows, cols in blocks(n, m, self._side(library, degree), band.own):
            same = band.own and rows == cols
            found = self._block(library, quantities, rows, cols, same, degree)
            for name, value in zip(library.results, found.kernels, strict=True):
                place = _moved(rows, band.rows.start), _moved(cols, band.cols.start)
                band.whole.put(name, symmetrised(value) if same else value, place)
            near.append(found.near.nonzero() + torch.tensor([rows.start, cols.start]))
            if sum(map(len, near)) * OFTEN > n * m + OFTEN:
                return None
            if cols.stop == m:
                band.done(range(rows.start, rows.stop))
        if library.formulas:
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
        if isinstance(library, str) or not library.results or library.series:
            return None
        if not loads(library.single, self.needed):  # the compiler has failed since it made the other one
            return None
        out = [torch.empty((len(rows), *own), dtype=library.dtype) for own in library.shapes]
        near = torch.zeros(len(rows), dtype=torch.bool)
        pairs = rows.contiguous(), cols.contiguous(), twice.contiguous()
        one, two, plain = _read(library.single, _Quantities(self.sides, a, b), slice(None), slice(None), [])
        library.entries(one, two, plain, out, near, pairs, 1 - TOLD, self.threads)
        return dict(zip(library.results, out, strict=True)), near

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self._threads is None else self._threads

    def _side(self, library: Library, degree: int) -> int:
        """Inputs of a side of a block, whose coefficients are held."""
        numbers = sum(library.tiles.coefficients.values())
        return max(1, min(SIDE, HELD // max(1, numbers * (degree + 1) * library.dtype.itemsize)))

    def _degree(self, library: Library, quantities: _Quantities, band: Band) -> int:
        """Coefficients that are enough for the pairs of some inputs, as far as more of them help."""
        rows, cols = (slice(0, min(size, PROBED)) for size in band.shape)
        counts: list[int] = []
        for degree in DEGREES if library.series else ():
            with record():  # the errors of the blocks that are taken are said
                counts.append(int(self._block(library, quantities, rows, cols, band.own, degree).near.sum()))
            if not counts[-1]:
                break
        return DEGREES[counts.index(min(counts))] if counts else DEGREES[-1]

    def _block(
        self, library: Library, quantities: _Quantities, rows: slice, cols: slice, same: bool, degree: int
    ) -> _Block:  # fmt: skip
        """The kernels of some pairs; `same`: of inputs with themselves, those above the diagonal."""
        sizes = {(which, min(copy, 2) - 1): size for (which, copy), size in library.tiles.coefficients.items()}

        def variance(which: int, side: int, column: Column) -> Tensor:
            size = sizes[which, side]
            return quantities(side, column, size, (column, size))[(rows, cols)[side]]

        series = sums(library.series, variance, same, degree, library.dtype)
        for s in series:
            report("hermite", s.terms.error)
        shape = rows.stop - rows.start, cols.stop - cols.start
        out = [torch.empty((*shape, *own), dtype=library.dtype) for own in library.shapes]
        near = torch.zeros(shape, dtype=torch.bool)
        one, two, plain = _read(library.tiles, quantities, rows, cols, series)
        diagonal, bound = 0 if same else -1, 1 - NEAR[library.dtype]
        library(one, two, plain, series, out, near, diagonal, same, bound, self.threads)
        return _Block(out, near)


class _Quantities:
    """What is read of each of two batches, of one with itself once: functions `[samples, elements]` of what is kept."""

    def __init__(self, sides: Sides, a: Any, b: Any) -> None:
        self._batch = 0, 0 if a is b else 1
        self._kept = [sides.flattened(each) for each in ((a,) if a is b else (a, b))]
        self._known: dict[tuple[int, Hashable], Tensor] = {}

    def __call__(self, side: int, column: Column, size: int, name: Hashable) -> Tensor:
        """A column of the first (0) or second (1) inputs; those of one `name` are one."""
        batch = self._batch[side]
        if (batch, name) not in self._known:
            kept = self._kept[batch]
            found = evaluate(column, kept)
            self._known[batch, name] = found.to(kept[0].dtype).expand(len(kept[0]), size).contiguous()
        return self._known[batch, name]


def _read(
    source: Source, quantities: _Quantities, rows: slice, cols: slice, series: Sequence[Sum]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:  # fmt: skip
    """What the tiles read of some inputs, `[inputs, elements]`: of the first, and twice of the second ones."""

    def read(side: int, some: slice, copy: int) -> list[Tensor]:
        return [
            series[column.which].reach[side]
            if isinstance(column, Reach)
            else quantities(side, column, size, number)[some]
            for number, (column, size) in zip(source.numbers[copy], source.columns[copy], strict=True)
        ]

    return read(0, rows, 1), read(1, cols, 2), read(1, cols, PLAIN)


class _Block(NamedTuple):
    """Kernels `[n, m, …]`, and which pairs are near |ρ| = 1."""

    kernels: list[Tensor]
    near: Tensor


def _moved(s: slice, by: int) -> slice:
    return slice(s.start + by, s.stop + by)
