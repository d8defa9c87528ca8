"""Blocks of pairs by a compiled C function: the same seam as `evaluate.fused.Fused`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from netsor.compilers import runtime
from netsor.compilers.expectation.blocks.fused import NEAR
from netsor.compilers.expectation.blocks.scratch import empty
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.series import hermite
from netsor.compilers.native.columns import evaluate
from netsor.compilers.native.library import Coefficients, Library, array, coefficients
from netsor.compilers.native.tables import padded, tables

OFTEN = 16  # with more than one pair in so many too near |r| = 1, or beyond the series, torch takes the block
SELDOM = 200  # the same in float64 where an expectation is a series: such pairs take a table or a quadrature each
PROBED = 64  # inputs of a side of the blocks that show how many terms are enough
DEGREES = hermite.DEGREES[:2]  # coefficients of more take longer than what they spare
COLUMNS, FIRST, SECOND, TERMS = "native columns", "native a", "native b", "native terms"  # no name begins like this


class Native:
    """The blocks of one kernel; `make` gives the library for a dtype, `kept` quantities stand in each batch."""

    def __init__(self, make: Callable[[torch.dtype], Library], kept: int) -> None:
        self.make, self.kept = make, kept
        self._libraries: dict[torch.dtype, Library] = {}

    def library(self, dtype: torch.dtype) -> Library:
        if dtype not in self._libraries:
            self._libraries[dtype] = self.make(dtype)
        return self._libraries[dtype]

    @property
    def has_series(self) -> bool:
        return any(library.pairs.series for library in self._libraries.values())

    @property
    def is_there(self) -> bool:
        """Is a library compiled?"""
        return any(library.is_there for library in self._libraries.values())

    # ------------------------------------------------------------ quantities of each input

    def extended(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Both batches with the columns and the coefficients that the functions read, where these serve."""
        library = self.library(a.data.dtype)
        one = self._with_columns(library, a)
        two = one if a is b else self._with_columns(library, b)
        degrees = [DEGREES[0]] * len(library.pairs.series)
        while True:
            made = self._with_terms(library, one, two, degrees)
            beyond = self._beyond(*made)
            if not any(beyond):
                return made
            if any(many and degree == DEGREES[-1] for many, degree in zip(beyond, degrees, strict=True)):
                return a, b
            degrees = [DEGREES[DEGREES.index(d) + many] for many, d in zip(beyond, degrees, strict=True)]

    def _quantities(self, each: Any) -> list[Tensor]:
        values = list(each.values.values())[: self.kept]
        return [torch.as_tensor(v).reshape(-1).expand(each.data.samples) for v in values]

    def _with_columns(self, library: Library, each: Any) -> Any:
        kept = self._quantities(each)
        wanted = [evaluate(column, kept) for column in library.columns]
        return _extended(each, {COLUMNS: padded(wanted) if wanted else None})

    def _with_terms(self, library: Library, a: Any, b: Any, degrees: list[int]) -> tuple[Any, Any]:
        one, two = self._quantities(a), self._quantities(b)
        found = [tables(s, one, two, d) for s, d in zip(library.pairs.series, degrees, strict=True)]
        terms = {TERMS: tuple(t for _, _, t in found)}
        first = {f"{FIRST}{k}": x for k, (x, _, _) in enumerate(found)}
        second = {f"{SECOND}{k}": x for k, (_, x, _) in enumerate(found)}
        if a is b:
            a = b = _extended(a, first | second | terms)
        else:
            a, b = _extended(a, first | terms), _extended(b, second | terms)
        return a, b

    def _beyond(self, a: Any, b: Any) -> list[bool]:
        """Are the terms of a series too few for many pairs of some blocks?"""
        n, m = a.data.samples, b.data.samples
        rows, count = slice(0, min(n, PROBED)), len(a.values[TERMS])
        starts = sorted({0, max(0, (m - PROBED) // 2), max(0, m - PROBED)}) if count else []
        found = [0] * count
        for start in starts:
            cols = slice(start, min(m, start + PROBED))
            run = self._run(a.rows(rows), b.cols(cols), 0 if a is b and start == 0 else -1)
            found = [x + s.beyond for x, s in zip(found, run.series, strict=False)]
        share = SELDOM if a.data.dtype == torch.float64 else OFTEN
        return [x * share > rows.stop * min(m, PROBED) * len(starts) for x in found]

    # ------------------------------------------------------------ blocks

    def __call__(self, a: Any, b: Any, rows: Tensor, cols: Tensor) -> tuple[dict[str, Tensor], Tensor] | None:
        """The kernels `[n, m]` by name, and which pairs are near |ρ| = 1; None for a block that torch has to take.

        `rows` `[n, 1]` and `cols` `[1, m]` number the samples.
        """
        if TERMS not in a.values:
            return None
        same = rows.shape[0] == cols.shape[1] and bool(rows[0, 0] == cols[0, 0])
        run = self._run(a, b, 0 if same else -1)
        share = SELDOM if a.values[TERMS] and a.data.dtype == torch.float64 else OFTEN
        if run.marked * share > run.near.numel() + share:
            return None
        if self.library(a.data.dtype).pairs.formulas:
            report("closed form", 0.0)
        for t in a.values[TERMS]:
            report("hermite", t.error)
        return run.kernels, run.near

    def _run(self, a: Any, b: Any, diagonal: int) -> _Run:
        library = self.library(a.data.dtype)
        library.load()
        grams = [runtime.gram("nmd,nmd->nm", a.data[x], b.data[y]).contiguous() for x, y in library.pairs.grams]
        parts = [
            coefficients(a.values[f"{FIRST}{k}"], b.values[f"{SECOND}{k}"], t) for k, t in enumerate(a.values[TERMS])
        ]
        shape = torch.Size((a.data.samples, b.data.samples))
        out = {name: empty(shape, grams[0]) for name in library.pairs.results}
        near, series = torch.empty(shape, dtype=torch.bool), array(Coefficients, parts)
        count = library(
            grams, a.values[COLUMNS], b.values[COLUMNS], series, list(out.values()), near, diagonal, diagonal == 0,
            1 - NEAR[library.dtype],
        )  # fmt: skip
        return _Run(out, near, count, series)


class _Run(NamedTuple):
    """What came of a block: kernels, near pairs, how many these are, and the series with the pairs they miss."""

    kernels: dict[str, Tensor]
    near: Tensor
    marked: int
    series: Any


def _extended(each: Any, extra: Mapping[str, Any]) -> Any:
    return type(each)(each.data, each.constants, each.results, **each.values, **extra)
