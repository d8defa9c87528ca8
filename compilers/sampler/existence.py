"""Which moments of a program's variables are asked for when it is sampled, and whether they exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sympy as sp
import torch

from netsor import ir
from netsor.checker.regularity.bounds import bound
from netsor.checker.regularity.moments import Moments, moments
from netsor.checker.regularity.scalars import ranges
from netsor.compilers.sampler.normals import Normals
from netsor.compilers.sampler.paths import Paths
from netsor.compilers.sampler.tails import DRAWS, tail_index, warn_of_tail, warn_of_variance
from netsor.facts import ancestors
from netsor.signs.collapse import Collapse


@dataclass(frozen=True)
class Watched:
    """A variable that may be unbounded near points; E|Z|^power is asked for."""

    var: ir.Var
    power: int
    known: Moments


def existing(p: ir.ProgramLike, powers: Mapping[ir.Var, int]) -> list[Watched]:
    """What is unbounded near points; InputError (NT303) where a moment that is asked for, or that is read, is infinite.

    A product with a matrix reads the second moments of its vector, a moment line the mean of its function.
    """
    live = ancestors(p.lines, powers)
    lines = [line for line in p.lines if line.out in live]
    if not any(isinstance(x, ir.Nonlin | ir.Moment) and _open(x.expr) for x in lines):
        return []
    asked = dict(powers)
    for line in lines:
        if isinstance(line, ir.MatMul) and line.vector.kind == "H":
            asked[line.vector] = max(2, asked.get(line.vector, 0))
    known, collapse = ranges(p.lines), Collapse(p.lines)
    found: list[Watched] = []
    for line, power, e in _functions(lines, asked, collapse):
        gaussian = tuple(sorted((s for s in e.free_symbols if collapse.variables[s].kind == "G"), key=str))
        inside = {s: known[v] for s, v in collapse.variables.items() if v in known and v.kind != "G"}
        near = bound(e, inside)
        if near.defined and not near.singular:
            continue
        names = {s: sp.Symbol(v.name) for s, v in collapse.variables.items()}
        result = moments(e, gaussian)
        result.refuse(e.xreplace(names), power, "limit", line.loc)
        if not result.bounded:
            found.append(Watched(line.out, power, result))
    return found


def _open(e: sp.Expr) -> bool:
    known = bound(e, {})
    return known.singular or not known.defined


def _functions(
    lines: list[ir.Line], asked: Mapping[ir.Var, int], collapse: Collapse
) -> Iterator[tuple[ir.Nonlin | ir.Moment, int, sp.Expr]]:
    """The functions of Gaussian variables and scalars whose moments are asked for, with the power."""
    for line in lines:
        if not isinstance(line, ir.Nonlin | ir.Moment) or not line.args:
            continue
        power = 1 if line.out.kind == "C" else asked.get(line.out, 0)
        if not power:
            continue
        inner = [collapse.of(a) for a in line.args]
        if all(x is not None for x in inner):
            table = {ir.arg(i): x for i, x in enumerate(inner)}
            table |= {ir.param(j): collapse.symbol(c) for j, c in enumerate(line.params)}
            yield line, power, line.expr.xreplace(table)


def watch(paths: Paths, found: list[Watched]) -> None:
    """Warn (NT704) of what is watched where the standard errors of its moments are no bounds."""
    drawn = None
    if any(not w.known.decided for w in found):
        drawn = paths.draw(Normals(DRAWS, 0, 0, -1, torch.device("cpu")))
    for w in found:
        if (worst := w.known.worst(2 * w.power)) is not None:
            warn_of_variance(w.var.name, f"{worst}")
        elif drawn is not None and not w.known.decided:
            parts = [r.values[w.var].data for r in drawn.results if w.var in r.values]
            if parts:
                warn_of_tail(w.var.name, min(float(tail_index(x).amin()) for x in parts), w.power)
