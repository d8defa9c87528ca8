"""Names of entries for variables that the program did not name: `x_window`, `s_prev`, `relu_h1`."""

from __future__ import annotations

import re
from typing import assert_never

import sympy as sp

from netsor import ir

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
    match line:
        case ir.Window():
            return f"{of}_window"
        case ir.Unwindow():
            return f"{of}_unwindow"
        case ir.At():
            return f"{of}_{_place(line.index)}"
        case ir.Place():
            return f"{of}_in_{_place(line.index)}"
        case ir.Shift():
            return f"{of}_{'prev' if line.by > 0 else 'next'}"
        case ir.Rename():
            return f"{of}_{'_'.join(new.name for _, new in line.axes)}"
        case _:
            assert_never(line)


def _place(index: int) -> str:
    return {0: "first", -1: "last"}.get(index, f"at_{index}".replace("-", "minus_"))
