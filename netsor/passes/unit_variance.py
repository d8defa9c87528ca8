"""The convention of neural-tangents: every trained array has variance 1, its scale is in the multiplier.

The limit of the forward pass is the same program's; the NTK's term of an array of variance σ² is multiplied by σ².
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import assert_never, cast

import sympy as sp

from netsor import ir
from netsor.build.declared import as_program
from netsor.build.program import Program
from netsor.build.scales import multiplied
from netsor.errors import ProgramError


def unit_variance(p: ir.ProgramLike) -> Program:
    """Every array ω ~ N(mean, var) written as √var · ω′, ω′ ~ N(mean/√var, 1).

    The multiplier becomes multiplier·√var, a covariance c of two arrays c/√(var·var′); `axis_cov` multiplies the
    variance and stays. An array with var = 0 is a constant: it keeps its numbers and is not trained.

    >>> p = ns.programs.mlp(depth=1, var_w=2, var_b=None)
    >>> [round(float(ns.compile(q)([[1.0, 2.0]]).ntk), 6) for q in (p, ns.unit_variance(p))]
    [3.75, 5.0]
    """
    p = as_program("ns.unit_variance", p, parameters=True, abstract=True)
    variances = {line.out: line.var for line in p.lines if isinstance(line, ir.InputVector)}
    lines = [_line(line, variances) for line in p.lines]
    return Program.from_parts(p.name, p.widths, lines, p.outputs, p.gradients, p.returned, p.functions, p.accepted)


def _line(line: ir.Line, variances: Mapping[ir.Var, ir.Scale]) -> ir.Line:
    match line:
        case ir.InputMatrix(var=0) | ir.InputVector(var=0):
            return dataclasses.replace(line, trainable=False)
        case ir.InputMatrix():
            return dataclasses.replace(line, var=1, multiplier=multiplied(line.multiplier, root(line.var)))
        case ir.InputVector():
            return _vector(line, variances)
        case (
            ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment() | ir.IndexLine()
            | ir.Reduce() | ir.Softmax()
        ):  # fmt: skip
            return line
        case _:
            assert_never(line)


def _vector(line: ir.InputVector, variances: Mapping[ir.Var, ir.Scale]) -> ir.InputVector:
    sigma = root(line.var)
    cov = tuple((v, _ratio(c, root(multiplied(line.var, variances[v])))) for v, c in line.cov)
    mean, multiplier = _ratio(line.mean, sigma), multiplied(line.multiplier, sigma)
    return dataclasses.replace(line, mean=mean, var=1, multiplier=multiplier, cov=cov)


def _ratio(value: ir.Number, by: ir.Scale) -> ir.Number:
    """value / by, exact where both are; a covariance with a constant is 0 and stays."""
    if value == 0 or by in (0, 1):
        return value
    if isinstance(by, sp.Expr):
        raise ProgramError(
            f"a mean or covariance of {value} of an array whose variance is {by**2} has no unit variance", code="NT108",
            hint="a number as the variance: ns.bind(p, {…})",
        )  # fmt: skip
    if isinstance(value, float) or isinstance(by, float):
        return float(value) / float(by)
    return Fraction(value) / Fraction(by)


def root(var: ir.Scale) -> ir.Scale:
    """√var; exact for squares of rationals and for expressions, a float otherwise."""
    if isinstance(var, sp.Expr):
        return cast(sp.Expr, sp.sqrt(var))
    if isinstance(var, float):
        return math.sqrt(var)
    square = Fraction(var)
    up, down = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if up * up == square.numerator and down * down == square.denominator:
        return Fraction(up, down) if down > 1 else up
    return math.sqrt(var)
