"""The kernels of the pairs of one plan in one dtype, and their launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.derive.outputs import Key
from netsor.compilers.native.cuda.text import ACROSS, DOWN, LINE, Text
from netsor.compilers.native.library import Batch, Found
from netsor.compilers.native.pairs import Pairs
from netsor.compilers.native.tables import Terms
from netsor.errors import UnsupportedError

BLOCK = 64 * 1024 * 1024  # bytes of the Gram matrix of a block
Grid = tuple[int, int, int]
Launch = Callable[[str, Grid, Grid, list[Any]], None]  # a kernel, blocks of threads, threads of a block, arguments
Compile = Callable[[Text], Launch]


def nvrtc(text: Text) -> Launch:
    """The kernels compiled for the current device by the compiler that comes with torch."""
    make: Any = getattr(torch.cuda, "_compile_kernel", None)
    if make is None:
        raise UnsupportedError(
            f"torch {torch.__version__} compiles no CUDA kernels", code="NT702", hint='torch 2.9, or backend="torch"'
        )
    found: dict[str, Any] = {}

    def launch(name: str, grid: Grid, block: Grid, args: list[Any]) -> None:
        if name not in found:
            found[name] = make(text.source, name, nvcc_options=["--std=c++17"])
        found[name](grid=grid, block=block, args=args)

    return launch


class Library:
    """What `pairs` asks of Gram matrices, columns and series, as launches: as `native.library.Library`."""

    def __init__(self, pairs: Pairs, dtype: torch.dtype, compile: Compile = nvrtc) -> None:
        self.pairs, self.dtype, self.compile = pairs, dtype, compile
        self.text = Text(pairs, dtype)
        self.source, self.columns = self.text.source, tuple(self.text.columns)
        self._launch: Launch | None = None

    @property
    def is_there(self) -> bool:
        """Has it been compiled by this process?"""
        return self._launch is not None

    def load(self) -> None:
        if self._launch is None:
            self._launch = self.compile(self.text)

    def launch(self, name: str, grid: Grid, block: Grid, given: Mapping[str, Any]) -> None:
        self.load()
        assert self._launch is not None
        p = self.text.parameters(name)
        pointers = [given[x] for _, x in p.pointers]
        integers, numbers = [int(given[x]) for x in p.integers], [float(given[x]) for x in p.numbers]
        self._launch(name, grid, block, [*pointers, *integers, *numbers])

    # ------------------------------------------------------------ bands

    def band(
        self, one: Batch, two: Batch, terms: Sequence[Terms], out: Sequence[Tensor], mirror: Sequence[Tensor] | None,
        rows: range, same: bool, upper: bool, bound: float, capacity: int, threads: int,
    ) -> Found:  # fmt: skip
        """As the CPU's: the only wait for the device is at the end, when it is asked how many pairs are near."""
        like = out[0]
        places = torch.empty(capacity, dtype=torch.int64, device=like.device)
        count = torch.zeros(1 + len(terms), dtype=torch.int64, device=like.device)
        series = series_of(one, two, terms, like)
        self.launched(one, two, series, out, mirror, rows, same, upper, bound, places, count)
        near, *beyond = count.tolist()
        return Found(near, places[: min(near, capacity)].sort().values, tuple(beyond))

    def launched(
        self, one: Batch, two: Batch, series: Mapping[str, Any], out: Sequence[Tensor],
        mirror: Sequence[Tensor] | None, rows: range, same: bool, upper: bool, bound: float, places: Tensor,
        count: Tensor,
    ) -> None:  # fmt: skip
        """All blocks: a product of matrices for each Gram matrix and one kernel, whatever the depth."""
        m, d = two.data[0].shape[0], [x.shape[1] for x in one.data]
        given = {**_sides(one, two), **series}
        given |= {f"scale{k}": 1 / size for k, size in enumerate(d)}
        given |= {"list": places, "count": count, "width": m, "ldo": out[0].stride(0), "capacity": len(places)}
        given |= {"same": same, "upper": upper, "mirrored": mirror is not None, "bound": bound}
        for i, j in _blocks(rows, m, math.isqrt(BLOCK // out[0].itemsize), upper):
            here = dict(given)
            for k, (x, y) in enumerate(zip(one.data, two.data, strict=True)):
                here[f"gram{k}"] = torch.mm(x[i], y[j].mT)
            for k, x in enumerate(out):
                here[f"out{k}"] = x[i, j]
                here[f"mirror{k}"] = x if mirror is None else mirror[k][j, i]
            n, width = i.stop - i.start, j.stop - j.start
            here |= {"row0": i.start, "col0": j.start, "rows": n, "cols": width, "ldg": width}
            self.launch("band", (-(-width // ACROSS), -(-n // DOWN), 1), (ACROSS, DOWN, 1), here)

    # ------------------------------------------------------------ single pairs

    def entries(
        self, one: Batch, two: Batch, rows: Tensor, cols: Tensor, twice: Tensor, threads: int
    ) -> tuple[dict[Key, Tensor], Tensor]:
        """Pairs (rows[k], cols[k]) and their largest |r|; without series."""
        like, count = two.data[0], len(rows)
        out = {name: like.new_empty(count) for name in self.pairs.results}
        size = torch.empty(count, dtype=torch.float64, device=like.device)
        given = _sides(one, two) | {"rows": rows, "cols": cols, "twice": twice, "size": size, "length": count}
        given |= {f"out{k}": x for k, x in enumerate(out.values())}
        for k, (x, y) in enumerate(zip(one.data, two.data, strict=True)):
            given |= {f"left{k}": x, f"right{k}": y, f"ldl{k}": x.stride(0), f"ldr{k}": y.stride(0)}
            given[f"features{k}"] = x.shape[1]
        self.launch("entries", (-(-count // LINE), 1, 1), (LINE, 1, 1), given)
        return out, size


def _sides(one: Batch, two: Batch) -> dict[str, Any]:
    """The columns; any tensor stands for those that are not there."""
    sides = [(b.data[0], 0) if b.columns is None else (b.columns, b.columns.stride(-1)) for b in (one, two)]
    (x, ld1), (y, ld2) = sides
    return {"one": x, "two": y, "ld1": ld1, "ld2": ld2}


def series_of(one: Batch, two: Batch, terms: Sequence[Terms], like: Tensor) -> dict[str, Any]:
    """What the kernels read of the series."""
    found: dict[str, Any] = {}
    for k, (a, b, t) in enumerate(zip(one.coefficients, two.coefficients, terms, strict=True)):
        tails = t.tails.to(like.device, like.dtype)
        found |= {f"a{k}": a, f"b{k}": b, f"tails{k}": tails, f"lda{k}": a.stride(-1), f"ldb{k}": b.stride(-1)}
        found |= {f"terms{k}": t.count, f"first{k}": t.first, f"step{k}": t.step, f"reach{k}": t.reach}
    return found


def _blocks(rows: range, cols: int, side: int, upper: bool) -> Iterator[tuple[slice, slice]]:
    for i in range(rows.start, rows.stop, side):
        for j in range(i if upper else 0, cols, side):
            yield slice(i, min(i + side, rows.stop)), slice(j, min(j + side, cols))
