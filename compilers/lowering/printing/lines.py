"""Lines of source of at most so many characters: calls and tuples are broken between their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH = 120


class Text(NamedTuple):
    """Source that may be broken between its items: `head`, `items` with commas between, `tail`."""

    head: str
    items: Sequence[str] = ()
    tail: str = ""

    def __str__(self) -> str:
        return f"{self.head}{', '.join(self.items)}{self.tail}"


def call(function: str, *args: str) -> Text:
    return Text(f"{function}(", args, ")")


def broken(indent: str, before: str, text: Text) -> list[str]:
    """`before` and the text, in one line where it fits, else as many items a line as fit."""
    whole = f"{indent}{before}{text}"
    if len(whole) <= WIDTH or not text.items:
        return [whole]
    rows = [""]
    for item in text.items:
        if rows[-1] and len(indent) + 4 + len(rows[-1]) + len(item) + 2 > WIDTH:
            rows.append("")
        rows[-1] += f"{' ' if rows[-1] else ''}{item},"
    return [f"{indent}{before}{text.head}", *(f"{indent}    {row}" for row in rows), f"{indent}{text.tail}"]


def remark(indent: str, text: str) -> list[str]:
    """A comment on lines of its own."""
    room = WIDTH - len(indent) - 2
    first, rest = text[:room], text[room:]
    more = [rest[i : i + room - 4] for i in range(0, len(rest), room - 4)]
    return [f"{indent}# {first}", *(f"{indent}#     {row}" for row in more)]


def formula(indent: str, before: str, text: str) -> list[str]:
    """A formula, broken at spaces inside parentheses."""
    whole = f"{indent}{before}{text}"
    if len(whole) <= WIDTH:
        return [whole]
    return [f"{indent}{before}(", *_filled(f"{indent}    ", text.split(" "), " "), f"{indent})"]


def table(name: str, text: str) -> list[str]:
    """A constant: nested tuples of numbers."""
    whole = f"{name} = {text}"
    if len(whole) <= WIDTH:
        return [whole]
    return [f"{name} = (", *_filled("    ", text[1:-1].split(", "), ", "), ")"]


def deleted(indent: str, names: Sequence[str]) -> list[str]:
    """`del` of names, in as many lines as it takes."""
    rows = _filled("", names, ", ", WIDTH - len(indent) - 4)
    return [f"{indent}del {row.removesuffix(',')}" for row in rows]


def _filled(indent: str, words: Sequence[str], between: str, width: int = WIDTH) -> list[str]:
    """As many words a line as fit."""
    rows = [indent + words[0]]
    for word in words[1:]:
        if len(rows[-1]) + len(between) + len(word) + 1 > width:
            rows[-1] += between.rstrip()
            rows.append(indent + word)
        else:
            rows[-1] += between + word
    return rows


def noted(before: str, text: Text, note: str) -> list[str]:
    """A statement with a comment behind it where both fit, else above it."""
    whole = f"{before}{text}  # {note}"
    return [whole] if len(whole) <= WIDTH else [*remark("", note), *broken("", before, text)]
