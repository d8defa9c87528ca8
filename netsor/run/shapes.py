"""Arrays of families: the layout `[*axes, n]` of a vector, alignment of axes, and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from netsor import ir
from netsor.facts import input_vectors
from netsor.indexing import index_map
from netsor.run.expressions import Array
from netsor.sizes import number


@dataclass(frozen=True)
class Sizes:
    """A choice of all sizes: the reference width, the axes taken from data, the features of each data input."""

    width: int = 8
    open_axes: Mapping[str, int] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    default: int = 3

    def dimension(self, of: ir.Dimension | None) -> int:
        if isinstance(of, ir.Width):
            return max(1, round(self.width * float(of.ratio)))
        return self.features.get(of.name, 3) if of is not None else 1

    def size(self, of: ir.Size) -> int:
        return number(of, lambda axis: self.open_axes.get(axis, self.default))

    def axes(self, of: ir.Var) -> tuple[int, ...]:
        return tuple(self.size(d.size) for d in of.dims)

    def shape(self, of: ir.Var) -> tuple[int, ...]:
        """The shape of a variable's array."""
        tail: tuple[int, ...] = () if of.kind == "C" else (self.dimension(of.rows),)
        if of.kind == "A":
            tail = (*tail, self.dimension(of.cols))
        return (*self.axes(of), *tail)


def fitting(lines: Sequence[ir.Line], width: int, features: Mapping[str, int] | None = None) -> Sizes:
    """Sizes at which every axis has an element and every index exists; axes of the data get at least three.

    An axis over which the program states an array has the array's size.
    """
    known = _stated(lines)
    for default in range(3, 65):
        sizes = Sizes(width, known, features or {}, default)
        if all(_fits(line, sizes) for line in lines):
            return sizes
    return Sizes(width, known, features or {}, 3)


def _stated(lines: Sequence[ir.Line]) -> dict[str, int]:
    """Sizes of data axes by the arrays that stand in the program."""
    found = {axis.name: len(rows) for v in input_vectors(lines) for axis, rows in v.axis_cov}
    for line in lines:
        if isinstance(line, ir.InputScalar) and not isinstance(line.limit, str):
            found |= {d.axis.name: n for d, n in zip(line.out.dims, np.shape(line.limit or 0), strict=False)}
    return found


def _fits(line: ir.Line, sizes: Sizes) -> bool:
    if any(s < 1 for s in sizes.axes(line.out)):
        return False
    if not isinstance(line, ir.IndexLine):
        return True
    m = index_map(line)
    read = m.ends(line)[1]
    return all(-(n := sizes.size(read.size(r.axis))) <= r.offsets[0] < n for r in m.fixed)


def aligned(value: Array, have: Sequence[ir.Axis], want: Sequence[ir.Axis], tail: int) -> Array:
    """`value` with leading axes in the order of `want`, of length 1 where it has none; `tail` trailing axes stay."""
    order = [have.index(a) for a in want if a in have]
    moved = np.transpose(value, (*order, *range(len(have), len(have) + tail)))
    shape = iter(moved.shape)
    lead = tuple(next(shape) if a in have else 1 for a in want)
    return moved.reshape((*lead, *shape))
