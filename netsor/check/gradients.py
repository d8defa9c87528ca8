"""NTK readiness: every trained array has its gradient, and it is the derivative of the forward pass (NT501, NT502).

A hand-written gradient is compared with the one of backpropagation on the same inputs, in general position, at a small
width: a difference is a witness; agreement of two runs to 1e-9 counts as equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from netsor import ir
from netsor.check.evaluate import Array, NoValue
from netsor.check.finite import execute, generic, pay
from netsor.check.shapes import aligned, fitting
from netsor.check.work import SpentError, Work
from netsor.dsl import Program
from netsor.errors import Diagnostic, NetsorError
from netsor.facts import trained, trained_uses


@dataclass(frozen=True)
class Readiness:
    """The verdict, its reason and what is missing or wrong."""

    verdict: bool | None
    reason: str
    findings: tuple[Diagnostic, ...] = field(default=())


def ntk_ready(p: Program, whole: Program, work: Work | None = None) -> Readiness:
    """`whole` is p with its backward pass, which was added if p states no gradients."""
    if not p.outputs:
        return Readiness(None, "the program has no output")
    if not p.gradients:
        if whole is p:
            return Readiness(None, "the backward pass could not be added")
        return Readiness(True, "the backward pass was added by backpropagation")
    try:
        lines, wanted = _with_derived(p)
    except NetsorError as error:
        return Readiness(None, f"hand-written gradients could not be compared: {error.diagnostic.message}")
    return _compare(p, lines, wanted, work or Work())


Statements = dict[ir.Var, ir.Gradient]


def _with_derived(p: Program) -> tuple[tuple[ir.Line, ...], Statements]:
    """The program's lines and those of backpropagation of its forward part, with the gradients of the latter."""
    from netsor.backprop import backprop, forward_part

    forward = forward_part(p)
    derived = backprop(forward)
    return (*p.lines, *derived.lines[len(forward.lines) :]), {g.of: g for g in derived.gradients}


def _compare(p: Program, lines: Sequence[ir.Line], wanted: Statements, work: Work) -> Readiness:
    stated = {g.of: g for g in p.gradients}
    findings = [_missing(p, v) for v in wanted if v not in stated and _trained(p.lines, v)]
    wrong, undecided = _wrong(p, lines, stated, wanted, work)
    findings += wrong
    if findings:
        return Readiness(False, findings[0].message, tuple(findings))
    if undecided:
        return Readiness(None, undecided)
    return Readiness(True, "every trained array has its gradient, equal to backpropagation's at random points")


def _trained(lines: Sequence[ir.Line], v: ir.Var) -> bool:
    """Is v the product of a trained matrix, or a trained vector?"""
    products = {use.line.out for of in trained_uses(lines).values() for use in of}
    return v in products or any(line.out is v for line in trained(lines))


def _missing(p: Program, v: ir.Var) -> Diagnostic:
    index = next(i for i, line in enumerate(p.lines) if line.out is v)
    return Diagnostic(
        "NT501", "error", f"the gradient of {v} is not stated: the NTK needs it", v.name, index, "Eq. 12",
        p.lines[index].loc, f"p.gradient(of={v}, is_=…) with √n ∂f/∂{v}; p.backward() writes the whole backward pass",
    )  # fmt: skip


def _wrong(
    p: Program,
    lines: Sequence[ir.Line],
    stated: Mapping[ir.Var, ir.Gradient],
    wanted: Mapping[ir.Var, ir.Gradient],
    work: Work,
) -> tuple[list[Diagnostic], str | None]:
    """Stated gradients that differ from the derived ones."""
    sizes = fitting(lines, 7)
    differences: dict[ir.Var, tuple[float, float]] = {}
    for seed in (0, 1):
        try:
            pay(work, lines, sizes)
            values = execute(lines, generic(lines, sizes, np.random.default_rng(seed)), sizes)
        except (NoValue, SpentError) as missing:
            return [], str(missing)
        for v, g in stated.items():
            right = values[wanted[v].is_] if v in wanted else np.zeros(sizes.shape(v))
            axes = wanted[v].is_.axes if v in wanted else v.axes
            pair = _difference(values[g.is_], g.is_.axes, right, axes)
            if pair is not None:
                differences.setdefault(v, pair)
    return [_report(p, stated[v], pair) for v, pair in differences.items()], None


def _difference(
    mine: Array, my_axes: Sequence[ir.Axis], right: Array, axes: Sequence[ir.Axis]
) -> tuple[float, float] | None:
    """The values where the two differ most, or None when they are equal; axes are matched by name."""
    union = tuple(dict.fromkeys((*my_axes, *axes)))
    a, b = np.broadcast_arrays(aligned(mine, my_axes, union, 1), aligned(right, axes, union, 1))
    gap = np.abs(a - b)
    if not np.isfinite(gap).all() or gap.max(initial=0.0) <= 1e-9 * (1 + np.abs(b).max(initial=0.0)):
        return None
    place = np.unravel_index(int(np.argmax(gap)), gap.shape)
    return float(a[place]), float(b[place])


def _report(p: Program, g: ir.Gradient, pair: tuple[float, float]) -> Diagnostic:
    index = next(i for i, line in enumerate(p.lines) if line.out is g.is_)
    mine, right = pair
    return Diagnostic(
        "NT502", "error", f"{g.is_} is not the gradient of {g.of}: at a random point a coordinate is {mine:.6g},"
        f" backpropagation gives {right:.6g}", g.is_.name, index, "dy = √n ∂f/∂y", g.loc,
        "p.backward() writes the backward pass; dy has one scale, √n ∂f/∂y, in the whole program",
    )  # fmt: skip
