"""The order in which lines are computed: whole families where possible, step by step where a scan closes a cycle.

The lines form a graph; a cycle runs through Shift lines whose argument is defined later. A strongly connected
component becomes a loop over an axis that all its lines carry and that its shifts move in one direction; with those
shifts cut, the loop's body is ordered in the same way, so several axes nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx

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
    graph = nx.DiGraph()
    number = {line.out: i for i, line in enumerate(lines)}
    graph.add_nodes_from(range(len(lines)))
    for i, line in enumerate(lines):
        if line.out not in cut:
            graph.add_edges_from((number[v], i) for v in inputs_of(line) if v in number)
    condensed = nx.condensation(graph)
    members = {c: set(condensed.nodes[c]["members"]) for c in condensed}
    order = nx.lexicographical_topological_sort(condensed, key=lambda c: min(members[c]))
    result: list[Step] = []
    for component in order:
        inside = sorted(members[component])
        if len(inside) == 1 and not graph.has_edge(inside[0], inside[0]):
            result.append(lines[inside[0]])
        else:
            result.append(_loop([lines[i] for i in inside], cut))
    return tuple(result)


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
