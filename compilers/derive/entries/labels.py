"""Names of entries for variables that the program did not name: `x_window`, `s_prev`, `relu_h1`."""

from __future__ import annotations

import re
from typing import NamedTuple

import sympy as sp

from netsor import ir
from netsor.indexing import IndexMap, Read, index_map

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


# ---------------------------------------------------------------- index forms


class Words(NamedTuple):
    """How an index form reads an axis, in names (`h1_window`, `h1_prev`) and in LaTeX, with words to be put in."""

    name: str
    latex: str


AT = Words("{place}", r"{axis}\to {place}")
PUT = Words("{place}", "{axis}={place}")
RENAMED = Words("{at}", r"{axis}\to {at}")
TAP = Words("window", "{axis}+{tap}")
UNTAP = Words("unwindow", "{axis}-{tap}")
BEFORE = Words("prev", "{axis}-{by}")
AFTER = Words("next", "{axis}+{by}")
PLACES = {0: Words("first", "0"), -1: Words("last", r"\mathrm{last}")}


def reading(r: Read, m: IndexMap) -> Words:
    if r.at is None:
        return PUT if m.transposed else AT
    if m.tap is not None:
        return UNTAP if m.transposed else TAP
    return RENAMED if r.is_identity else BEFORE if r.offsets[0] < 0 else AFTER


def place(index: int) -> Words:
    """A position, counted from the end where it is negative."""
    return PLACES.get(index, Words(f"at_{index}".replace("-", "minus_"), str(index)))


def of_index_form(line: ir.IndexForm, of: str) -> str:
    m = index_map(line)
    if m.tap is not None:
        return f"{of}_{(UNTAP if m.transposed else TAP).name}"
    return "_".join([of, *(["in"] if m.transposed else []), *(_name(r, m) for r in m.reads)])


def _name(r: Read, m: IndexMap) -> str:
    return reading(r, m).name.format(place=place(r.offsets[0]).name, at="" if r.at is None else r.at.name)
