"""A whole recursion on a page: the entries of each input, those of each pair, the results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from netsor.compilers.derive.entries.traversal import walk
from netsor.compilers.derive.entries.values import Access, Entry, Num, Value
from netsor.compilers.derive.recursion import Recursion, Result
from netsor.compilers.render.symbols import Names, blocks, taps
from netsor.compilers.render.text import Text, entry_text
from netsor.compilers.render.writer import Writer
from netsor.markup import one_line

SPACES = ("const", "input", "pair")
TITLES = {
    "const": "constants of the program", "input": "each input ξ", "pair": "each pair of inputs ξ, ξ̄",
}  # fmt: skip
LEGEND = """\
K: second moments E Z Z̄.  Θ: tangent kernels.  M: means.  S: scalars.
E[f(u) g(v)](a, b, c): u, v Gaussian with variances a, b and covariance c.  Entries are zero outside their axes."""


@dataclass(frozen=True)
class Equation:
    """left = right, with the offsets of its windows and the definitions of long parts in `where`; `recurrent` when it
    reads itself through others."""

    left: str
    right: str
    where: tuple[str, ...]
    recurrent: bool = False


@dataclass(frozen=True)
class Page:
    """The equations of a recursion by section."""

    sections: tuple[tuple[str, tuple[Equation, ...]], ...]
    results: tuple[Equation, ...]
    terms: tuple[Equation, ...]


Notation = Callable[[Names, bool], Writer]


def page(r: Recursion, notation: Notation, result_name: Callable[[str, str], str]) -> Page:
    """Every equation written in one notation; `result_name` names a result of a kind."""
    sections = []
    for space in SPACES:
        found = tuple(
            _entry(e, recurrent, notation)
            for block, recurrent in blocks(r.used) for e in block if e.space == space
        )  # fmt: skip
        if found:
            sections.append((space, found))
    results = tuple(_result(x, result_name(x.name, x.kind), notation) for x in r.results.values())
    terms = tuple(_result(x, result_name(x.name, "term"), notation) for x in r.terms.values())
    return Page(tuple(sections), results, terms)


def _entry(e: Entry, recurrent: bool, notation: Notation) -> Equation:
    value = e.value
    writer = notation(Names(e.dims, value), e.space == "pair")
    bare = notation(writer.names, False)  # on the left nothing tells the copies apart
    left = bare.entry(e, e.copy) + bare.indexed(e.dims)
    return _equation(left, value, writer, recurrent)


def _result(r: Result, name: str, notation: Notation) -> Equation:
    pair = r.kind != "scalar" or any(isinstance(v, Access) and v.entry.space == "pair" for v in walk(r.value))
    writer = notation(Names(r.dims, r.value), pair)
    value = r.value if r.value is not None else Num(0)
    return _equation(name + writer.indexed(r.dims), value, writer)


def _equation(left: str, value: Value, writer: Writer, recurrent: bool = False) -> Equation:
    right = writer.write(value)
    ranges = (writer.where(tap, offsets) for tap, offsets in taps(value).items())
    return Equation(left, right, (*ranges, *writer.asides()), recurrent)


# ---------------------------------------------------------------- plain text


def text(r: Recursion) -> str:
    """The recursion in plain text."""
    taken = {entry_text(e) for e in r.used}
    shown = page(r, Text, lambda name, kind: _result_text(name, kind, taken))
    lines = [f"recursion of {one_line(r.program.name)}", "", *LEGEND.splitlines()]
    for space, equations in shown.sections:
        lines += ["", f"{TITLES[space]}:", *_rows(equations)]
    lines += ["", "results:", *_rows(shown.results)]
    if shown.terms:
        lines += ["", "terms of the ntk:", *_rows(shown.terms)]
    return "\n".join(lines) + "\n"


def _result_text(name: str, kind: str, taken: Collection[str]) -> str:
    """The name of a result, told apart from an entry of that name."""
    if kind == "term":
        return f"ntk of {name}"
    return f"result {one_line(name)}" if name in taken else one_line(name)


def _rows(equations: Sequence[Equation]) -> Iterator[str]:
    for e in equations:
        where = f"   where {', '.join(e.where)}" if e.where else ""
        mark = "   (recurrent)" if e.recurrent else ""
        yield f"  {e.left} = {e.right}{where}{mark}"
