"""Variances and multipliers that are given at the call: numbers in a derivation, values in its recursion."""

from __future__ import annotations

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.arithmetic import mul, rebuilt
from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.derive.entries.values import Fn, Given, Num, Parameter, Value


def parametrised(v: Value) -> Value:
    """The value with its expressions in parameters as products of a number, parameters, and functions of parameters."""
    return _opened(v.value) if isinstance(v, Num) else rebuilt(v, parametrised)


def _opened(expr: sp.Expr) -> Value:
    if expr.is_number:
        return Num(expr)
    number, rest = expr.as_coeff_Mul()
    return mul(Num(number), *map(_factor, sp.Mul.make_args(rest)))


def _factor(expr: sp.Expr) -> Value:
    symbols = sorted(expr.free_symbols, key=str)
    leaves = tuple(Given(Parameter(s), Copy.NONE) for s in symbols)
    if expr.is_Symbol or not symbols:
        return leaves[0] if leaves else Num(expr)
    return Fn(expr.xreplace({s: ir.param(i) for i, s in enumerate(symbols)}), leaves)
