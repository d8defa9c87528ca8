"""Sums over all pairs of positions of two images, whose offsets are taken one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netsor.compilers.lowering.plan.operands import Name, Operand
from netsor.compilers.native.axes.index import Index
from netsor.compilers.native.axes.nests import Cursor, Field, When
from netsor.compilers.native.axes.walk.state import State
from netsor.compilers.native.body import Value
from netsor.compilers.native.expectations import Missing


@dataclass(frozen=True)
class Part:
    """factor·(the sum of a field over all of its dimensions but `left`, in their order)."""

    of: Field
    left: tuple[int, ...]
    factor: float = 1.0


class Offsets:
    """The sums of a walk that are not yet over all dimensions; `count` are, each a number that a tile adds to."""

    def __init__(self, walk: State) -> None:
        self.walk, self.count = walk, 0
        self._parts: dict[Name, Part] = {}

    def permuted(self, out: Name, of: Operand, order: Sequence[int]) -> bool:
        """Is a permutation one of such a sum, or of the tensor that it begins with?"""
        part = self._part(of)
        if part is not None:
            self._parts[out] = Part(part.of, tuple(part.left[k] for k in order), part.factor)
        return part is not None

    def summed(self, out: Name, of: Operand) -> bool:
        """Is the sum over the last dimension a step of such a sum?"""
        part = self._part(of)
        if part is not None:
            self._put(out, Part(part.of, part.left[:-1], part.factor))
        return part is not None

    def scaled(self, out: Name, x: Operand, y: Operand) -> bool:
        """Is a product one of such a sum? Missing for one with anything but a number."""
        part = self._parts.get(x) if isinstance(x, Name) else None
        if part is None:
            return False
        factor = self.walk.numbers.get(y) if isinstance(y, Name) else y
        if not isinstance(factor, float | int):
            raise Missing("a product with a sum over some of the axes of an image")
        self._parts[out] = Part(part.of, part.left, part.factor * float(factor))
        return True

    def _part(self, x: Operand) -> Part | None:
        if isinstance(x, Name) and x in self._parts:
            return self._parts[x]
        if not isinstance(x, Name) or x not in self.walk.fields:
            return None
        found = self.walk.fields[x]
        return Part(found, tuple(range(len(found.shape)))) if self.walk.scope.is_torus(found.shape) else None

    def _put(self, out: Name, part: Part) -> None:
        if part.left:
            self._parts[out] = part
            return
        nest = self.walk.scope.nest(part.of.shape, part.of.sources)
        value = part.of.at(nest, nest.index, True) * part.factor
        number = self.count
        nest.sums.append((number, value.arg))
        self.count += 1

        def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
            del index
            return cursor.uniform(f"sum[{number}]" if when is True else f"({when}) ? sum[{number}] : 0")

        self.walk.fields[out] = Field((), at)
