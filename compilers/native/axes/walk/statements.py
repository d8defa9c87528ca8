"""The pairs of a plan as nests over positions, for inputs of given sizes; what has none is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import torch

from netsor.compilers.expectation.blocks import formulas
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.lowering.plan import arrays, operations, order, positions
from netsor.compilers.lowering.plan.operands import Mark, Name, Place
from netsor.compilers.native.axes.index import Index
from netsor.compilers.native.axes.nests import Buffer, Cursor, Field
from netsor.compilers.native.axes.sides import Shapes, Sides, count
from netsor.compilers.native.axes.torus import Torus
from netsor.compilers.native.axes.walk import fields, places, sums
from netsor.compilers.native.axes.walk.expectations import Elements
from netsor.compilers.native.axes.walk.fields import broadcast, pointwise
from netsor.compilers.native.axes.walk.formulas import applied
from netsor.compilers.native.axes.walk.offsets import Offsets
from netsor.compilers.native.axes.walk.products import Products
from netsor.compilers.native.axes.walk.recurrences import loop, put, read_cell, wave
from netsor.compilers.native.axes.walk.state import State
from netsor.compilers.native.body import Value
from netsor.compilers.native.columns import Column
from netsor.compilers.native.expectations import Missing, Series, of_one
from netsor.compilers.native.statements import Functions, OverAxes


class Walk(State):
    """The statements of one tile."""

    def __init__(
        self, plan: order.Plan, sides: Sides, get: frozenset[str], functions: Functions, dtype: torch.dtype,
        shapes: Shapes, own: bool, series: dict[Series, int], torus: Torus | None = None,
    ) -> None:  # fmt: skip
        super().__init__(sides, get, functions, dtype, shapes, own, series, torus)
        self.offsets, self.products = Offsets(self), Products(self)
        self._expectations: dict[Cursor, Elements] = {}
        self.run(plan.pairs.sizes)
        self.run(plan.pairs.body)

    def over_axes(self, s: OverAxes) -> None:  # noqa: C901
        match s:
            case positions.Size() | positions.Strided() | positions.SameSize() | positions.Features():
                self.numbers[s.out] = places.measure(self, s)
            case positions.Move():
                self.moves[s.out] = places.move(self, s)
            case (
                positions.Grid() | positions.Taps() | positions.Window() | positions.Inverse() | positions.Back()
                | positions.Along()
            ):  # fmt: skip
                self.places[s.out] = places.position(self, s)
            case positions.Indicator():
                self.fields[s.out] = places.indicator(self, s)
            case arrays.Numbers():
                self.fields[s.out] = places.constant(self, s.array)
            case arrays.Number():
                self.fields[s.out] = places.as_number(self.place(s.of))
            case arrays.Permute():
                self._permute(s)
            case arrays.Slice() | arrays.Fit() | arrays.Take() | arrays.At():
                self.fields[s.out] = self._view(s)
            case operations.Apply():
                self._computed(s)
            case operations.Box():
                self.fields[s.out] = sums.boxed(self.field(s.of), [self.moves[m] for m in s.moves], self.keep)
            case operations.Contract():
                self.fields[s.out] = self._contract(s)
            case operations.Total():
                self._total(s)
            case order.Read():
                self.fields[s.out] = read_cell(self, s)
            case order.Loop():
                loop(self, s)
            case order.Put():
                put(self, s.cell, [self.place(x).at((Index(0),)) for x in s.at], self.field(s.of))
            case order.Wave():
                wave(self, s)
            case _:
                assert_never(s)

    def _computed(self, s: operations.Add | operations.Mul | operations.Apply) -> None:
        args = [self.field(x) for x in (s.args if isinstance(s, operations.Apply) else (s.x, s.y))]
        if isinstance(s, operations.Apply) and s.out.layout is None:
            known = {symbol: self.numbers[x] if isinstance(x, Name) else x
                     for symbol, x in zip(s.symbols, s.args, strict=True)}  # fmt: skip
            value = s.f.xreplace(known)
            if not value.is_finite:
                raise Missing("an axis without elements")
            self.numbers[s.out] = float(value)
            return
        found = pointwise(broadcast(*(a.shape for a in args)), args, _operation(s))
        large = count(found.shape) > max((count(m.shape) for m in found.sources), default=1)
        self.fields[s.out] = found if large or not found.sources else self.keep(found)

    # ------------------------------------------------------------ statements

    def parameter(self, s: arrays.Parameter) -> None:
        self.fields[s.out] = self.side(1, self.parameters[s.parameter])

    def same(self, s: arrays.Same | arrays.Full) -> None:
        f, rank = self.field(s.of), 0 if s.out.layout is None else len(s.out.layout.axes)
        if len(f.shape) < rank:
            f = fields.sliced(f, [*[Mark.NEW] * (rank - len(f.shape)), *[Mark.KEEP] * len(f.shape)])
        self.fields[s.out] = f

    def _permute(self, s: arrays.Permute) -> None:
        leads = self.leads(s.of)
        order = [k - leads for k in s.order[leads:]]
        self.products.permuted(s.out, s.of, order)
        if not self.offsets.permuted(s.out, s.of, order):
            self.fields[s.out] = fields.permuted(self.field(s.of), order)

    def arithmetic(self, s: operations.Add | operations.Mul) -> None:
        if not isinstance(s, operations.Mul) or not self.offsets.scaled(s.out, s.x, s.y):
            self._computed(s)

    def _total(self, s: operations.Total) -> None:
        if not self.offsets.summed(s.out, s.of):
            self.fields[s.out] = sums.total(self.last, self.field(s.of), self.size(s.size))

    def _view(self, s: arrays.Slice | arrays.Fit | arrays.Take | arrays.At) -> Field:
        of, leads = self.field(s.of), self.leads(s.of)
        match s:
            case arrays.Slice():
                return fields.sliced(of, self._marks(s.marks, of, leads))
            case arrays.Fit():
                return fields.fitted(
                    of, [(d - leads, self.size(size), None if own is None else self.size(own))
                         for d, size, own in s.dims],
                )  # fmt: skip
            case arrays.Take():
                rank = 0 if s.out.layout is None else len(s.out.layout.axes)
                return fields.taken(of, [self.place(i) for i in s.index], rank)
            case arrays.At():
                return fields.at_positions(of, [(d, self.place(i)) for d, i in s.index])
            case _:
                assert_never(s)

    def _marks(self, marks: Sequence[Mark | Place], of: Field, leads: int) -> list[Mark | Index]:
        """The marks behind the samples; a number below 0 counts from the end."""
        own = marks if Mark.REST in marks else marks[leads:]
        found = fields.spelt([m if isinstance(m, Mark) else self.place(m).at(()) for m in own], len(of.shape))
        dims = iter(of.shape)
        out: list[Mark | Index] = []
        for m in found:
            size = 0 if m is Mark.NEW else next(dims)
            out.append(Index(m.const + size) if isinstance(m, Index) and m.is_constant and m.const < 0 else m)
        return out

    def gram(self, s: arrays.Gram) -> None:
        axes = () if s.out.layout is None else s.out.layout.axes
        rows, cols = ([axes.index(q) for q in own] for own in (s.rows, s.cols))
        found = sums.inner_product(self.scope, self.field(s.x), rows, self.field(s.y), cols, len(axes))
        self.fields[s.out] = self.keep(found)
        self.products.gram(s, rows, cols)

    def _contract(self, s: operations.Contract) -> Field:
        known = self.products.contracted(s)
        if known is not None:
            return self.keep(known)
        letters = [*s.kept, *(q for q, _ in s.sizes if q not in s.kept)]
        sizes = {q: self.size(size) for q, size in s.sizes}
        axes = [[letters.index(q) for q in own] for own in s.axes]
        operands = [self.field(x) for x in s.of]
        return sums.contracted(self.last, operands, axes, len(s.kept), [sizes[q] for q in letters])

    def expect(self, s: operations.Expect2, law: operations.Law, f: Fn, g: Fn) -> None:
        given = [self.field(x) for x in law.covariances]

        def make(cursor: Cursor, k: list[Value]) -> Value:
            if cursor not in self._expectations:
                self._expectations[cursor] = Elements(cursor, self.own, self.series)
            return self._expectations[cursor].value(f, g, k[0], k[1], k[2], law.same)

        shape = broadcast(*(x.shape for x in given))
        if formulas.rule(f, g) is None:
            self.summed += count(shape)
        self.elements += count(shape)
        self.fields[s.out] = self.keep(pointwise(shape, given, make))

    def expect1(self, s: operations.Expect1, column: Callable[[Column], Column]) -> None:
        of = self.field(s.k)
        self.fields[s.out] = pointwise(of.shape, [of], lambda c, k: c.value(of_one(k[0].arg, column)))

    def result(self, s: order.Result) -> None:
        of, shape = self.field(s.of), tuple(map(self.size, s.sizes))
        if self.scope.is_torus(shape):
            raise Missing("a result for each pair of positions")
        nest = self.home(shape).nest(shape, of.sources)
        found = Buffer(count(shape))
        nest.write(found, nest.index, fields.read(of, nest, nest.index, True).arg)
        self.results[s.key] = found
        self.shapes_out[s.key] = shape


def _operation(s: operations.Add | operations.Mul | operations.Apply) -> Any:
    match s:
        case operations.Add():
            return lambda cursor, v: v[0] * float(s.alpha) + v[1] * float(s.beta)
        case operations.Mul():
            return lambda cursor, v: v[0] * v[1]
        case operations.Apply():
            return lambda cursor, v: applied(cursor, s.f, s.symbols, v)
        case _:
            assert_never(s)
