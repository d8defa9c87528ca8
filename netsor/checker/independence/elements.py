"""Elements of a family of input vectors as separate candidates for readouts, where lines take them out with `at`.

A family is one block as long as its lines treat all elements alike. Where an `at` (or `place`) along one of its axes
tells them apart, the search is made on the unrolled program: True there is True; False needs every axis to have a size.
"""

from __future__ import annotations

import dataclasses
import math

from netsor import ir
from netsor.build.program import Program
from netsor.checker.independence.bplike import bp_like
from netsor.checker.independence.clauses import BPLike
from netsor.errors import NetsorError
from netsor.indexing import index_map
from netsor.run.shapes import fitting
from netsor.run.work import Work

_MOST_LINES = 4000


def by_elements(p: Program, found: BPLike, work: Work | None = None) -> BPLike:
    """The verdict of the search, elements told apart."""
    if found.verdict or not _told_apart(p):
        return found
    sizes = fitting(p.lines, 8)
    open_axes = {a.name: sizes.size(ir.SizeOf(a.name)) for a in p.axes if a.size is None}
    if sum(math.prod(sizes.axes(line.out)) for line in p.lines) > _MOST_LINES:
        return dataclasses.replace(found, verdict=None, reason=f"too many elements; {found.reason}")
    try:
        flat = p.unroll(open_axes)
    except NetsorError:
        return dataclasses.replace(found, verdict=None, reason=f"elements could not be told apart; {found.reason}")
    if len(flat.lines) > _MOST_LINES:
        return dataclasses.replace(found, verdict=None, reason=f"too many elements; {found.reason}")
    result = bp_like(flat.lines, (), work)
    if open_axes:
        given = ", ".join(f"{name} = {size}" for name, size in open_axes.items())
        return dataclasses.replace(found, verdict=None, reason=f"sizes are open; with {given}: {result.reason}")
    if result.verdict:
        return result
    return dataclasses.replace(found, verdict=result.verdict, reason=result.reason)


def _told_apart(p: Program) -> bool:
    """Some element of a family of input vectors is taken out along one of the family's axes."""
    families = {a for line in p.lines if isinstance(line, ir.InputVector) for a in line.out.axes}
    return any(axis in families for line in p.lines for axis in _singled_out(line))


def _singled_out(line: ir.Line) -> tuple[ir.Axis, ...]:
    """The axes whose elements a line does not treat alike."""
    return tuple(r.axis for r in index_map(line).fixed) if isinstance(line, ir.IndexLine) else ()
