"""A whole recursion on a page: the entries of each input, those of each pair, the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from netsor.compilers.derive.labels import is_named
from netsor.compilers.derive.recursion import Recursion, Result
from netsor.compilers.derive.values import Access, Entry, Num, Value, walk
from netsor.compilers.render.symbols import Names, blocks, taps
from netsor.compilers.render.tex import Latex, Numbered, name_latex
from netsor.compilers.render.text import Text
from netsor.compilers.render.writer import Writer
from netsor.names import code_span
from netsor.names import shown as one_line
from netsor.text.notation import taps_text

SPACES = ("const", "input", "pair")
TITLES = {
    "const": "constants of the program", "input": "each input ξ", "pair": "each pair of inputs ξ, ξ̄",
}  # fmt: skip
LEGEND = """\
K: second moments E Z Z̄.  Θ: tangent kernels.  M: means.  S: scalars.
E[f(u) g(v)](a, b, c): u, v Gaussian with variances a, b and covariance c.  Entries are zero outside their axes."""


@dataclass(frozen=True)
class Equation:
    """left = right, with the offsets of its windows; `recurrent` when it reads itself through others."""

    left: str
    right: str
    where: str
    recurrent: bool = False


@dataclass(frozen=True)
class Page:
    """The equations of a recursion by section."""

    sections: tuple[tuple[str, tuple[Equation, ...]], ...]
    results: tuple[Equation, ...]
    terms: tuple[Equation, ...]


Notation = Callable[[Names, bool], Writer]
Naming = Callable[[str], str]


def page(r: Recursion, notation: Notation, result_name: Naming, term_name: Naming, taps_of: Naming) -> Page:
    """Every equation written in one notation; `taps_of` writes the offsets of a window."""
    sections = []
    for space in SPACES:
        found = tuple(
            _entry(e, recurrent, notation, taps_of)
            for block, recurrent in blocks(r.used) for e in block if e.space == space
        )  # fmt: skip
        if found:
            sections.append((space, found))
    results = tuple(_result(x, result_name(x.name), notation, taps_of) for x in r.results.values())
    terms = tuple(_result(x, term_name(x.name), notation, taps_of) for x in r.terms.values())
    return Page(tuple(sections), results, terms)


def _entry(e: Entry, recurrent: bool, notation: Notation, taps_of: Naming) -> Equation:
    value = cast(Value, e.value)
    writer = notation(Names(e.dims, value), e.space == "pair")
    own = {"const": 0, "input": "s", "pair": "m"}[e.space]
    bare = notation(writer.names, False)  # on the left nothing tells the copies apart
    left = bare.entry(e, own) + bare.indexed(e.dims)  # type: ignore[arg-type]
    return Equation(left, writer.write(value), _where(value, writer, taps_of), recurrent)


def _result(r: Result, name: str, notation: Notation, taps_of: Naming) -> Equation:
    pair = r.kind != "scalar" or any(isinstance(v, Access) and v.entry.space == "pair" for v in walk(r.value))
    writer = notation(Names(r.dims, r.value), pair)
    value = r.value if r.value is not None else Num(0)
    return Equation(name + writer.indexed(r.dims), writer.write(value), _where(value, writer, taps_of))


def _where(value: Value, writer: Writer, taps_of: Naming) -> str:
    found = taps(value)
    return ", ".join(writer.symbol(tap) + taps_of(f" in {taps_text(offsets)}") for tap, offsets in found.items())


# ---------------------------------------------------------------- plain text


def text(r: Recursion) -> str:
    """The recursion in plain text."""
    shown = page(r, Text, str, lambda name: f"ntk of {name}", str)
    lines = [f"recursion of {one_line(r.program.name)}", "", *LEGEND.splitlines()]
    for space, equations in shown.sections:
        lines += ["", f"{TITLES[space]}:", *_rows(equations)]
    lines += ["", "results:", *_rows(shown.results)]
    if shown.terms:
        lines += ["", "terms of the ntk:", *_rows(shown.terms)]
    return "\n".join(lines) + "\n"


def _rows(equations: Sequence[Equation]) -> Iterator[str]:
    for e in equations:
        where = f"   where {e.where}" if e.where else ""
        mark = "   (recurrent)" if e.recurrent else ""
        yield f"  {e.left} = {e.right}{where}{mark}"


# ---------------------------------------------------------------- LaTeX and Markdown


def _latex_page(r: Recursion) -> Page:
    numbered = _numbered(r.used)
    lines = frozenset(x.out.name for x in r.program.lines if is_named(x.out.name))

    def notation(names: Names, pair: bool) -> Writer:
        return Latex(names, pair, numbered, lines)

    return page(r, notation, _result_latex, lambda t: rf"\Theta_{{{name_latex(t)}}}", _offsets_latex)


def _result_latex(name: str) -> str:
    known = {"nngp": r"\Sigma", "ntk": r"\Theta"}
    if name in known:
        return known[name]
    return rf"C^{{{name_latex(name)}}}"


def _offsets_latex(text: str) -> str:
    return rf"\text{{{text.replace('{', chr(92) + '{').replace('}', chr(92) + '}')}}}"


def _numbered(entries: Sequence[Entry]) -> Numbered:
    """Entries of the same variables and space, told apart by a number."""
    count: dict[tuple[object, ...], int] = {}
    out: Numbered = {}
    for e in entries:
        key = (e.kind, e.space, len(e.dims), *(id(x.node) for x in e.refs))
        count[key] = out[e] = count.get(key, 0) + 1
    return out


def latex(r: Recursion) -> str:
    """The recursion as LaTeX `align*` environments, one for each section."""
    out = [f"% The recursion of {one_line(r.program.name)}: \\Sigma is the NNGP kernel, \\Theta the NTK."]
    for title, equations in _latex_sections(r):
        out += ["", f"% {title}", r"\begin{align*}", _aligned(equations), r"\end{align*}"]
    return "\n".join(out) + "\n"


def markdown(r: Recursion) -> str:
    """The recursion as Markdown with displayed formulas."""
    out = [f"# Recursion of {code_span(r.program.name)}", "", "```text", str(r.program).rstrip(), "```"]
    for title, equations in _latex_sections(r):
        formulas = ["$$", r"\begin{aligned}", _aligned(equations), r"\end{aligned}", "$$"]
        out += ["", f"## {title[0].upper()}{title[1:]}", "", *formulas]
    return "\n".join(out) + "\n"


def _latex_sections(r: Recursion) -> Iterator[tuple[str, Sequence[Equation]]]:
    shown = _latex_page(r)
    for space, equations in shown.sections:
        yield TITLES[space], equations
    yield "results", shown.results
    if shown.terms:
        yield "terms of the NTK", shown.terms


def _aligned(equations: Sequence[Equation]) -> str:
    rows = []
    for e in equations:
        where = rf" \qquad {e.where}" if e.where else ""
        mark = r" \quad\text{(recurrent)}" if e.recurrent else ""
        rows.append(f"{e.left} &= {e.right}{where}{mark}")
    return " \\\\\n".join(rows)
