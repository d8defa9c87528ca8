"""Expectations of elements of pairs, some lanes of which may hold one input twice."""

from __future__ import annotations

from typing import Any

from netsor.compilers.expectation.blocks import formulas
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.native.axes.index import Index, equal
from netsor.compilers.native.axes.nests import Cursor, When
from netsor.compilers.native.body import Ref, Side, Value
from netsor.compilers.native.columns import Own
from netsor.compilers.native.expectations import Expectations, Missing, Series, twin

OWN = "own"  # the vector that is 0 in lanes of one input twice and −1 elsewhere, see `text`


class Elements(Expectations):
    """The expectations of a nest. `own`: its pairs may be one input twice."""

    def __init__(self, cursor: Cursor, own: bool, series: dict[Series, int]) -> None:
        super().__init__(cursor.body, own, series)
        self.cursor = cursor

    def value(self, f: Fn, g: Fn, k11: Value, k22: Value, k12: Value, same: bool) -> Value:
        if not isinstance(k12.arg, Ref):
            k12 = Value(self.body, self.body.add("same", k12.arg), k12.dtype)
        if formulas.rule(f, g) is None:
            raise Missing(f"an expectation of {f.name} and {g.name} by series on an axis")
        found, size, steep = self._general(f, g, k11, k22, k12)
        mask = self._mask(k11, k22)
        if mask is not None:
            one = k11.arg
            assert isinstance(one, Side)
            own = Value(self.body, Side(1, Own(f, g, one.column), one.at, one.size), k12.dtype)
            room = mask if same else twin(k11, k12).at_most(mask)
            found, size = room.chosen(own, found), room.chosen(0.0, size)
        self._near(size, steep)
        return found

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
