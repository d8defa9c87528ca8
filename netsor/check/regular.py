"""Regularity of a program's functions: growth, weak derivatives and parameter control (NT3xx)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from netsor import ir
from netsor.check.clauses import shown
from netsor.check.collapse import Collapse
from netsor.check.control import control, parameters
from netsor.check.growth import Growth, RangesKey, Regularity, growth, proven, regularity
from netsor.check.intervals import Bound
from netsor.check.scalars import Limit, constants, limits, ranges
from netsor.check.work import GIVEN_UP, SpentError, Work
from netsor.errors import Diagnostic
from netsor.measure import MOST_NODES, written_size

Coordinatewise = ir.Nonlin | ir.Moment


@dataclass
class Summary:
    """Verdicts on all functions with the reason of the worst."""

    polynomially_bounded: bool | None = True
    parameter_controlled: bool | None = True
    differentiable: bool | None = True  # no forward function jumps
    reasons: dict[str, str] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)


class _Scalars:
    """Ranges and limits of the parameters of lines; limits are computed when first asked for."""

    def __init__(self, lines: Sequence[ir.Line], data: Mapping[str, Any], work: Work) -> None:
        self.lines, self.data = lines, data
        self.work = work
        self.ranges = ranges(lines, work)
        self.constants = constants(lines)
        self.given = {x.out: float(x.limit) for x in lines if isinstance(x, ir.InputScalar) and is_number(x)}
        self.collapse = Collapse(lines, work)
        self._limits: dict[ir.Var, Limit] | None = None

    @property
    def limits(self) -> dict[ir.Var, Limit]:
        if self._limits is None:
            self._limits = limits(self.lines, self.data, self.work)
        return self._limits

    def proven(self, e: sp.Expr, table: Mapping[sp.Symbol, Bound]) -> bool:
        """Bounds show that e is polynomially bounded, its symbols in these ranges."""
        key = _key(table, e)
        return self.work.affords(min(written_size(e), MOST_NODES), ("bound", e, key)) and proven(e, key)

    def table(self, line: Coordinatewise) -> dict[sp.Symbol, Bound]:
        """Ranges of the parameters, and of those arguments that do not take all real values."""
        found = {ir.param(j): self.ranges.get(c, Bound()) for j, c in enumerate(line.params)}
        found |= {ir.arg(i): self.ranges.get(v, Bound()) for i, v in enumerate(line.args)}
        return {s: b for s, b in found.items() if b != Bound() or s.name.startswith("c")}

    def near_limit(self, line: Coordinatewise) -> tuple[dict[sp.Symbol, Bound], dict[sp.Symbol, float]]:
        """Ranges narrowed to the limits that are known, and the limits."""
        table, values = self.table(line), {}
        for j, c in enumerate(line.params):
            limit = self.limits.get(c)
            if limit is None:
                continue
            near, whole = limit.near, table[ir.param(j)]
            table[ir.param(j)] = Bound(max(near.low, whole.low), min(near.high, whole.high))
            if limit.error == 0 and not c.dims:
                values[ir.param(j)] = limit.value
        return table, values


def regular(
    lines: Sequence[ir.Line], own: int, forward: int, data: Mapping[str, Any], work: Work | None = None
) -> Summary:
    """All functions of a program; the first `own` lines are the user's, the first `forward` the forward pass."""
    summary = Summary()
    try:
        scalars = _Scalars(lines, data, work or Work())
    except SpentError as spent:
        names = ("polynomially_bounded", "parameter_controlled", "differentiable")
        return Summary(None, None, None, dict.fromkeys(names, str(spent)))
    for i, line in enumerate(lines):
        if isinstance(line, ir.Nonlin | ir.Moment):
            _bounded(summary, scalars, i, line, own)
            if i < forward and line.out.kind != "X":
                _derivative(summary, scalars, i, line)
            _controlled(summary, scalars, i, line, own)
    summary.reasons.setdefault("polynomially_bounded", "every function is polynomially bounded")
    summary.reasons.setdefault("parameter_controlled", _all_controlled(lines))
    return summary


def _all_controlled(lines: Sequence[ir.Line]) -> str:
    with_parameters = any(isinstance(x, ir.Nonlin | ir.Moment) and x.params for x in lines)
    return "every function is controlled in its scalars" if with_parameters else "no function takes a scalar"


def _key(table: Mapping[sp.Symbol, Bound], e: sp.Expr) -> RangesKey:
    return tuple(sorted(((c, b) for c, b in table.items() if c in e.free_symbols), key=lambda pair: pair[0].name))


