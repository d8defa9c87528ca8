"""A strict reader of the LaTeX that recursions are written in: formulas → trees, or an error that says where.

    row    ::= item*        item ::= nucleus scripts      scripts ::= (^ atom | _ atom | ')*
    atom   ::= character | command | {row} | \\left d row \\right d | \\begin{env} row (& row | \\\\ row)* \\end{env}

Unknown commands, two superscripts or two subscripts on one nucleus, and delimiters that do not match are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

WITH_ARGUMENT = {
    "mathrm", "mathbb", "mathcal", "mathbf", "operatorname", "bar", "mathring", "mathop", "text", "sqrt",
    "texttt", "mathbin",
}  # fmt: skip
PLAIN = {
    "langle", "rangle", "lvert", "rvert", "lceil", "rceil", "sum", "xi", "dim", "sim", "le", "in", "cdot", "times",
    "delta", "dots", "partial", "Theta", "Sigma", "mu", "quad", "qquad", "to", "top", "middle", "pi", "sin",
    "cos", "zeta", "phi", "lt", "gt", "max", "min", "exp", "log", "wedge", "backslash", "infty", "neq", "geq",
    "lambda", "kappa", "gamma", "alpha", "beta", "leq", "operatorname", "limits", "varepsilon", "mapsto",
    *",;! {}_%#&$",
}  # fmt: skip
LEFT, RIGHT = {*"([.|", "\\{", "\\lvert"}, {*")].|", "\\}", "\\rvert"}
ENVIRONMENTS = {"smallmatrix", "aligned", "align*", "cases"}
_TOKEN = re.compile(r"\\([A-Za-z]+|.)|(\s+)|(.)", re.DOTALL)


class TexError(ValueError):
    pass


@dataclass
class Item:
    """A nucleus with its scripts; `inside` holds the rows of a group, an argument or an environment."""

    name: str
    inside: list[list[Item]] = field(default_factory=list)
    upper: list[Item] | None = None
    lower: list[Item] | None = None
    primes: int = 0

    def __str__(self) -> str:
        text = self.name + "".join("{" + written(row) + "}" for row in self.inside)
        text += "" if self.lower is None else "_{" + written(self.lower) + "}"
        text += "" if self.upper is None else "^{" + written(self.upper) + "}"
        return text + "'" * self.primes


def written(row: list[Item]) -> str:
    return "".join(map(str, row))


class Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(f"\\{m[1]}" if m[1] else m[3], m.start()) for m in _TOKEN.finditer(text) if not m[2]]
        self.at = 0

    def fail(self, what: str) -> TexError:
        place = self.tokens[min(self.at, len(self.tokens) - 1)][1] if self.tokens else 0
        return TexError(f"{what} at {self.text[max(0, place - 60) : place + 20]!r}")

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def whole(self) -> list[Item]:
        row = self.row(("",))
        if self.at < len(self.tokens):
            raise self.fail("unexpected end")
        return row

    def row(self, ends: tuple[str, ...]) -> list[Item]:
        out = []
        while self.peek() not in ends:
            if not self.peek() or self.peek() in ("}", "\\right", "\\end", "&", "\\\\"):
                raise self.fail(f"expected {ends}, got {self.peek()!r}")
            out.append(self.item())
        return out

    def item(self) -> Item:
        item = self.atom()
        while self.peek() in ("^", "_", "'"):
            mark = self.take()
            if mark == "'":
                if item.upper is not None:
                    raise self.fail("a prime after a superscript")
                item.primes += 1
            elif mark == "^":
                if item.upper is not None or item.primes:
                    raise self.fail("double superscript")
                item.upper = [self.atom()]
            else:
                if item.lower is not None:
                    raise self.fail("double subscript")
                item.lower = [self.atom()]
        return item

    def atom(self) -> Item:
        token = self.take()
        if token == "{":
            row = self.row(("}",))
            self.take()
            return Item("", [row])
        if token == "\\left":
            return self.delimited()
        if token == "\\begin":
            return self.environment()
        if token == "\\frac":
            return Item(token, [[self.atom()], [self.atom()]])
        if token.startswith("\\"):
            return self.command(token)
        if token in ("", "^", "_", "}", "&", "$", "#", "%", "~"):
            self.at -= 1
            raise self.fail(f"unexpected {token!r}")
        return Item(token)

    def command(self, token: str) -> Item:
        if token[1:] in WITH_ARGUMENT:
            return Item(token, [[self.atom()]])
        if token[1:] not in PLAIN:
            self.at -= 1
            raise self.fail(f"unknown command {token}")
        return Item(token)

    def delimited(self) -> Item:
        first = self.take()
        row = self.row(("\\right",))
        self.take()
        last = self.take()
        if first not in LEFT or last not in RIGHT:
            raise self.fail(f"delimiters {first} {last}")
        return Item(f"left{first}{last}", [row])

    def environment(self) -> Item:
        name = written(self.atom().inside[0])
        if name not in ENVIRONMENTS:
            raise self.fail(f"unknown environment {name}")
        if self.peek() == "[":
            while self.take() != "]":
                pass
        rows = []
        while True:
            rows.append(self.row(("&", "\\\\", "\\end")))
            if self.take() == "\\end":
                break
        if written(self.atom().inside[0]) != name:
            raise self.fail("\\end of another environment")
        return Item(name, rows)


def read(text: str) -> list[Item]:
    """The tree of a formula."""
    return Reader(text).whole()


def rows_in(row: list[Item]) -> Iterator[list[Item]]:
    """A row and the rows inside what it is made of, but for names: the inside of a symbol is part of the symbol."""
    yield row
    for item in row:
        inner = list(item.inside) if not item.name.startswith("\\") or item.name in ("\\frac", "\\sqrt") else []
        if item.name in ("\\mathop", "\\sum", "\\partial", "\\delta", "\\operatorname"):
            inner += [r for r in (item.lower, item.upper) if r is not None]
        for inside in inner:
            yield from rows_in(inside)
