"""Recurrences, guards, lifetimes and results: what orders the statements; and the plan as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netsor.compilers.derive.outputs import Key
from netsor.compilers.lowering.plan.arrays import Reading
from netsor.compilers.lowering.plan.operands import Base, Extent, Making, Name, Operand, Place
from netsor.compilers.lowering.plan.operations import Arithmetic, Expectation
from netsor.compilers.lowering.plan.positions import Measure, Position


@dataclass(frozen=True)
class Cell:
    """An entry of a recurrence: tensors of the other dimensions (`rest`) at each position of its loop dimensions."""

    name: Name  # the whole entry, once the recurrence is done
    sizes: tuple[Extent, ...]
    places: tuple[int, ...]  # of the loop dimensions behind the samples
    rest: tuple[Extent, ...]
    waves: bool  # filled by waves, not position by position


@dataclass(frozen=True)
class Read(Making):
    """A cell's value at positions; zero outside."""

    cell: Cell
    at: tuple[Place, ...]


@dataclass(frozen=True)
class Step:
    """How a cell's value at the positions `at` (integers) is made."""

    cell: Cell
    at: tuple[Name, ...]
    body: tuple[Statement, ...]
    value: Operand


@dataclass(frozen=True)
class Loop(Base):
    """Every cell at every position, each value once, those that it reads before; by the sum of the positions."""

    steps: tuple[Step, ...]
    reverse: bool

    def made(self) -> tuple[Name, ...]:
        return tuple(step.cell.name for step in self.steps)

    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        return tuple(step.body for step in self.steps)


@dataclass(frozen=True)
class Put(Base):
    """Write a cell's values at the positions of a wave."""

    cell: Cell
    at: tuple[Name, Name]
    of: Operand


@dataclass(frozen=True)
class Wave(Base):
    """The body for all pairs of positions with t + t′ = 0, 1, … at once, `at` the vectors of both."""

    cells: tuple[Cell, ...]
    at: tuple[Name, Name]
    sizes: tuple[Extent, Extent]
    body: tuple[Statement, ...]
    reverse: bool

    def made(self) -> tuple[Name, ...]:
        return tuple(cell.name for cell in self.cells)

    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        return (self.body,)


@dataclass(frozen=True)
class Store(Base):
    """Keep a function of the data as the array of that name."""

    name: str
    of: Operand


@dataclass(frozen=True)
class Note(Base):
    """The program's line that the next statements compute."""

    text: str


@dataclass(frozen=True)
class Guard(Base):
    """The body where one of the results is asked for."""

    results: tuple[str, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Free(Base):
    """Nothing reads these any more, nor a view of them.

    A name that is written into, or of which a view alone is read, is never free itself: the result is.
    """

    names: tuple[Name, ...]


@dataclass(frozen=True)
class Result(Base):
    """A kernel, or a scalar of each input, in its full shape with the axes' sizes."""

    key: Key
    of: Operand
    sizes: tuple[Extent, ...]


Flow = Read | Loop | Put | Wave | Store | Note | Guard | Free | Result
Statement = Measure | Position | Reading | Arithmetic | Expectation | Flow


@dataclass(frozen=True)
class Each:
    """The quantities of every input alone; `kept` are read by pairs."""

    sizes: tuple[Measure, ...]
    body: tuple[Statement, ...]
    kept: tuple[Name, ...]


@dataclass(frozen=True)
class Pairs:
    """The kernels of pairs, those of `results` that are asked for."""

    sizes: tuple[Measure, ...]
    body: tuple[Statement, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    each: Each
    pairs: Pairs


def unguarded(statements: Sequence[Statement]) -> Iterator[Statement]:
    """The statements of a function in order, those under conditions among them."""
    for s in statements:
        if isinstance(s, Guard):
            yield from s.body
        else:
            yield s
