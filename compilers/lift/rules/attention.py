"""Softmax and scaled dot-product attention."""

from __future__ import annotations

from typing import Any

from netsor.build.expressions import Expr
from netsor.build.program import softmax
from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.rules.contract import contracted, values_product
from netsor.compilers.lift.rules.elementwise import times
from netsor.compilers.lift.rules.randomness import dropped
from netsor.compilers.lift.rules.shapes import mixed
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Dim, Value, product


@rule("softmax", "_softmax")
def _softmax(L: Lifter, x: Any, dim: int, *_: Any) -> Value:
    v = L.value(x)
    place = dim % len(v.dims)
    if any(a.kind == "sample" for a in v.dims[place]):
        raise mixed(L)
    if any(a.kind == "wide" for a in v.atoms):
        raise L.no_rule(
            "softmax of vectors of the width", "softmax of scores, which are sums over the width, along a finite axis"
        )
    if v.power > 0:
        raise L.refuse(
            "NT810", f"softmax of scores of the order n^{v.power} times their mean product: their deviations do"
            f" not vanish,"
            " so the attention stays random",
            "scale scores by 1/d, not 1/√d: scale=1/d of scaled_dot_product_attention, q @ k.T / d",
        )  # fmt: skip
    if v.power < 0:
        raise L.refuse(
            "NT811", "the scores vanish with the width: attention is uniform in the limit", "scale scores by 1/d"
        )
    (atom,) = v.dims[place]
    if atom.axis is None or not isinstance(v.expr, Expr):
        raise L.no_rule("a softmax of constants")
    return Value(v.dims, softmax(L.program.handle(v.expr.var), atom.axis))


@rule("scaled_dot_product_attention")
def _attention(
    L: Lifter, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False, *,
    scale: Any = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    """softmax(q kᵀ · scale) v over the last two dimensions."""
    if mask is not None or causal or enable_gqa:
        raise L.no_rule("a mask of attention", "attention without a mask")
    if dropout:
        raise dropped(L)
    queries, keys, values = L.value(q), L.value(k), L.value(v)
    empty: Dim = ()
    scores = contracted(
        L, Value((*queries.dims[:-1], empty, queries.dims[-1]), queries.expr, queries.power),
        Value((*keys.dims[:-2], empty, *keys.dims[-2:]), keys.expr, keys.power),
    )  # fmt: skip
    d = product(queries.dims[-1])
    if scale is None:
        scale = Pair((d[0] ** -0.5, d[1] ** -0.5))
    weights = _softmax(L, times(L, scores, scale), -1)
    return values_product(L, weights, values)


__all__: list[str] = []
