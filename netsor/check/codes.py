"""What each code means, with an example, the clause of the theory and the remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """One finding's explanation."""

    code: str
    title: str
    text: str
    example: str
    clause: str
    remedy: str


CODES: dict[str, Code] = {}


def explain(code: str) -> str:
    """The explanation of a code as text; KeyError when there is none."""
    c = CODES[code.upper()]
    example = "\n".join("    " + row for row in c.example.splitlines())
    return f"{c.code}: {c.title}\n\n{c.text}\n\nExample\n\n{example}\n\nWhere: {c.clause}\nRemedy: {c.remedy}"
