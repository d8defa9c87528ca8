"""When names are free, and which statements stand under which condition."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable

from netsor.compilers.lowering.build.code import Users
from netsor.compilers.lowering.plan.operands import Name
from netsor.compilers.lowering.plan.order import Free, Guard, Loop, Put, Result, Statement, Wave
from netsor.compilers.lowering.plan.uses import into, reads, view_of

Line = tuple[Users, Statement]


def freed(lines: list[Line], kept: Collection[Name] = ()) -> list[Line]:
    """The statements with what is free after each: every name that nothing reads any more, unless kept or taken over.

    A statement takes over the memory that it writes into, and a view that of a temporary that nothing else reads.
    """
    read = [reads(s) for _, s in lines]
    last = _last_uses(lines, read)
    users = {x: who for who, s in lines for x in s.made()}
    taken = _taken_over(lines, read)
    ending: dict[int, list[Name]] = {}
    for x, i in last.items():
        if x not in taken and x not in kept and x.layout is not None:
            ending.setdefault(i if users[x] == lines[i][0] else _end(lines, i), []).append(x)
    out: list[Line] = []
    for i, (who, s) in enumerate(lines):
        out.append((who, s))
        if i + 1 < len(lines):
            out += _free(ending.get(i, []), who, users)
    return out


def _end(lines: list[Line], i: int) -> int:
    """The statement that ends what a statement is made for, so that no condition is asked in between."""
    for j in range(i, len(lines)):
        _, s = lines[j]
        if isinstance(s, Put | Result | Loop | Wave) or any(x.kind == "entry" for x in s.made()):
            return j
    return len(lines) - 1


def _free(names: Iterable[Name], now: Users, users: dict[Name, Users]) -> list[Line]:
    """What is free under each condition, under that of the statement before first."""
    groups: dict[Users, list[Name]] = {}
    for x in names:
        groups.setdefault(users[x], []).append(x)
    return [(who, Free(tuple(groups[who]))) for who in sorted(groups, key=lambda w: w != now)]


def _last_uses(lines: list[Line], read: list[list[Name]]) -> dict[Name, int]:
    """The last statement that reads a name or a view of it, by place; of what nothing reads the one that makes it."""
    last: dict[Name, int] = {}
    views: list[tuple[Name, Name]] = []
    for i, (_, s) in enumerate(lines):
        last.update(dict.fromkeys(s.made(), i))
        last.update({x: i for x in read[i] if x in last})
        base = view_of(s)
        if base in last and base is not None:
            views.append((s.made()[0], base))
    for view, base in reversed(views):
        last[base] = max(last[base], last[view])
    return last


def _taken_over(lines: list[Line], read: list[list[Name]]) -> set[Name]:
    readers = Counter(x for names in read for x in set(names))
    written = {x for _, s in lines if (x := into(s)) is not None}
    viewed = {x for _, s in lines if (x := view_of(s)) is not None}
    return written | {x for x in viewed if x.kind == "temporary" and readers[x] == 1}


def guarded(lines: list[Line], results: Users) -> tuple[Statement, ...]:
    """The statements under their conditions, neighbours with the same condition together."""
    out: list[Statement] = []
    for users, group in itertools.groupby(lines, key=lambda line: line[0]):
        body = tuple(s for _, s in group)
        out += body if users == results else [Guard(users, body)]
    return tuple(out)
