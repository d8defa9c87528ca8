"""Recurrences → statements: position by position, or all pairs of positions of a wavefront at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.entries.values import Entry
from netsor.compilers.lowering.build.code import BOTH
from netsor.compilers.lowering.build.lifetimes import freed
from netsor.compilers.lowering.build.scope import NOTHING, Scope
from netsor.compilers.lowering.build.values import emit
from netsor.compilers.lowering.plan.operands import Layout, Name, Operand
from netsor.compilers.lowering.plan.order import Cell, Loop, Put, Step, Wave
from netsor.compilers.lowering.schedule import Block, direction, loop_dims, wave_order

OWN = frozenset((Copy.OWN,))
WAVE = Sym(-1, 0, Copy.NONE, "wave")


def recurrence(scope: Scope, block: Block, notes: Mapping[Entry, str]) -> None:
    """The entries of a block that read themselves."""
    looping = loop_dims(block)
    order = wave_order(block, looping) if scope.space == "pair" else None
    block = block if order is None else order
    looped = {e: tuple(i for i, d in enumerate(e.dims) if d in looping[e]) for e in block}
    cells = {e: _cell(scope, e, looped[e], order is not None) for e in block}
    scope.names.update({e: c.name for e, c in cells.items()})
    inside = scope.inside(cells=cells, looped=looped)
    if order is None:
        _loop(inside, block, notes)
    else:
        _wave(inside, block, notes)


def _cell(scope: Scope, e: Entry, places: tuple[int, ...], waves: bool) -> Cell:
    of = NOTHING if e.space == "const" else BOTH if scope.space == "pair" else OWN
    name = Name(e.name, Layout(0 if e.space == "const" else scope.leads, e.dims, of), "entry")
    rest = tuple(scope.extent(d) for i, d in enumerate(e.dims) if i not in places)
    return Cell(name, tuple(scope.extent(e.dims[p]) for p in places), places, rest, waves)


def _positions(dims: Sequence[Sym], layout: Layout | None) -> dict[Sym, Name]:
    """The positions of a recurrence, called after the axis, numbered where several run over one."""
    seen: Counter[str] = Counter()
    names = {}
    for d in dims:
        seen[d.label] += 1
        names[d] = Name(f"{d.label}{seen[d.label] if seen[d.label] > 1 else ''}", layout, "position")
    return names


def _loop(scope: Scope, block: Block, notes: Mapping[Entry, str]) -> None:
    """One function of integer positions for each entry."""
    steps = []
    for e in block:
        code = scope.code.inner()
        code.stem = e.name
        at = _positions([e.dims[p] for p in scope.looped[e]], None)
        inner = scope.inside(code=code, loops=at)
        code.note(notes.get(e))
        order = [d for i, d in enumerate(e.dims) if i not in scope.looped[e]]
        value = emit(inner, e.value, order)
        own = {value} if isinstance(value, Name) else set()
        steps.append(Step(scope.cells[e], tuple(at.values()), tuple(s for _, s in freed(code.lines, own)), value))
    scope.code.add(Loop(tuple(steps), direction(block) < 0))


def _wave(scope: Scope, block: Block, notes: Mapping[Entry, str]) -> None:
    """As many steps as both sequences are long together, each for all pairs of positions with t ± t′ constant."""
    code, current = scope.code.inner(), dict[Entry, Operand]()
    first = scope.looped[block[0]]
    one, two = _positions([block[0].dims[p] for p in first], Layout(0, (WAVE,), NOTHING)).values()
    for e in block:
        code.stem = e.name
        at = {e.dims[p]: name for p, name in zip(scope.looped[e], (one, two), strict=True)}
        inner = scope.inside(code=code, loops=at, wave=WAVE, current=current)
        order = [d for i, d in enumerate(e.dims) if i not in scope.looped[e]]
        code.note(notes.get(e))
        value = emit(inner, e.value, order)
        layout = Layout(scope.leads, (WAVE, *order), BOTH)
        current[e] = code.named(value, f"{e.name}_w", layout, "step")
        code.add(Put(scope.cells[e], (one, two), current[e]))
    rows, cols = scope.cells[block[0]].sizes
    body = tuple(s for _, s in freed(code.lines))
    scope.code.add(Wave(tuple(scope.cells[e] for e in block), (one, two), (rows, cols), body, direction(block) < 0))
