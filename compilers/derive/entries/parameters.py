"""Variances and multipliers that are given at the call: numbers in a derivation, values in its recursion."""

from __future__ import annotations

from typing import assert_never, cast

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.values import (
    Access,
    Add,
    Constant,
    Expect1,
    Expect2,
    ExpectJ,
    FeatureDim,
    Fn,
    Given,
    Gram,
    Ind,
    Mul,
    Num,
    Radial,
    SizeValue,
    Soft,
    Sum,
    Value,
    add,
    map_children,
    mul,
    sum_over,
)


def parametrised(v: Value) -> Value:
    """The value with its expressions in parameters as products of a number, parameters, and functions of parameters."""
    match v:
        case Num():
            return _opened(v.value)
        case Add():
            return add(*map(parametrised, v.args))
        case Mul():
            return mul(*map(parametrised, v.args))
        case Sum():
            return sum_over(v.sym, parametrised(v.body))
        case (
            Access() | Given() | Constant() | Gram() | SizeValue() | FeatureDim() | Ind() | Fn() | Soft() | Expect1()
            | Expect2() | ExpectJ() | Radial()
        ):  # fmt: skip
            return map_children(v, parametrised)
        case _:
            assert_never(v)


def _opened(expr: sp.Expr) -> Value:
    if expr.is_number:
        return Num(expr)
    number, rest = expr.as_coeff_Mul()
    return mul(Num(number), *map(_factor, sp.Mul.make_args(rest)))


def _factor(expr: sp.Expr) -> Value:
    symbols = sorted(cast("set[sp.Symbol]", expr.free_symbols), key=str)
    leaves = tuple(Constant(s.name, s, ()) for s in symbols)
    if expr.is_Symbol or not symbols:
        return leaves[0] if leaves else Num(expr)
    return Fn(cast(sp.Expr, expr.xreplace({s: ir.param(i) for i, s in enumerate(symbols)})), leaves)
