"""Backward lines are linear in the readouts and the Gaussian variables Wᵀdh: what is known of them without draws.

Given the forward path, a backward variable is Σ_i c_i γ_i, with independent standard normal γ_i and coefficients c_i
that the forward path decides. So E[Z^{dx} Z^{dx̄}] = Σ_i E[c_i c̄_i], and Wᵀdh is again such a sum with constant
coefficients: γ need not be drawn. The numbers i are an axis of the coefficients, `LATENT`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import sympy as sp
import torch
from torch import Tensor

from netsor import ir
from netsor.compilers.finite.inputs import Group
from netsor.compilers.finite.values import Binding
from netsor.facts import covariance_blocks, input_vectors, inputs_of, reached, trained_uses
from netsor.indexing import index_map

LATENT = " latent"  # no name of a program begins with a space
MOST = 128  # γ; their work grows with the square of their number, and beyond it draws are the better way


@dataclass(frozen=True)
class Linear:
    """The readouts γ belong to, and the variables that are linear in γ (C-vars among them are zero)."""

    roots: frozenset[ir.Var] = frozenset()
    variables: frozenset[ir.Var] = frozenset()

    def size(self, p: ir.ProgramLike, groups: Sequence[Group], whole: Binding) -> int:
        """The number of γ: one for every element of a readout and every use of a Wᵀ."""
        total = sum(math.prod(whole.shape(v)) for v in self.roots)
        for line in p.lines:
            if isinstance(line, ir.MatMul) and line.out in self.variables:
                shapes = [(len(g.samples), *g.binding(p, 1).shape(line.out)) for g in groups]
                total += sum(math.prod(shape) for shape in shapes)
        return total


@dataclass
class Latents:
    """`draw(k)` gives the unit vectors of the next k of all γ, `[k, count]`, as `Normals` gives their draws."""

    lines: Linear
    count: int
    device: torch.device
    used: int = 0

    def draw(self, k: int) -> Tensor:
        rows = torch.arange(k, device=self.device)
        units = torch.zeros(k, self.count, dtype=torch.float64, device=self.device)
        units[rows, self.used + rows] = 1
        self.used += k
        return units


def linear_part(p: ir.ProgramLike, groups: Sequence[Group], whole: Binding) -> Linear:
    """The backward lines, when they are linear in few γ; else nothing."""
    found = linear_lines(p)
    return found if found.size(p, groups, whole) <= MOST else Linear()


def linear_lines(p: ir.ProgramLike) -> Linear:
    """The backward lines, when they are linear in readouts of mean zero that the forward lines do not read."""
    roots = _roots(p)
    if not roots:
        return Linear()
    variables = _dependents(p, roots)
    if any(line.out in variables and not _is_linear(line, variables) for line in p.lines):
        return Linear()
    forward = reached(p)
    if forward & (variables - roots) or not _all_gradients(p, forward, variables):
        return Linear()
    return Linear(roots, variables)


def _roots(p: ir.ProgramLike) -> frozenset[ir.Var]:
    """The readouts, when all are input vectors of mean zero that no other vector covaries with."""
    readouts = frozenset(o.readout for o in p.outputs)
    for block in covariance_blocks(p.lines):
        own = [line.out in readouts for line in block]
        if any(own) and not (all(own) and all(line.mean == 0 for line in block)):
            return frozenset()
    made = {line.out for line in input_vectors(p.lines)}
    return readouts if readouts <= made else frozenset()


def _dependents(p: ir.ProgramLike, roots: frozenset[ir.Var]) -> frozenset[ir.Var]:
    """The variables that read the roots, through scans too."""
    found = set(roots)
    while True:
        more = {line.out for line in p.lines if not found.isdisjoint(inputs_of(line))} - found
        if not more:
            return frozenset(found)
        found |= more


def _is_linear(line: ir.Line, variables: frozenset[ir.Var]) -> bool:
    match line:
        case ir.Nonlin() | ir.Moment():
            symbols = [ir.arg(i) for i, v in enumerate(line.args) if v in variables]
            symbols += [ir.param(j) for j, c in enumerate(line.params) if c in variables]
            return homogeneous(line.expr, symbols)
        case ir.Reduce():
            return line.op != "max"
        case ir.IndexLine():
            read = index_map(line)
            return read.transposed or read.outside != "drop"  # what is dropped is −∞ where it is read, 0 in the adjoint
        case ir.Softmax():
            return False
        case ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul():
            return True
        case _:
            assert_never(line)


def homogeneous(expr: sp.Expr, symbols: Sequence[sp.Symbol]) -> bool:
    """Is the expression linear in the symbols together, and zero with them?"""
    if expr.xreplace(dict.fromkeys(symbols, sp.Integer(0))) != 0:
        return False
    return all(expr.diff(s).free_symbols.isdisjoint(symbols) for s in symbols)


def _all_gradients(p: ir.ProgramLike, forward: set[ir.Var], variables: frozenset[ir.Var]) -> bool:
    """Is the gradient of every use of a trained matrix a linear variable, and no matrix used both ways?"""
    stated = {g.of: g.is_ for g in p.gradients}
    for uses in trained_uses(p.lines).values() if stated else ():
        used = [u for u in uses if u.line.out in forward]
        if len({u.transposed for u in used}) > 1 or any(stated.get(u.line.out) not in variables for u in used):
            return False
    return True
