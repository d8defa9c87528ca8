"""What an index form reads: one meaning of windows, elements, shifts, renamed axes and of their adjoints.

    out[s, κ, …] = of[…, stride·s + offsets[κ], …]

Each of some axes of `of` is read at an affine position; along its other axes `of` is read at the result's own index.
A transposed map adds up instead: out[t] = Σ of[s, κ] over the (s, κ) whose positions are t. Below, what belongs to one
element of a family: the elements it reads, its limit, its covariances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, Literal, assert_never

from netsor import ir
from netsor.errors import ProgramError
from netsor.sizes import axis_dim, number, strided

Outside = Literal["zero", "wrap", "drop", "never"]


@dataclass(frozen=True)
class Read:
    """Along `axis` the position stride · (index along `at`) + offsets[index along the map's tap].

    Without `at` it is offsets[0], counted from the end where that is negative. A map without a tap has one offset.
    """

    axis: ir.Axis
    at: ir.Axis | None
    stride: int = 1
    offsets: tuple[int, ...] = (0,)

    @property
    def is_identity(self) -> bool:
        """Is the position the index itself?"""
        return self.at is not None and self.stride == 1 and self.offsets == (0,)


@dataclass(frozen=True)
class IndexMap:
    """The axes that are read elsewhere, the axis κ runs over, and what stands outside of them.

    Outside is zero ("zero", "drop" where a maximum leaves it out), nothing ("wrap": positions are taken modulo the
    size), or does not occur ("never").
    """

    reads: tuple[Read, ...]
    tap: ir.Axis | None = None
    outside: Outside = "never"
    transposed: bool = False

    @property
    def is_renaming(self) -> bool:
        """Are all elements read in their own places?"""
        return not self.transposed and self.outside == "never" and all(r.is_identity for r in self.reads)

    @property
    def fixed(self) -> tuple[Read, ...]:
        """What is read at one position."""
        return tuple(r for r in self.reads if r.at is None)

    @property
    def taps(self) -> int:
        return len(self.reads[0].offsets) if self.reads else 1

    def ends(self, line: ir.IndexForm) -> tuple[ir.Var, ir.Var]:
        """The variable whose elements read, and the one whose axes are read: `out` and `of`, or transposed."""
        return (line.of, line.out) if self.transposed else (line.out, line.of)


@lru_cache(maxsize=4096)  # lines are compared by identity
def index_map(line: ir.IndexForm) -> IndexMap:
    """The map of a line."""
    match line:
        case ir.Window() | ir.Unwindow():
            columns = zip(*line.offsets, strict=True)
            reads = tuple(Read(a, a, s, c) for a, s, c in zip(line.axes, line.stride, columns, strict=True))
            return IndexMap(reads, line.tap, line.outside, isinstance(line, ir.Unwindow))
        case ir.At() | ir.Place():
            return IndexMap((Read(line.axis, None, 0, (line.index,)),), transposed=isinstance(line, ir.Place))
        case ir.Shift():
            return IndexMap((Read(line.axis, line.axis, 1, (-line.by,)),), outside="zero")
        case ir.Rename():
            return IndexMap(tuple(Read(old, new) for old, new in line.axes))
        case _:
            assert_never(line)


def adjoint(line: ir.IndexForm, out: ir.Var, of: ir.Var) -> ir.IndexForm:
    """The line of the transposed map, out = Lᵀ of; renamed axes that `of` lacks are left out."""
    match line:
        case ir.Window():
            return ir.Unwindow(out, of, line.axes, line.tap, line.offsets, line.stride, line.outside)
        case ir.Unwindow():
            return ir.Window(out, of, line.axes, line.tap, line.offsets, line.stride, line.outside)
        case ir.At():
            return ir.Place(out, of, line.axis, line.index)
        case ir.Place():
            return ir.At(out, of, line.axis, line.index)
        case ir.Shift():
            return ir.Shift(out, of, line.axis, -line.by)
        case ir.Rename():
            return ir.Rename(out, of, tuple((new, old) for old, new in line.axes if new in of.axes))
        case _:
            assert_never(line)


def along(line: ir.IndexForm, out: ir.Var, of: ir.Var, axis: Callable[[ir.Axis], ir.Axis]) -> ir.IndexForm:
    """The same map of other variables, along axis(a) for every axis a."""
    match line:
        case ir.Window() | ir.Unwindow():
            return replace(line, out=out, of=of, axes=tuple(map(axis, line.axes)), tap=axis(line.tap))
        case ir.At() | ir.Place() | ir.Shift():
            return replace(line, out=out, of=of, axis=axis(line.axis))
        case ir.Rename():
            return replace(line, out=out, of=of, axes=tuple((axis(a), axis(b)) for a, b in line.axes))
        case _:
            assert_never(line)


def axes_of(line: ir.IndexForm) -> tuple[ir.Axis, ...]:
    """The axes that a line names: the tap's, those that are read, and those that positions move with."""
    m = index_map(line)
    moving = (a for r in m.reads for a in (r.axis, r.at))
    return tuple(a for a in dict.fromkeys((m.tap, *moving)) if a is not None)


def dims(line: ir.IndexForm) -> tuple[ir.Dim, ...]:
    """The axes and sizes of the result, as far as those of `of` determine them."""
    m = index_map(line)
    if m.transposed:
        full = {r.at: axis_dim(r.axis) for r in m.reads if r.at is not None}
        kept = tuple(full.get(d.axis, d) for d in line.of.dims if d.axis != m.tap)
        return (*kept, *(axis_dim(r.axis) for r in m.fixed))
    reads = {r.axis: r for r in m.reads}
    moved = tuple(_read_dim(d, reads.get(d.axis)) for d in line.of.dims)
    kept = tuple(d for d in moved if d is not None)
    return kept if m.tap is None else (*kept, ir.Dim(m.tap, m.taps))


def _read_dim(dim: ir.Dim, read: Read | None) -> ir.Dim | None:
    """The axis of the result that an axis becomes; none at one position."""
    if read is None:
        return dim
    return None if read.at is None else ir.Dim(read.at, strided(dim.size, 0, read.stride))


def position(line: ir.IndexForm, read: Read, size: int) -> int:
    """Where a position without `at` lies on an axis of this size."""
    (index,) = read.offsets
    if not -size <= index < size:
        what = f"index {index} of {index_map(line).ends(line)[1]}"
        raise ProgramError(f"{what} is outside the axis {read.axis.name} of size {size}", code="NT107")
    return index % size


# ---------------------------------------------------------------- elements

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
