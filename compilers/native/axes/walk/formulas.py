"""Functions of scalars of pairs as instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from netsor.compilers.lowering.atoms import nearest
from netsor.compilers.native.axes.nests import Cursor
from netsor.compilers.native.body import Side, Value
from netsor.compilers.native.columns import Applied
from netsor.compilers.native.expectations import Missing


def applied(cursor: Cursor, f: sp.Expr, symbols: Sequence[sp.Symbol], args: Sequence[Value]) -> Value:
    """f of values; of quantities of one input a quantity of that input."""
    given = [x.arg for x in args]
    sides = {(x.copy, x.at, x.size) for x in given if isinstance(x, Side)}
    if len(sides) == 1 and all(isinstance(x, Side | float) for x in given):
        copy, at, size = sides.pop()
        columns = tuple(x.column if isinstance(x, Side) else float(x) for x in given if isinstance(x, Side | float))
        return cursor.value(Side(copy, Applied(f, tuple(symbols), columns), at, size))
    known = dict(zip(symbols, args, strict=True))
    return cursor.value(_value(cursor, f, known).arg)


def _value(cursor: Cursor, f: sp.Expr, known: dict[sp.Symbol, Value]) -> Any:
    if isinstance(f, sp.Symbol):
        return known[f]
    if f.is_number:
        return cursor.number(nearest(f))
    if isinstance(f, sp.Add | sp.Mul):
        first, *rest = (_value(cursor, a, known) for a in f.args)
        for x in rest:
            first = first + x if isinstance(f, sp.Add) else first * x
        return first
    if isinstance(f, sp.Pow) and f.exp.is_Rational and f.exp.q in (1, 2) and abs(f.exp.p) <= 16:
        return _power(cursor, _value(cursor, f.base, known), int(f.exp.p), int(f.exp.q))
    raise Missing(f"a function of scalars, {f}")


def _power(cursor: Cursor, x: Value, p: int, q: int) -> Value:
    root = x.sqrt() if q == 2 else x
    out = root
    for _ in range(abs(p) - 1):
        out = out * root
    return cursor.number(1.0) / out if p < 0 else out
