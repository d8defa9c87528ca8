"""Reports as LaTeX and Markdown: the theorem, each hypothesis, its verdict, why, and at which lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from netsor import ir, markup
from netsor.checker.render import listing_line, listing_of, word
from netsor.checker.verdicts import VERDICTS, theorem
from netsor.errors import Diagnostic

if TYPE_CHECKING:
    from netsor.checker.report import Report

WORDS = {True: "yes", False: "no", None: "undecided"}
_TITLES = {
    "well_typed": "well typed (Definition A.1)",
    "bp_like": "BP-like (Definition A.3)",
    "simple_gia": "Simple GIA Check (Condition 1)",
    "gia_valid": "gradient independence assumption",
    "polynomially_bounded": "polynomially bounded functions",
    "parameter_controlled": "parameter control (B.5)",
    "rank_stable": "rank stability (B.7)",
    "ntk_ready": "gradients for the NTK",
}
_CODES = {
    "well_typed": ("NT1",), "bp_like": ("NT201", "NT202", "NT203", "NT204", "NT205"), "simple_gia": ("NT206",),
    "gia_valid": ("NT207",), "polynomially_bounded": ("NT301", "NT302", "NT303", "NT304"),
    "parameter_controlled": ("NT307",), "rank_stable": ("NT401",), "ntk_ready": ("NT305", "NT306"),
}  # fmt: skip


@dataclass(frozen=True)
class Hypothesis:
    """One verdict: `needed` by the theorem, decided at `lines` (from 1), `findings` against it."""

    title: str
    verdict: bool | None
    reason: str
    needed: bool
    lines: tuple[int, ...]
    findings: tuple[Diagnostic, ...]


def hypotheses(r: Report) -> list[Hypothesis]:
    """All verdicts in order."""
    needed = _needed(r)
    return [
        Hypothesis(
            _TITLES[name], r.verdict[name], r.reasons.get(name, ""), name in needed,
            tuple(i + 1 for i, line in enumerate(r.program.lines) if _decided_at(name, r, line)),
            _findings(r, name),
        )
        for name in VERDICTS
    ]  # fmt: skip


def applicable(r: Report) -> str:
    """The theorem that is about programs of this kind, whether its hypotheses hold or not."""
    return theorem(dict.fromkeys(VERDICTS, True), r.program.lines, len(r.cdcs)) or ""


def _needed(r: Report) -> tuple[str, ...]:
    scalars = any(line.out.kind == "C" for line in r.program.lines)
    plain = ("well_typed", "bp_like", "polynomially_bounded")
    return (*plain, "parameter_controlled", "rank_stable") if scalars else plain


def _findings(r: Report, name: str) -> tuple[Diagnostic, ...]:
    every = dict.fromkeys((*r.diagnostics, *r.violations))
    return tuple(d for d in every if d.code.startswith(_CODES[name]))


_DECIDED: dict[str, Callable[[Report, ir.Line], bool]] = {
    "bp_like": lambda r, x: isinstance(x, ir.MatMul) or x.out.name in r.readouts,
    "simple_gia": lambda r, x: any(o.readout is x.out for o in r.program.outputs),
    "gia_valid": lambda r, x: isinstance(x, ir.MatMul),
    "polynomially_bounded": lambda r, x: isinstance(x, ir.Nonlin | ir.Moment),
    "parameter_controlled": lambda r, x: isinstance(x, ir.Nonlin | ir.Moment) and bool(x.params),
    "rank_stable": lambda r, x: isinstance(x, ir.MatMul) and any(y.out.kind == "C" for y in r.program.lines),
    "ntk_ready": lambda r, x: any(g.is_ is x.out for g in r.program.gradients),
}


def _decided_at(name: str, r: Report, line: ir.Line) -> bool:
    return name in _DECIDED and _DECIDED[name](r, line)


def ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 as 1–3, 7."""
    out: list[list[int]] = []
    for n in numbers:
        if out and n == out[-1][-1] + 1:
            out[-1].append(n)
        else:
            out.append([n])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in out)


def conclusion(r: Report) -> str:
    """What follows, in one sentence."""
    if r.theorem:
        return f"{r.theorem} applies: its hypotheses hold."
    missing = [h for h in hypotheses(r) if h.needed and h.verdict is not True]
    names = ", ".join(f"{h.title}: {WORDS[h.verdict]}" for h in missing)
    return f"No theorem is shown to apply. {applicable(r) or 'A theorem'} asks for {names}."


# ---------------------------------------------------------------- Markdown


