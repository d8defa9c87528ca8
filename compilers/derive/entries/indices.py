"""Indices of entries: symbols that run over axes, what is made of them, and how they are renamed.

    index  ::=  symbol | constant | stride·s + off[κ] | (t − off[κ]) / stride | t − k

A symbol runs over one axis of one copy of the program. An index that falls outside its axis gives zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple, assert_never

from netsor import ir


class Copy(IntEnum):
    """Which of the two inputs of a kernel something belongs to."""

    NONE = 0  # to neither: it does not depend on data
    FIRST = 1
    SECOND = 2
    OWN = 3  # the one input at hand, of what every input has alone
    SHORTER = 4  # both: an index of both runs over the shorter one

    @property
    def side(self) -> int:
        """Left (1) or right (2) where there is one."""
        return {Copy.NONE: 0, Copy.SECOND: 2}.get(self, 1)


def copy_over(size: ir.Size, copy: Copy) -> Copy:
    """The copy of a symbol over an axis: none where the size is a number, and so the same for every input."""
    return Copy.NONE if isinstance(size, int) else copy


class Sym(NamedTuple):
    """An index symbol: it runs over `size` of `copy`; `number` tells symbols apart."""

    number: int
    size: ir.Size
    copy: Copy
    label: str


@dataclass(frozen=True)
class Const:
    """A constant index; negative counts from the end of `size` in `copy`."""

    value: int
    size: ir.Size
    copy: Copy


@dataclass(frozen=True)
class Win:
    """stride·s + offsets[κ]."""

    s: Sym
    tap: Sym
    offsets: tuple[int, ...]
    stride: int
    wrap: ir.Size | None  # the size of the axis that is read, when positions wrap


@dataclass(frozen=True)
class Inv:
    """(t − offsets[κ]) / stride, the inverse of Win for a fixed κ; outside unless it divides."""

    t: Sym
    tap: Sym
    offsets: tuple[int, ...]
    stride: int
    wrap: ir.Size | None  # the size of t when positions wrap


@dataclass(frozen=True)
class Off:
    """t − by."""

    t: Sym
    by: int


Index = Sym | Const | Win | Inv | Off


def index_symbols(index: Index) -> tuple[Sym, ...]:
    match index:
        case Sym():
            return (index,)
        case Const():
            return ()
        case Win():
            return (index.s, index.tap)
        case Inv():
            return (index.t, index.tap)
        case Off():
            return (index.t,)
        case _:
            assert_never(index)


@dataclass(frozen=True)
class Renaming:
    """Symbols to indices and copies to copies; a symbol inside a composed index goes to a symbol only."""

    table: Mapping[Sym, Index]
    copies: Mapping[Copy, Copy] = field(default_factory=dict)

    def copy(self, c: Copy) -> Copy:
        return self.copies.get(c, c)

    def symbol(self, s: Sym) -> Sym:
        new = self.table.get(s, s)
        if not isinstance(new, Sym):
            raise ComposedIndexError(s)
        if new is s and s.copy in self.copies:
            return s._replace(copy=self.copies[s.copy])
        return new

    def index(self, i: Index) -> Index:
        match i:
            case Sym():
                new = self.table.get(i, i)
                return self.symbol(i) if isinstance(new, Sym) else new
            case Const():
                return replace(i, copy=self.copy(i.copy))
            case Win():
                return replace(i, s=self.symbol(i.s), tap=self.symbol(i.tap))
            case Inv():
                return replace(i, t=self.symbol(i.t), tap=self.symbol(i.tap))
            case Off():
                return replace(i, t=self.symbol(i.t))
            case _:
                assert_never(i)

    @cached_property
    def trivial(self) -> bool:
        return not self.table and not self.copies


class ComposedIndexError(Exception):
    """An index map would have been put inside another one; the value must become an entry first."""