def _named(line: Coordinatewise, text: str) -> str:
    """A text with positional symbols replaced by the variables' names."""
    table = {f"x{i}": v.name for i, v in enumerate(line.args)} | {f"c{j}": c.name for j, c in enumerate(line.params)}
    return _replaced(text, table)


def _replaced(text: str, table: Mapping[str, str]) -> str:
    """Symbols by names, whatever the names are."""
    pattern = r"\b(" + "|".join(sorted(map(re.escape, table), key=len, reverse=True)) + r")\b"
    return re.sub(pattern, lambda m: table[m.group(1)], text) if table else text


def _weaker(a: bool | None, b: bool | None) -> bool | None:
    return False if False in (a, b) else None if None in (a, b) else True


def _note(summary: Summary, name: str, verdict: bool | None, reason: str) -> None:
    before = getattr(summary, name)
    after = _weaker(before, verdict)
    if after is not before:
        setattr(summary, name, after)
        summary.reasons[name] = reason


# ---------------------------------------------------------------- growth


def _bounded(summary: Summary, scalars: _Scalars, i: int, line: Coordinatewise, own: int) -> None:
    if not line.args:
        return
    found = _growth(scalars, line)
    if found.verdict:
        return
    if found.reason == GIVEN_UP:  # one finding for all of them
        _note(summary, "polynomially_bounded", None, GIVEN_UP)
        return
    reason = _named(line, found.reason) if all(v.kind in "GX" for v in line.args) else found.reason
    before = summary.polynomially_bounded
    text = f"{shown(line)} ({line.out}) is not polynomially bounded: {reason}"
    if found.verdict is None:
        text = f"growth of {shown(line)} ({line.out}) is undecided: {reason}"
    _note(summary, "polynomially_bounded", found.verdict, text)
    if "pass x=" not in reason and (i < own or before is True):
        summary.findings.append(_growth_finding(i, line, found, text))


def _growth(scalars: _Scalars, line: Coordinatewise) -> Growth:
    """By bounds for all scalars, then for scalars near their limits, then for the function of G-vars that it is."""
    if scalars.proven(line.expr, scalars.table(line)):
        return Growth(True, "polynomially bounded")
    table, values = scalars.near_limit(line)
    if scalars.proven(line.expr, table):
        return Growth(True, "polynomially bounded")
    if all(v.kind in "GX" for v in line.args):
        return _at_limit(scalars, line.expr, table, values)
    return _collapsed(scalars, line)


def _at_limit(
    scalars: _Scalars, e: sp.Expr, table: Mapping[sp.Symbol, Bound], values: Mapping[sp.Symbol, float]
) -> Growth:
    """A function of free arguments, its scalars at their limits."""
    if not all(c in values for c in parameters(e)):
        return Growth(None, _PASS)
    at = e.xreplace({c: sp.Rational(str(v)) for c, v in values.items()})
    if at.has(sp.zoo, sp.nan, sp.oo):
        return Growth(False, "at the limit of its scalars it is not a number")
    ranged = tuple((s, b) for s, b in table.items() if s.name.startswith("x") and s in at.free_symbols)
    return growth(at, ranged, scalars.work)


def is_number(line: ir.Line) -> bool:
    """A scalar with a given limit."""
    return isinstance(line, ir.InputScalar) and line.limit is not None and not line.out.dims


_PASS = "it depends on the limits of its scalars: pass x="


def _collapsed(scalars: _Scalars, line: Coordinatewise) -> Growth:
    """The function of G-vars and C-vars (B.9) that the line is."""
    collapse = scalars.collapse
    opened = {ir.arg(i): collapse.of(v) for i, v in enumerate(line.args)}
    if any(inner is None for inner in opened.values()):
        return Growth(None, "its arguments are too large to be written in G-vars")
    e = line.expr.xreplace(opened | {ir.param(j): collapse.symbol(c) for j, c in enumerate(line.params)})
    variables = {s: collapse.variables[s] for s in e.free_symbols}
    table = {s: scalars.ranges.get(v, Bound()) for s, v in variables.items() if v.kind == "C"}
    table |= {s: scalars.ranges[v] for s, v in variables.items() if v.kind == "H" and scalars.ranges[v] != Bound()}
    values = {s: scalars.given[v] for s, v in variables.items() if v in scalars.given}
    if scalars.proven(e, table):
        return Growth(True, "polynomially bounded")
    if not all(c in values for c in parameters(e)):
        return Growth(None, _PASS)
    if any(v.kind == "H" for v in variables.values()):
        return Growth(None, "no bound was found for the values that its arguments take")
    found = _at_limit(scalars, e, table, values)
    names = {s.name: v.name for s, v in variables.items()}
    return Growth(found.verdict, _replaced(found.reason, names), found.order)