def markdown(r: Report) -> str:
    """The report as Markdown: a table of the hypotheses, the findings, the numbered lines."""
    rows = [
        (f"**{h.title}**" if h.needed else h.title, WORDS[h.verdict], markup.prose(h.reason), ranges(h.lines))
        for h in hypotheses(r)
    ]
    out = [f"# Conditions of {markup.code(r.program.name)}", "", markup.prose(conclusion(r)), ""]
    out += [markup.table(("hypothesis", "holds", "why", "lines"), rows), ""]
    out += ["Hypotheses of the theorem are bold."]
    if r.readouts:
        out[-1] += f" Readouts: {', '.join(map(markup.code, r.readouts))}."
    for d in _every_finding(r):
        out += ["", *_finding_markdown(r, d)]
    return "\n".join([*out, "", "## Lines", "", markup.fenced("\n".join(numbered(r)))]) + "\n"


def _every_finding(r: Report) -> list[Diagnostic]:
    """All findings, and the violations that none of them repeats."""
    said = {(d.code, d.line) for d in r.diagnostics}
    return [*r.diagnostics, *(d for d in r.violations if (d.code, d.line) not in said)]


def _finding_markdown(r: Report, d: Diagnostic) -> Iterator[str]:
    place = listing_line(listing_of(r.program), d.line)
    yield f"- **{d.code}** ({markup.prose(word(d))}): {markup.prose(d.message)}"
    if place:
        yield f"  - line {(d.line or 0) + 1}: {markup.code(place)}"
    if d.clause:
        yield f"  - clause: {markup.prose(d.clause)}"
    if d.hint:
        yield f"  - remedy: {markup.prose(d.hint)}"
    if d.accepted:
        yield f"  - accepted because {markup.prose(d.accepted)}"


def numbered(r: Report) -> Iterator[str]:
    """The lines as checked, with the numbers that the report uses."""
    wide = len(str(len(r.program.lines)))
    listing = listing_of(r.program)
    for i in range(len(r.program.lines)):
        yield f"{i + 1:>{wide}}  {listing_line(listing, i)}"


# ---------------------------------------------------------------- LaTeX


def latex(r: Report) -> str:
    """The report as LaTeX: a list of the hypotheses with the lines that decide them, and what was found."""
    out = [rf"\paragraph{{Conditions of \texttt{{{markup.latex(r.program.name)}}}.}}", markup.latex(conclusion(r))]
    out += [r"\begin{description}"]
    for h in hypotheses(r):
        where = f" ({'line' if len(h.lines) == 1 else 'lines'} {markup.latex(ranges(h.lines))})" if h.lines else ""
        mark = r"$^{\ast}$" if h.needed else ""
        title = rf"\item[{{{markup.latex(h.title)}{mark}}}]"
        out.append(f"{title} {WORDS[h.verdict]}: {markup.latex(h.reason)}{where}.")
    out += [r"\end{description}", r"$^{\ast}$: a hypothesis of the theorem."]
    found = _every_finding(r)
    if found:
        out += [r"\begin{itemize}", *(_finding_latex(r, d) for d in found), r"\end{itemize}"]
    return "\n".join(out) + "\n"


def _finding_latex(r: Report, d: Diagnostic) -> str:
    place = listing_line(listing_of(r.program), d.line)
    at = rf" Line {(d.line or 0) + 1}: \texttt{{{markup.latex(place)}}}." if place else ""
    clause = f" Clause: {markup.latex(d.clause)}." if d.clause else ""
    remedy = f" Remedy: {markup.latex(d.hint)}." if d.hint else ""
    accepted = f" Accepted because {markup.latex(d.accepted)}." if d.accepted else ""
    return rf"\item \textbf{{{markup.latex(d.code)}}} {markup.latex(d.message)}.{at}{clause}{remedy}{accepted}"


# ---------------------------------------------------------------- HTML


def html(r: Report) -> str:
    """The table of the hypotheses."""
    rows = [(h.title, WORDS[h.verdict], h.reason, ranges(h.lines)) for h in hypotheses(r)]
    return markup.html_table(f"{r.program.name}: {conclusion(r)}", ("hypothesis", "holds", "why", "lines"), rows)


def html_findings(r: Report) -> str:
    """All findings as a list: the line, the clause, the remedy."""
    rows = "".join(f"<li>{_finding_html(r, d)}</li>" for d in _every_finding(r))
    return f"<ul>{rows}</ul>" if rows else ""


def _finding_html(r: Report, d: Diagnostic) -> str:
    place = listing_line(listing_of(r.program), d.line)
    out = f"<strong>{escape(d.code)}</strong> ({escape(word(d))}): {escape(d.message)}"
    out += f"<br>line {(d.line or 0) + 1}: <code>{escape(place)}</code>" if place else ""
    for name, text in (("clause", d.clause), ("remedy", d.hint), ("accepted because", d.accepted)):
        out += f"<br>{name}: {escape(text)}" if text else ""
    return out
