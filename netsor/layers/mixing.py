"""Attention and graph convolutions."""

from __future__ import annotations

from typing import Literal

from netsor import ir
from netsor.build import constants, hints
from netsor.build.expressions import Expr
from netsor.build.program import dot, mix, softmax
from netsor.errors import ProgramError, UnsupportedError, caller_location
from netsor.layers.arrays import dim_of


def attention(
    q: Expr, k: Expr, v: Expr, axis: hints.AxisLike, mask: Expr | hints.ArrayLike | None = None, causal: bool = False,
    scale: Literal["1/n", "1/sqrt(n)"] = "1/n",
) -> Expr:  # fmt: skip
    """y_i = Σ_j a_ij v_j, a_i = softmax_j(q_i·k_j/n); `axis` is the axis of keys and values.

    Queries over the same axis: self-attention. Heads are an axis that q, k and v share. A mask m[…, j] (an array
    `[query, key]` or a family whose last axis is the key's) multiplies exp(c_ij); causal is m_ij = [j ≤ i].
    """
    if scale != "1/n":
        raise UnsupportedError(
            "scores q·k/√n do not converge to constants: they stay Gaussian, and the limit is not of this form",
            code="NT703", location=caller_location(), hint="scores q·k/n (scale='1/n')",
        )  # fmt: skip
    p = q.program
    here = p.as_axis(axis)
    key = here
    if here in q.axes:
        key = p.fresh_axis(f"{here.name}_key", here.size)
        tied = v.sym == k.sym
        k = k.rename({here: key})
        v = k if tied else v.rename({here: key})
    m = _mask(q, k, here, key, mask, causal)
    return (softmax(dot(q, k), key, m) * v).sum(key)


def _mask(
    q: Expr, k: Expr, here: ir.Axis, key: ir.Axis, mask: Expr | hints.ArrayLike | None, causal: bool
) -> Expr | None:
    p = q.program
    m: Expr | None = None
    if causal:
        if here is key:
            message = "causal is for self-attention: the queries lack the axis of the keys"
            raise ProgramError(message, code="NT107", location=caller_location())
        m = constants.until(p, dim_of(q, here), dim_of(k, key))
    if mask is not None:
        if not isinstance(mask, Expr):
            (query,) = (d for d in q.dims if d.axis not in k.axes)
            mask = p.constant(mask, (query, dim_of(k, key)))
        elif mask.dims[-1].axis != key:
            mask = mask.rename({mask.dims[-1].axis: key})
        m = mask if m is None else m * mask
    return m


def graph_conv(A: Expr, x: Expr, axis: hints.AxisLike, normalise: bool = True) -> Expr:
    """y_s = Σ_t Â[s, t] x_t, Â = D^{-1/2}(A + 1)D^{-1/2}, D the row sums of A + 1; A without loops, axes [node, other].

    `normalise=False`: y_s = Σ_t A[s, t] x_t.
    """
    if not normalise:
        return mix(A, x, axis)
    p = x.program
    degree = p.handle((1 / (A.sum(A.dims[-1].axis) + 1).sqrt()).var)
    return degree * (mix(A, degree * x, axis) + degree * x)
