"""Bands of pairs by a compiled C function, written where the kernels of all pairs stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.assembled import Band, Near
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.expectation.blocks.fused import NEAR, TOLD
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.series import hermite
from netsor.compilers.native.columns import evaluate
from netsor.compilers.native.compiler import loads
from netsor.compilers.native.library import Batch, Library
from netsor.compilers.native.tables import Terms, padded, tables

OFTEN = 16  # with more than one pair in so many beyond the series, torch takes the band
SELDOM = 200  # the same in float64, where such pairs take a table or a quadrature each

PROBED = 64  # inputs of a side of the blocks that show how many terms are enough
DEGREES = hermite.DEGREES
LISTED = 8  # one pair in so many can be near before a part is done again in halves
AT_LEAST = 1 << 20  # near pairs that a list holds
AT_ONCE = 1 << 23  # pairs between two reports of progress: their list of near ones has 8 MB

Table = tuple[Tensor, Tensor, Terms]  # coefficients of both sides


class Native:
    """The pairs of one kernel; `make` gives the library for a dtype, `kept` quantities stand in each batch.

    `needed`: torch takes no pairs where the compiler fails.
    """

    def __init__(
        self, make: Callable[[torch.dtype], Library], kept: int, threads: int | None = None, needed: bool = False
    ) -> None:
        self.make, self.kept, self._threads, self.needed = make, kept, threads, needed
        self._libraries: dict[torch.dtype, Library] = {}

    def library(self, dtype: torch.dtype) -> Library:
        if dtype not in self._libraries:
            self._libraries[dtype] = self.make(dtype)
        return self._libraries[dtype]

    def usual(self, one: Inputs) -> Library:
        """The library for inputs of this dtype."""
        return self.library(one.dtype)

    @property
    def is_there(self) -> bool:
        """Is a library compiled?"""
        return any(library.is_there for library in self._libraries.values())

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self._threads is None else self._threads

    # ------------------------------------------------------------ quantities of each input

    def _quantities(self, library: Library, each: Any) -> list[Tensor]:
        values = [*list(each.values.values())[: self.kept], *map(each.data.parameter, library.pairs.parameters)]
        return [torch.as_tensor(v).reshape(-1).expand(each.data.samples) for v in values]

    def _batches(self, library: Library, a: Any, b: Any) -> tuple[_Side, _Side]:
        """Both sides without coefficients."""
        one = self._side(library, a, 0)
        return one, one if a is b and all(x == y for x, y in library.pairs.grams) else self._side(library, b, 1)

    def _side(self, library: Library, each: Any, copy: int) -> _Side:
        kept = self._quantities(library, each)
        columns = [evaluate(column, kept) for column in library.columns]
        data = tuple(_rowwise(each.data[names[copy]]) for names in library.pairs.grams)
        return _Side(kept, Batch(data, padded(columns) if columns else None))

    def _with_terms(self, found: Sequence[Table], one: _Side, two: _Side) -> _Sides:
        left = one.batch._replace(coefficients=tuple(a for a, _, _ in found))
        right = two.batch._replace(coefficients=tuple(b for _, b, _ in found))
        return _Sides(left, right, tuple(terms for _, _, terms in found))

    def _sides(self, library: Library, a: Any, b: Any) -> _Sides | None:
        """Both batches, with coefficients of as many terms as most pairs need; None when these are too many."""
        one, two = self._batches(library, a, b)
        degrees = [DEGREES[0]] * len(library.pairs.series)
        found = [tables(s, one.kept, two.kept, DEGREES[0]) for s in library.pairs.series]
        while True:
            made = self._with_terms(found, one, two)
            many = [k for k, x in enumerate(self._beyond(library, made, a is b)) if x]
            if not many:
                return made
            if any(degrees[k] == DEGREES[-1] for k in many):
                return None
            for k in many:
                degrees[k] = DEGREES[DEGREES.index(degrees[k]) + 1]
                found[k] = tables(library.pairs.series[k], one.kept, two.kept, degrees[k])

    def _beyond(self, library: Library, sides: _Sides, own: bool) -> list[bool]:
        """Are the terms of a series too few for many pairs of some blocks?"""
        n, m = len(sides.one.data[0]), len(sides.two.data[0])
        starts = sorted({0, max(0, (m - PROBED) // 2), max(0, m - PROBED)}) if sides.terms else []
        rows, found = min(n, PROBED), [0] * len(sides.terms)
        first = sides.one.part(slice(0, rows))
        for start in starts:
            second = sides.two.part(slice(start, start + PROBED))
            out = [first.data[0].new_empty(rows, len(second.data[0])) for _ in library.pairs.results]
            same, bound = own and start == 0, 1 - NEAR[library.dtype]
            run = library.band(first, second, sides.terms, out, None, range(rows), same, False, bound, 0, 1)
            twice = max(0, rows - start) if own else 0  # pairs of one input, which no series gives
            found = [x + max(0, y - twice) for x, y in zip(found, run.beyond, strict=True)]
        return [x * _share(library) > rows * min(m, PROBED) * len(starts) for x in found]

    # ------------------------------------------------------------ bands

    def band(self, a: Any, b: Any, band: Band) -> Near | None:
        """Writes the kernels of all pairs of a band, and gives those near |ρ| = 1; None when torch has to take it."""
        library = self.library(a.data.dtype)
        sides = self._sides(library, a, b)
        if sides is None:
            return None
        out = [band.out(name, sides.one.data[0]) for name in library.pairs.results]
        mirror = [band.mirror(name) for name in library.pairs.results] if band.mirrored else None
        places: list[Tensor] = []
        step = max(1, AT_ONCE // band.shape[1])
        for start in range(0, band.shape[0], step):
            rows = range(start, min(start + step, band.shape[0]))
            if not self._part(library, sides, band, rows, out, mirror, places):
                return None
            band.done(rows)
        if library.pairs.formulas:
            report("closed form", 0.0)
        for terms in sides.terms:
            report("hermite", terms.error)
        found = torch.cat(places)
        return Near(found // band.shape[1], found % band.shape[1])

    def _part(
        self, library: Library, sides: _Sides, band: Band, rows: range, out: Sequence[Tensor],
        mirror: Sequence[Tensor] | None, places: list[Tensor],
    ) -> bool:  # fmt: skip
        """Some rows; False when torch has to take the band."""
        pairs = len(rows) * band.shape[1]
        capacity = min(pairs, max(pairs // LISTED, AT_LEAST, band.shape[1]))
        found = library.band(
            sides.one, sides.two, sides.terms, out, mirror, rows, band.own, band.own, 1 - NEAR[library.dtype],
            capacity, self.threads,
        )  # fmt: skip
        if sides.terms and found.near * _share(library) > pairs + _share(library):
            return False
        if found.near <= capacity:
            places.append(found.places)
            return True
        half = rows.start + (len(rows) + 1) // 2
        halves = range(rows.start, half), range(half, rows.stop)
        return all(self._part(library, sides, band, some, out, mirror, places) for some in halves)

    def entries(
        self, a: Any, b: Any, rows: Tensor, cols: Tensor, twice: Tensor
    ) -> tuple[dict[Key, Tensor], Tensor] | None:
        """The kernels of pairs (rows[k], cols[k]) of two batches in float64, to the digits of float32, and which are
        near |ρ| = 1 even so.

        None when torch has to take them.
        """
        library = self.library(torch.float64)
        if library.pairs.series or not library.pairs.results:
            return None
        if not loads(library, self.needed):  # the compiler has failed since it made the other one
            return None
        one, two = self._batches(library, a, b)
        order = rows.argsort(stable=True)
        rows, cols, twice = (t[order].contiguous() for t in (rows, cols, twice))
        found, size = library.entries(one.batch, two.batch, rows, cols, twice, self.threads)
        back = order.argsort()
        near = size > 1 - TOLD
        return {k: v[back] for k, v in found.items()}, near[back]


class _Side(NamedTuple):
    """The quantities of a batch, and what the functions read of it."""

    kept: list[Tensor]
    batch: Batch


class _Sides(NamedTuple):
    one: Batch
    two: Batch
    terms: tuple[Terms, ...]


def _share(library: Library) -> int:
    return SELDOM if library.pairs.series and library.dtype == torch.float64 else OFTEN


def _rowwise(x: Tensor) -> Tensor:
    """Each row in one piece."""
    x = x.detach()
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
