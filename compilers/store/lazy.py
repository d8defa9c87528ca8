"""`ns.open_gram`: kernels of a store as arrays that are read where they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from netsor.compilers.evaluate.assembled import mirrored
from netsor.compilers.evaluate.results import KernelResult, fields
from netsor.compilers.store.files import Store, located
from netsor.compilers.store.layout import Array, Block
from netsor.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Result = TypeVar("Result", bound=KernelResult)


class StoredKernel:
    """A kernel `[n, m, *axes, *axes′]` on disk; `k[i0:i1, j0:j1]` reads the blocks it needs, as a numpy array.

    Rows and columns are chosen independently, by numbers, slices or lists of numbers. What is read of an incomplete
    store is complete, or an error (NT643) that names the blocks that are missing.
    """

    device = torch.device("cpu")

    def __init__(self, store: Store, array: Array) -> None:
        self.store, self.array = store, array
        self.shape = (store.layout.n, store.layout.m, *array.axes)
        self.dtype = np.dtype(array.dtype)
        self.ndim = len(self.shape)

    def __repr__(self) -> str:
        return f"<StoredKernel {self.array.name} {list(self.shape)} in {self.store.path}>"

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        rows, cols, rest = _parts(key, self.ndim)
        (i, one), (j, two) = _chosen(rows, self.shape[0]), _chosen(cols, self.shape[1])
        found = self._read(i, j)
        return found[(0 if one else slice(None), 0 if two else slice(None), *rest)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("what is read from a store is always a copy")
        found = self[:, :]
        return found if dtype is None else found.astype(dtype)

    def loaded(self) -> Tensor:
        """All of it as a tensor."""
        return torch.from_numpy(self[:, :])

    def diagonal(self) -> Any:
        """`[n, *axes, *axes′]` of a square kernel, read block by block."""
        size, tile = min(self.shape[:2]), self.store.layout.tile
        parts = [np.arange(i, min(i + tile, size)) for i in range(0, size, tile)]
        return np.concatenate([self._read(p, p)[range(len(p)), range(len(p))] for p in parts])

    def _read(self, rows: Any, cols: Any) -> Any:
        """Entries `[len(rows), len(cols), …]` from the blocks in which they lie, each read once."""
        out = np.empty((len(rows), len(cols), *self.array.axes), self.array.dtype)
        tile = self.store.layout.tile
        for i in np.unique(rows // tile):
            for j in np.unique(cols // tile):
                a, b = (np.flatnonzero(k // tile == n) for k, n in ((rows, i), (cols, j)))
                block = self._block((int(i), int(j)))
                out[_at(a, b)] = block[_at(rows[a] - i * tile, cols[b] - j * tile)]
        return out

    def _block(self, block: Block) -> Any:
        i, j = block
        if not self.store.layout.symmetric or i <= j:
            return self.store.read(self.array, block)
        return mirrored(torch.from_numpy(self.store.read(self.array, (j, i)))).numpy()


def _at(rows: Any, cols: Any) -> Any:
    """Rows × columns; as slices, which are much faster, where the numbers follow each other."""
    runs = [slice(int(k[0]), int(k[-1]) + 1) if (np.diff(k) == 1).all() else None for k in (rows, cols)]
    return tuple(runs) if None not in runs else np.ix_(rows, cols)


def _parts(key: Any, ndim: int) -> tuple[Any, Any, tuple[Any, ...]]:
    """What is asked of rows, columns and the axes after them."""
    parts = list(key) if isinstance(key, tuple) else [key]
    where = [k for k, part in enumerate(parts) if part is Ellipsis]
    if len(parts) - len(where) > ndim or len(where) > 1:
        raise IndexError(f"{len(parts)} indices for a kernel of {ndim} dimensions")
    at = where[0] if where else len(parts)
    filled = [*parts[:at], *[slice(None)] * (ndim - len(parts) + len(where)), *parts[at + 1 :]]
    return filled[0], filled[1], tuple(filled[2:])


def _chosen(part: Any, size: int) -> tuple[Any, bool]:
    """Numbers of inputs; whether a single one was meant."""
    found = np.arange(size)[part if isinstance(part, slice) else np.asarray(part)]
    return np.atleast_1d(found), found.ndim == 0


@dataclass(repr=False)
class StoredGram(KernelResult):
    """The result of a call whose kernels are on disk (`StoredKernel`). With one kernel it is that kernel itself.

    `names` are those of `items`; `missing` are the blocks `(rows, cols)` that are not computed yet.
    """

    path: Path = field(default_factory=Path)
    store: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<StoredGram: {', '.join(f'{k} {list(v.shape)}' for k, v in self.items())} in {self.path}>"

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.items()]

    @property
    def missing(self) -> list[tuple[slice, slice]]:
        return [self.store.layout.slices(b) for b in self.store.missing()]

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self._only()[key]
        return super().__getitem__(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._only().__array__(dtype, copy)

    def __len__(self) -> int:
        return len(self._only())

    @property
    def shape(self) -> tuple[int, ...]:
        return self._only().shape

    @property
    def dtype(self) -> Any:
        return self._only().dtype

    @property
    def ndim(self) -> int:
        return self._only().ndim

    def loaded(self) -> KernelResult:
        """All kernels as tensors in memory."""
        keys = {a.key: StoredKernel(self.store, a).loaded() for a in self.store.layout.arrays}
        return KernelResult(
            **fields(keys), method=self.method, error=self.error, assumed=self.assumed, asked=self.asked
        )

    def to(self, dtype: torch.dtype) -> KernelResult:
        """All kernels as tensors of another dtype."""
        return self.loaded().to(dtype)

    def plot(self, name: str | None = None) -> Figure:
        return self.loaded().plot(name)

    def _only(self) -> StoredKernel:
        found: Sequence[Any] = self.items()
        if len(found) != 1:
            raise InputError(
                f"{self.path} holds the kernels {', '.join(self.names)}", code="NT605",
                hint=f"choose one: ns.open_gram(path)[{self.names[0]!r}]",
            )  # fmt: skip
        return cast(StoredKernel, found[0][1])


def stored(store: Store) -> StoredGram:
    """The kernels of a store."""
    kernels = {a.key: StoredKernel(store, a) for a in store.layout.arrays}
    asked = tuple(store.identity["get"])
    method, error = store.report()
    return StoredGram(
        **fields(kernels), method=method, error=error, assumed=store.assumed, path=store.path, store=store, asked=asked
    )


def open_gram(path: str | Path) -> StoredGram:
    """The kernels that `kernel.gram(…, store=path)` or `netsor kernel -o path` wrote; see StoredGram, StoredKernel.

    >>> _ = ns.compile(ns.programs.mlp()).gram(np.eye(3), store="k.zarr")
    >>> ns.open_gram("k.zarr").ntk[0:1, 0:3].shape
    (1, 3)
    """
    return stored(Store(located(path)))
