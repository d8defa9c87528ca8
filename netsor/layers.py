"""Layers: macros over the DSL, the vector first, then width and name.

Each is a few lines that a program could write itself; nothing downstream knows a layer. A residual connection is `+`.
`array` stands for further arguments of `Program.matrix`: multiplier, axes, trainable, fan_in. `trainable` holds for all
arrays of a layer, the others for its matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NoReturn, cast

from netsor import constants, ir
from netsor.cells import gru_cell, lstm_cell
from netsor.check.types import size_text
from netsor.concat import Concat, concat, root
from netsor.dsl import AxisLike, dot, mix, moment, softmax
from netsor.errors import ProgramError, UnsupportedError, caller_location
from netsor.expressions import Expr
from netsor.windows import resolve

Axes = AxisLike | Iterable[AxisLike]
FanIn = Literal["channels", "channels*kernel"] | None | ir.Number


def _axes(axes: Axes) -> tuple[AxisLike, ...]:
    return (axes,) if isinstance(axes, str | ir.Axis) else tuple(axes)


def _bias_name(matrix: str) -> str:
    return "b" + matrix[1:] if matrix[:1] == "W" else f"b_{matrix}"


def _with_bias(h: Expr, n: Any, name: str, bias_var: ir.Number | None, array: Mapping[str, Any]) -> Expr:
    if bias_var is None:
        return h
    return h + h.program.bias(_bias_name(name), n, var=bias_var, trainable=array.get("trainable", True))


# ---------------------------------------------------------------- dense


def dense(
    x: Expr | Concat, n: Any, name: str, var: ir.Number = 1, bias_var: ir.Number | None = None, **array: Any
) -> Expr:  # fmt: skip
    """h = W x + b, W = ω/√cols, ω ~ N(0, var), b ~ N(0, bias_var); b is called after W (`W1` gives `b1`)."""
    W = x.program.matrix(name, n, x, var=var, **array)
    return _with_bias(W @ x, n, name, bias_var, array)


def token_embedding(x: Expr, n: Any, name: str, var: ir.Number = 1, **array: Any) -> Expr:
    """Rows E[token] ~ N(0, var) of a table, for one-hot data: E x without division by the vocabulary's size."""
    return dense(x, n, name, var, fan_in=None, **array)


def positional_embedding(
    x: Expr, name: str, axis: AxisLike, var: ir.Number = 1, cov: Any = None, **array: Any
) -> Expr:  # fmt: skip
    """A trained vector for each position of x along `axis`, Cov(p_s, p_t) = var · cov[s, t] (δ(s, t) without `cov`)."""
    dim = _dim(x, axis)
    return x.program.bias(name, x, var=var, axes=(dim,), axis_cov=cov, **array)


def _dim(x: Expr, axis: AxisLike) -> ir.Dim:
    found = x._has(axis)
    return next(d for d in x.dims if d.axis == found)


# ---------------------------------------------------------------- convolution and pooling


def conv(
    x: Expr | Concat, n: Any, name: str, axes: Axes, size: int | Sequence[int] | None = None,
    offsets: Sequence[Any] | None = None, stride: int | Sequence[int] = 1, padding: str | int = "same",
    dilation: int | Sequence[int] = 1, var: ir.Number = 1, bias_var: ir.Number | None = None,
    fan_in: FanIn = "channels", shared: bool = True, **array: Any,
) -> Expr:  # fmt: skip
    """h[s] = Σ_κ W[κ] x[stride·s + dilation·κ] + b over the axes (Appendix D, corrected; size 3 without offsets).

    W[κ] = ω/√channels, or ω/√(channels·|κ|); another fan_in is that of `Program.matrix`. `shared=False`: an own W[s, κ]
    for each position (locally connected).
    """
    if size is None and offsets is None:
        size = 3
    names = _axes(axes)
    read = x.window(names, size=size, offsets=offsets, stride=stride, padding=padding, dilation=dilation)
    tap = read.dims[-1]
    own = () if shared else tuple(_dim(cast(Expr, read), a) for a in names)
    if isinstance(fan_in, str) and fan_in not in ("channels", "channels*kernel"):
        message = f"fan_in of {name} is 'channels', 'channels*kernel', None or a number, got {fan_in!r}"
        raise ProgramError(message, code="NT108", location=caller_location())
    if fan_in == "channels*kernel":
        array["multiplier"] = array.get("multiplier", 1) * root(Fraction(1, cast(int, tap.size)))
    array["fan_in"] = "cols" if isinstance(fan_in, str) else fan_in
    W = x.program.matrix(name, n, read, var=var, axes=(tap, *own), **array)
    return _with_bias((W @ read).sum(tap.axis), n, name, bias_var, array)


