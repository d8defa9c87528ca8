"""Means, sums, pools, normalisation and softmax attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netsor.build.program import moment
from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.elementwise import times
from netsor.compilers.lift.rules.shapes import mixed, whole_axis
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Value, product, without


def averaged(L: Lifter, v: Value, dims: Sequence[int], keep: bool) -> Value:
    """The mean over dimensions: a moment over a width, a mean over axes."""
    gone = [d % len(v.dims) for d in dims]
    atoms = [a for i in gone for a in v.dims[i]]
    if any(a.kind == "sample" for a in atoms):
        raise mixed(L)
    expr = as_expr(L.program, v)
    for atom in atoms:
        if atom.axis:
            expr = expr.mean(atom.axis)
    if any(a.kind == "wide" for a in atoms):
        expr = moment(expr)
    return Value(without(v.dims, gone, keep), expr, v.power)


@rule("mean")
def _mean(L: Lifter, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    v = L.value(x)
    return averaged(L, v, range(len(v.dims)) if dims is None else listed(dims), keepdim)


@rule("sum")
def _sum(L: Lifter, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    """The mean times the number of summands, c·n for a width."""
    v = L.value(x)
    over = list(range(len(v.dims))) if dims is None else listed(dims)
    count = product([a for d in over for a in v.dims[d]])
    mean = averaged(L, v, over, keepdim)
    found = times(L, mean, Pair(count) if count[0] != count[1] else count[0])
    assert isinstance(found, Value)
    return found


def listed(dims: Any) -> list[int]:
    return list(dims) if isinstance(dims, list | tuple) else [dims]


@rule("amax", "max")
def _amax(L: Lifter, x: Any, dims: Any = None, keepdim: bool = False) -> Any:
    """The coordinatewise maximum over finite dimensions."""
    if dims is not None and not isinstance(dims, int | list | tuple):
        raise L.no_rule("the maximum of two tensors")
    v = L.value(x)
    found = largest(L, v, range(len(v.dims)) if dims is None else listed(dims), keepdim)
    return [found, None] if L.step.name == "max" and dims is not None else found


def largest(L: Lifter, v: Value, dims: Sequence[int], keep: bool) -> Value:
    gone = [d % len(v.dims) for d in dims]
    expr = as_expr(L.program, v)
    for atom in (a for i in gone for a in v.dims[i]):
        if whole_axis(L, (atom,), "its maximum is taken") is not None:
            expr = expr.max(atom.axis)  # type: ignore[arg-type]
    return Value(without(v.dims, gone, keep), expr, v.power)


__all__ = ["averaged", "largest", "listed"]
