"""Programs as text: `listing` writes a program, `parse` reads one, and the two are inverse.

The syntax is in docs/listing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netsor.text.printer import listing

if TYPE_CHECKING:
    from netsor.build.program import Program


def parse(text: str, file: str = "<listing>") -> Program:
    """The program of a listing. Text that is none is a ParseError, an undefined name a ProgramError.

    >>> p = ns.programs.mlp()
    >>> ns.parse(str(p)) == p
    True
    """
    from netsor.parser.statements import read

    return read(text, file)


__all__ = ["listing", "parse"]
