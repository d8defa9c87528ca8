"""What belongs to an element of a family: the elements it reads, its limit, its covariances; and the sizes of axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from netsor import ir
from netsor.errors import ProgramError
from netsor.indexing import IndexMap, index_map, position
from netsor.sizes import number

Index = Mapping[str, int]  # by axis; axes that a variable lacks are ignored
SizeOf = Callable[[ir.Size], int]


def size_at(size: ir.Size, sizes: Mapping[str, int]) -> int:
    """A size, given the sizes of the axes."""

    def known(axis: str) -> int:
        if axis not in sizes:
            raise ProgramError(
                f"the size of the axis {axis} is not known", code="NT107",
                hint=f"unroll at a size: p.unroll({{{axis!r}: 3}})",
            )  # fmt: skip
        return sizes[axis]

    return number(size, known)


def sources(line: ir.IndexForm, index: Index, size: SizeOf) -> list[dict[str, int]] | None:
    """The indices whose elements add up to the element at `index`; none: zero; None: left out of a maximum."""
    m = index_map(line)
    if m.transposed:
        return [there for there in _readers(line, m, index, size) if _agree(_read(line, m, there, size), m, index)]
    there = _read(line, m, index, size)
    if there is None:
        return None if m.outside == "drop" else []
    return [{**index, **there}]


def _readers(line: ir.IndexForm, m: IndexMap, index: Index, size: SizeOf) -> Iterator[dict[str, int]]:
    """The elements of the variable that reads, along the axes that its positions depend on."""
    axes = [r.at for r in m.reads if r.at is not None] + ([] if m.tap is None else [m.tap])
    counts = {a.name: size(line.of.size(a)) for a in axes}
    for place in product(*map(range, counts.values())):
        yield {**index, **dict(zip(counts, place, strict=True))}


def _agree(there: Index | None, m: IndexMap, index: Index) -> bool:
    return there is not None and all(there[r.axis.name] == index[r.axis.name] for r in m.reads)


def _read(line: ir.IndexForm, m: IndexMap, index: Index, size: SizeOf) -> dict[str, int] | None:
    """The positions that the element at `index` reads; None outside."""
    read, tap = m.ends(line)[1], 0 if m.tap is None else index[m.tap.name]
    there: dict[str, int] = {}
    for r in m.reads:
        count = size(read.size(r.axis))
        t = position(line, r, count) if r.at is None else r.stride * index[r.at.name] + r.offsets[tap]
        if m.outside == "wrap":
            t %= count
        elif not 0 <= t < count:
            return None
        there[r.axis.name] = t
    return there


def limit_at(line: ir.InputScalar, index: Sequence[int]) -> Any:
    """The limit of an element of a scalar family."""
    if line.limit == "position":
        return index[0]
    value = line.limit
    for i in index:
        value = value[i] if isinstance(value, tuple) else value
    return value


def axis_covariance(line: ir.InputVector, a: Index, b: Index) -> ir.Number:
    """Π M over the axes: the matrix of `axis_cov`, else δ."""
    given = {axis.name: m for axis, m in line.axis_cov}
    value: Any = 1
    for d in line.out.dims:
        i, j = a[d.axis.name], b[d.axis.name]
        value = value * (given[d.axis.name][i][j] if d.axis.name in given else int(i == j))
    return value  # type: ignore[no-any-return]
