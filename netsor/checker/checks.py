"""All checks of a program, in one report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from netsor import facts, ir
from netsor.build import hints
from netsor.build.declared import Holder, as_program
from netsor.build.program import Program
from netsor.checker.batch import joined, samples
from netsor.checker.gradients import Readiness, ntk_ready
from netsor.checker.independence.bplike import bp_like
from netsor.checker.independence.clauses import BPLike, Violation, explain
from netsor.checker.independence.elements import by_elements
from netsor.checker.independence.gia import Correction, Simple, gia_valid, simple_gia
from netsor.checker.regularity.functions import Summary, regular
from netsor.checker.regularity.rank import rank_stable
from netsor.checker.report import Report
from netsor.checker.typing.lines import line_diagnostics
from netsor.checker.typing.structure import structure_diagnostics
from netsor.checker.typing.widths import cdcs
from netsor.checker.verdicts import VERDICTS, theorem
from netsor.errors import Diagnostic, InputError, NetsorError
from netsor.measure import derivative_size, tree_size
from netsor.passes.bind import bind
from netsor.run.work import GIVEN_UP, Work
from netsor.text.readings import Readings


class Check:
    """Check a program: types, BP-like, Simple GIA, GIA, growth, parameter control, rank stability, gradients.

    `check(p, readouts=None, x=None)`: `readouts` (names or variables) replaces the marked readouts; `x` is a network
    input `[*axes, feature]`, or a batch of them, or a dict by name, at which questions that depend on the data are
    decided: for a batch, for each sample. A program with an output and no gradients is checked with its backward pass.
    `check.independence(p)` asks only whether the gradient independence assumption holds.

    >>> report = ns.check(ns.programs.tied_autoencoder())
    >>> report.simple_gia, report.gia_valid
    (True, False)
    """

    def __call__(self, p: Program | Holder, readouts: hints.Readouts = None, x: hints.Inputs | None = None) -> Report:
        p = at_generic_values(as_program("ns.check", p, parameters=True, abstract=True))
        if not p.lines:
            return _empty(p)
        given = samples(p, x)
        return _accepted(p, joined([_check(p, readouts, data) for data in given]))

    def independence(self, p: Program | Holder) -> Independence:
        """Types, BP-like, Simple GIA and gia_valid alone: what `ns.compile` asks."""
        p = at_generic_values(as_program("ns.check", p, parameters=True, abstract=True))
        typing = type_errors(p)
        if typing or not p.lines:
            report = _ill_typed(p, typing) if typing else _empty(p)
            return Independence(report.program, None, None, None, report.reasons, report.diagnostics)
        whole, problems = _with_backward(p)
        work = {name: Work() for name in QUESTIONS}
        found = _gradient_independence(p, whole, _chosen(whole, None), {}, work)
        reasons = {"bp_like": found.bp.reason, "simple_gia": found.simple.reason, "gia_valid": found.why}
        findings = [*problems, *_independence(whole, *found)]
        return Independence(
            whole, found.bp.verdict, found.simple.verdict, found.valid, reasons,
            tuple(map(Readings(whole).diagnostic, findings)),
        )  # fmt: skip


def at_generic_values(p: Program) -> Program:
    """The program with numbers for its parameters, that no relation between them holds at: verdicts are for these."""
    names = facts.parameters(p.lines)
    return bind(p, {name: Fraction(1009 + 97 * i, 1013) for i, name in enumerate(names)}) if names else p


check = Check()
QUESTIONS = ("bp_like", "simple_gia", "gia_valid")


@dataclasses.dataclass(frozen=True)
class Independence:
    """Verdicts about gradient independence, True, False or None (undecided), with their reasons and findings."""

    program: ir.ProgramLike  # as checked: with its backward pass
    bp_like: bool | None
    simple_gia: bool | None
    gia_valid: bool | None
    reasons: dict[str, str]
    diagnostics: tuple[Diagnostic, ...]


class _Questions(NamedTuple):
    bp: BPLike
    simple: Simple
    valid: bool | None
    why: str
    correction: Correction | None


def _gradient_independence(
    p: Program, whole: Program, chosen: Any, data: Mapping[str, Any], work: Mapping[str, Work]
) -> _Questions:
    lines = whole.lines
    bp = bp_like(lines, chosen, work["bp_like"])
    if not chosen:
        bp = by_elements(whole, bp, work["bp_like"])
    simple = simple_gia(lines, whole.outputs, work["simple_gia"])
    valid, why, correction = gia_valid(lines, bp.verdict, data, work["gia_valid"])
    if p.outputs and not p.gradients and whole is p:  # of the forward pass alone nothing follows for its gradients
        why = "the backward pass could not be added"
        bp, valid = dataclasses.replace(bp, verdict=None, reason=why, violations=()), None
    return _Questions(bp, simple, valid, why, correction)


def _accepted(p: Program, report: Report) -> Report:
    """Findings that the program accepts carry its reason; verdicts stay what they are."""
    reasons = {a.code: a.because for a in p.accepted}
    diagnostics, violations = (tuple(dataclasses.replace(d, accepted=reasons.get(d.code)) for d in found)
                               for found in (report.diagnostics, report.violations))  # fmt: skip
    return dataclasses.replace(report, diagnostics=diagnostics, violations=violations)


def _check(p: Program, readouts: hints.Readouts, data: Mapping[str, Any]) -> Report:
    typing = type_errors(p)
    if typing:
        return _ill_typed(p, typing)
    whole, problems = _with_backward(p)
    lines = whole.lines
    work = {name: Work() for name in (*QUESTIONS, "functions", "rank_stable", "ntk_ready")}
    bp, simple, valid, why, correction = _gradient_independence(p, whole, _chosen(whole, readouts), data, work)
    functions = regular(lines, len(p.lines), _forward(whole), data, work["functions"])
    stable, rank_reason, rank_line = rank_stable(lines, data, work["rank_stable"])
    ready = _ready(p, whole, functions, work["ntk_ready"])
    verdicts: dict[str, bool | None] = {
        "well_typed": True, "bp_like": bp.verdict, "simple_gia": simple.verdict, "gia_valid": valid,
        "polynomially_bounded": functions.polynomially_bounded, "parameter_controlled": functions.parameter_controlled,
        "rank_stable": stable, "ntk_ready": ready.verdict,
    }  # fmt: skip
    reasons = functions.reasons | {
        "well_typed": "every line has its type", "bp_like": bp.reason, "simple_gia": simple.reason, "gia_valid": why,
        "rank_stable": rank_reason, "ntk_ready": ready.reason,
    }  # fmt: skip
    found = [*problems, *_independence(whole, bp, simple, valid, why, correction), *functions.findings]
    if stable is False and rank_line is not None:
        found.append(_rank(whole, rank_line, rank_reason))
    found += _given_up(work)
    classes, readings = cdcs(lines), Readings(whole)
    return Report(
        whole, *_in_order(verdicts), reasons={name: readings.prose(reasons[name]) for name in VERDICTS},
        readouts=tuple(v.name for v in bp.readouts) if bp.verdict else (), cdcs=classes,
        theorem=theorem(verdicts, lines, len(classes)),
        violations=tuple(_violation(whole, v, "error") for v in bp.violations if v.index >= 0),
        diagnostics=tuple(map(readings.diagnostic, (*found, *ready.findings))),
        witnesses=tuple(v.witness for v in bp.violations if v.witness),
    )  # fmt: skip


def _forward(p: ir.ProgramLike) -> int:
    """The number of lines of the forward pass; 0 without an output."""
    return max((o.at for o in p.outputs), default=0)


def _given_up(work: Mapping[str, Work]) -> list[Diagnostic]:
    """A finding when questions were given up, in part or wholly."""
    names = ", ".join(name for name, w in work.items() if w.spent)
    if not names:
        return []
    return [Diagnostic(
        "NT309", "warning", f"undecided in part, {GIVEN_UP} ({names})",
        hint="make the program smaller: fewer or shorter expressions, a scan or a family in place of copies",
    )]  # fmt: skip


def _ready(p: Program, whole: Program, functions: Summary, work: Work) -> Readiness:
    ready = ntk_ready(p, whole, work)
    if ready.verdict and functions.differentiable is None:
        return Readiness(None, functions.reasons["differentiable"])
    return ready


def _rank(p: ir.ProgramLike, index: int, reason: str) -> Diagnostic:
    line = p.lines[index]
    return Diagnostic(
        "NT401", "warning", f"rank stability fails: {reason}", line.out.name, index, "Assumption B.7", line.loc,
        "avoid arguments that differ only by a scalar that vanishes in the limit",
    )  # fmt: skip


def _in_order(verdicts: Mapping[str, bool | None]) -> list[bool | None]:
    return [verdicts[name] for name in VERDICTS]


# ---------------------------------------------------------------- types


def type_errors(p: ir.ProgramLike) -> list[Diagnostic]:
    """All type errors in program order."""
    found = list(structure_diagnostics(p))
    for i, line in enumerate(p.lines):
        found += [(i, dataclasses.replace(d, line=i)) for d in line_diagnostics(line)]
    return [d for _, d in sorted(found, key=lambda pair: (pair[0] < 0, pair[0]))]


def _empty(p: ir.ProgramLike) -> Report:
    """The report of a program without lines: no verdicts, one finding."""
    finding = Diagnostic(
        "NT011", "error", "there is nothing in it: the program has no line", clause="Definition A.1",
        hint="declare inputs and write lines: x : G(n), y := tanh(x)",
    )  # fmt: skip
    undecided: dict[str, bool | None] = dict.fromkeys(VERDICTS)
    reasons: dict[str, str] = dict.fromkeys(VERDICTS, "the program has no line")
    return Report(p, *_in_order(undecided), reasons=reasons, diagnostics=(finding,))


def _ill_typed(p: ir.ProgramLike, found: list[Diagnostic]) -> Report:
    verdicts: dict[str, bool | None] = dict.fromkeys(VERDICTS) | {"well_typed": False}
    reasons = dict.fromkeys(VERDICTS, "the program is not well typed") | {"well_typed": found[0].message}
    return Report(p, *_in_order(verdicts), reasons=reasons, diagnostics=tuple(map(Readings(p).diagnostic, found)))


def _with_backward(p: Program) -> tuple[Program, list[Diagnostic]]:
    """The program with its backward pass, when it has an output and states no gradients."""
    if not p.outputs or p.gradients:
        return p, []
    from netsor.passes.backward import backprop

    if sum(map(_adjoint_steps, p.lines)) > MOST_ADJOINTS:
        text = f"the backward pass was not added, {GIVEN_UP}: NTK and gradient independence are not checked"
        return p, [Diagnostic("NT309", "error", text, hint="make the program smaller, or state its gradients")]
    try:
        return backprop(p), []
    except NetsorError as error:
        return p, [error.diagnostic]


MOST_ADJOINTS = 300_000  # steps of a backward pass


def _adjoint_steps(line: ir.Line) -> int:
    if not isinstance(line, ir.Nonlin | ir.Moment):
        return 2
    return derivative_size(line.expr) + tree_size(line.expr) * (len(line.args) + len(line.params))


def _chosen(p: ir.ProgramLike, readouts: hints.Readouts) -> tuple[ir.Var, ...]:
    vectors = {line.out.name: line for line in p.lines if isinstance(line, ir.InputVector)}
    if readouts is None:
        return tuple(line.out for line in vectors.values() if line.readout)
    names = [str(getattr(r, "name", r)) for r in readouts]
    for name in names:
        if name not in vectors:
            raise InputError(f"{name} is not an input vector of {p.name}", code="NT605", hint="data are given by x=…")
    return tuple(vectors[name].out for name in names)


# ---------------------------------------------------------------- findings

_CODES = {1: "NT201", 2: "NT202", 3: "NT203"}
_HINTS = {
    1: "gradients are linear in the readout; anything else multiplied by a transpose correlates with the matrix itself",
    2: "the forward pass must not use the readout; give it a vector of its own",
    3: "a readout has mean zero and is drawn independently of all other inputs",
}


def _violation(p: ir.ProgramLike, v: Violation, severity: str) -> Diagnostic:
    line = p.lines[v.index]
    return Diagnostic(
        _CODES[v.clause], severity, explain(p.lines, v), line.out.name, v.index, f"Definition A.3, clause {v.clause}",
        line.loc, _HINTS[v.clause],
    )  # fmt: skip


def _independence(
    p: ir.ProgramLike, bp: BPLike, simple: Simple, valid: bool | None, why: str, correction: Correction | None
) -> Iterator[Diagnostic]:
    """Findings about BP-like, Simple GIA and GIA: errors where the limit is not guaranteed."""
    if simple.verdict is False and simple.output is not None:
        o = simple.output
        yield Diagnostic(
            "NT206", "error", f"the Simple GIA Check fails: {simple.reason}", o.readout.name, None, "Condition 1",
            o.loc, "use a readout of mean zero that is drawn independently of everything and used in the output only",
        )  # fmt: skip
    if valid:
        return
    told = simple.verdict is False and bp.violations and bp.violations[0].detail == simple.reason
    if bp.verdict is False and bp.violations and not told:
        yield _violation(p, bp.violations[0], "error")
    elif bp.verdict is False and not told:
        yield Diagnostic("NT204", "error", bp.reason, clause="Definition A.3, clause 3")
    elif bp.verdict is None:
        yield Diagnostic("NT205", "error", f"BP-like is undecided: {bp.reason}", clause="Definition A.3")
    if correction is not None:
        line = p.lines[correction.index]
        yield Diagnostic(
            "NT207", "error", f"the gradient independence assumption is wrong here: {why}", line.out.name,
            correction.index, "Tensor Programs II, section 6.3", line.loc, "ns.limit(p) computes the true limit",
        )  # fmt: skip
