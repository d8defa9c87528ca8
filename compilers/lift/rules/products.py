"""Products of two activations, summed over widths or axes."""

from __future__ import annotations

import sympy as sp

from netsor.build.program import dot
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.dimensions.shapes import mixed
from netsor.compilers.lift.values import Dim, Value


def values_product(L: Lifter, a: Value, b: Value) -> Value:
    """a[…, i, j] b[…, j, k] of two activations; j is a width (scores) or an axis (a mix of vectors)."""
    if len(a.dims) < 2 or len(b.dims) < 2:
        raise L.no_rule("a product of activations with fewer than two dimensions")
    empty: Dim = ()
    x = Value((*a.dims[:-1], empty, a.dims[-1]), a.expr, a.power)  # … i 1 j
    y = Value((*b.dims[:-2], empty, b.dims[-1], b.dims[-2]), b.expr, b.power)  # … 1 k j
    return contracted(L, x, y)


def contracted(L: Lifter, x: Value, y: Value, count: int = 1) -> Value:
    """Σ over the last `count` dimensions of the product of two values."""
    x, y, dims = L.aligned(x, y)
    last = [a for d in dims[len(dims) - count :] for a in d]
    if any(a.kind == "sample" for a in last):
        raise mixed(L)
    wide = [a for a in last if a.kind == "wide"]
    if len(wide) > 1:
        raise L.no_rule("a sum over several widths")
    left, right = as_expr(L.program, x), as_expr(L.program, y)
    ratio, power = sp.Integer(1), x.power + y.power
    if wide:
        expr = dot(left, right)
        ratio, power = sp.sympify(L.wide(wide[0]).ratio), power + 1
    else:
        expr = left * right
    for axis in (a.axis for a in last if a.axis):
        expr = expr.sum(axis)
    scored = wide[0].size if wide else None
    return Value(dims[: len(dims) - count], expr if ratio == 1 else expr * ratio, power, scored=scored)


__all__ = ["contracted", "values_product"]
