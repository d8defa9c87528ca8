"""Means, sums, pools, normalisation and softmax attention."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import sympy as sp

from netsor.build.expressions import Expr
from netsor.build.program import moment, softmax
from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.contract import contracted, values_product
from netsor.compilers.lift.rules.elementwise import combined, times
from netsor.compilers.lift.rules.shapes import mixed
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Constant, Dim, Parameter, Value, product, without


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
    return averaged(L, v, range(len(v.dims)) if dims is None else _listed(dims), keepdim)


@rule("sum")
def _sum(L: Lifter, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Value:
    """The mean times the number of summands, c·n for a width."""
    v = L.value(x)
    over = list(range(len(v.dims))) if dims is None else _listed(dims)
    count = product([a for d in over for a in v.dims[d]])
    mean = averaged(L, v, over, keepdim)
    found = times(L, mean, Pair(count) if count[0] != count[1] else count[0])
    assert isinstance(found, Value)
    return found


def _listed(dims: Any) -> list[int]:
    return list(dims) if isinstance(dims, list | tuple) else [dims]


# ---------------------------------------------------------------- normalisation


@rule("layer_norm", "native_layer_norm")
def _layer_norm(L: Lifter, x: Any, shape: Sequence[Any], w: Any = None, b: Any = None, eps: Any = 1e-5, *_: Any) -> Any:
    v = L.value(x)
    dims = list(range(len(v.dims) - len(shape), len(v.dims)))
    _has_width(L, v, dims)
    centred = combined(L, v, times(L, averaged(L, v, dims, True), -1), lambda s, t: s + t)
    return affine(L, normalised(L, centred, dims, eps), w, b)


@rule("rms_norm")
def _rms_norm(L: Lifter, x: Any, shape: Sequence[Any], w: Any = None, eps: Any = None) -> Any:
    v = L.value(x)
    dims = list(range(len(v.dims) - len(shape), len(v.dims)))
    _has_width(L, v, dims)
    return affine(L, normalised(L, v, dims, 0 if eps is None else eps), w, None)


def _has_width(L: Lifter, v: Value, dims: Sequence[int]) -> None:
    if not any(a.kind == "wide" for d in dims for a in v.dims[d]):
        raise L.no_rule("normalisation over finite dimensions", "normalise over the width")


def normalised(L: Lifter, v: Value, dims: Sequence[int], eps: Any) -> Value:
    """x/√(mean x² + ε) over dimensions."""
    if v.power != 0:
        raise L.refuse(
            "NT811", f"activations of the order n^{v.power} are normalised", "bring them to order 1: variances c/fan-in"
        )
    e, k = L.number(eps)
    if k != 0:
        raise L.no_rule("an epsilon that depends on the width")
    v = Value(v.dims, L.program.handle(as_expr(L.program, v).var))
    square = averaged(L, Value(v.dims, v.expr**2), dims, True)
    return Value(v.dims, v.expr / (square.expr + e).sqrt())


def affine(L: Lifter, v: Value, w: Any, b: Any) -> Value:
    """Gain and bias of a normalisation: vectors of the width."""
    both: tuple[tuple[Any, Callable[[Any, Any], Any]], ...] = ((w, operator.mul), (b, operator.add))
    for array, op in both:
        if isinstance(array, Parameter):
            x, y, dims = L.aligned(v, L.value(array))
            v = Value(dims, op(x.expr, y.expr))
        elif array is not None:
            raise L.no_rule("a gain or bias that is computed", "parameters as they are")
    return v


@rule("batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "native_batch_norm")
def _batch_norm(
    L: Lifter, x: Any, w: Any, b: Any, mean: Any = None, var: Any = None, training: Any = True, momentum: Any = 0.1,
    eps: float = 1e-5, *_: Any,
) -> Any:  # fmt: skip
    """In evaluation (x − mean)/√(var + ε), with the statistics that the module keeps; in training samples meet."""
    if training is not False or not isinstance(mean, Constant):
        raise mixed(L)
    v, m, s = L.value(x), L.number(mean)[0], L.number(var)[0]
    y = Value(v.dims, (as_expr(L.program, v) - m) / sp.sqrt(s + L.number(eps)[0]))
    if v.power != 0:
        raise L.refuse("NT811", f"activations of the order n^{v.power} are normalised", "variances c/fan-in")
    beside: tuple[int | None, ...] = (0, *[None] * (len(v.dims) - 2))
    arrays = [replace(p, order=beside) if isinstance(p, Parameter) else p for p in (w, b)]
    return affine(L, y, *arrays)


# ---------------------------------------------------------------- attention


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


# ---------------------------------------------------------------- randomness


def dropped(L: Lifter) -> Exception:
    return L.refuse(
        "NT816", f"{L.step.name} draws random numbers in the forward pass: the network is no function of its arrays",
        "module.eval() turns dropout off; noise is given as data",
    )  # fmt: skip


@rule("dropout", "feature_dropout", "alpha_dropout", "native_dropout")
def _dropout(L: Lifter, x: Any, p: float = 0.5, train: bool = False) -> Any:
    if train and p:
        raise dropped(L)
    return x


@rule("rand", "randn", "rand_like", "randn_like", "bernoulli", "normal", "uniform", "randint", "multinomial", "rrelu")
def _random(L: Lifter, *_: Any, **__: Any) -> Any:
    raise dropped(L)


__all__ = ["affine", "averaged", "normalised"]
