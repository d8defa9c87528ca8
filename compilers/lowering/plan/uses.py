"""What statements read and overwrite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

from netsor.compilers.lowering.plan.operands import Binary, Into, Name, View
from netsor.compilers.lowering.plan.order import Statement


def parts(x: Any) -> Iterator[Any]:
    """What stands in a statement: names, statements, numbers, symbols, texts."""
    if type(x) is tuple:
        for y in x:
            yield from parts(y)
    elif fields := _fields(x.__class__):
        yield x
        for f in fields:
            yield from parts(getattr(x, f))
    else:
        yield x


@cache
def _fields(kind: type) -> tuple[str, ...]:
    """The fields of a statement or of a part of one; a name, a symbol and a number have none that count."""
    if kind is Name or not dataclasses.is_dataclass(kind):
        return ()
    return tuple(f.name for f in dataclasses.fields(kind))


def reads(s: Statement) -> list[Name]:
    """The names that a statement reads, in order, and those that are made inside it."""
    own = s.made()
    return [x for x in parts(s) if type(x) is Name and x not in own]


def into(s: Statement) -> Name | None:
    """The operand whose memory the statement writes, if it writes into one."""
    return s.x if isinstance(s, Binary) and s.into is Into.FIRST and isinstance(s.x, Name) else None


def view_of(s: Statement) -> Name | None:
    """The name that the result may share its memory with, without writing it."""
    return s.of if isinstance(s, View) and isinstance(s.of, Name) else None
