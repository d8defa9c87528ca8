"""Kernels of all pairs from their blocks, mirrored where the call is symmetric."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from netsor.compilers.budget.plan import Block
from netsor.compilers.derive.outputs import Key

Place = Block | tuple[Tensor, Tensor]  # of a block `[n, m, …]`, or of entries `[k, …]` at two vectors of numbers


class Placed:
    """Kernels written block by block into arrays for all pairs."""

    def __init__(self, shape: tuple[int, int], symmetric: bool) -> None:
        self.shape, self.symmetric = shape, symmetric
        self.out: dict[Key, Tensor] = {}

    def put(self, key: Key, value: Tensor, place: Place) -> None:
        rows, cols = place
        if isinstance(rows, Tensor) or isinstance(cols, Tensor):
            self._entries(self.out[key], value, torch.as_tensor(rows), torch.as_tensor(cols))
        elif value.shape[:2] == self.shape:
            self.out[key] = value
        else:
            self._block(key, value, rows, cols)

    def whole(self, key: Key, like: Tensor, axes: tuple[int, ...] = ()) -> Tensor:
        """The array of all pairs, which is filled by blocks."""
        if key not in self.out:
            self.out[key] = large(like.new_empty((*self.shape, *axes)))
        return self.out[key]

    def _block(self, key: Key, value: Tensor, rows: slice, cols: slice) -> None:
        self.whole(key, value, value.shape[2:])[rows, cols] = value
        if self.symmetric and rows != cols:
            self.out[key][cols, rows] = mirrored(value)

    def _entries(self, out: Tensor, value: Tensor, rows: Tensor, cols: Tensor) -> None:
        value = value.to(out.dtype)
        if self.symmetric:
            value = torch.where((rows == cols).view(-1, *[1] * (value.dim() - 1)), square_symmetrised(value), value)
            out[cols, rows] = mirrored(value[:, None])[0]
        out[rows, cols] = value

    def all(self) -> dict[Key, Tensor]:
        return self.out


@dataclass(frozen=True)
class Band:
    """The pairs of some inputs that are written straight into the arrays of all; `own`: of these inputs themselves, of
    which the pairs above the diagonal are computed. `done(rows)` says how far it is.
    """

    whole: Placed
    rows: slice
    cols: slice
    own: bool
    done: Callable[[range], None]

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.cols.stop - self.cols.start

    @property
    def mirrored(self) -> bool:
        return self.whole.symmetric

    def out(self, key: Key, like: Tensor) -> Tensor:
        return self.whole.whole(key, like)[self.rows, self.cols]

    def mirror(self, key: Key) -> Tensor:
        return self.whole.out[key][self.cols, self.rows]


class Near(NamedTuple):
    """Pairs of a band by their numbers in it."""

    rows: Tensor
    cols: Tensor


class Compiled(Protocol):
    """What computes the pairs of one kernel in place of its module, into the arrays of all pairs."""

    def band(self, a: Any, b: Any, band: Band) -> Near | None:
        """Writes the pairs of a band; those too near |ρ| = 1 for it, or None when the module has to compute all."""

    def entries(
        self, a: Any, b: Any, rows: Tensor, cols: Tensor, twice: Tensor
    ) -> tuple[dict[Key, Tensor], Tensor] | None:
        """The kernels of pairs (rows[k], cols[k]) in float64, to the digits of float32, `twice` those of one input, and
        which are too near even so; None when the module has to compute them.
        """


class Joined:
    """Blocks put together without writing in place, for gradients."""

    def __init__(self, shape: tuple[int, int], symmetric: bool) -> None:
        self.symmetric = symmetric
        self.grid: dict[Key, dict[tuple[int, int], Tensor]] = {}

    def put(self, key: Key, value: Tensor, place: Place) -> None:
        rows, cols = place
        assert isinstance(rows, slice) and isinstance(cols, slice)  # with gradients nothing is computed again
        grid = self.grid.setdefault(key, {})
        grid[rows.start, cols.start] = value
        if self.symmetric and rows != cols:
            grid[cols.start, rows.start] = mirrored(value)

    def all(self) -> dict[Key, Tensor]:
        return {key: _joined(grid) for key, grid in self.grid.items()}


Whole = Placed | Joined


def _joined(grid: dict[tuple[int, int], Tensor]) -> Tensor:
    if len(grid) == 1:
        return next(iter(grid.values()))
    starts = sorted({i for i, _ in grid})
    across = sorted({j for _, j in grid})
    return torch.cat([torch.cat([grid[i, j] for j in across], 1) for i in starts], 0)


def mirrored(value: Tensor) -> Tensor:
    """[m, n, *axes, *axes′] from [n, m, *axes, *axes′]: the two copies change places."""
    half = (value.dim() - 2) // 2
    axes = list(range(2, value.dim()))
    return value.permute(1, 0, *axes[half:], *axes[:half])


def symmetrised(value: Tensor) -> Tensor:
    """A block `[n, n, *axes, *axes′]` with what stands above the diagonal of the matrix over (n, *axes) on both sides;
    the block may be overwritten.
    """
    half = (value.dim() - 2) // 2
    order = [0, *range(2, 2 + half), 1, *range(2 + half, value.dim())]
    together = value.permute(order)
    size = value.shape[0] * value.shape[2 : 2 + half].numel()
    matrix = together.reshape(size, size)
    found = (_upper(matrix) if value.requires_grad else _mirror(matrix)).reshape(together.shape)
    back = [order.index(k) for k in range(value.dim())]
    return found.permute(back).contiguous()


def square_symmetrised(value: Tensor) -> Tensor:
    """The same for every `[*axes, *axes′]` of `[k, *axes, *axes′]`."""
    size = value.shape[1 : 1 + (value.dim() - 1) // 2].numel()
    return _upper(value.reshape(len(value), size, size)).reshape(value.shape)


def _upper(matrix: Tensor) -> Tensor:
    return matrix.triu() + matrix.triu(1).mT


STRIP = 128  # columns of a matrix, of which a square stays in the cache


def _mirror(matrix: Tensor) -> Tensor:
    """`_upper` in place, which moves half of the matrix once."""
    for start in range(0, len(matrix), STRIP):
        stop = start + STRIP
        matrix[stop:, start:stop] = matrix[start:stop, stop:].mT
        square = matrix[start:stop, start:stop]
        square.copy_(_upper(square))
    return matrix


# ---------------------------------------------------------------- memory

LARGE = 1 << 21  # bytes of a large page
ADVICE = 14  # MADV_HUGEPAGE


def large(x: Tensor) -> Tensor:
    """The tensor, whose memory has not been touched yet."""
    size = x.numel() * x.itemsize
    advise = _advise() if x.device.type == "cpu" and size >= 2 * LARGE else None
    if advise is not None:
        start = -(-x.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        advise(start, (x.data_ptr() + size - start) // mmap.PAGESIZE * mmap.PAGESIZE, ADVICE)  # no matter if it fails
    return x


@lru_cache(maxsize=1)
def _advise() -> Any:
    if sys.platform != "linux":
        return None
    try:
        found = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found
