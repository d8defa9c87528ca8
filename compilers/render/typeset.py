"""Recursions typeset: LaTeX and Markdown, with a notation that defines every symbol of the right sides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from netsor import markup
from netsor.compilers.derive.entries.traversal import indices, walk
from netsor.compilers.derive.entries.values import Expect, Gram, Ind, Radial, SizeValue
from netsor.compilers.derive.outputs import OUTPUTS
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.render.breaking import WIDEST, lines, width
from netsor.compilers.render.naming import Symbols, name_latex
from netsor.compilers.render.pages import TITLES, Equation, Page, page
from netsor.compilers.render.tex import Latex
from netsor.compilers.render.transform import v_transform

RECURRENT = r" \quad\text{(recurrent)}"
LARGEST = 3500  # characters of source in one display
LEAST = 40.0  # a long left side leaves that much to the right one


@dataclass(frozen=True)
class Sheet:
    """A page with what its symbols mean: sentences with formulas between dollar signs."""

    page: Page
    notation: tuple[str, ...]


def sheet(r: Recursion) -> Sheet:
    """Every equation in LaTeX, and the notation they use."""
    symbols = Symbols(r, {_result_name(x.name, x.kind) for x in r.results.values()})
    found = page(r, lambda names, pair: Latex(names, pair, symbols), _result_name)
    return Sheet(found, tuple(_notation(r, symbols)))


def _result_name(name: str, kind: str) -> str:
    if kind == "term":
        return rf"{OUTPUTS['ntk'].latex}_{{{name_latex(name)}}}"
    if kind == "scalar":
        return name_latex(name)
    return OUTPUTS[name].latex if name in OUTPUTS else rf"{OUTPUTS['nngp'].latex}^{{{name_latex(name)}}}"


# ---------------------------------------------------------------- notation


def _notation(r: Recursion, symbols: Symbols) -> Iterator[str]:
    """What the symbols mean that the equations do not define."""
    values = [v for e in r.used for v in walk(e.value)]
    values += [v for x in (*r.results.values(), *r.terms.values()) for v in walk(x.value)]
    kinds = {"D" if symbols.entry(e)[0] == "D" else e.kind.letter for e in r.used}
    yield from (text for kind, text in _KINDS.items() if kind in kinds)
    if any(isinstance(v, Expect) and v_transform(v) for v in values):
        yield _TRANSFORM
    yield from (text for kind, text in _VALUES if any(isinstance(v, kind) for v in values))
    if any(indices(v) for v in values):
        yield _INDICES
    yield from (f"${name}$ is the limit variable of ${text}$." for name, text in symbols.notes.items())
    yield from (f"${name}$ is the scalar of the line {markup.code(line)}." for line, name in symbols.lines.items())


_KINDS = {
    "K": r"$C^{x}$ is the second moment $\mathbb{E}\,Z^{x}\bar Z^{x}$ of a variable at two inputs $\xi$, $\bar\xi$, "
         r"$C^{x}(\xi)$ that at one input, $C^{x,\,y}$ that of two variables.",
    "D": r"$D^{h}$ is the second moment of the gradient of $h$.",
    "T": r"$\Theta^{x}$ is the tangent kernel of a variable, $\Theta^{x}_{W}$ its part from one trained array.",
    "M": r"$\mu^{x}(\xi)$ is the mean of a variable.",
    "S": r"$\mathring{c}(\xi)$ is the limit of a scalar.",
    "A": r"$A_{1}$, $A_{2}$, … are auxiliary.",
}  # fmt: skip
_TRANSFORM = (
    r"$\mathrm{V}_{\phi}(C) = \mathbb{E}\,\phi(u)\phi(\bar u)$ for a Gaussian pair $(u, \bar u)$ of mean zero, with "
    r"the covariance of which $C$ is the off-diagonal entry; $\mathrm{V}_{\phi}(C)(\xi) = \mathbb{E}\,\phi(u)^{2}$."
)
_VALUES = (
    (Gram, r"$\langle x, \bar x\rangle / \dim x$ is the inner product of the data of $\xi$ and $\bar\xi$ over their "
          r"number of features."),
    (SizeValue, r"$\lvert a\rvert$ is the size of an axis $a$, $\lvert a\rvert'$ that for $\bar\xi$."),
    (Ind, r"$\mathbf{1}[0 \le i < n]$ is 1 inside the axis and 0 outside; $\delta_{i,\,j}$ is 1 where $i = j$."),
    (Radial, r"$r^{2}$ is the mean square over the normalised axis plus $\varepsilon$; $\partial_{\Theta}$ is the "
            r"derivative in the direction of $\Theta$."),
)  # fmt: skip
_INDICES = "Entries are zero where an index leaves its axis."


# ---------------------------------------------------------------- pages


def latex(r: Recursion) -> str:
    """The recursion as LaTeX: the notation, and an `align*` environment for each section."""
    shown = sheet(r)
    name = markup.latex(r.program.name)
    out = [f"% The recursion of {name}: \\Sigma is the NNGP kernel, \\Theta the NTK."]
    out += ["", *(_plain(text) for text in shown.notation)]
    for title, equations in _sections(shown.page):
        out += ["", f"% {title}"]
        for rows in _displays(equations):
            out += [r"\begin{align*}", rows, r"\end{align*}"]
    return "\n".join(out) + "\n"


def _plain(text: str) -> str:
    return text.replace("`_", r"\texttt{\_").replace("`", "}")


def markdown(r: Recursion) -> str:
    """The recursion as Markdown with displayed formulas."""
    shown = sheet(r)
    out = [f"# Recursion of {markup.code(r.program.name)}", "", markup.fenced(str(r.program))]
    out += ["", "## Notation", "", *(f"- {text}" for text in shown.notation)]
    for title, equations in _sections(shown.page):
        out += ["", f"## {title[0].upper()}{title[1:]}"]
        for rows in _displays(equations):
            out += ["", "$$", r"\begin{aligned}", rows, r"\end{aligned}", "$$"]
    return "\n".join(out) + "\n"


def html(r: Recursion) -> str:
    """The recursion as HTML whose formulas a notebook's MathJax reads."""
    shown = sheet(r)
    out = [f"<h4>Recursion of <code>{escape(markup.one_line(r.program.name))}</code></h4>"]
    for title, equations in _sections(shown.page):
        out.append(f"<p>{escape(title[0].upper() + title[1:])}</p>")
        for rows in _displays(equations):
            formula = "\n".join(("$$", r"\begin{aligned}", rows, r"\end{aligned}", "$$"))
            out.append(f"<div>{escape(formula, quote=False)}</div>")
    notation = "".join(f"<li>{_html(text)}</li>" for text in shown.notation)
    return "\n".join([*out, f"<details><summary>Notation</summary><ul>{notation}</ul></details>"]) + "\n"


