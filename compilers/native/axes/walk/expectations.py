"""Expectations of elements of pairs, some lanes of which may hold one input twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netsor.compilers.expectation.blocks.fused import Geometry
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.native.axes.index import Index, equal
from netsor.compilers.native.axes.nests import Cursor, When
from netsor.compilers.native.body import Ref, Side, Value
from netsor.compilers.native.columns import Own, Reach
from netsor.compilers.native.expectations import Expectations, Missing, Series, twin

OWN = "own"  # the vector that is 0 in lanes of one input twice and −1 elsewhere, see `text`


class Elements(Expectations):
    """The expectations of a nest. `own`: its pairs may be one input twice."""

    def __init__(self, cursor: Cursor, own: bool, series: dict[Series, int]) -> None:
        super().__init__(cursor.body, own, series)
        self.cursor = cursor
        self._room: Value | None = None  # at least 0 where the lane holds one variable of one input

    def value(self, f: Fn, g: Fn, k11: Value, k22: Value, k12: Value, same: bool) -> Value:
        if not isinstance(k12.arg, Ref):
            k12 = Value(self.body, self.body.add("same", k12.arg), k12.dtype)
        mask = self._mask(k11, k22)
        self._room = None if mask is None else mask if same else twin(k11, k12).at_most(mask)
        found, size, steep = self._general(f, g, k11, k22, k12)
        if self._room is not None:
            one = k11.arg
            assert isinstance(one, Side)
            own = Value(self.body, Side(1, Own(f, g, one.column), one.at, one.size), k12.dtype)
            found, size = self._room.chosen(own, found), self._room.chosen(0.0, size)
        self._near(size, steep)
        return found

    def _summed(self, which: int, one: Side, two: Side, geometry: Geometry) -> tuple[Value, Value]:
        """A series serves |r| up to its reach, however near to 1; where one variable meets itself it is not asked."""
        if (one.copy, two.copy) != (1, 2):
            raise Missing("a series of one input")
        given: Any = geometry.r
        r = given if self._room is None else self._room.chosen(0.0, given)
        made = self.body.add("series", r.arg, one, two, which=which, later=True)
        reach = (replace(side, column=Reach(which, number)) for number, side in enumerate((one, two)))
        beyond = self.body.add("beyond", r.arg, *reach)
        return Value(self.body, made, r.dtype), Value(self.body, beyond, r.dtype)

    def _mask(self, k11: Value, k22: Value) -> Value | None:
        """0 where the lane holds one input twice and both variances are of one element, else less; None: nowhere."""
        one, two = k11.arg, k22.arg
        if not self.own or not isinstance(one, Side) or not isinstance(two, Side) or one.column != two.column:
            return None
        assert isinstance(one.at, Index) and isinstance(two.at, Index)
        torus = self.cursor.torus
        when: When = equal(one.at, two.at) if torus is None else torus.alike(one.at, two.at)
        if when is False:
            return None
        lanes: Any = self.body.add("lanes")
        own = Value(self.body, lanes, k11.dtype)
        return own if when is True else own + self.cursor.uniform(f"({when}) ? 0 : -1")
