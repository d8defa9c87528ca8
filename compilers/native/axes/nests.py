"""Loops over positions, level by level: what stands in one nest is computed in registers, element by element.

A level reads what lower levels have stored. What is read in its own nest at the same element is not stored at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from netsor.compilers.native.axes.index import Index, flat, variable
from netsor.compilers.native.axes.torus import Torus
from netsor.compilers.native.body import Argument, Body, Instruction, Ref, Side, Value
from netsor.compilers.native.expectations import Missing

When = bool | str  # a condition: known, or as C


@dataclass(eq=False)
class Buffer:
    """A tensor of a tile: `size` elements of a vector each."""

    size: int


@dataclass(frozen=True)
class Leaf:
    """What an element of a body reads: of a buffer or of one input, or (`text`) one number for all lanes.

    Zero where `when` does not hold.
    """

    buffer: Buffer | None
    at: Index
    when: When = True
    text: str = ""
    side: Side | None = None
    row: Index | None = None  # the place along the first axis, where the buffer has axes of its own
    vector: str = ""  # a vector of a table


class Cursor:
    """A body with what it reads, and the element at which it is computed."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.masks: dict[str, tuple[float, ...]] = {}
        self.torus: Torus | None = None  # whose offsets stand in the lanes
        self.body = Body()
        self.leaves: dict[Leaf, int] = {}

    def load(self, leaf: Leaf) -> Value:
        which = self.leaves.setdefault(leaf, len(self.leaves))
        return Value(self.body, self.body.add("load", which=which), self.dtype)

    def cut(self, shift: int) -> Value:
        """1 in the lanes in which a position of the second input, moved, is inside, else 0."""
        assert self.torus is not None
        text, name, values = self.torus.mask(shift)
        self.masks[name] = values
        return self.load(Leaf(None, Index(0), vector=text))

    def number(self, x: float) -> Value:
        return Value(self.body, float(x), self.dtype)

    def uniform(self, text: str) -> Value:
        """A number that is the same in all lanes."""
        return self.load(Leaf(None, Index(0), True, text))

    def value(self, arg: Argument) -> Value:
        return Value(self.body, arg, self.dtype)


class Made:
    """What is made in a scope at a level; nests of the same level read it where they are its own."""

    def __init__(self, scope: Scope, level: int, shape: tuple[int, ...], buffer: Buffer | None = None) -> None:
        self.scope, self.level, self.shape = scope, level, shape
        self._buffer = buffer

    def joins(self, domain: tuple[int, ...]) -> bool:
        del domain
        return False

    @property
    def is_read(self) -> bool:
        return self._buffer is not None

    @property
    def buffer(self) -> Buffer:
        if self._buffer is None:
            self._buffer = Buffer(math.prod(self.scope.stored(self.shape)))
        return self._buffer

    def at(self, cursor: Cursor, index: Sequence[Index], when: When) -> Value:
        place = self.scope.place(tuple(index), self.shape)
        return cursor.load(Leaf(self.buffer, place, when, row=index[0] if index else None))


class Stored(Made):
    """A value of every element of a nest."""

    def __init__(self, nest: Nest, ref: Ref) -> None:
        super().__init__(nest.scope, nest.level, nest.domain)
        self.nest, self.ref = nest, ref

    def joins(self, domain: tuple[int, ...]) -> bool:
        return domain == self.nest.domain

    @property
    def buffer(self) -> Buffer:
        known, found = self._buffer, super().buffer
        if known is None:
            self.nest.write(found, self.nest.index, self.ref)
        return found

    def at(self, cursor: Cursor, index: Sequence[Index], when: When) -> Value:
        if cursor is self.nest and tuple(index) == self.nest.index and when is True:
            return cursor.value(self.ref)
        return super().at(cursor, index, when)


@dataclass(frozen=True)
class Write:
    """The place in a buffer that takes an argument."""

    buffer: Buffer
    at: Index
    arg: Argument
    row: Index | None