def _html(text: str) -> str:
    return re.sub(r"`(.*?)`", r"<code>\1</code>", escape(text, quote=False))


def _sections(shown: Page) -> Iterator[tuple[str, Sequence[Equation]]]:
    for space, equations in shown.sections:
        yield TITLES[space], equations
    yield "results", shown.results
    if shown.terms:
        yield "terms of the NTK", shown.terms


def _displays(equations: Sequence[Equation]) -> Iterator[str]:
    """The rows of each display; MathJax reads up to 5 kB at a time."""
    rows: list[str] = []
    for row in map(_row, equations):
        if rows and sum(map(len, rows)) + len(row) > LARGEST:
            yield " \\\\\n".join(rows)
            rows = []
        rows.append(row)
    yield " \\\\\n".join(rows)


def _row(e: Equation) -> str:
    """left = right, broken after + and − into lines of at most WIDEST characters."""
    right = e.right + "".join(rf" \qquad {w}" for w in e.where) + (RECURRENT if e.recurrent else "")
    room = max(LEAST, WIDEST - width(e.left) - 2)
    found = lines(right, room, room - 2)
    if len(found) == 1:
        return f"{e.left} &= {right}"
    return f"{e.left} &= " + r"\begin{aligned}[t] & " + r" \\ & \quad ".join(found) + r" \end{aligned}"
