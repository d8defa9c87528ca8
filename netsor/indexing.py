"""What an index form reads: one meaning of windows, elements, shifts, renamed axes and of their adjoints.

    out[s, κ, …] = of[…, stride·s + offsets[κ], …]

Each of some axes of `of` is read at an affine position; along its other axes `of` is read at the result's own index.
A transposed map adds up instead: out[t] = Σ of[s, κ] over the (s, κ) whose positions are t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from netsor import ir
from netsor.errors import ProgramError

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
    def taps(self) -> int:
        return len(self.reads[0].offsets) if self.reads else 1

    def ends(self, line: ir.IndexForm) -> tuple[ir.Var, ir.Var]:
        """The variable whose elements read, and the one whose axes are read: `out` and `of`, or transposed."""
        return (line.of, line.out) if self.transposed else (line.out, line.of)


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


def position(line: ir.IndexForm, read: Read, size: int) -> int:
    """Where a position without `at` lies on an axis of this size."""
    (index,) = read.offsets
    if not -size <= index < size:
        what = f"index {index} of {index_map(line).ends(line)[1]}"
        raise ProgramError(f"{what} is outside the axis {read.axis.name} of size {size}", code="NT107")
    return index % size
