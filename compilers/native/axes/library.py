"""The compiled tiles of the pairs of one plan for inputs of given shapes, and their call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.lowering.plan import order
from netsor.compilers.lowering.plan.arrays import Gram
from netsor.compilers.native import compiler
from netsor.compilers.native.axes.printing.text import Text
from netsor.compilers.native.axes.series import SeriesOfBlock, Sum, vectors
from netsor.compilers.native.axes.sides import Shapes, Sides
from netsor.compilers.native.axes.torus import Torus
from netsor.compilers.native.axes.walk.statements import Walk
from netsor.compilers.native.expectations import Missing, Series
from netsor.compilers.native.library import array, at_once
from netsor.compilers.native.statements import Functions
from netsor.sizes import number

ALONE = 1 << 16  # expectations that one thread takes
FEWEST = 16  # rows for which the vectors of second inputs are made
LARGE = 64 << 20  # bytes of a tile, above which torch takes the pairs


class Block(ctypes.Structure):
    """`Block` of the C text."""

    _fields_ = [
        ("one", ctypes.c_void_p), ("two", ctypes.c_void_p), ("plain", ctypes.c_void_p), ("out", ctypes.c_void_p),
        ("series", ctypes.c_void_p), ("near", ctypes.c_void_p),
        ("rows", ctypes.c_long), ("cols", ctypes.c_long), ("pad", ctypes.c_long),
        ("diagonal", ctypes.c_long), ("upper", ctypes.c_long), ("unit", ctypes.c_long), ("next", ctypes.c_long),
        ("bound", ctypes.c_double),
    ]  # fmt: skip


ARGUMENTS = {
    "block": [ctypes.POINTER(Block)],
    "entries": [ctypes.POINTER(Block), *[ctypes.c_void_p] * 3, ctypes.c_long, ctypes.c_long],
}


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

        def walks(torus: Torus | None) -> tuple[Walk, Walk]:
            given = plan, sides, get, functions, dtype, shapes
            return Walk(*given, False, series, torus), Walk(*given, True, series, torus)

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
        self.lanes, self.tiles = text.lanes, Source(text)
        self.results, self.elements, self.dtype = tuple(two.results), two.elements, dtype
        self.series, self.summed = tuple(series), two.summed
        self.formulas = two.elements - two.summed
        self.shapes = tuple(two.shapes_out.values())
        self._walks = two, own

    @cached_property
    def single(self) -> Source:
        """The functions of pairs one by one."""
        return Source(Text(*self._walks, self.dtype, paired=True))

    @property
    def is_there(self) -> bool:
        return self.tiles.is_there

    def load(self) -> None:
        self.tiles.load()

    def __call__(
        self, one: Sequence[Tensor], two: Sequence[Tensor], plain: Sequence[Tensor], sums: Sequence[Sum],
        out: Sequence[Tensor], near: Tensor, diagonal: int, upper: bool, bound: float, threads: int,
    ) -> int:  # fmt: skip
        """Fills `out` `[n, m, elements]` and what is true of `near` `[n, m]`; how many pairs are near."""
        n, m = near.shape
        # of blocks on the diagonal the fewest rows meet the first vector
        pad = -m % self.lanes if upper and self.torus is None else 0
        count = max(1, min(threads, n, n * m * self.elements // ALONE))
        moved = [vectors(s.two, s.terms, self.lanes, pad, self.torus) for s in sums]
        series = array(SeriesOfBlock, [s.structure(v) for s, v in zip(sums, moved, strict=True)])
        block = _block(one, two, plain, out, series, near)
        block.rows, block.cols, block.pad, block.diagonal, block.upper = n, m, pad, diagonal, upper
        block.bound, block.unit = bound, n if count == 1 else max(FEWEST, -(-n // (4 * count)))
        return _summed(lambda _: int(self.tiles.library.block(block)), count)

    def entries(
        self, one: Sequence[Tensor], two: Sequence[Tensor], plain: Sequence[Tensor], out: Sequence[Tensor],
        near: Tensor, pairs: tuple[Tensor, Tensor, Tensor], bound: float, threads: int,
    ) -> int:  # fmt: skip
        """The same of pairs (rows[k], cols[k]), one input twice where twice[k]: `out` `[k, elements]`, `near` `[k]`."""
        found = len(near)
        parts = max(1, min(threads, -(-found // self.lanes), found * self.elements // ALONE))
        ends = [min(found, -(-found * k // parts // self.lanes) * self.lanes) for k in range(parts + 1)]
        block, given = _block(one, two, plain, out, array(SeriesOfBlock, []), near), [t.data_ptr() for t in pairs]
        block.bound = bound
        return _summed(lambda k: int(self.single.library.entries(block, *given, ends[k], ends[k + 1])), parts)


class Source:
    """A text, the columns that it reads of each side, of which those with one `number` are alike, and its library."""

    def __init__(self, text: Text) -> None:
        self.source, self.columns, self.coefficients = text.source, text.columns, text.coefficients
        alike: dict[Any, int] = {}
        self.numbers = {copy: [alike.setdefault(c, len(alike)) for c in found] for copy, found in self.columns.items()}
        self._library: Any = None

    @property
    def is_there(self) -> bool:
        path = compiler.path_of(self.source)
        return self._library is not None or (path is not None and path.exists())

    def load(self) -> None:
        if self._library is not None:
            return
        library, _ = compiler.library(self.source)
        for name, arguments in ARGUMENTS.items():
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes, function.restype = arguments, ctypes.c_long
        self._library = library

    @property
    def library(self) -> Any:
        self.load()
        return self._library


def _block(
    one: Sequence[Tensor], two: Sequence[Tensor], plain: Sequence[Tensor], out: Sequence[Tensor], series: Any,
    near: Tensor,
) -> Any:  # fmt: skip
    """A block of the C text, with the arrays that it points to."""
    held = [array(ctypes.c_void_p, [t.data_ptr() for t in found]) for found in (one, two, plain, out)] + [series]
    block: Any = Block(*map(ctypes.addressof, held), near.data_ptr())
    block.held = held
    return block


def _summed(run: Callable[[int], int], threads: int) -> int:
    found = at_once(run, threads)
    if min(found) < 0:
        raise MemoryError("no memory for the tiles of a native kernel")
    return sum(found)
