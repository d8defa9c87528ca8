"""Sums over all pairs of positions of two images, whose offsets are taken one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from netsor.compilers.lowering.plan import arrays, operations, order
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

    def takes(self, s: order.Statement) -> bool:
        """Is the statement a step of such a sum? Missing for what else reads one."""
        if isinstance(s, operations.Mul):
            return self._scaled(s)
        part = self._part(s.of) if isinstance(s, arrays.Permute | operations.Total) else None
        if part is None:
            return False
        if isinstance(s, arrays.Permute):
            leads = self.walk.leads(s.of)
            moved = tuple(part.left[k - leads] for k in s.order[leads:])
            self._parts[s.out] = Part(part.of, moved, part.factor)
        elif isinstance(s, operations.Total):
            self._put(s.out, Part(part.of, part.left[:-1], part.factor))
        return True

    def _scaled(self, s: operations.Mul) -> bool:
        part = self._parts.get(s.x) if isinstance(s.x, Name) else None
        if part is None:
            return False
        factor = self.walk.numbers.get(s.y) if isinstance(s.y, Name) else s.y
        if not isinstance(factor, float | int):
            raise Missing("a product with a sum over some of the axes of an image")
        self._parts[s.out] = Part(part.of, part.left, part.factor * float(factor))
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
