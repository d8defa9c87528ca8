"""Regularity of a program's functions: growth, weak derivatives and parameter control (NT3xx)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from netsor import ir
from netsor.checker.independence.clauses import shown
from netsor.checker.regularity.control import control, parameters
from netsor.checker.regularity.growth import (
    Growth,
    Regularity,
    derivative_growth,
    growth,
    regularity,
)
from netsor.checker.regularity.intervals import Bound
from netsor.checker.regularity.scalars import Scalars, ranges_key
from netsor.errors import Diagnostic
from netsor.run.work import GIVEN_UP, SpentError, Work

Coordinatewise = ir.Nonlin | ir.Moment


@dataclass
class Summary:
    """Verdicts on all functions with the reason of the worst."""

    polynomially_bounded: bool | None = True
    parameter_controlled: bool | None = True
    differentiable: bool | None = True  # no forward function jumps
    reasons: dict[str, str] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)


def regular(
    lines: Sequence[ir.Line], own: int, forward: int, data: Mapping[str, Any], work: Work | None = None
) -> Summary:
    """All functions of a program; the first `own` lines are the user's, the first `forward` the forward pass."""
    summary = Summary()
    try:
        scalars = Scalars(lines, data, work or Work())
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


def _bounded(summary: Summary, scalars: Scalars, i: int, line: Coordinatewise, own: int) -> None:
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


def _growth(scalars: Scalars, line: Coordinatewise) -> Growth:
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
    scalars: Scalars, e: sp.Expr, table: Mapping[sp.Symbol, Bound], values: Mapping[sp.Symbol, float]
) -> Growth:
    """A function of free arguments, its scalars at their limits."""
    if not all(c in values for c in parameters(e)):
        return Growth(None, _PASS)
    at = e.xreplace({c: sp.Rational(str(v)) for c, v in values.items()})
    if at.has(sp.zoo, sp.nan, sp.oo):
        return Growth(False, "at the limit of its scalars it is not a number")
    ranged = tuple((s, b) for s, b in table.items() if s.name.startswith("x") and s in at.free_symbols)
    return growth(at, ranged, scalars.work)


_PASS = "it depends on the limits of its scalars: pass x="


def _collapsed(scalars: Scalars, line: Coordinatewise) -> Growth:
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


def _derivative(summary: Summary, scalars: Scalars, i: int, line: Coordinatewise) -> None:
    """Warnings about weak derivatives of forward functions."""
    if not line.args:
        return
    found = regularity(line.expr, ranges_key(scalars.table(line), line.expr), scalars.work)
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


def _controlled(summary: Summary, scalars: Scalars, i: int, line: Coordinatewise, own: int) -> None:
    found = _own_control(scalars, line)
    if found.verdict:
        found = _composed_control(scalars, line)
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


def _own_control(scalars: Scalars, line: Coordinatewise) -> Growth:
    """Control in the scalars that the line itself takes."""
    fixed = frozenset(ir.param(j) for j, c in enumerate(line.params) if c in scalars.constants)
    if not any(c not in fixed for c in parameters(line.expr)):
        return Growth(True, "no scalar moves it")
    found = control(line.expr, scalars.table(line), {}, fixed, scalars.work)
    if found.verdict:
        return found
    table, values = scalars.near_limit(line)
    return control(line.expr, table, values, fixed, scalars.work)


def _composed_control(scalars: Scalars, line: Coordinatewise) -> Growth:
    """Control of the function of G-vars and C-vars (B.4, B.9) that the line is, its arguments' lines being controlled.

    Where ψ has weak derivatives of polynomial growth in the arguments that scalars move, that follows: near the limit
    |ψ(φ(x; θ)) − ψ(φ(x; θ°))| ≤ C |φ(x; θ) − φ(x; θ°)| (1 + |φ(x; θ)|^p + |φ(x; θ°)|^p). Through a jump it does not.
    """
    collapse = scalars.collapse
    opened = {ir.arg(i): collapse.of(v) for i, v in enumerate(line.args) if v.kind == "H"}
    moved = [s for s, e in opened.items() if e is not None and _moving(scalars, e)]
    if not moved or _composes(scalars, line, moved):
        return Growth(True, "controlled, as its arguments are")
    if any(e is None for e in opened.values()):
        return Growth(None, "its arguments are too large to be written in G-vars")
    opened |= {ir.arg(i): collapse.symbol(v) for i, v in enumerate(line.args) if v.kind != "H"}
    e = line.expr.xreplace(opened | {ir.param(j): collapse.symbol(c) for j, c in enumerate(line.params)})
    variables = {s: collapse.variables[s] for s in e.free_symbols}
    fixed = frozenset(s for s, v in variables.items() if v in scalars.constants)
    found = control(e, *scalars.near({s: v for s, v in variables.items() if v.kind in "CH"}), fixed, scalars.work)
    names = {s.name: v.name for s, v in variables.items()}
    text = f"as a function of G-vars and scalars, {_replaced(found.reason, names)}"
    return Growth(found.verdict, GIVEN_UP if found.reason == GIVEN_UP else text, found.order)


def _composes(scalars: Scalars, line: Coordinatewise, moved: Sequence[sp.Symbol]) -> bool:
    key = ranges_key(scalars.near_limit(line)[0], line.expr)
    if regularity(line.expr, key, scalars.work).jump is not None:
        return False
    return derivative_growth(line.expr, moved, key, scalars.work).verdict is True


def _moving(scalars: Scalars, e: sp.Expr) -> bool:
    """Is there a scalar in e that is no constant?"""
    inside = (scalars.collapse.variables[s] for s in e.free_symbols)
    return any(v.kind == "C" and v not in scalars.constants for v in inside)
