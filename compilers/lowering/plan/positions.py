"""Statements about sizes of axes and positions on them."""

from __future__ import annotations

from dataclasses import dataclass

from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.lowering.plan.operands import Array, Extent, Making, Name, Offsets, Place


@dataclass(frozen=True)
class Size(Making):
    """The size of a data axis, of both inputs (m) that of the shorter one."""

    axis: str
    copy: Copy


@dataclass(frozen=True)
class Strided(Making):
    """⌈(of − minus) / stride⌉."""

    of: Extent
    minus: int
    stride: int


@dataclass(frozen=True)
class SameSize(Making):
    """The common size of two circular axes; an error where they differ."""

    one: Extent
    two: Extent


@dataclass(frozen=True)
class Features(Making):
    """The dimension d of a network input."""

    of: Array


@dataclass(frozen=True)
class Move(Making):
    """How a dimension (counted behind the samples) moves with the taps of a box, see `Box`."""

    dim: int
    offsets: Offsets
    stride: int
    size: Extent
    wrap: bool
    back: bool  # input s is added to output stride·s + offset, instead of output s reading it


@dataclass(frozen=True)
class Grid(Making):
    """0 … size − 1 along the first dimension."""

    size: Extent


@dataclass(frozen=True)
class Taps(Making):
    """The offsets along the first dimension; with `at` those at a position."""

    offsets: Offsets
    at: Place | None = None


@dataclass(frozen=True)
class Window(Making):
    """stride·at + taps, modulo `wrap`."""

    at: Place
    taps: Name
    stride: int
    wrap: Extent | None


@dataclass(frozen=True)
class Inverse(Making):
    """(at − taps) / stride where it divides, modulo `wrap` before that; −1 elsewhere."""

    at: Place
    taps: Name
    stride: int
    wrap: Extent | None


@dataclass(frozen=True)
class Back(Making):
    """at − by."""

    at: Place
    by: int


@dataclass(frozen=True)
class Along(Making):
    """A vector of positions with dimensions of one element behind it."""

    at: Name


@dataclass(frozen=True)
class Indicator(Making):
    """1 where `left` is inside 0 … size − 1 and equals `right`, if there is one, else 0."""

    left: Place
    right: Place | None
    size: Extent


Measure = Size | Strided | SameSize | Features
Position = Move | Grid | Taps | Window | Inverse | Back | Along | Indicator
