"""Nests that run together along their first axis, so that what passes between them stays in the fastest cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from netsor.compilers.native.axes.index import Index
from netsor.compilers.native.axes.nests import Buffer, Nest, Repeat, Scope, Sums

FIRST = "d0"


@dataclass(frozen=True, eq=False)
class Group:
    """Nests one after the other at each position of their first axis; of `local` buffers one position is stored."""

    nests: tuple[Nest, ...]
    local: frozenset[Buffer]


Item = Group | Sums | Repeat


def alive(scope: Scope) -> list[Nest | Sums | Repeat]:
    """What is executed: nests that store something, sums that something reads."""
    return [x for x in scope.items() if not _is_idle(x)]


def _is_idle(x: Nest | Sums | Repeat) -> bool:
    if isinstance(x, Nest):
        return not x.writes and not x.sums
    return isinstance(x, Sums) and not x.out.is_read


def grouped(scope: Scope, kept: Iterable[Buffer] = ()) -> list[Item]:
    """The items of a scope, neighbors that may run together in groups; `kept` are read at the end."""
    out: list[Sums | Repeat | list[Nest]] = []
    for x in alive(scope):
        before = out[-1] if out else None
        if not isinstance(x, Nest):
            out.append(x)
        elif isinstance(before, list) and _follows(before, x):
            before.append(x)
        else:
            out.append([x])
    outside = set(kept)
    used: dict[Buffer, int] = {}
    for item in out:
        for buffer in {b for x in (item if isinstance(item, list) else [item]) for b, _ in accesses(x)}:
            used[buffer] = used.get(buffer, 0) + 1

    def group(nests: list[Nest]) -> Group:
        return Group(tuple(nests), frozenset(b for b in _rows(nests) if used[b] == 1 and b not in outside))

    return [group(x) if isinstance(x, list) else x for x in out]


def accesses(x: Nest | Sums | Repeat) -> Iterator[tuple[Buffer, Index | None]]:
    """The buffers that an item reads, writes or has inside, and where along their first axis, if that is known."""
    if isinstance(x, Repeat):
        yield from ((b, None) for b in x.cells)
        for y in alive(x.body):
            yield from accesses(y)
        return
    used = {x.body.code[k].which for k in x.alive() if x.body.code[k].op == "load"}
    yield from ((leaf.buffer, leaf.row) for leaf, k in x.leaves.items() if k in used and leaf.buffer is not None)
    if isinstance(x, Sums):
        yield x.out.buffer, None
    else:
        yield from ((w.buffer, w.row) for w in x.writes)


def _follows(group: list[Nest], x: Nest) -> bool:
    """Does a nest read of a group only what stands at the same position of the first axis?"""
    if len(x.loops) < 2 or x.loops[0] == 1 or group[0].loops[:1] != x.loops[:1]:
        return False
    written = {w.buffer for nest in group for w in nest.writes}
    return all(row == x.index[0] for b, row in accesses(x) if b in written)


def _rows(nests: list[Nest]) -> list[Buffer]:
    """The buffers of which all that a group reads and writes is at the position of its first axis."""
    if len(nests) < 2:
        return []
    every: dict[Buffer, bool] = {}
    for b, row in (x for nest in nests for x in accesses(nest)):
        every[b] = every.get(b, True) and row == nests[0].index[0]
    written = {w.buffer for nest in nests for w in nest.writes}
    return [b for b, is_row in every.items() if is_row and b in written]


def in_row(at: Index) -> Index:
    """A place in a buffer of which one position of the first axis is stored."""
    return Index(at.const, tuple((a, c) for a, c in at.terms if a.text != FIRST))