def _growth_finding(i: int, line: Coordinatewise, found: Growth, text: str) -> Diagnostic:
    code, severity = "NT301", "warning"
    hint = "the theorems ask for |φ(x)| ≤ C‖x‖^p + c"
    if found.verdict is None:
        code, hint = "NT304", 'state the growth of a function of your own: ns.function(…, growth="polynomial")'
    elif found.order >= 1.9:
        code, severity = "NT302", "error"
        hint = "its expectation over a Gaussian may be infinite; use a function of slower growth"
    elif found.order == 0.0:
        code, hint = "NT303", "add a positive constant to what may become zero"
    return Diagnostic(code, severity, text, line.out.name, i, "polynomially bounded (Theorem A.6)", line.loc, hint)


def _derivative(summary: Summary, scalars: _Scalars, i: int, line: Coordinatewise) -> None:
    """Warnings about weak derivatives of forward functions."""
    if not line.args:
        return
    found = regularity(line.expr, _key(scalars.table(line), line.expr), scalars.work)
    if found.jump is not None:
        summary.differentiable = None
        where = _named(line, found.jump)
        summary.reasons["differentiable"] = f"{shown(line)} jumps at {where}: its weak derivative is no function"
        summary.findings.append(Diagnostic(
            "NT305", "warning", f"{shown(line)} jumps at {where}: its weak derivative is no function, so the NTK is"
            " not covered", line.out.name, i, "Corollary 7.3", line.loc, "the NNGP kernel is; the NTK needs a function"
            " without jumps",
        ))  # fmt: skip
    elif found.derivative.verdict is None and (found.value.verdict or not parameters(line.expr)):
        _undecided_derivative(summary, i, line, found)
    elif found.value.verdict and found.derivative.verdict is False and all(v.kind in "GX" for v in line.args):
        summary.differentiable = None
        summary.reasons["differentiable"] = f"the weak derivative of {shown(line)} is not polynomially bounded"
        summary.findings.append(Diagnostic(
            "NT306", "warning", f"the weak derivative of {shown(line)} is not polynomially bounded:"
            f" {_named(line, found.derivative.reason)}", line.out.name, i, "Corollary 7.3", line.loc,
            "the NNGP limit is covered, the NTK is not",
        ))  # fmt: skip


def _undecided_derivative(summary: Summary, i: int, line: Coordinatewise, found: Regularity) -> None:
    """No NTK is promised; a finding where the function itself has none."""
    if found.derivative.reason == GIVEN_UP:
        summary.differentiable = None
        summary.reasons.setdefault("differentiable", f"the weak derivatives were {GIVEN_UP}")
        return
    why = _named(line, found.derivative.reason)
    text = f"whether the weak derivative of {shown(line)} is polynomially bounded is undecided: {why}"
    summary.differentiable = None
    summary.reasons.setdefault("differentiable", text)
    if not found.value.verdict:
        return
    summary.findings.append(Diagnostic(
        "NT308", "warning", text, line.out.name, i, "Corollary 7.3", line.loc,
        "the NNGP limit is covered; for the NTK, write the function with a derivative whose bound can be seen",
    ))  # fmt: skip


# ---------------------------------------------------------------- parameter control


def _controlled(summary: Summary, scalars: _Scalars, i: int, line: Coordinatewise, own: int) -> None:
    fixed = frozenset(ir.param(j) for j, c in enumerate(line.params) if c in scalars.constants)
    if not any(c not in fixed for c in parameters(line.expr)):
        return
    found = control(line.expr, scalars.table(line), {}, fixed, scalars.work)
    if not found.verdict:
        table, values = scalars.near_limit(line)
        found = control(line.expr, table, values, fixed, scalars.work)
    if found.verdict:
        return
    if found.reason == GIVEN_UP:
        _note(summary, "parameter_controlled", None, GIVEN_UP)
        return
    reason = _named(line, found.reason)
    if found.verdict is None and not scalars.data:
        reason += "; where limits depend on the data, pass x="
    before = summary.parameter_controlled
    _note(summary, "parameter_controlled", found.verdict, f"{shown(line)} ({line.out}): {reason}")
    if found.verdict is False and (i < own or before is not False):
        summary.findings.append(Diagnostic(
            "NT307", "warning", f"{shown(line)} ({line.out}) is not controlled in its scalars: {reason}", line.out.name,
            i, "Definition B.5", line.loc, "add a positive constant where a scalar divides, and use functions that are"
            " continuous in their scalars",
        ))  # fmt: skip
