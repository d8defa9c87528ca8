"""Dense layers and embeddings."""

from __future__ import annotations

from typing import Unpack

from netsor import ir
from netsor.build import hints
from netsor.build.expressions import Expr
from netsor.layers.arrays import dim_of, with_bias
from netsor.layers.concat import Concat, times


def dense(
    x: Expr | Concat, n: hints.Dimension, name: str, var: ir.ScaleLike = 1, bias_var: ir.ScaleLike | None = None,
    **array: Unpack[hints.Matrices],
) -> Expr:  # fmt: skip
    """h = W x + b, W = ω/√cols, ω ~ N(0, var), b ~ N(0, bias_var); b is called after W (`W1` gives `b1`)."""
    return with_bias(times(x, name, n, var, **array), n, name, bias_var, array)


def token_embedding(
    x: Expr, n: hints.Dimension, name: str, var: ir.ScaleLike = 1, **array: Unpack[hints.Arrays]
) -> Expr:
    """Rows E[token] ~ N(0, var) of a table, for one-hot data: E x without division by the vocabulary's size."""
    return dense(x, n, name, var, fan_in=None, **array)


def positional_embedding(
    x: Expr, name: str, axis: hints.AxisLike, var: ir.ScaleLike = 1, cov: hints.ArrayLike | None = None,
    **array: Unpack[hints.Embeddings],
) -> Expr:  # fmt: skip
    """A trained vector for each position of x along `axis`, Cov(p_s, p_t) = var · cov[s, t] (δ(s, t) without `cov`)."""
    dim = dim_of(x, axis)
    return x.program.bias(name, x, var=var, axes=(dim,), axis_cov=cov, **array)
