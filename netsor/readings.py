"""How messages read lines without a name: `_1` as `W @ x`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from netsor import ir
from netsor.errors import Diagnostic

if TYPE_CHECKING:
    from netsor.text.printer import Listing

NUMBERED = re.compile(r"(?<![\w.])(_\d+)(?:\[\w+(?:, \w+)*\])?(?![\w\[])")
NUMBERED_ANYWHERE = re.compile(r"(?<![\w.])_\d+\b")
LONGEST = 40
TIGHT = frozenset("@*/^+-=")


class Readings:
    """The expressions of the unnamed lines of a program; long and recurrent ones keep their number."""

    def __init__(self, p: ir.ProgramLike) -> None:
        self.p = p
        self.lines = {line.out.name: line for line in p.lines}
        self._known: dict[str, str] = {}

    @cached_property
    def _listing(self) -> Listing:
        from netsor.text.printer import Listing

        return Listing(self.p)

    def of(self, name: str) -> str:
        """The right side of the line, or the name itself."""
        if NUMBERED.fullmatch(name) is None or name not in self.lines:
            return name
        if name not in self._known:
            self._known[name] = name  # where a recurrence reads itself
            right = self._right(self.lines[name])
            if right is not None and len(right) <= LONGEST and NUMBERED_ANYWHERE.search(right) is None:
                self._known[name] = right
        return self._known[name]

    def _right(self, line: ir.Line) -> str | None:
        try:
            return self.within(self._listing.right(line))
        except (AssertionError, AttributeError, KeyError, StopIteration, TypeError, ValueError):
            return None  # an ill-typed line has no listing

    def within(self, text: str) -> str:
        """An expression with the unnamed lines in it replaced, in brackets where they stand beside an operator."""
        return NUMBERED.sub(lambda m: self._read(m, text), text)

    def _read(self, m: re.Match[str], text: str) -> str:
        found = self.of(m.group(1))
        if found == m.group(1):
            return m.group()
        before, after = text[: m.start()].rstrip()[-1:], text[m.end() :].lstrip()[:1]
        tight = before in TIGHT or after in TIGHT
        return f"({found})" if " " in found and tight else found

    def diagnostic(self, d: Diagnostic) -> Diagnostic:
        """A finding whose message and hint read well."""
        return replace(d, message=self.prose(d.message), hint=None if d.hint is None else self.prose(d.hint))

    def prose(self, text: str) -> str:
        """Names that the text itself explains, `_5 = 2*h`, and names in brackets behind what they name stay."""

        def read(m: re.Match[str]) -> str:
            name, after = m.group(1), text[m.end() :]
            explained = re.search(rf"(?<!\w){name}(?:\[[^\]]*\])? :?= ", text) is not None
            behind = text[: m.start()].endswith(" (") and after.startswith(")")
            return m.group() if explained or behind else self._read(m, text)

        return NUMBERED.sub(read, text)
