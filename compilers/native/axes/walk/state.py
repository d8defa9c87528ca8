"""What the statements of a tile have made so far, and what they read."""

from __future__ import annotations

from typing import Any, assert_never

import torch

from netsor.compilers.derive.outputs import Key
from netsor.compilers.lowering.plan import order
from netsor.compilers.lowering.plan.operands import Array, Extent, Name, Operand, Place, Quantity
from netsor.compilers.native.axes.index import Index, flat
from netsor.compilers.native.axes.nests import Buffer, Cursor, Field, Leaf, Scope, Stored, When
from netsor.compilers.native.axes.sides import Shapes, Sides, count
from netsor.compilers.native.axes.torus import Torus
from netsor.compilers.native.axes.walk import fields, sums
from netsor.compilers.native.axes.walk.fields import Places
from netsor.compilers.native.body import Ref, Side, Value
from netsor.compilers.native.columns import Column, Kept
from netsor.compilers.native.expectations import Missing, Series
from netsor.compilers.native.statements import Functions, Statements
from netsor.compilers.runtime.boxes import Move


class State(Statements):
    """What the statements of one tile have made so far; `own`: it may hold pairs of one input twice."""

    def __init__(
        self, sides: Sides, get: frozenset[str], functions: Functions, dtype: torch.dtype,
        shapes: Shapes, own: bool, series: dict[Series, int], torus: Torus | None = None,
    ) -> None:  # fmt: skip
        super().__init__(get, functions, dtype)
        self.shapes, self.own, self.series = shapes, own, series
        self.scope = Scope(dtype, torus=torus)
        self.last = self.scope if torus is None else Scope(dtype)  # what is left when all offsets are added up
        self.fields: dict[Name, Field] = {}
        self.places: dict[Name, Places] = {}
        self.numbers: dict[Name, float] = {}
        self.moves: dict[Name, Move] = {}
        self.tables: dict[tuple[float, ...], str] = {}
        self.results: dict[Key, Buffer] = {}
        self.shapes_out: dict[Key, tuple[int, ...]] = {}
        self.cells: dict[order.Cell, Buffer] = {}  # of the recurrences at hand
        self.current: dict[order.Cell, Field] = {}  # values of this step
        self.here: list[Index] = []  # its positions
        self.repeats = 0
        self.elements: int = 0  # expectations of a pair
        self.summed: int = 0  # those of them that are series
        self.kept = {x: k for k, x in enumerate(sides.quantities)}
        first = len(self.kept) + len(sides.arrays)
        self.parameters = {x: k for k, x in enumerate(sides.parameters, first)}
        self.arrays = {x.name: k for k, x in enumerate(sides.arrays, len(self.kept))}

    # ------------------------------------------------------------ operands

    def field(self, x: Operand) -> Field:
        match x:
            case Name():
                if x not in self.fields and x not in self.numbers:
                    raise Missing("a sum over some of the axes of an image")
                return self.fields[x] if x in self.fields else fields.number(self.numbers[x])
            case Quantity():
                return self.side(x.copy, self.kept[x.name])
            case Array():
                return self.side(x.copy, self.arrays[x.name])
            case int() | float():
                return fields.number(float(x))
            case _:
                assert_never(x)

    def place(self, x: Place) -> Places:
        if isinstance(x, Name) and x in self.places:
            return self.places[x]
        number = Index(int(self.numbers[x] if isinstance(x, Name) else x))
        return Places((), lambda index: number)

    def size(self, x: Extent) -> int:
        return int(self.numbers[x] if isinstance(x, Name) else x)

    def side(self, copy: Any, place: int) -> Field:
        """A quantity or an array of one input."""
        return self.of_input(copy, Kept(place), self.shapes.shape(copy, place))

    def of_input(self, copy: Any, column: Column, shape: tuple[int, ...]) -> Field:
        """A column of one input, as a tensor of a shape."""

        def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
            side = Side(2 if copy == 2 else 1, column, flat(index, shape), count(shape))
            if when is True:
                return cursor.value(side)
            return cursor.number(0.0) if when is False else cursor.load(Leaf(None, Index(0), when, "", side))

        return Field(shape, at)

    def leads(self, x: Operand) -> int:
        """Sample dimensions of an operand."""
        if isinstance(x, Quantity):
            return 0 if x.name.layout is None else 2 * x.name.layout.leads
        return x.layout.leads if isinstance(x, Name | Array) and x.layout is not None else 0

    # ------------------------------------------------------------ where values stand

    def home(self, domain: tuple[int, ...]) -> Scope:
        """The scope of what stands over a domain."""
        return self.scope if self.scope.torus is None or self.scope.is_torus(domain) else self.last

    def keep(self, f: Field) -> Field:
        """The field computed in a nest, and stored for those who read it elsewhere."""
        if any(f.at == made.at for made in f.sources):  # it is, and may be read by nobody
            return f
        nest = self.home(f.shape).nest(f.shape, f.sources)
        made = f.at(nest, nest.index, True).arg
        if not isinstance(made, Ref) or nest.body.code[made.number].op == "load":
            return f
        return sums.stored(Stored(nest, made))
