"""The compiled functions of the pairs of one plan in one dtype, and their call."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.native import compiler
from netsor.compilers.native.pairs import Pairs
from netsor.compilers.native.tables import Terms
from netsor.compilers.native.text import Text

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
        ("gram", ctypes.c_void_p), ("ldg", ctypes.c_void_p), ("one", ctypes.c_void_p), ("two", ctypes.c_void_p),
        ("ld1", ctypes.c_long), ("ld2", ctypes.c_long), ("series", ctypes.c_void_p), ("out", ctypes.c_void_p),
        ("ldo", ctypes.c_long), ("near", ctypes.c_void_p), ("rows", ctypes.c_long), ("cols", ctypes.c_long),
        ("diagonal", ctypes.c_long), ("upper", ctypes.c_long), ("bound", ctypes.c_double),
    ]  # fmt: skip


def coefficients(a: Tensor, b: Tensor, terms: Terms) -> Coefficients:
    """Coefficients of some inputs of the first and of the second batch."""
    return Coefficients(
        a.data_ptr(), b.data_ptr(), a.stride(-1), b.stride(-1), terms.count, terms.first, terms.step,
        terms.tails.data_ptr(), terms.reach, 0,
    )  # fmt: skip


class Library:
    """What `pairs` asks of Gram matrices, columns and series, as one function of blocks."""

    def __init__(self, pairs: Pairs, dtype: torch.dtype) -> None:
        self.pairs, self.dtype = pairs, dtype
        text = Text(pairs, dtype)
        self.source, self.columns = text.source, tuple(text.columns)
        self._block: Any = None

    @property
    def is_there(self) -> bool:
        """Has it been compiled, by this process or an earlier one?"""
        path = compiler.path_of(self.source)
        return self._block is not None or (path is not None and path.exists())

    def load(self) -> float:
        """Compile where that is to be done; the seconds that it took."""
        if self._block is not None:
            return 0.0
        library, seconds = compiler.library(self.source)
        library.block.argtypes = [ctypes.POINTER(Block), ctypes.c_long, ctypes.c_long]
        library.block.restype = ctypes.c_long
        self._block = library.block
        return seconds

    def __call__(
        self, grams: Sequence[Tensor], one: Tensor | None, two: Tensor | None, series: ctypes.Array[Coefficients],
        out: Sequence[Tensor], near: Tensor, diagonal: int, upper: bool, bound: float,
    ) -> int:  # fmt: skip
        """Fills `out` and `near` `[n, m]`; how many pairs are near.

        `diagonal`: pair (i, i + diagonal) is one input twice, none is where it is negative; `upper`: pairs below the
        diagonal may be left out.
        """
        n, m = near.shape
        rows = (0, 0) if one is None else (one.data_ptr(), one.stride(-1))
        cols = (0, 0) if two is None else (two.data_ptr(), two.stride(-1))
        matrices = array(ctypes.c_void_p, [g.data_ptr() for g in grams])
        widths = array(ctypes.c_long, [g.stride(0) for g in grams])
        results = array(ctypes.c_void_p, [t.data_ptr() for t in out])
        block = Block(
            ctypes.addressof(matrices), ctypes.addressof(widths), rows[0], cols[0], rows[1], cols[1],
            ctypes.addressof(series), ctypes.addressof(results), out[0].stride(0), near.data_ptr(), n, m, diagonal,
            upper, bound,
        )  # fmt: skip

        def run(part: range) -> int:
            return int(self._block(block, part.start, part.stop))

        return sum(shared(run, n, n * m, upper))


def shared(run: Callable[[range], int], rows: int, work: int, upper: bool, alone: int = ALONE) -> list[int]:
    """Rows among the threads; the numbers that come of it."""
    threads = min(torch.get_num_threads(), rows, work // alone)
    if threads < 2:
        return [run(range(rows))]
    return list(_pool(threads).map(run, _shares(rows, threads, upper)))


def array(kind: Any, values: Sequence[Any]) -> Any:
    return (kind * max(1, len(values)))(*values)


def _shares(rows: int, threads: int, upper: bool) -> list[range]:
    """Rows of about equal work."""
    places = [k / threads for k in range(threads + 1)]
    ends = [round(rows * (1 - (1 - x) ** 0.5 if upper else x)) for x in places]
    return [range(i, j) for i, j in itertools.pairwise(ends)]


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "netsor")