def conv_unshared(x: Expr | Concat, n: Any, name: str, axes: Axes, **more: Any) -> Expr:
    """h[s] = Σ_κ W[s, κ] x[stride·s + dilation·κ] + b: a convolution with own weights for each position."""
    return conv(x, n, name, axes, shared=False, **more)


def conv_transposed(
    x: Expr, n: Any, name: str, axes: Axes, like: Expr | None = None, size: int | Sequence[int] | None = None,
    offsets: Sequence[Any] | None = None, stride: int | Sequence[int] = 1, padding: str | int = "same",
    dilation: int | Sequence[int] = 1, var: ir.Number = 1, bias_var: ir.Number | None = None, **array: Any,
) -> Expr:  # fmt: skip
    """h[t] = Σ W[κ] x[s] over the (s, κ) with stride·s + dilation·κ = t: the adjoint of `conv` from `like` to x.

    The result has the sizes of `like` along the axes (x itself for stride 1).
    """
    if size is None and offsets is None:
        size = 3
    p, target = x.program, like if like is not None else x
    found = tuple(x._has(a) for a in _axes(axes))
    plan = resolve([_dim(target, a) for a in found], size, offsets, stride, padding, dilation, caller_location())
    sizes = tuple(_dim(x, a).size for a in found)
    if sizes != plan.sizes:
        mine, given = (", ".join(map(size_text, part)) for part in (plan.sizes, sizes))
        raise ProgramError(
            f"a convolution of this kind from {target!r} does not give the sizes of {x!r}: it gives {mine} along"
            f" {', '.join(a.name for a in found)}, {x!r} has {given}", code="NT107",
            location=caller_location(), hint="like= is the vector whose convolution has the sizes of x; "
            + p.origins((target.var, x.var), caller_location()),
        )  # fmt: skip
    tap = ir.Dim(p.fresh_axis("k", len(plan.offsets)), len(plan.offsets))
    y = (p.matrix(name, n, x, var=var, axes=(tap,), **array) @ x).var
    dims = tuple(_dim(target, d.axis) if d.axis in found else d for d in y.dims if d != tap)
    out = p.new_var(None, "H", y.rows, None, dims)
    outside: Literal["zero", "wrap"] = "wrap" if plan.wrap else "zero"
    line = ir.Unwindow(out, y, found, tap.axis, plan.offsets, plan.stride, outside, caller_location())
    return _with_bias(p.add(line), n, name, bias_var, array)


def _pool_sizes(windows: Any) -> tuple[int, ...]:
    if not isinstance(windows, Mapping) or not windows:
        message = f"the windows of a pool are a dict from axis to size, got {windows!r}"
        hint = "{'row': 2, 'col': 2}"
        raise ProgramError(message, code="NT107", location=caller_location(), hint=hint)
    return tuple(windows.values())


def avg_pool(
    x: Expr, windows: Mapping[Any, int], stride: int | Sequence[int] | None = None, padding: str | int = "valid"
) -> Expr:  # fmt: skip
    """y[s] = (1/|κ|) Σ_κ x[stride·s + κ], windows `{axis: size}`; the stride is the window's size if not given."""
    sizes = _pool_sizes(windows)
    read = x.window(tuple(windows), size=sizes, stride=sizes if stride is None else stride, padding=padding)
    return read.mean(read.dims[-1].axis)


