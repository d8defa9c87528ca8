"""Parameters of variances and multipliers replaced by numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import assert_never, cast

import sympy as sp

from netsor import facts, ir
from netsor.build.declared import as_program
from netsor.build.program import Program
from netsor.build.quantity import quantity
from netsor.errors import InputError
from netsor.functions import exact


def bind(p: ir.ProgramLike, params: Mapping[str | sp.Symbol, ir.Number]) -> Program:
    """The program with positive numbers for some of its parameters, by name or symbol.

    An irrational variance or multiplier becomes a float. InputError (NT604) for a name that is no parameter, NT109 for
    a value that is not positive.

    >>> ns.bind(ns.programs.mlp(var_w="s"), {"s": 2}) == ns.programs.mlp(var_w=2)
    True
    """
    p = as_program("ns.bind", p, parameters=True, abstract=True)
    known = facts.parameters(p.lines)
    given = {str(k): value for k, value in params.items()}
    for name, value in given.items():
        if name not in known:
            raise InputError(f"{p.name} has no parameter {name!r} (it has {', '.join(known) or 'none'})", code="NT604")
        if not quantity(f"the parameter {name}", value) > 0:
            raise InputError(f"the parameter {name} is {value}: parameters are positive numbers", code="NT109")
    table: dict[sp.Basic, sp.Basic] = {ir.hyperparameter(name): exact(value) for name, value in given.items()}
    lines = [_line(line, table) for line in p.lines]
    return Program.from_parts(p.name, p.widths, lines, p.outputs, p.gradients, p.returned, p.functions, p.accepted)


def _line(line: ir.Line, table: Mapping[sp.Basic, sp.Basic]) -> ir.Line:
    match line:
        case ir.InputMatrix() | ir.InputVector():
            return dataclasses.replace(line, var=_put_in(line.var, table), multiplier=_put_in(line.multiplier, table))
        case (
            ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment() | ir.IndexLine()
            | ir.Reduce() | ir.Softmax()
        ):  # fmt: skip
            return line
        case _:
            assert_never(line)


def _put_in(value: ir.Scale, table: Mapping[sp.Basic, sp.Basic]) -> ir.Scale:
    if not isinstance(value, sp.Expr):
        return value
    found = cast(sp.Expr, value).xreplace(table)
    if found.free_symbols:
        return found
    return quantity("a variance or multiplier", found if found.is_Rational else float(found))
