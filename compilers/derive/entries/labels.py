"""Names of entries for variables that the program did not name: `x_window`, `s_prev`, `relu_h1`."""

from __future__ import annotations

import re

import sympy as sp

from netsor import ir
from netsor.indexing import Read, index_map

LONGEST = 18


def is_named(name: str) -> bool:
    """False for the numbers that lines without a name get."""
    return re.fullmatch(r"_\d+", name) is None


def unnamed(var: ir.Var, description: str) -> str:
    """The variable's own name, or the description where it has none."""
    return var.name if is_named(var.name) else shortened(description, var.name)


def shortened(description: str, name: str) -> str:
    """The description, or the name where it would be long."""
    return description if len(description) <= LONGEST else name


def of_term(line: str) -> str:
    """One of several terms of a line, or its argument: never the line itself."""
    return f"{line}_term" if is_named(line) else line


def of_expression(expr: sp.Expr) -> str:
    """`relu(h1)` as relu_h1."""
    return re.sub(r"\W+", "_", str(expr).replace("'", "_prime")).strip("_")


def of_index_form(line: ir.IndexForm, of: str) -> str:
    m = index_map(line)
    if m.tap is not None:
        return f"{of}_{'unwindow' if m.transposed else 'window'}"
    return "_".join([of, *(["in"] if m.transposed else []), *map(_read, m.reads)])


def _read(r: Read) -> str:
    (offset,) = r.offsets
    if r.at is None:
        return _place(offset)
    return r.at.name if r.is_identity else "prev" if offset < 0 else "next"


def _place(index: int) -> str:
    return {0: "first", -1: "last"}.get(index, f"at_{index}".replace("-", "minus_"))
