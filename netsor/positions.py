"""What belongs to an element of a family: the elements it reads, its limit, its covariances; and the sizes of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, assert_never

from netsor import ir
from netsor.errors import ProgramError
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
    match line:
        case ir.Window():
            return _window(line, index, size)
        case ir.Unwindow():
            return _unwindow(line, index, size)
        case ir.At():
            return [{**index, line.axis.name: _inside(line.of, line.axis, line.index, size)}]
        case ir.Place():
            return [dict(index)] if index[line.axis.name] == _inside(line.out, line.axis, line.index, size) else []
        case ir.Shift():
            t = index[line.axis.name] - line.by
            return [{**index, line.axis.name: t}] if 0 <= t < size(line.out.size(line.axis)) else []
        case ir.Rename():
            table = {b.name: a.name for a, b in line.axes}
            return [{table.get(a, a): i for a, i in index.items()}]
        case _:
            assert_never(line)


def _inside(var: ir.Var, axis: ir.Axis, index: int, size: SizeOf) -> int:
    count = size(var.size(axis))
    if not -count <= index < count:
        raise ProgramError(f"index {index} of {var} is outside the axis {axis.name} of size {count}", code="NT107")
    return index % count


def _window(line: ir.Window, index: Index, size: SizeOf) -> list[dict[str, int]] | None:
    there = dict(index)
    for axis, offset, stride in zip(line.axes, line.offsets[index[line.tap.name]], line.stride, strict=True):
        count = size(line.of.size(axis))
        t = stride * index[axis.name] + offset
        if line.outside == "wrap":
            t %= count
        elif not 0 <= t < count:
            return None if line.outside == "drop" else []
        there[axis.name] = t
    return [there]


def _unwindow(line: ir.Unwindow, index: Index, size: SizeOf) -> list[dict[str, int]]:
    """All (s, κ) with stride·s + offset[κ] = t."""
    counts = [range(size(line.of.size(a))) for a in line.axes]
    wanted = [index[a.name] for a in line.axes]
    found = []
    for (k, offsets), place in product(enumerate(line.offsets), product(*counts)):
        if _read(line, place, offsets, size) == wanted:
            found.append({**index, line.tap.name: k} | {a.name: i for a, i in zip(line.axes, place, strict=True)})
    return found


def _read(line: ir.Unwindow, place: Sequence[int], offsets: Sequence[int], size: SizeOf) -> list[int]:
    read = [s * i + o for s, i, o in zip(line.stride, place, offsets, strict=True)]
    if line.outside == "wrap":
        read = [t % size(line.out.size(a)) for t, a in zip(read, line.axes, strict=True)]
    return read


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
