"""The statements of a function as they are made; what has been computed before is not computed again."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any, cast

from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.lowering.plan.arrays import Permute, Same, Slice
from netsor.compilers.lowering.plan.operands import Into, Kind, Layout, Name, Operand
from netsor.compilers.lowering.plan.operations import Box, Contract, Expect2, Law, Total
from netsor.compilers.lowering.plan.order import Note, Statement
from netsor.compilers.lowering.plan.positions import Measure, Size, Strided

Users = tuple[str, ...]  # the results that need a statement
BOTH: frozenset[Copy] = frozenset((Copy.FIRST, Copy.SECOND))


class Code:
    """Statements in order, each with the results that need it; the body of a recurrence reads what stands outside.

    `users` need what is made now, `stem` is what it is made for. Of pairs only views are shared, and a law until the
    next is made: a tensor of pairs that lives longer takes memory, and some are written by their readers.
    """

    def __init__(self, pairs: bool, outer: Code | None = None) -> None:
        self.pairs, self.outer = pairs, outer
        self.lines: list[tuple[Users, Statement]] = []
        self.sizes: list[Measure] = [] if outer is None else outer.sizes
        self.users: Users = () if outer is None else outer.users
        self.stem: str = "" if outer is None else outer.stem
        self._noted: tuple[str, Users] | None = None
        self._known: dict[Hashable, tuple[Name, Users]] = {}
        self._law: Hashable = None  # what the last law is known by
        self._last: Hashable = None  # what the last statement is known by, where it is shared

    def inner(self) -> Code:
        """The body of a recurrence."""
        return Code(self.pairs, self)

    def add(self, statement: Statement) -> None:
        self.lines.append((self.users, statement))

    def note(self, text: str | None) -> None:
        """The program's line that follows, once for what is computed of it together."""
        if text is not None and (text, self.users) != self._noted:
            self._noted = (text, self.users)
            self.add(Note(text))

    def make(
        self, kind: Any, layout: Layout | None, *fields: Any, stem: str | None = None, of: Kind = "temporary"
    ) -> Name:
        """The name of a statement with these fields, the one that is known where it may be shared."""
        self._last = None
        if self._is_shared(kind, layout, fields):
            key = kind, fields, None if layout is None else (layout.leads, len(layout.axes))
            known = self._find(key)
            if known is not None:
                return known
            if kind is Law:
                self._known.pop(self._law, None)
                self._law = key
            self._last = key
        out = Name(self.stem if stem is None else stem, layout, of)
        self.add(kind(out, *fields))
        if self._last is not None:
            self._known[self._last] = out, self.users
        return out

    def measure(self, kind: type[Size | Strided], *fields: Any, stem: str) -> Name:
        """A size, known from the beginning of the function."""
        found = next((s.out for s in self.sizes if isinstance(s, kind) and _fields(s) == fields), None)
        if found is None:
            found = Name(stem, None, "size")
            self.sizes.append(kind(found, *fields))
        return found

    def named(self, value: Operand, stem: str, layout: Layout | None, kind: Kind = "entry") -> Name:
        """The value under a name of its own: that of the last statement where it makes the value."""
        last = self.lines[-1][1] if self.lines else None
        if last is not None and isinstance(value, Name) and value.kind == "temporary" and last.made() == (value,):
            out = Name(stem, value.layout, kind)
            self.lines[-1] = self.users, dataclasses.replace(cast(Any, last), out=out)
            if self._last is not None:
                self._known[self._last] = out, self.users
            return out
        return self.make(Same, layout, value, stem=stem, of=kind)

    def _find(self, key: Hashable) -> Name | None:
        found = self._known.get(key)
        if found is not None and set(found[1]) >= set(self.users):
            return found[0]
        return None if self.outer is None else self.outer._find(key)

    def _is_shared(self, kind: Any, layout: Layout | None, fields: tuple[Any, ...]) -> bool:
        if not self.pairs or layout is None or kind in (Permute, Slice, Law):
            return True
        written = kind in (Expect2, Box, Contract, Total) or Into.FIRST in fields or Into.DROPPED in fields
        return kind is not Same and not written and layout.of != BOTH


def _fields(s: Measure) -> tuple[Any, ...]:
    return tuple(getattr(s, f.name) for f in dataclasses.fields(s)[1:])
