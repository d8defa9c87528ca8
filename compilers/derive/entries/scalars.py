"""Scalars and their functions as values: numbers are put in, products and sums are kept open."""

from __future__ import annotations

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.arithmetic import add, mul, size_value
from netsor.compilers.derive.entries.indices import Copy, Index, Sym
from netsor.compilers.derive.entries.values import Fn, Given, Num, Numbers, Position, Value
from netsor.errors import UnsupportedError
from netsor.functions import exact


def inverse_size(sym: Sym) -> Value:
    size = size_value(sym)
    if isinstance(size, Num):
        return Num(1 / size.value)
    return Fn(1 / ir.param(0), (size,))


def stated(name: str, limit: object, at: tuple[Index, ...]) -> Value:
    """What the program says of a scalar: its limit, an array of these over the indices, or the index itself."""
    if limit == "position":
        return Given(Position(), Copy.NONE, at)
    return Given(Numbers(name, limit), Copy.NONE, at) if isinstance(limit, tuple) else Num(exact(limit))


def scalar_function(expr: sp.Expr, names: list[sp.Symbol], args: list[Value]) -> Value:
    """expr(args) as a value, with numbers put in and products and sums kept open."""
    numbers = {s: v.value for s, v in zip(names, args, strict=True) if isinstance(v, Num) and v.value.is_number}
    expr = sp.sympify(expr.xreplace(numbers))
    if expr.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
        raise UnsupportedError(
            "a function of scalars has no value at their limits: it divides by zero", code="NT703",
            hint="a positive eps, or a variance that is not zero",
        )  # fmt: skip
    used = [(s, v) for s, v in zip(names, args, strict=True) if s in expr.free_symbols]
    if expr.is_number:
        return Num(expr)
    values = dict(used)
    if expr.is_Symbol:
        return values[expr]
    if expr.is_Mul and any(f.is_Symbol or f.is_number for f in expr.args):
        return mul(*(_factor(f, values) for f in expr.args))
    if expr.is_Add and all(t.is_Symbol or t.is_number or t.is_Mul for t in expr.args):
        return add(*(scalar_function(t, list(values), list(values.values())) for t in expr.args))
    table = {s: ir.param(i) for i, (s, _) in enumerate(used)}
    return Fn(expr.xreplace(table), tuple(v for _, v in used))


def _factor(f: sp.Expr, values: dict[sp.Symbol, Value]) -> Value:
    return scalar_function(f, list(values), list(values.values()))