class Nest(Cursor):
    """Loops over the elements of a domain."""

    def __init__(self, scope: Scope, level: int, domain: tuple[int, ...]) -> None:
        super().__init__(scope.dtype)
        self.scope, self.level, self.domain = scope, level, domain
        self.loops = scope.stored(domain)
        self.index = tuple(variable(f"d{k}", size) for k, size in enumerate(domain))
        if self.loops != domain and scope.torus is not None:
            self.index, self.torus = scope.torus.index, scope.torus
        self.writes: list[Write] = []
        self.sums: list[tuple[int, Argument]] = []  # what is added up over all elements, and where

    def write(
        self, buffer: Buffer, index: Sequence[Index], arg: Argument, shape: tuple[int, ...] | None = None
    ) -> None:
        own = shape is None or shape == self.domain
        place = self.scope.place(tuple(index), self.domain if shape is None else shape)
        self.writes.append(Write(buffer, place, arg, index[0] if own and index else None))

    def alive(self) -> set[int]:
        """The instructions that are stored, and what they read."""
        read = [*(w.arg for w in self.writes), *(arg for _, arg in self.sums)]
        self.body.results = read
        return self.body.alive()


class Sums(Cursor):
    """For each element of a domain the sum of a term over further variables, into a buffer of its own."""

    def __init__(self, scope: Scope, level: int, domain: tuple[int, ...], over: tuple[int, ...]) -> None:
        super().__init__(scope.dtype)
        self.scope, self.level, self.domain, self.over = scope, level, domain, over
        self.index = tuple(variable(f"d{k}", size) for k, size in enumerate(domain))
        self.inner = tuple(variable(f"k{k}", size) for k, size in enumerate(over))
        self.term: Argument = 0.0
        self.factor = 1.0
        self.out = Made(scope, level, domain)

    def alive(self) -> set[int]:
        self.body.results = [self.term]
        return self.body.alive()


@dataclass
class Repeat:
    """A recurrence: a scope for each of the positions, in order or from the end."""

    level: int
    variables: tuple[str, ...]
    sizes: tuple[int, ...]
    reverse: bool
    body: Scope
    cells: list[Buffer]


@dataclass
class Scope:
    """Nests, sums and recurrences of one level of nesting."""

    dtype: torch.dtype
    parent: Scope | None = None
    nests: dict[tuple[int, tuple[int, ...]], Nest] = field(default_factory=dict)
    sums: list[Sums] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)
    outer: int = -1  # the highest level of the parent that is read
    torus: Torus | None = None  # of which domain one offset at a time is computed

    def stored(self, domain: tuple[int, ...]) -> tuple[int, ...]:
        """The axes of what is stored of a domain."""
        return self.torus.sizes if self.torus is not None and self.torus.domain == domain else domain

    def is_torus(self, domain: tuple[int, ...]) -> bool:
        return self.torus is not None and self.torus.domain == domain

    def place(self, index: tuple[Index, ...], shape: tuple[int, ...]) -> Index:
        """Where a tensor of a shape holds an element."""
        if self.torus is not None and self.torus.domain == shape:
            return self.torus.place(index)
        return flat(index, shape)

    def level(self, domain: tuple[int, ...] | None, sources: Mapping[Made, bool]) -> int:
        """The lowest level at which something over a domain that reads these may stand; None is a nest of its own."""
        found = 0
        for made, as_it_is in sources.items():
            if made.scope is self:
                joins = domain is not None and as_it_is and made.joins(domain)
                found = max(found, made.level + (0 if joins else 1))
            else:
                self.read(made)
        return found

    def read(self, made: Made) -> None:
        """Note that something of an outer scope is read."""
        if made.scope is self:
            return
        if self.parent is None:
            raise Missing("elements of other offsets")
        if made.scope is self.parent:
            self.outer = max(self.outer, made.level)
        else:
            self.parent.read(made)

    def nest(self, domain: tuple[int, ...], sources: Mapping[Made, bool]) -> Nest:
        key = self.level(domain, sources), domain
        if key not in self.nests:
            self.nests[key] = Nest(self, *key)
        return self.nests[key]

    def items(self) -> list[Nest | Sums | Repeat]:
        """In an order in which everything that is read stands before."""
        every: list[Nest | Sums | Repeat] = [*self.nests.values(), *self.sums, *self.repeats]
        return sorted(every, key=lambda x: x.level)


At = Callable[[Cursor, tuple[Index, ...], When], Value]


@dataclass(frozen=True, eq=False)
class Field:
    """The elements of a tensor behind the samples: what is at an index; `sources` with whether at the same index."""

    shape: tuple[int, ...]
    at: At
    sources: Mapping[Made, bool] = field(default_factory=dict)


def instructions(cursor: Cursor, alive: set[int]) -> list[tuple[int, Instruction]]:
    return [(k, cursor.body.code[k]) for k in sorted(alive)]
