"""The compiled functions of the pairs of one plan in one dtype, and their call."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from netsor.compilers.derive.outputs import Key
from netsor.compilers.native import compiler
from netsor.compilers.native.pairs import Pairs
from netsor.compilers.native.printing.text import Text
from netsor.compilers.native.tables import Terms

ALONE = 1 << 14  # pairs that one thread takes


class Coefficients(ctypes.Structure):
    """`Series` of the C text."""

    _fields_ = [
        ("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("lda", ctypes.c_long), ("ldb", ctypes.c_long),
        ("count", ctypes.c_long), ("first", ctypes.c_long), ("step", ctypes.c_long), ("tails", ctypes.c_void_p),
        ("reach", ctypes.c_double), ("beyond", ctypes.c_long),
    ]  # fmt: skip


class Block(ctypes.Structure):
    """`Block` of the C text."""

    _fields_ = [
        ("left", ctypes.c_void_p), ("right", ctypes.c_void_p), ("ldl", ctypes.c_void_p), ("ldr", ctypes.c_void_p),
        ("features", ctypes.c_void_p), ("one", ctypes.c_void_p), ("two", ctypes.c_void_p), ("ld1", ctypes.c_long),
        ("ld2", ctypes.c_long), ("series", ctypes.c_void_p), ("out", ctypes.c_void_p), ("mirror", ctypes.c_void_p),
        ("ldo", ctypes.c_long), ("rows", ctypes.c_long), ("cols", ctypes.c_long), ("diagonal", ctypes.c_long),
        ("upper", ctypes.c_long), ("bound", ctypes.c_double), ("list", ctypes.c_void_p), ("capacity", ctypes.c_long),
        ("found", ctypes.c_long), ("next", ctypes.c_long),
    ]  # fmt: skip


class Batch(NamedTuple):
    """What the functions read of some inputs: data `[n, features]` of each Gram matrix, columns `[n, columns]`,
    coefficients `[n, terms]` of each series.
    """

    data: tuple[Tensor, ...]
    columns: Tensor | None
    coefficients: tuple[Tensor, ...] = ()

    def part(self, some: slice) -> Batch:
        columns = None if self.columns is None else self.columns[some]
        return Batch(tuple(x[some] for x in self.data), columns, tuple(x[some] for x in self.coefficients))


class Found(NamedTuple):
    """How many pairs are near, the first of them as row·columns + column, and for each series how many it misses."""

    near: int
    places: Tensor
    beyond: tuple[int, ...]


class Library:
    """What `pairs` asks of Gram matrices, columns and series, as functions of bands and of single pairs."""

    def __init__(self, pairs: Pairs, dtype: torch.dtype) -> None:
        self.pairs, self.dtype = pairs, dtype
        text = Text(pairs, dtype)
        self.source, self.columns = text.source, tuple(text.columns)
        self.formulas, self.summed = pairs.formulas, len(pairs.series)  # expectations of a pair
        self._library: Any = None

    @property
    def is_there(self) -> bool:
        """Has it been compiled, by this process or an earlier one?"""
        path = compiler.path_of(self.source)
        return self._library is not None or (path is not None and path.exists())

    def load(self) -> float:
        """Compile where that is to be done; the seconds that it took."""
        if self._library is not None:
            return 0.0
        library, seconds = compiler.library(self.source)
        library.band.argtypes = [ctypes.POINTER(Block), ctypes.c_long, ctypes.c_long]
        library.pairs.argtypes = [ctypes.POINTER(Block), *[ctypes.c_void_p] * 3, ctypes.c_long, ctypes.c_void_p]
        library.band.restype = library.pairs.restype = ctypes.c_long
        self._library = library
        return seconds

    def band(
        self, one: Batch, two: Batch, terms: Sequence[Terms], out: Sequence[Tensor], mirror: Sequence[Tensor] | None,
        rows: range, same: bool, upper: bool, bound: float, capacity: int, threads: int,
    ) -> Found:  # fmt: skip
        """Fills some rows of `out` `[n, m]`, and the columns of `mirror` `[m, n]`; pairs with |r| > bound are listed.

        `same`: pair (i, i) is one input twice; `upper`: pairs below the diagonal are left out, and mirrored.
        """
        self.load()
        held = _Held(one, two, terms, out, mirror)
        places = torch.empty(capacity, dtype=torch.int64)
        block, n, m = held.block, len(rows), two.data[0].shape[0]
        block.rows, block.cols, block.diagonal, block.upper = one.data[0].shape[0], m, 0 if same else -1, upper
        block.bound, block.list, block.capacity = bound, places.data_ptr(), capacity
        count = max(1, min(threads, n * m // ALONE))
        failed = at_once(lambda _: int(self._library.band(block, rows.start, rows.stop)), count)
        if any(failed):
            raise MemoryError("no memory for a tile of pairs")
        beyond = tuple(s.beyond for s in held.series[: len(terms)])
        return Found(block.found, places[: min(block.found, capacity)].sort().values, beyond)

    def entries(
        self, one: Batch, two: Batch, rows: Tensor, cols: Tensor, twice: Tensor, threads: int
    ) -> tuple[dict[Key, Tensor], Tensor]:
        """Pairs (rows[k], cols[k]), those of one row side by side, and their largest |r|; without series."""
        self.load()
        count = len(rows)
        out = {name: torch.empty(count, dtype=self.dtype) for name in self.pairs.results}
        size = torch.empty(count, dtype=torch.float64)
        parts = max(1, min(threads, count // ALONE))
        ends = [count * k // parts for k in range(parts + 1)]

        def run(k: int) -> int:
            some = slice(ends[k], ends[k + 1])
            held = _Held(one, two, (), [x[some] for x in out.values()], None)
            given = (t[some].data_ptr() for t in (rows, cols, twice))
            return int(self._library.pairs(held.block, *given, some.stop - some.start, size[some].data_ptr()))

        if any(at_once(run, parts)):
            raise MemoryError("no memory for a tile of pairs")
        return out, size


class _Held:
    """A block of the C text with the arrays that it points to."""

    def __init__(
        self, one: Batch, two: Batch, terms: Sequence[Terms], out: Sequence[Tensor], mirror: Sequence[Tensor] | None
    ) -> None:
        self.one, self.two = one, two
        self.series = array(Coefficients, [
            Coefficients(
                a.data_ptr(), b.data_ptr(), a.stride(-1), b.stride(-1), t.count, t.first, t.step, t.tails.data_ptr(),
                t.reach, 0,
            )
            for a, b, t in zip(one.coefficients, two.coefficients, terms, strict=True)
        ])  # fmt: skip
        sides = [array(ctypes.c_void_p, [x.data_ptr() for x in batch.data]) for batch in (one, two)]
        steps = [array(ctypes.c_long, [x.stride(0) for x in batch.data]) for batch in (one, two)]
        features = array(ctypes.c_long, [x.shape[1] for x in one.data])
        results = array(ctypes.c_void_p, [x.data_ptr() for x in out])
        mirrored = array(ctypes.c_void_p, [0] * len(out) if mirror is None else [x.data_ptr() for x in mirror])
        self.arrays = [*sides, *steps, features, self.series, results, mirrored]
        left, right, ldl, ldr, features, series, results, mirrored = map(ctypes.addressof, self.arrays)
        (first, ld1), (second, ld2) = (_column(batch.columns) for batch in (one, two))
        self.block = Block(
            left, right, ldl, ldr, features, first, second, ld1, ld2, series, results, mirrored, out[0].stride(0)
        )


def _column(columns: Tensor | None) -> tuple[int, int]:
    return (0, 0) if columns is None else (columns.data_ptr(), columns.stride(-1))


def array(kind: Any, values: Sequence[Any]) -> Any:
    return (kind * max(1, len(values)))(*values)


# ---------------------------------------------------------------- threads


def at_once(run: Callable[[int], int], threads: int) -> list[int]:
    """What comes of `run(k)` in each of so many threads; C functions run at once."""
    return [run(0)] if threads < 2 else list(_pool(threads).map(run, range(threads)))


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "netsor")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a copy of this process has no threads
