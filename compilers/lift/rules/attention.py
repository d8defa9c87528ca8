"""Masks, softmax and scaled dot-product attention."""

from __future__ import annotations

import operator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import sympy as sp
import torch

from netsor.build.expressions import Expr
from netsor.build.program import softmax
from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.findings import finding
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.dimensions.parts import repeated
from netsor.compilers.lift.rules.dimensions.shapes import mixed
from netsor.compilers.lift.rules.elementwise import combined, times
from netsor.compilers.lift.rules.masks import kept, masked
from netsor.compilers.lift.rules.products import contracted, values_product
from netsor.compilers.lift.rules.randomness import dropped
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Constant, Dim, Value, product


@rule("softmax", "_softmax")
def _softmax(L: Lifter, x: Any, dim: int, *_: Any) -> Value:
    """Over a finite axis of scores; with a mask m: m_j exp(c_j) / Σ_l m_l exp(c_l)."""
    v = _scaled(L, L.value(x))
    mask = v.mask
    if mask is not None:
        v, mask, dims = L.aligned(replace(v, mask=None), mask)
        v = replace(v, dims=dims)
    place = dim % len(v.dims)
    if any(a.kind == "sample" for a in v.dims[place]):
        raise mixed(L)
    if v.only("wide"):
        raise L.no_rule(
            "softmax of vectors of the width", "softmax of scores, which are sums over the width, along a finite axis"
        )
    if len(v.dims[place]) != 1:
        raise L.no_rule("a softmax over one element, or over several axes")
    (atom,) = v.dims[place]
    if atom.axis is None or not isinstance(v.expr, Expr):
        raise L.no_rule("a softmax of constants")
    factors = None if mask is None else as_expr(L.program, mask)
    return Value(v.dims, softmax(L.program.handle(v.expr.var), atom.axis, factors))


def _scaled(L: Lifter, v: Value) -> Value:
    """Scores of order 1, read with 1/d instead of 1/√d when asked to."""
    if v.power == Fraction(1, 2) and v.scored is not None and L.attention == "1/d":
        if not any(f.code == "NT810" for f in L.arrays.findings):
            L.arrays.findings.append(finding(
                "NT810", "scores q·k/√d are read as q·k/d: those of the module stay random", "scale scores by 1/d",
                L.step.node, "warning",
            ))  # fmt: skip
        return replace(v, expr=v.expr / sp.sqrt(sp.sympify(L.width(v.scored).ratio)), power=Fraction(0))
    if v.power > 0:
        raise L.refuse(
            "NT810", f"softmax of scores of the order n^{v.power} times their mean product: their deviations do"
            f" not vanish,"
            " so the attention stays random",
            "scale scores by 1/d, not 1/√d: scale=1/d of scaled_dot_product_attention, q @ k.T / d; or"
            " from_torch(…, attention='1/d') reads them so",
        )  # fmt: skip
    if v.power < 0:
        raise L.refuse(
            "NT811", "the scores vanish with the width: attention is uniform in the limit", "scale scores by 1/d"
        )
    return v


# ---------------------------------------------------------------- masks


@rule("masked_fill")
def _masked_fill(L: Lifter, x: Any, mask: Any, value: Any) -> Value:
    """Zeros, or −∞ for scores."""
    v, factors = L.value(x), kept(L, mask, False)
    number = value.values[0].item() if isinstance(value, Constant) else value
    if number == 0:
        a, b, dims = L.aligned(v, L.value(factors))
        return Value(dims, a.expr * b.expr, a.power)
    if number > -1e4 or v.only("wide"):
        raise L.no_rule(f"masked with {number}", "0, or -inf for scores of a softmax")
    return masked(L, v, factors)


def _plain(x: Any) -> Any:
    """The number of a constant of one."""
    return float(x.values[0]) if isinstance(x, Constant) and all(s == (1, 1) for s in x.sizes) else x


@rule("where")
def _where(L: Lifter, mask: Any, x: Any, y: Any) -> Any:
    """m x + (1 − m) y."""
    x, y = (_plain(v) for v in (x, y))
    for value, other, true_is_kept in ((x, y, True), (y, x, False)):
        if isinstance(other, int | float) and other < -1e4:
            return masked(L, L.value(value), kept(L, mask, true_is_kept))
    parts = []
    for value, factors in ((x, kept(L, mask, True)), (y, kept(L, mask, False))):
        if isinstance(value, int | float) and value == 0:
            continue
        a, b, dims = L.aligned(L.value(value), L.value(factors))
        parts.append(Value(dims, a.expr * b.expr, a.power))
    return parts[0] if len(parts) == 1 else combined(L, parts[0], parts[1], operator.add)


# ---------------------------------------------------------------- attention


@rule("scaled_dot_product_attention")
def _attention(
    L: Lifter, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False, *,
    scale: Any = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    """softmax(q kᵀ · scale) v over the last two dimensions."""
    if dropout:
        raise dropped(L)
    queries, keys, values = L.value(q), L.value(k), L.value(v)
    if enable_gqa:
        count = product(queries.dims[-3])[0]
        keys, values = (repeated(L, x, len(x.dims) - 3, count // product(x.dims[-3])[0]) for x in (keys, values))
    empty: Dim = ()
    scores = contracted(
        L, Value((*queries.dims[:-1], empty, queries.dims[-1]), queries.expr, queries.power),
        Value((*keys.dims[:-2], empty, *keys.dims[-2:]), keys.expr, keys.power),
    )  # fmt: skip
    d = product(queries.dims[-1])
    scores = times(L, scores, Pair((d[0] ** -0.5, d[1] ** -0.5)) if scale is None else scale)
    if mask is not None:
        scores = masked(L, scores, kept(L, mask, True))
    if causal:
        rows, cols = (product(x.dims[-2])[0] for x in (queries, keys))
        keep = torch.ones(rows, cols, dtype=torch.float64).tril()
        scores = masked(L, scores, Constant(((rows, rows), (cols, cols)), (keep, keep)))
    return values_product(L, _softmax(L, scores, -1), values)


__all__: list[str] = []
