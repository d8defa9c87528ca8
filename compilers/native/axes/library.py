"""The compiled tiles of the pairs of one plan for inputs of given shapes, and their call."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.lowering.plan import order
from netsor.compilers.lowering.plan.arrays import Gram
from netsor.compilers.native import compiler
from netsor.compilers.native.axes.printing.text import Text
from netsor.compilers.native.axes.series import SeriesOfBlock
from netsor.compilers.native.axes.sides import Shapes, Sides
from netsor.compilers.native.axes.torus import Torus
from netsor.compilers.native.axes.walk.statements import Walk
from netsor.compilers.native.expectations import Missing, Series
from netsor.compilers.native.library import array, at_once
from netsor.compilers.native.statements import Functions
from netsor.sizes import number

ALONE = 1 << 16  # expectations that one thread takes
LARGE = 64 << 20  # bytes of a tile, above which torch takes the pairs


class Block(ctypes.Structure):
    """`Block` of the C text."""

    _fields_ = [
        ("one", ctypes.c_void_p), ("two", ctypes.c_void_p), ("plain", ctypes.c_void_p),
        ("series", ctypes.c_void_p), ("out", ctypes.c_void_p), ("near", ctypes.c_void_p),
        ("cols", ctypes.c_long), ("pad", ctypes.c_long), ("diagonal", ctypes.c_long), ("upper", ctypes.c_long),
        ("bound", ctypes.c_double),
    ]  # fmt: skip


def offsets(plan: order.Plan, shapes: Shapes, dtype: torch.dtype) -> Torus | None:
    """The image whose pairs of positions may be taken offset by offset: the rows and columns of a Gram matrix."""
    lanes = 64 // dtype.itemsize
    for s in plan.pairs.body:
        if isinstance(s, Gram) and s.rows and len(s.rows) == len(s.cols) and not set(s.rows) & set(s.cols):
            sizes = [tuple(number(q.size, partial(shapes.size, copy)) for q in own)
                     for copy, own in ((1, s.rows), (2, s.cols))]  # fmt: skip
            if sizes[0] == sizes[1] and min(sizes[0]) > 1 and 2 * sizes[0][-1] >= lanes:
                return Torus(sizes[0], lanes)
    return None


class Library:
    """`elements` is the number of expectations of a pair."""

    def __init__(
        self, plan: order.Plan, sides: Sides, get: frozenset[str], functions: Functions, dtype: torch.dtype,
        shapes: Shapes,
    ) -> None:  # fmt: skip
        series: dict[Series, int] = {}

        def walks(torus: Torus | None) -> list[Walk]:
            given = plan, sides, get, functions, dtype, shapes
            return [Walk(*given, twice, series, torus) for twice in (False, True)]

        torus = offsets(plan, shapes, dtype)
        try:
            two, own = walks(torus)
        except Missing:
            if torus is None:
                raise
            torus = None
            two, own = walks(None)
        text = Text(two, own, dtype)
        self.torus = torus
        if text.work * 64 > LARGE:
            raise Missing(f"tensors of {text.work * 64 >> 20} MB for the pairs of a vector")
        self.source, self.columns, self.lanes = text.source, text.columns, text.lanes
        self.results, self.elements, self.dtype = tuple(two.results), two.elements, dtype
        self.series, self.summed, self.formulas = tuple(series), two.summed, two.elements - two.summed
        self.shapes = tuple(two.shapes_out.values())
        self._block: Any = None

    @property
    def is_there(self) -> bool:
        path = compiler.path_of(self.source)
        return self._block is not None or (path is not None and path.exists())

    def load(self) -> None:
        if self._block is None:
            library, _ = compiler.library(self.source)
            library.block.argtypes = [ctypes.POINTER(Block), ctypes.c_long, ctypes.c_long]
            library.block.restype = ctypes.c_long
            self._block = library.block

    def packed(self, x: Tensor, pad: int) -> Tensor:
        """Quantities `[m, elements]` of the second inputs as the tiles read them, with `pad` zeros in front.

        Vectors of inputs, `[⌈m/lanes⌉, elements, lanes]`, or rows of an image, twice each, `[m, rows, rest, row]`.
        """
        m, size = x.shape
        if self.torus is not None:
            width, last = self.torus.row, self.torus.sizes[-1]
            rest = size // math.prod(self.torus.sizes)
            rows = x.reshape(m, -1, last, rest).transpose(2, 3)
            return torch.cat([rows] * (-(-width // last)), 3)[..., :width].contiguous()
        out = x.new_zeros((-(-m // self.lanes), self.lanes, size))
        out.view(-1, size)[pad : pad + m] = x
        return out.transpose(1, 2).contiguous()

    def __call__(
        self, one: Sequence[Tensor], two: Sequence[Tensor], plain: Sequence[Tensor],
        series: Sequence[SeriesOfBlock], out: Sequence[Tensor], near: Tensor, pad: int, diagonal: int, upper: bool,
        bound: float, threads: int,
    ) -> int:  # fmt: skip
        """Fills `out` `[n, m, elements]` and `near` `[n, m]`; how many pairs are near.

        `two` have `pad` inputs in front.
        """
        n, m = near.shape
        pointers = [array(ctypes.c_void_p, [t.data_ptr() for t in found]) for found in (one, two, plain, out)]
        given = array(SeriesOfBlock, series)
        one_, two_, plain_, out_ = map(ctypes.addressof, pointers)
        block = Block(
            one_, two_, plain_, ctypes.addressof(given), out_, near.data_ptr(), m, pad, diagonal, upper, bound
        )
        parts = shares(n, max(1, min(threads, n, n * m * self.elements // ALONE)), upper)
        found = at_once(lambda k: int(self._block(block, parts[k].start, parts[k].stop)), len(parts))
        if min(found) < 0:
            raise MemoryError("no memory for the tiles of a native kernel")
        return sum(found)


def shares(rows: int, threads: int, upper: bool) -> list[range]:
    """Rows of about equal work: of pairs above the diagonal, or of all."""
    places = [k / threads for k in range(threads + 1)]
    ends = [round(rows * (1 - (1 - x) ** 0.5 if upper else x)) for x in places]
    return [range(i, j) for i, j in itertools.pairwise(ends)]
