"""What statements read and overwrite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from netsor.compilers.derive.entries.values import Sym
from netsor.compilers.lowering.plan.operands import Binary, Into, Layout, Name, View
from netsor.compilers.lowering.plan.order import Statement


def parts(x: Any) -> Iterator[Any]:
    """Everything that stands in a statement or an operand, itself first: names, statements, numbers, symbols."""
    yield x
    if isinstance(x, tuple) and not isinstance(x, Layout | Sym):
        for y in x:
            yield from parts(y)
    elif dataclasses.is_dataclass(x) and not isinstance(x, Name | type):
        for f in dataclasses.fields(x):
            yield from parts(getattr(x, f.name))


def reads(s: Statement) -> list[Name]:
    """The names that a statement reads, in order, and those that are made inside it."""
    own = s.made()
    return [x for x in parts(s) if isinstance(x, Name) and x not in own]


def into(s: Statement) -> Name | None:
    """The operand whose memory the statement writes, if it writes into one."""
    return s.x if isinstance(s, Binary) and s.into is Into.FIRST and isinstance(s.x, Name) else None


def view_of(s: Statement) -> Name | None:
    """The name that the result may share its memory with, without writing it."""
    return s.of if isinstance(s, View) and isinstance(s.of, Name) else None
