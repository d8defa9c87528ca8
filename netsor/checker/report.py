"""The checker's result: verdicts with their reasons, and all findings."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from netsor import ir
from netsor.checker.independence.witness import Witness
from netsor.checker.render import render
from netsor.checker.typing.widths import Cdc
from netsor.checker.verdicts import VERDICTS
from netsor.errors import Diagnostic, Location


@dataclass(frozen=True)
class Report:
    """Each verdict is True, False or None (undecided); `reasons[verdict]` says why.

    >>> report = ns.check(ns.programs.mlp())
    >>> report.ok, report.theorem
    (True, 'Theorem A.6 (NETSOR⊤)')
    """

    program: ir.ProgramLike  # as checked: with its backward pass
    well_typed: bool | None
    bp_like: bool | None
    simple_gia: bool | None
    gia_valid: bool | None
    polynomially_bounded: bool | None
    parameter_controlled: bool | None
    rank_stable: bool | None
    ntk_ready: bool | None
    _: KW_ONLY
    reasons: dict[str, str]
    readouts: tuple[str, ...] = ()
    cdcs: tuple[Cdc, ...] = ()
    theorem: str | None = None
    violations: tuple[Diagnostic, ...] = ()  # of Definition A.3, all of them; the first one is in `diagnostics`
    diagnostics: tuple[Diagnostic, ...] = ()
    witnesses: tuple[Witness, ...] = ()

    @property
    def ok(self) -> bool:
        """No finding is an error, those aside that the program accepts."""
        return not any(d.severity == "error" and d.accepted is None for d in self.diagnostics)

    @property
    def verdict(self) -> dict[str, bool | None]:
        return {name: getattr(self, name) for name in VERDICTS}

    @property
    def file(self) -> str | None:
        """The file of the program's first located line."""
        return next((line.loc.file for line in self.program.lines if line.loc is not None), None)

    def __str__(self) -> str:
        return render([self], "full")

    def __repr__(self) -> str:
        words = {True: "yes", False: "no", None: "undecided"}
        return f"<Report {self.program.name}: " + ", ".join(f"{k} {words[v]}" for k, v in self.verdict.items()) + ">"

    def markdown(self) -> str:
        """The theorem, each hypothesis with its verdict, why it holds and at which lines, and what was found."""
        from netsor.checker.typeset import markdown

        return markdown(self)

    def latex(self) -> str:
        """The same in LaTeX."""
        from netsor.checker.typeset import latex

        return latex(self)

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def _repr_latex_(self) -> str:
        return self.latex()

    def _repr_html_(self) -> str:
        from netsor.checker.typeset import html

        return html(self)

    def to_json(self) -> dict[str, object]:
        """The object that `netsor check --format json` prints."""
        return {
            "program": self.program.name,
            "file": self.file,
            "verdict": self.verdict,
            "reasons": dict(self.reasons),
            "theorem": self.theorem,
            "readouts": list(self.readouts),
            "cdcs": [{"width": c.width, "ratio": float(c.ratio), "vectors": list(c.vectors)} for c in self.cdcs],
            "diagnostics": [diagnostic_json(d) for d in self.diagnostics],
        }


def diagnostic_json(d: Diagnostic) -> dict[str, object]:
    """One finding as JSON; the reason stands in accepted findings only."""
    found: dict[str, object] = {} if d.accepted is None else {"accepted": d.accepted}
    return found | {
        "code": d.code,
        "severity": d.severity,
        "message": d.message,
        "variable": d.variable,
        "line": d.line,
        "clause": d.clause,
        "location": location_json(d.location),
        "hint": d.hint,
    }


def location_json(loc: Location | None) -> dict[str, object] | None:
    return None if loc is None else {"file": loc.file, "line": loc.line, "column": loc.column}
