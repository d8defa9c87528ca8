"""Coordinatewise functions of several tensors, and the Euclidean norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from netsor import functions as fn
from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.elementwise import added, multiplied, times
from netsor.compilers.lift.rules.reduce import averaged, listed
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Parameter, Tensor, Value, product


@rule("maximum", "minimum")
def _extreme(L: Lifter, a: Tensor, b: Tensor) -> Tensor:
    """b + relu(a − b), and a − relu(a − b)."""
    excess = L.value(added(L, a, times(L, b, -1)))
    part = replace(excess, expr=fn.relu(as_expr(L.program, excess)))
    return added(L, b, part) if L.step.name == "maximum" else added(L, a, times(L, part, -1))


@rule("lerp")
def _lerp(L: Lifter, a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """a + w (b − a)."""
    return added(L, a, multiplied(L, added(L, b, times(L, a, -1)), weight))


@rule("addcmul")
def _addcmul(L: Lifter, c: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return added(L, c, times(L, multiplied(L, a, b), value))


@rule("prelu")
def _prelu(L: Lifter, x: Tensor, slope: Tensor) -> Tensor:
    """relu(x) − a relu(−x), with a slope for each channel."""
    v = L.value(x)
    if isinstance(slope, Parameter):
        slope = replace(slope, order=(0, *[None] * (len(v.dims) - 2)))
    above, below = (replace(v, expr=fn.relu(as_expr(L.program, v) * s)) for s in (1, -1))
    return added(L, above, times(L, multiplied(L, slope, below), -1))


@rule("linalg_vector_norm")
def _norm(
    L: Lifter,
    x: Tensor,
    order: float = 2,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: None = None,
) -> Value:
    """(Σ x²)^½."""
    if order != 2:
        raise L.no_rule(f"the norm of order {order}", "the Euclidean norm")
    v = L.value(x)
    over = list(range(len(v.dims))) if dims is None else [d % len(v.dims) for d in listed(dims)]
    count = product([a for d in over for a in v.dims[d]])
    square = averaged(L, Value(v.dims, as_expr(L.program, v) ** 2, 2 * v.power), over, keepdim)
    total = L.value(times(L, square, Pair(count) if count[0] != count[1] else count[0]))
    return Value(total.dims, as_expr(L.program, total).sqrt(), total.power / 2)


__all__: list[str] = []
