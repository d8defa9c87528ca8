"""Dense layers and embeddings."""

from __future__ import annotations

from typing import Any

from netsor import ir
from netsor.build.expressions import Expr
from netsor.build.program import AxisLike
from netsor.layers.arrays import dim_of, with_bias
from netsor.layers.concat import Concat


def dense(
    x: Expr | Concat, n: Any, name: str, var: ir.ScaleLike = 1, bias_var: ir.ScaleLike | None = None, **array: Any
) -> Expr:  # fmt: skip
    """h = W x + b, W = ω/√cols, ω ~ N(0, var), b ~ N(0, bias_var); b is called after W (`W1` gives `b1`)."""
    W = x.program.matrix(name, n, x, var=var, **array)
    return with_bias(W @ x, n, name, bias_var, array)


def token_embedding(x: Expr, n: Any, name: str, var: ir.ScaleLike = 1, **array: Any) -> Expr:
    """Rows E[token] ~ N(0, var) of a table, for one-hot data: E x without division by the vocabulary's size."""
    return dense(x, n, name, var, fan_in=None, **array)


def positional_embedding(
    x: Expr, name: str, axis: AxisLike, var: ir.ScaleLike = 1, cov: Any = None, **array: Any
) -> Expr:  # fmt: skip
    """A trained vector for each position of x along `axis`, Cov(p_s, p_t) = var · cov[s, t] (δ(s, t) without `cov`)."""
    dim = dim_of(x, axis)
    return x.program.bias(name, x, var=var, axes=(dim,), axis_cov=cov, **array)
