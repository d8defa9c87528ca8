"""Means, sums, pools, normalisation and softmax attention."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from netsor.build.program import moment
from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.dimensions.shapes import mixed, whole_axis
from netsor.compilers.lift.rules.elementwise import combined, times
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Outputs, Value, product, without


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
def _mean(L: Lifter, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value | Outputs:
    if isinstance(x, Outputs):
        return _of_outputs(L, x, range(len(x.dims)) if dims is None else listed(dims), keepdim)
    v = L.value(x)
    return averaged(L, v, range(len(v.dims)) if dims is None else listed(dims), keepdim)


def _of_outputs(L: Lifter, x: Outputs, dims: Sequence[int], keep: bool) -> Outputs:
    """The mean of outputs over finite axes is the output of the mean."""
    gone = [d % len(x.dims) for d in dims]
    axes = [whole_axis(L, (a,), "its mean is taken") for i in gone for a in x.dims[i] if a.kind != "out"]
    if len(axes) < sum(len(x.dims[i]) for i in gone):
        L.value(x)  # refuses
    terms = []
    for term in x.terms:
        vector = term.x
        for axis in axes:
            vector = vector.mean(axis) if vector is not None and axis in vector.axes else vector
        terms.append(replace(term, x=vector))
    return Outputs(without(x.dims, gone, keep), tuple(terms))


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


@rule("var", "std", "var_mean")
def _var(
    L: Lifter, x: Any, dims: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> Any:  # fmt: skip
    """The variance over dimensions; over a width the correction vanishes."""
    if isinstance(dims, bool):
        dims, unbiased = None, dims
    v, less = L.value(x), int(unbiased) if correction is None else correction
    over = [d % len(v.dims) for d in (range(len(v.dims)) if dims is None else listed(dims))]
    mean = averaged(L, v, over, True)
    centre = combined(L, v, times(L, mean, -1), operator.add)
    found = averaged(L, Value(centre.dims, as_expr(L.program, centre) ** 2, 2 * v.power), over, keepdim)
    count = product([a for d in over for a in v.dims[d]])
    if count[0] == count[1] and less:
        found = times(L, found, count[0] / (count[0] - less))
    if L.step.name == "var_mean":
        return [found, mean if keepdim else replace(mean, dims=without(mean.dims, over, False))]
    return Value(found.dims, as_expr(L.program, found).sqrt(), found.power / 2) if L.step.name == "std" else found


def largest(L: Lifter, v: Value, dims: Sequence[int], keep: bool) -> Value:
    gone = [d % len(v.dims) for d in dims]
    expr = as_expr(L.program, v)
    for atom in (a for i in gone for a in v.dims[i]):
        if whole_axis(L, (atom,), "its maximum is taken") is not None:
            expr = expr.max(atom.axis)  # type: ignore[arg-type]
    return Value(without(v.dims, gone, keep), expr, v.power)


__all__ = ["averaged", "largest", "listed"]
