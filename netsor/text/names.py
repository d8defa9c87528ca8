"""What functions are called in a listing, and the lines that define the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sympy as sp

from netsor import ir
from netsor.functions import Function, Head, builtin_names, undifferentiated
from netsor.text.expressions import Writer, builtin_text, normal, number
from netsor.text.notation import CALLED, name_text, plain

FORMS = frozenset({
    "moment", "dot", "sum", "mean", "max", "min", "softmax", *CALLED, "unwindow", "sqrt", "log", "floor", "ceiling",
    "tan", "sinh", "cosh", "asin", "acos", "atan", "pi",
})  # fmt: skip
"""Names that a listing gives a meaning, beside those of `netsor.functions`."""


def array_text(value: Any) -> str:
    """A number, nested tuples as nested brackets, or the word position."""
    if isinstance(value, str):
        return value
    return f"[{', '.join(map(array_text, value))}]" if isinstance(value, tuple | list) else number(value)


class FunctionNames:
    """What the functions of a program are called in its listing, and the rows that define the user's own.

    A user's function whose name is a built-in's or another's gets a number.
    """

    def __init__(self, p: ir.ProgramLike) -> None:
        self.names: dict[Function, str] = {}
        self._taken = {*builtin_names(), *FORMS}
        for function in p.functions.values():
            self._define(function)
        for line in p.lines:
            if isinstance(line, ir.Nonlin | ir.Moment):
                self._define_heads(line.expr)

    def _define_heads(self, expr: sp.Expr) -> None:
        for spec in sorted({undifferentiated(h.spec) for h in expr.atoms(Head)}, key=lambda f: f.name):
            if spec.user:
                self._define(spec)

    def _define(self, function: Function) -> None:
        if function in self.names:
            return
        if not function.numeric:
            self._define_heads(function.definition(*_dummies(function)))
        stem = plain(function.name)
        name, k = stem, 2
        while name in self._taken:
            name, k = f"{stem}_{k}", k + 1
        self._taken.add(name)
        self.names[function] = name

    def text(self, function: Function) -> str:
        """The name at a call."""
        if function in self.names:
            return name_text(self.names[function])
        if function.origin is not None:
            return self.text(function.origin) + function.name[len(function.origin.name) :]
        return builtin_text(function)

    def rows(self) -> Iterator[str]:
        for function, name in self.names.items():
            plainly = function.numeric and not function.abstract
            yield f"numeric {name_text(name)}" if plainly else self._definition(function, name)

    def _definition(self, function: Function, name: str) -> str:
        symbols = _dummies(function)
        head = f"function {name_text(name)}({', '.join(s.name for s in symbols)})"
        if function.abstract:
            return " ".join([head, *_facts(function)])
        body = Writer({s: s.name for s in symbols}, self.text).text(normal(function.definition(*symbols)))
        parts = [f"{head} = {body}", *_facts(function)]
        return " ".join(parts)


def _facts(function: Function) -> Iterable[str]:
    if function.parity:
        yield f"parity {function.parity}"
    if function.growth:
        yield f"growth {name_text(function.growth)}"
    if function.kinks:
        yield f"kinks {array_text(function.kinks)}"


def _dummies(function: Function) -> tuple[sp.Symbol, ...]:
    k = function.arity
    names = ("x", "y", "z")[:k] if k <= 3 else tuple(f"x{i + 1}" for i in range(k))
    return tuple(sp.Symbol(n, real=True) for n in names)
