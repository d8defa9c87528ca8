"""Recurrences as loops over positions, a scope of nests for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from netsor.compilers.lowering.plan import order, positions
from netsor.compilers.lowering.plan.operands import Name
from netsor.compilers.native.axes.index import Index, both, flat, inside, variable
from netsor.compilers.native.axes.nests import Buffer, Cursor, Field, Leaf, Made, Repeat, Scope, When
from netsor.compilers.native.axes.walk import fields, sums
from netsor.compilers.native.axes.walk.fields import Places
from netsor.compilers.native.axes.walk.state import State
from netsor.compilers.native.body import Value
from netsor.compilers.native.expectations import Missing


def wave(walk: State, s: order.Wave) -> None:
    """All pairs of positions, the second one inside."""
    sizes = tuple(map(walk.size, s.sizes))
    found, at = _begun(walk, sizes, s.reverse, s.cells)
    for name, index in zip(s.at, at, strict=True):
        walk.places[name] = _located(index, (1,))
    _run(walk, found.body, lambda: walk.run(s.body))
    _ended(walk, found, s.cells)


def loop(walk: State, s: order.Loop) -> None:
    """Every cell at every position."""
    sizes = tuple(map(walk.size, s.steps[0].cell.sizes))
    if any(tuple(map(walk.size, step.cell.sizes)) != sizes for step in s.steps):
        raise Missing("a recurrence over several axes at once")
    cells = tuple(step.cell for step in s.steps)
    found, at = _begun(walk, sizes, s.reverse, cells)
    walk.here = at
    for step in _ordered(s):
        for name, index in zip(step.at, at, strict=True):
            walk.places[name] = _located(index, ())
        _run(walk, found.body, lambda step=step: _stepped(walk, step, at))  # type: ignore[misc]
    _ended(walk, found, cells)


def _stepped(walk: State, step: order.Step, at: list[Index]) -> None:
    walk.run(step.body)
    value = walk.field(step.value)
    put(walk, step.cell, at, value)
    walk.current[step.cell] = value


def _ordered(s: order.Loop) -> list[order.Step]:
    """The steps in an order in which values of the same positions are made before they are read."""
    steps = {step.cell: step for step in s.steps}
    out: dict[order.Cell, order.Step] = {}

    def add(step: order.Step, above: tuple[order.Cell, ...]) -> None:
        if step.cell in above:
            raise Missing("a recurrence that reads what it makes")
        for r in step.body:
            if isinstance(r, order.Read) and r.cell in steps and _is_here(step, r, s.reverse) and r.cell not in out:
                add(steps[r.cell], (*above, step.cell))
        out[step.cell] = step

    for step in s.steps:
        if step.cell not in out:
            add(step, ())
    return list(out.values())


def _is_here(step: order.Step, r: order.Read, reverse: bool) -> bool:
    """Does a step read a value of its own positions? Missing where it may be a later one."""
    back = {x.out: x for x in step.body if isinstance(x, positions.Back)}
    steps = []
    for own, at in zip(step.at, r.at, strict=True):
        step_back = back.get(at) if isinstance(at, Name) else None
        by = 0 if at is own else None if step_back is None or step_back.at is not own else step_back.by
        if by is None:
            raise Missing("a recurrence that reads other than some steps back")
        steps.append(-by if reverse else by)
    first = next((by for by in steps if by), 0)
    if first < 0:
        raise Missing("a recurrence that reads later steps")
    return first == 0


def _located(index: Index, shape: tuple[int, ...]) -> Places:
    return Places(shape, lambda _: index)


def _begun(
    walk: State, sizes: tuple[int, ...], reverse: bool, cells: Sequence[order.Cell]
) -> tuple[Repeat, list[Index]]:
    walk.repeats += 1
    variables = tuple(f"r{walk.repeats}_{k}" for k in range(len(sizes)))
    for cell in cells:
        walk.cells[cell] = Buffer(math.prod(_shape(walk, cell)))
    inner = Scope(walk.dtype, walk.scope)
    found = Repeat(0, variables, sizes, reverse, inner, [walk.cells[cell] for cell in cells])
    return found, [variable(v, size) for v, size in zip(variables, sizes, strict=True)]


def _run(walk: State, inner: Scope, body: Callable[[], None]) -> None:
    outer, walk.scope = walk.scope, inner
    body()
    walk.scope = outer


def _ended(walk: State, found: Repeat, cells: Sequence[order.Cell]) -> None:
    found.level = found.body.outer + 1
    walk.scope.repeats.append(found)
    for cell in cells:
        made = Made(walk.scope, found.level, _shape(walk, cell), walk.cells.pop(cell))
        walk.fields[cell.name] = sums.stored(made)
        walk.current.pop(cell, None)


def _shape(walk: State, cell: order.Cell) -> tuple[int, ...]:
    """The dimensions of the whole entry."""
    sizes, rest = iter(cell.sizes), iter(cell.rest)
    count = len(cell.sizes) + len(cell.rest)
    looped = dict(zip(cell.places, map(walk.size, sizes), strict=True))
    return tuple(looped[k] if k in looped else walk.size(next(rest)) for k in range(count))


def _whole(cell: order.Cell, at: Sequence[Index], rest: Sequence[Index]) -> list[Index]:
    looped, others = dict(zip(cell.places, at, strict=True)), iter(rest)
    return [looped[k] if k in looped else next(others) for k in range(len(at) + len(rest))]


def put(walk: State, cell: order.Cell, at: Sequence[Index], of: Field) -> None:
    """Store a value of a step."""
    front = (1,) if cell.waves else ()
    domain = (*front, *map(walk.size, cell.rest))
    nest = walk.scope.nest(domain, of.sources)
    value = fields.read(of, nest, nest.index, True).arg
    nest.write(walk.cells[cell], _whole(cell, at, nest.index[len(front) :]), value, _shape(walk, cell))


def read_cell(walk: State, s: order.Read) -> Field:
    """A cell at positions, zero outside; at those of the step itself the value that has just been made."""
    cell, front = s.cell, (1,) if s.cell.waves else ()
    at = [walk.place(x).at((Index(0),) if cell.waves else ()) for x in s.at]
    if cell in walk.current and all(i == j for i, j in zip(at, walk.here, strict=True)):
        return walk.current[cell]
    sizes, shape, buffer = list(map(walk.size, cell.sizes)), _shape(walk, cell), walk.cells[cell]

    def element(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        found = both(when, *(inside(i, size) for i, size in zip(at, sizes, strict=True)))
        if found is False:
            return cursor.number(0.0)
        return cursor.load(Leaf(buffer, flat(_whole(cell, at, index[len(front) :]), shape), found))

    return Field((*front, *map(walk.size, cell.rest)), element)
