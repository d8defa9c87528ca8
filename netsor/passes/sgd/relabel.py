"""A line with other variables and axes in the places of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from netsor import ir
from netsor.indexing import along


def relabelled(
    line: ir.Line, var: Callable[[ir.Var], ir.Var], axis: Callable[[ir.Axis], ir.Axis] = lambda a: a
) -> ir.Line:  # fmt: skip
    """The same rule on var(v) for every variable v, its result included, along axis(a) for every axis a."""
    out = var(line.out)
    match line:
        case ir.InputMatrix() | ir.InputScalar() | ir.Data():
            return replace(line, out=out)
        case ir.InputVector():
            cov = tuple((var(v), c) for v, c in line.cov)
            return replace(line, out=out, cov=cov, axis_cov=tuple((axis(a), m) for a, m in line.axis_cov))
        case ir.MatMul():
            return replace(line, out=out, matrix=var(line.matrix), vector=var(line.vector))
        case ir.Nonlin() | ir.Moment():
            return replace(line, out=out, args=tuple(map(var, line.args)), params=tuple(map(var, line.params)))
        case ir.Trsp():
            return replace(line, out=out, of=var(line.of))
        case ir.IndexLine():
            return along(line, out, var(line.of), axis)
        case ir.Reduce():
            return replace(line, out=out, of=var(line.of), axis=axis(line.axis))
        case ir.Softmax():
            mask = None if line.mask is None else var(line.mask)
            return replace(line, out=out, of=var(line.of), axis=axis(line.axis), mask=mask)
        case _:
            assert_never(line)
