"""What statements read and make: names with their layouts, quantities and arrays of the inputs, numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple

from netsor.compilers.derive.entries.indices import Copy, Sym


class Layout(NamedTuple):
    """`leads` sample dimensions, then `axes`; `of`: the copies (1, 2, or the one input s) that the values depend on."""

    leads: int
    axes: tuple[Sym | None, ...]
    of: frozenset[Copy]


Kind = Literal["entry", "step", "temporary", "size", "position", "move"]


@dataclass(frozen=True, eq=False)
class Name:
    """What a statement makes: an identity; `stem` is for people."""

    stem: str
    layout: Layout | None
    kind: Kind = "temporary"


@dataclass(frozen=True)
class Quantity:
    """What `each` has made of one input, read in the pairs of a copy."""

    name: Name
    copy: Copy
    as_variance: bool = False  # with what expectations have made of it


@dataclass(frozen=True)
class Array:
    """An input of the program or a function of its data, of one copy: `[samples, *axes]`, data with features behind."""

    name: str
    copy: Copy
    layout: Layout


Extent = Name | int  # of a dimension
Place = Name | int  # an index: a number, or integers with a layout
Operand = Name | Quantity | Array | int | float
Offsets = tuple[int, ...]


class Into(Enum):
    """Where a sum or a product is written."""

    FIRST = "the memory of the first operand, which nothing else reads"
    DROPPED = "memory that another tensor of the block has left"
    NEW = "memory of its own"


class Mark(Enum):
    """What a slice does to a dimension; besides, an index picks an element."""

    KEEP = ":"
    NEW = "None"  # a new dimension of one element
    REST = "..."  # all dimensions that have no mark of their own


# ---------------------------------------------------------------- kinds of statements


@dataclass(frozen=True)
class Base:
    """A statement."""

    def made(self) -> tuple[Name, ...]:
        """The names that it defines for those that follow."""
        return ()

    def bodies(self) -> tuple[tuple[Any, ...], ...]:
        """The statements inside it that have names of their own."""
        return ()


@dataclass(frozen=True)
class Making(Base):
    """A statement that makes a name."""

    out: Name

    def made(self) -> tuple[Name, ...]:
        return (self.out,)


@dataclass(frozen=True)
class View(Making):
    """The result may share its memory with the operand."""

    of: Operand


@dataclass(frozen=True)
class Binary(Making):
    """Arithmetic of two operands."""

    x: Operand
    y: Operand
    into: Into
