"""Blocks of pairs of inputs with axes by a compiled C function: the same seam as `evaluate.fused.Fused`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.budget.plan import Plan, evened
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.expectation.blocks.fused import NEAR
from netsor.compilers.expectation.report import report
from netsor.compilers.native.axes.library import Library
from netsor.compilers.native.axes.printing.reader import PLAIN
from netsor.compilers.native.axes.sides import Shapes, Sides
from netsor.compilers.native.columns import evaluate
from netsor.compilers.native.expectations import Missing

OFTEN = 16  # with more than one pair in so many too near |r| = 1 torch takes the block
FEW = 4  # elements of an axis of inputs that nobody has seen
SIDE = 256  # inputs of a side of a block
ONE, LIBRARY = "native one", "native library"  # no name begins like this


class Tiles:
    """The blocks of one kernel; `make` gives the library for a dtype and shapes."""

    has_series = False

    def __init__(
        self, sides: Sides, make: Callable[[torch.dtype, Shapes], Library], threads: int | None = None
    ) -> None:
        self.sides, self.make, self._threads = sides, make, threads
        self._libraries: dict[tuple[torch.dtype, Shapes], Library | str] = {}

    @property
    def is_there(self) -> bool:
        """Is a library compiled?"""
        return any(isinstance(found, Library) and found.is_there for found in self._libraries.values())

    def obstacle(self) -> str | None:
        """What keeps the kernel, whatever the sizes of its inputs, from having tiles."""
        found = self.library(next(iter(NEAR)), self.sides.nominal(lambda name: FEW))
        return found if isinstance(found, str) else None

    def usual(self, one: Inputs) -> Library | str:
        """The library for inputs of these sizes, both sides alike."""
        sizes = one.features()
        return self.library(one.dtype, self.sides.nominal(sizes.__getitem__))

    def library(self, dtype: torch.dtype, shapes: Shapes) -> Library | str:
        """The library, or why there is none."""
        key = dtype, shapes
        if key not in self._libraries:
            try:
                self._libraries[key] = self.make(dtype, shapes)
            except Missing as missing:
                self._libraries[key] = str(missing)
        return self._libraries[key]

    def planned(self, plan: Plan, longest: int) -> Plan:
        """Blocks of inputs of a side as the tiles want them."""
        return replace(plan, tile=evened(SIDE, longest))

    # ------------------------------------------------------------ quantities of each input

    def extended(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Both batches with what the tiles read of each input."""
        library = self.library(a.data.dtype, self.sides.shapes(a, b))
        if isinstance(library, str):
            return a, b
        one, two = self._with(library, a, 1), self._with(library, self._with(library, b, 2), PLAIN)
        if a is b:
            one = _extended(a, {k: v for each in (one, two) for k, v in each.values.items() if k not in a.values})
            return one, one
        return one, two

    def _with(self, library: Library, each: Any, copy: int) -> Any:
        kept = self.sides.flattened(each)
        n = each.data.samples
        found = {
            f"{ONE}{copy} {k}": evaluate(column, kept).to(each.data.dtype).expand(n, size).contiguous()
            for k, (column, size) in enumerate(library.columns[copy])
        }
        return _extended(each, found | {LIBRARY: (library,)})

    # ------------------------------------------------------------ blocks

    def __call__(self, a: Any, b: Any, rows: Tensor, cols: Tensor) -> tuple[dict[str, Tensor], Tensor] | None:
        """The kernels `[n, m, …]` by name, and which pairs are near |ρ| = 1; None for a block that torch has to take.

        `rows` `[n, 1]` and `cols` `[1, m]` number the samples.
        """
        if LIBRARY not in a.values:
            return None
        library: Library = a.values[LIBRARY][0]
        library.load()
        n, m = a.data.samples, b.data.samples
        one = [a.values[f"{ONE}1 {k}"].reshape(n, size) for k, (_, size) in enumerate(library.columns[1])]
        same = n == m and bool(rows[0, 0] == cols[0, 0])
        plain = [b.values[f"{ONE}{PLAIN} {k}"].reshape(m, size) for k, (_, size) in enumerate(library.columns[PLAIN])]
        # of blocks on the diagonal the fewest rows meet the first vector
        pad = -m % library.lanes if same and library.torus is None else 0
        two = [library.packed(b.values[f"{ONE}2 {k}"].reshape(m, size), pad)
               for k, (_, size) in enumerate(library.columns[2])]  # fmt: skip
        out = [torch.empty((n, m, *shape), dtype=library.dtype) for shape in library.shapes]
        near = torch.empty((n, m), dtype=torch.bool)
        threads = torch.get_num_threads() if self._threads is None else self._threads
        marked = library(one, two, plain, out, near, pad, 0 if same else -1, same, 1 - NEAR[library.dtype], threads)
        if marked * OFTEN > n * m + OFTEN:
            return None
        report("closed form", 0.0)
        return dict(zip(library.results, out, strict=True)), near


def _extended(each: Any, extra: dict[str, Any]) -> Any:
    return type(each)(each.data, each.constants, each.results, **(each.values | extra))
