"""The order in which entries are computed: recurrences as blocks, wavefronts, what is alike side by side."""

from __future__ import annotations

from collections.abc import Iterable

from netsor.compilers.derive.entries.functions_of import of_two
from netsor.compilers.derive.entries.indices import Const, Off, Sym, index_symbols
from netsor.compilers.derive.entries.traversal import indices, walk
from netsor.compilers.derive.entries.values import Access, Entry, Expect, Soft, Sum, Value
from netsor.compilers.derive.recursion import Result, entries_in
from netsor.run.order import components

Block = list[Entry]


def scheduled(blocks: list[Block]) -> list[Block]:
    """The blocks as early as what they read allows; expectations over the same Gaussians side by side."""
    level: dict[Entry, int] = {}
    first: dict[Value, int] = {}
    keys = []
    for i, block in enumerate(blocks):
        values = [e.value for e in block]
        depth = 1 + max((level[x] for v in values for x in entries_in(v) if x in level), default=-1)
        level.update(dict.fromkeys(block, depth))
        covariances = [
            v.law.covariances[0] for x in values for v in walk(x) if isinstance(v, Expect) and of_two(v) is not None
        ]
        keys.append((depth, min([i, *(first.setdefault(k, i) for k in covariances)]), i))
    return [blocks[i] for _, _, i in sorted(keys)]


def wave_order(block: Block, looping: dict[Entry, set[Sym]]) -> Block | None:
    """The statements of a wavefront in order; None when the accesses do not allow one.

    Every entry steps through one symbol of each copy, every access goes back by at least one step in total or stays in
    place, and those that stay form no cycle.
    """
    members = set(block)
    reads: list[set[int]] = [set() for _ in block]
    place = {e: i for i, e in enumerate(block)}
    sign = direction(block)
    for e in block:
        own = [d for d in e.dims if d in looping[e]]
        if [d.copy for d in own] != [1, 2]:
            return None
        for v in walk(e.value):
            if isinstance(v, Sum | Soft) and v.sym in own:
                return None
            if not isinstance(v, Access) or v.entry not in members:
                continue
            steps = _steps(v, looping, own, sign)
            if steps is None:
                return None
            if sum(steps) == 0:
                reads[place[e]].add(place[v.entry])
    order = components(reads)
    if any(len(group) > 1 or group[0] in reads[group[0]] for group in order):
        return None
    return [block[i] for (i,) in order]


def _steps(v: Access, looping: dict[Entry, set[Sym]], own: list[Sym], sign: int) -> list[int] | None:
    """How far an access goes back along each copy; None when it is not plain."""
    steps = []
    moved = [i for d, i in zip(v.entry.dims, v.idx, strict=True) if d in looping[v.entry]]
    others = [i for d, i in zip(v.entry.dims, v.idx, strict=True) if d not in looping[v.entry]]
    if len(moved) != 2 or not all(isinstance(i, Sym) and i not in own for i in others):
        return None
    for i, s in zip(moved, own, strict=True):
        if i == s:
            steps.append(0)
        elif isinstance(i, Off) and i.t == s and i.by * sign > 0:
            steps.append(abs(i.by))
        else:
            return None
    return steps


def in_order(entries: Iterable[Entry]) -> list[Block]:
    """Strongly connected components in an order in which everything read stands before."""
    entries = list(entries)
    place = {e: i for i, e in enumerate(entries)}
    order = components([{place[x] for x in entries_in(e.value)} for e in entries])
    return [[entries[i] for i in group] for group in order]


def reads_itself(e: Entry) -> bool:
    return e in entries_in(e.value)


def closure(results: Iterable[Result]) -> set[Entry]:
    seen: set[Entry] = set()
    stack = [e for r in results for e in entries_in(r.value)]
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            stack.extend(entries_in(e.value))
    return seen


def loop_dims(block: Block) -> dict[Entry, set[Sym]]:
    """The dimensions that the recurrence steps through, and everything tied to them."""
    members = set(block)
    looping: dict[Entry, set[Sym]] = {e: set() for e in block}
    links: list[tuple[Entry, Sym, Entry, Sym]] = []
    for e in block:
        for v in walk(e.value):
            if not isinstance(v, Access) or v.entry not in members:
                continue
            for dim, i in zip(v.entry.dims, v.idx, strict=True):
                if isinstance(i, Off | Const):
                    looping[v.entry].add(dim)
                links += [(e, s, v.entry, dim) for s in index_symbols(i)]
                if isinstance(i, Off):
                    looping[e].add(i.t)
    changed = True
    while changed:
        changed = False
        for e, s, f, dim in links:
            if (s in looping[e]) != (dim in looping[f]):
                looping[e].add(s)
                looping[f].add(dim)
                changed = True
    return {e: looping[e] & set(e.dims) for e in block}


def direction(block: Block) -> int:
    steps = [i.by for e in block for v in walk(e.value) for i in indices(v) if isinstance(i, Off)]
    return -1 if steps and steps[0] < 0 else 1
