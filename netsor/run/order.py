"""The order in which lines are computed: whole families where possible, step by step where a scan closes a cycle.

The lines form a graph; a cycle runs through Shift lines whose argument is defined later. A strongly connected
component becomes a loop over an axis that all its lines carry and that its shifts move in one direction; with those
shifts cut, the loop's body is ordered in the same way, so several axes nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from netsor import ir
from netsor.errors import ProgramError
from netsor.facts import closure, inputs_of


@dataclass(frozen=True)
class Loop:
    """`body` once per index of `axis` (backwards if `reverse`); a shift along `axis` reads an earlier index."""

    axis: ir.Axis
    reverse: bool
    body: tuple[Step, ...]
    made: tuple[ir.Var, ...]


Step = ir.Line | Loop
Edges = dict[ir.Var, tuple[ir.Var, ...]]


def steps(lines: Sequence[ir.Line], cut: frozenset[ir.Var] = frozenset()) -> tuple[Step, ...]:
    """The lines in an order that computes arguments first; the shifts in `cut` read finished steps of a loop."""
    number = {line.out: i for i, line in enumerate(lines)}
    drawn = cut.union(x.out for x in lines if isinstance(x, ir.InputVector))  # covariances are no values
    reads: Edges = {x.out: () if x.out in drawn else tuple(v for v in inputs_of(x) if v in number) for x in lines}
    late = [v for v, read in reads.items() if any(number[u] >= number[v] for u in read)]
    if not late:
        return tuple(lines)
    groups = _groups(reads, late)
    return tuple(
        lines[number[group[0]]] if len(group) == 1 and group[0] not in reads[group[0]]
        else _loop([lines[number[v]] for v in group], cut)
        for group in _sorted(groups, reads, number)
    )  # fmt: skip


def read_outside(order: Sequence[Step], lines: Sequence[ir.Line]) -> frozenset[ir.Var]:
    """The variables made in a loop that lines outside of it read."""
    found: set[ir.Var] = set()
    for loop in order:
        if isinstance(loop, Loop):
            inside = frozenset(loop.made)
            for line in lines:
                found |= inside & set(inputs_of(line)) if line.out not in inside else frozenset()
            found |= read_outside(loop.body, lines)
    return frozenset(found)


def _groups(reads: Edges, late: Sequence[ir.Var]) -> dict[ir.Var, tuple[ir.Var, ...]]:
    """Each variable's strongly connected component, in program order; each cycle passes a variable that reads late."""
    readers: dict[ir.Var, list[ir.Var]] = {v: [] for v in reads}
    for v, read in reads.items():
        for u in read:
            readers[u].append(v)
    found: dict[ir.Var, tuple[ir.Var, ...]] = {v: (v,) for v in reads}
    for v in late:
        if len(found[v]) == 1:
            both = closure((v,), readers.__getitem__) & closure((v,), reads.__getitem__)
            found |= dict.fromkeys(both, tuple(u for u in reads if u in both))
    return found


def _sorted(
    groups: dict[ir.Var, tuple[ir.Var, ...]], reads: Edges, number: dict[ir.Var, int]
) -> list[tuple[ir.Var, ...]]:
    """The components after those that they read; the first in program order of those that are possible."""
    open_: dict[int, set[int]] = {}  # by the number of the first member: the components that are to come before
    after: dict[int, list[int]] = {}
    for v, group in groups.items():
        before = open_.setdefault(first := number[group[0]], set())
        for u in reads[v]:
            if (other := number[groups[u][0]]) not in (first, *before):
                before.add(other)
                after.setdefault(other, []).append(first)
    ready = [first for first, before in open_.items() if not before]
    heapify(ready)
    by_first = {number[group[0]]: group for group in groups.values()}
    result: list[tuple[ir.Var, ...]] = []
    while ready:
        first = heappop(ready)
        result.append(by_first[first])
        for other in after.get(first, ()):
            open_[other].discard(first)
            if not open_[other]:
                heappush(ready, other)
    return result


def _loop(lines: Sequence[ir.Line], cut: frozenset[ir.Var]) -> Loop:
    shifts = [line for line in lines if isinstance(line, ir.Shift) and line.out not in cut]
    for axis in dict.fromkeys(s.axis for s in shifts):
        along = [s for s in shifts if s.axis == axis]
        if len({s.by > 0 for s in along}) == 1 and all(axis in line.out.axes for line in lines):
            inner = steps(lines, cut | {s.out for s in along})
            return Loop(axis, along[0].by < 0, inner, tuple(line.out for line in lines))
    raise ProgramError(
        f"the lines {_listed(line.out for line in lines)} depend on each other in a circle that no shift along one"
        " common axis opens", code="NT107", location=lines[0].loc,
        hint="inside a scan, lines read earlier steps through the previous state only",
    )  # fmt: skip


def _listed(variables: Iterable[ir.Var]) -> str:
    names = [v.name for v in variables]
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
