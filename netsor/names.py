"""The names that people give: what may be one, and how other text stands in one line."""

from __future__ import annotations

from typing import Any

from netsor.errors import ProgramError, caller_location

KERNELS = frozenset({"nngp", "ntk", "terms"})  # what `get` calls a network's own kernels


def problem(name: Any, quoted: bool = False) -> str | None:
    """Why something cannot be a name, if so. `quoted` names stand in quotes in a listing, others in backquotes."""
    if not isinstance(name, str):
        return "it is not text"
    if not name:
        return "it is empty"
    odd = next((c for c in name if not c.isprintable()), None)
    if odd is not None:
        return f"{odd!r} does not print"
    return "a listing writes such names in backquotes" if "`" in name and not quoted else None


def checked(name: Any, what: str, quoted: bool = False) -> str:
    """The name; ProgramError (NT104) when a listing cannot hold it."""
    why = problem(name, quoted)
    if why is not None:
        hint = "line breaks, control characters and invisible ones are left out of names"
        raise ProgramError(
            f"{name!r} is not a name for {what}: {why}", code="NT104", severity="error", location=caller_location(),
            hint="leave out the backquote" if isinstance(name, str) and "`" in name else hint,
        )  # fmt: skip
    return str(name)


def shown(text: str) -> str:
    """Any text in one line: characters that do not print are written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
