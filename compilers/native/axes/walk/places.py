"""Sizes of axes and positions on them, as numbers and as indices."""

from __future__ import annotations

from typing import Any, assert_never

import numpy as np

from netsor.compilers.lowering.plan import positions
from netsor.compilers.native.axes.index import Index, both, divided, equal, flat, inside, looked_up, modulo
from netsor.compilers.native.axes.nests import Cursor, Field, When
from netsor.compilers.native.axes.walk.fields import Places, aligned, broadcast
from netsor.compilers.native.axes.walk.state import State
from netsor.compilers.native.body import Value
from netsor.compilers.native.expectations import Missing
from netsor.compilers.runtime.boxes import Move, adjoint, forward


def measure(walk: State, s: positions.Measure) -> int:
    match s:
        case positions.Size():
            return walk.shapes.size(s.copy, s.axis)
        case positions.Strided():
            return -((s.minus - walk.size(s.of)) // s.stride)
        case positions.SameSize():
            one, two = walk.size(s.one), walk.size(s.two)
            if one != two:
                raise Missing("circular axes of different sizes")
            return one
        case positions.Features():
            return walk.field(s.of).shape[-1]
        case _:
            assert_never(s)


Located = (
    positions.Grid | positions.Taps | positions.Window | positions.Inverse | positions.Back | positions.Along
)  # fmt: skip


def position(walk: State, s: Located) -> Places:
    match s:
        case positions.Grid():
            return Places((walk.size(s.size), *_after(s)), lambda index: index[0])
        case positions.Taps():
            if s.at is None:
                return Places((len(s.offsets), *_after(s)), lambda index: looked_up(s.offsets, index[0]))
            at = walk.place(s.at)
            if s.out.layout is None:
                return Places((), lambda index: looked_up(s.offsets, at.at(())))
            return Places((*at.shape, *_after(s)), lambda index: looked_up(s.offsets, at.at(index[:1])))
        case positions.Window() | positions.Inverse():
            return _window(walk, s)
        case positions.Back():
            at = walk.place(s.at)
            return Places(at.shape, lambda index: at.at(index) - s.by)
        case positions.Along():
            at = walk.places[s.at]
            return Places((*at.shape, *_after(s)), lambda index: at.at(index[:1]))
        case _:
            assert_never(s)


def move(walk: State, s: positions.Move) -> Move:
    """How a dimension moves with the taps of a box."""
    kind = adjoint if s.back else forward
    return kind(s.dim, s.offsets, s.stride, walk.size(s.size), s.wrap)


def _window(walk: State, s: positions.Window | positions.Inverse) -> Places:
    at, taps = walk.place(s.at), walk.place(s.taps)
    wrap = None if s.wrap is None else walk.size(s.wrap)
    back = isinstance(s, positions.Inverse)

    def of(index: tuple[Index, ...]) -> Index:
        here, tap = (p.at(aligned(p.shape, index)) for p in (at, taps))
        place = here - tap if back else here * s.stride + tap
        place = place if wrap is None else modulo(place, wrap)
        return divided(place, s.stride) if back else place

    return Places(broadcast(at.shape, taps.shape), of)


def _after(s: Located) -> tuple[int, ...]:
    """Dimensions of one element behind the first."""
    return (1,) * (0 if s.out.layout is None else len(s.out.layout.axes) - 1)


def indicator(walk: State, s: positions.Indicator) -> Field:
    """1 where the indices are equal and inside, else 0."""
    left, right = walk.place(s.left), None if s.right is None else walk.place(s.right)
    size = walk.size(s.size)

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        one = left.at(aligned(left.shape, index))
        found = both(when, inside(one, size))
        if right is not None:
            found = both(found, equal(one, right.at(aligned(right.shape, index))))
        return cursor.uniform(f"({found}) ? 1 : 0") if isinstance(found, str) else cursor.number(float(found))

    return Field(broadcast(left.shape, () if right is None else right.shape), at)


def as_number(of: Places) -> Field:
    """An index as a number."""

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        found = of.at(index)
        if found.is_constant and isinstance(when, bool):
            return cursor.number(float(found.const) if when else 0.0)
        return cursor.uniform(_guarded(f"(T){found.text}", when))

    return Field(of.shape, at)


def constant(walk: State, array: Any) -> Field:
    """An array that the program states."""
    numbers = np.asarray(array, dtype=float)
    values = tuple(map(float, numbers.ravel()))

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        place = flat(index, numbers.shape)
        if when is False:
            return cursor.number(0.0)
        if when is True and (place.is_constant or len(set(values)) == 1):
            return cursor.number(values[place.const if place.is_constant else 0])
        table = walk.tables.setdefault(values, f"N{len(walk.tables)}")
        return cursor.uniform(_guarded(f"{table}[{place.text}]", when))

    return Field(tuple(numbers.shape), at)


def _guarded(text: str, when: When) -> str:
    return text if when is True else f"({when}) ? {text} : 0"