def max_pool(
    x: Expr, windows: Mapping[Any, int], stride: int | Sequence[int] | None = None, padding: str | int = "valid"
) -> Expr:  # fmt: skip
    """y[s] = max_κ x[stride·s + κ] coordinatewise; positions outside are left out."""
    sizes = _pool_sizes(windows)
    steps = sizes if stride is None else stride
    read = x.window(tuple(windows), size=sizes, stride=steps, padding=padding, outside="drop")
    return read.max(read.dims[-1].axis)


def global_avg_pool(x: Expr, axes: Axes) -> Expr:
    """The mean over the axes."""
    for axis in _axes(axes):
        x = x.mean(axis)
    return x


# ---------------------------------------------------------------- normalisation


def layer_norm(x: Expr, eps: ir.Number = 0.0) -> Expr:
    """y = (x − ν)/√(s² + ε), ν = moment(x), s² = moment((x − ν)²): over the coordinates, without affine map."""
    x = x.program.handle(x.var)
    centred = x - moment(x)
    return centred / (moment(centred**2) + eps).sqrt()


def batch_norm(x: Expr, axis: Axes, eps: ir.Number = 0.0) -> Expr:
    """y = x̂/√(mean x̂² + ε), x̂ = x − mean x, means over the axis (or axes), coordinatewise; without affine map."""
    x = x.program.handle(x.var)
    centred = x - global_avg_pool(x, axis)
    return centred / (global_avg_pool(centred**2, axis) + eps).sqrt()


def dropout(x: Expr, rate: float) -> NoReturn:
    """Refused: a random mask at training time is not a function of the arrays that a program samples."""
    raise UnsupportedError(
        f"dropout (rate {rate}) has no deterministic limit of this form: its masks are drawn anew at each step",
        code="NT703", location=caller_location(), hint="leave it out: at evaluation it is the identity",
    )  # fmt: skip


# ---------------------------------------------------------------- attention and graphs


def attention(
    q: Expr, k: Expr, v: Expr, axis: AxisLike, mask: Any = None, causal: bool = False,
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


def _mask(q: Expr, k: Expr, here: ir.Axis, key: ir.Axis, mask: Any, causal: bool) -> Expr | None:
    p = q.program
    m: Expr | None = None
    if causal:
        if here is key:
            message = "causal is for self-attention: the queries lack the axis of the keys"
            raise ProgramError(message, code="NT107", location=caller_location())
        m = constants.until(p, _dim(q, here), _dim(k, key))
    if mask is not None:
        if not isinstance(mask, Expr):
            (query,) = (d for d in q.dims if d.axis not in k.axes)
            mask = p.constant(mask, (query, _dim(k, key)))
        elif mask.dims[-1].axis != key:
            mask = mask.rename({mask.dims[-1].axis: key})
        m = mask if m is None else m * mask
    return m


def graph_conv(A: Expr, x: Expr, axis: AxisLike, normalise: bool = True) -> Expr:
    """y_s = Σ_t Â[s, t] x_t, Â = D^{-1/2}(A + 1)D^{-1/2}, D the row sums of A + 1; A without loops, axes [node, other].

    `normalise=False`: y_s = Σ_t A[s, t] x_t.
    """
    if not normalise:
        return mix(A, x, axis)
    p = x.program
    degree = p.handle((1 / (A.sum(A.dims[-1].axis) + 1).sqrt()).var)
    return cast(Expr, degree * (mix(A, degree * x, axis) + degree * x))


__all__ = [
    "Concat", "attention", "avg_pool", "batch_norm", "concat", "conv", "conv_transposed", "conv_unshared", "dense",
    "dropout", "global_avg_pool", "graph_conv", "gru_cell", "layer_norm", "lstm_cell", "max_pool",
    "positional_embedding", "token_embedding",
]  # fmt: skip
