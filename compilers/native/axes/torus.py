"""Kernels over pairs of positions (s, t) by their offsets: what couples (s, t) with (s + κ, t + κ) alone.

All pairs of positions of two images with t − s = o, modulo the image, are one problem over s; links are cut where s or
t leaves the image. Offsets along the last axis stand in the lanes of a vector, the others are taken one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from netsor.compilers.native.axes.index import Atom, Index, flat, variable
from netsor.compilers.native.expectations import Missing

MUCH = 16  # positions of the last axis below which the lanes of a vector would be left empty


@dataclass(frozen=True)
class Torus:
    """The sizes of the axes of an image; `lanes` of a vector."""

    sizes: tuple[int, ...]
    lanes: int

    @property
    def domain(self) -> tuple[int, ...]:
        return self.sizes * 2

    @property
    def row(self) -> int:
        """Numbers of a row of the second input: twice, for offsets lead out of it, and as many as a vector has."""
        return 2 * self.sizes[-1] + self.lanes

    @property
    def index(self) -> tuple[Index, ...]:
        """s, then t."""
        one = tuple(variable(f"d{k}", size) for k, size in enumerate(self.sizes))
        return (*one, *(Index(0, ((a, 1),)) for a in self.moved))

    @property
    def moved(self) -> tuple[Atom, ...]:
        """The coordinates of t."""
        last = len(self.sizes) - 1
        return tuple(
            Atom(f"((d{k} + o{k}) % {size})" if k < last else "lane", 0, size - 1, k == last)
            for k, size in enumerate(self.sizes)
        )

    def place(self, index: tuple[Index, ...]) -> Index:
        """Where a tensor of one offset holds the element of s and t."""
        count = len(self.sizes)
        home = self.index
        for k in range(count):
            if index[k] - home[k] != index[count + k] - home[count + k]:
                raise Missing("elements of other offsets")
        return flat(index[:count], self.sizes)

    def second(self, at: Index, size: int, count: str = "1") -> str:
        """Where the rows of the second input, twice each, hold the elements of all lanes, `count` numbers for each."""
        rest = size // math.prod(self.sizes)
        width = rest * self.sizes[-1]
        out = Index(0)
        lanes = 0
        for atom, c in at.terms:
            if atom.lane:
                lanes += c
            elif c % width:
                raise Missing("elements of other offsets")
            else:
                out = out + Index(0, ((atom, c // width * rest * self.row),))
        lead, feature = divmod(at.const, width)
        if lanes != rest or feature >= rest or size % math.prod(self.sizes):
            raise Missing("elements of other offsets")
        last = len(self.sizes) - 1
        offset = Index(0, ((Atom(f"d{last}", 0, self.sizes[-1] - 1), 1), (Atom("first", 0, self.sizes[-1] - 1), 1)))
        row = out + (lead * rest * self.row + feature * self.row)
        return (row + offset).text if count == "1" else f"{row.text} * {count} + {offset.text}"

    def alike(self, one: Index, two: Index) -> bool:
        """Is the element of the second input that of the first where the offset is zero?"""
        moved = dict(zip(self.moved, (i.terms[0][0] for i in self.index[: len(self.sizes)]), strict=True))
        back = Index(two.const)
        for a, c in two.terms:
            back = back + Index(0, ((moved.get(a, a), c),))
        return back == one

    def mask(self, shift: int) -> tuple[str, str, tuple[float, ...]]:
        """1 in the lanes in which t + shift is inside: a C expression, the table's name and its numbers.

        The table has a row of offsets for each position.
        """
        size = self.sizes[-1]
        width = -(-size // self.lanes) * self.lanes
        name = f"M{'p' if shift > 0 else 'm'}{abs(shift)}"
        values = tuple(float(0 <= (w + o) % size + shift < size) for w in range(size) for o in range(width))
        return f"{name} + {width} * d{len(self.sizes) - 1} + first", name, values
