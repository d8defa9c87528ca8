"""Indices as integers: of a step of a recurrence, or arrays over the symbols that have a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from netsor.compilers.derive.entries.indices import Const, Index, Inv, Off, Sym, Win
from netsor.compilers.lowering.build.scope import NOTHING, Scope
from netsor.compilers.lowering.plan.operands import Layout, Name, Place
from netsor.compilers.lowering.plan.positions import Along, Back, Grid, Inverse, Taps, Window


def index(scope: Scope, i: Index, kept: Sequence[Sym]) -> Place:
    """An index over the kept symbols, an integer where it has none of them."""
    match i:
        case Sym():
            return _grid(scope, i, kept)
        case Const():
            return constant(scope, i)
        case Off():
            return back(scope, _grid(scope, i.t, kept), i.by, i.t.label)
        case Win():
            at, taps = _grid(scope, i.s, kept), _taps(scope, i, kept)
            wrap = None if i.wrap is None else scope.whole(i.wrap, i.s.copy)
            return scope.code.make(
                Window, scope.broadcast(at, taps), at, taps, i.stride, wrap, stem=i.s.label, of="position"
            )
        case Inv():
            at, taps = _grid(scope, i.t, kept), _taps(scope, i, kept)
            wrap = None if i.wrap is None else scope.whole(i.wrap, i.t.copy)
            return scope.code.make(
                Inverse, scope.broadcast(at, taps), at, taps, i.stride, wrap, stem=i.t.label, of="position"
            )
        case _:
            assert_never(i)


def step(scope: Scope, i: Index) -> Place:
    """An index inside a recurrence: an integer, or a vector of a wave."""
    match i:
        case Sym():
            return scope.loops[i]
        case Const():
            return constant(scope, i)
        case Off():
            return back(scope, scope.loops[i.t], i.by, i.t.label)
        case Win() | Inv():
            raise AssertionError("windows do not stand inside a recurrence")
        case _:
            assert_never(i)


def pick(scope: Scope, i: Index) -> Place | None:
    """What a view takes of a dimension: an element, or (None) all."""
    match i:
        case Sym():
            return scope.loops.get(i)
        case Const():
            return i.value
        case Win() | Inv() | Off():
            raise AssertionError("only symbols and constants are read by a view")
        case _:
            assert_never(i)


def constant(scope: Scope, i: Const) -> Place:
    """A constant index; a negative one counts from the end."""
    if i.value >= 0:
        return i.value
    return back(scope, scope.size(i.size, i.copy), -i.value, "last")


def back(scope: Scope, at: Place, by: int, stem: str) -> Place:
    """at − by."""
    layout = at.layout if isinstance(at, Name) else None
    return scope.code.make(Back, layout, at, by, stem=stem, of="position")


def _grid(scope: Scope, s: Sym, kept: Sequence[Sym]) -> Place:
    if s in scope.loops:
        at = scope.loops[s]
        if scope.wave is None or len(kept) == 1:
            return at
        layout = Layout(0, (scope.wave, *(None for _ in kept[1:])), NOTHING)
        return scope.code.make(Along, layout, at, stem=s.label, of="position")
    return scope.code.make(Grid, _first(s, kept), scope.extent(s), stem=s.label, of="position")


def _taps(scope: Scope, i: Win | Inv, kept: Sequence[Sym]) -> Name:
    if i.tap not in scope.loops:
        return scope.code.make(Taps, _first(i.tap, kept), i.offsets, stem=i.tap.label, of="position")
    at = scope.loops[i.tap]
    layout = None if scope.wave is None else Layout(0, (scope.wave, *(None for _ in kept[1:])), NOTHING)
    return scope.code.make(Taps, layout, i.offsets, at, stem=i.tap.label, of="position")


def _first(s: Sym, kept: Sequence[Sym]) -> Layout:
    """A dimension for the symbol, and one of one element for each that is kept behind it."""
    after = len(kept) - 1 - list(kept).index(s)
    return Layout(0, (s, *(None for _ in range(after))), NOTHING)
