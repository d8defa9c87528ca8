"""The order in which lines are computed: whole families where possible, step by step where a scan closes a cycle.

The lines form a graph; a cycle runs through Shift lines whose argument is defined later. A strongly connected
component becomes a loop over an axis that all its lines carry and that its shifts move in one direction; with those
shifts cut, the loop's body is ordered in the same way, so several axes nest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from netsor import ir
from netsor.errors import ProgramError
from netsor.facts import inputs_of


@dataclass(frozen=True)
class Loop:
    """`body` once per index of `axis` (backwards if `reverse`); a shift along `axis` reads an earlier index."""

    axis: ir.Axis
    reverse: bool
    body: tuple[Step, ...]
    made: tuple[ir.Var, ...]


Step = ir.Line | Loop


def steps(lines: Sequence[ir.Line], cut: frozenset[ir.Var] = frozenset()) -> tuple[Step, ...]:
    """The lines in an order that computes arguments first; the shifts in `cut` read finished steps of a loop."""
    drawn = cut.union(x.out for x in lines if isinstance(x, ir.InputVector))  # covariances are no values
    number = {line.out: i for i, line in enumerate(lines)}
    reads = [() if x.out in drawn else tuple(number[v] for v in inputs_of(x) if v in number) for x in lines]
    if all(j < i for i, read in enumerate(reads) for j in read):
        return tuple(lines)
    return tuple(
        lines[group[0]]
        if len(group) == 1 and group[0] not in reads[group[0]]
        else _loop([lines[i] for i in group], cut)
        for group in components(reads)
    )


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


# ---------------------------------------------------------------- graphs


def components(reads: Sequence[Collection[int]]) -> list[list[int]]:
    """Strongly connected components of 0 … n − 1, each after those that it reads, otherwise the smallest first."""
    group = _first_members(reads)
    members: dict[int, list[int]] = {}
    for i, first in enumerate(group):
        members.setdefault(first, []).append(i)
    before: dict[int, set[int]] = {first: set() for first in members}
    after: dict[int, set[int]] = {first: set() for first in members}
    for i, read in enumerate(reads):
        for j in read:
            if group[i] != group[j]:
                before[group[i]].add(group[j])
                after[group[j]].add(group[i])
    ready = sorted(first for first in members if not before[first])
    result = []
    while ready:
        result.append(members[first := heappop(ready)])
        for other in after[first]:
            before[other].discard(first)
            if not before[other]:
                heappush(ready, other)
    return result


def _first_members(reads: Sequence[Collection[int]]) -> list[int]:
    """The smallest member of each number's strongly connected component, by two searches (Kosaraju)."""
    readers: list[list[int]] = [[] for _ in reads]
    for i, read in enumerate(reads):
        for j in read:
            readers[j].append(i)
    last = _finished(reads)
    found = [-1] * len(reads)
    for root in reversed(last):
        stack = [root] if found[root] < 0 else []
        members = []
        while stack:
            i = stack.pop()
            if found[i] < 0:
                found[i] = root
                members.append(i)
                stack.extend(j for j in readers[i] if found[j] < 0)
        first = min(members, default=root)
        for i in members:
            found[i] = first
    return found


def _finished(reads: Sequence[Collection[int]]) -> list[int]:
    """All numbers, each after those that a search of the graph from it finds first."""
    seen, result = [False] * len(reads), list[int]()
    for root in range(len(reads)):
        stack = [] if seen[root] else [(root, iter(reads[root]))]
        seen[root] = True
        while stack:
            i, rest = stack[-1]
            j = next((j for j in rest if not seen[j]), None)
            if j is None:
                result.append(i)
                stack.pop()
            else:
                seen[j] = True
                stack.append((j, iter(reads[j])))
    return result
