"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, Unpack, cast

from netsor import ir
from netsor.build import hints
from netsor.build.expressions import Expr
from netsor.build.scales import multiplied, scale
from netsor.build.windows import resolve
from netsor.checker.typing.lines import size_text
from netsor.errors import ProgramError, caller_location
from netsor.layers.arrays import axes_of, dim_of, with_bias
from netsor.layers.concat import Concat, root, times

FanIn = Literal["channels", "channels*kernel"] | None | ir.Number


class Convolutions(hints.Shared, total=False):
    """Options of `conv`."""

    size: hints.PerAxis | None
    offsets: hints.Offsets | None
    stride: hints.PerAxis
    padding: hints.Padding
    dilation: hints.PerAxis
    var: ir.ScaleLike
    bias_var: ir.ScaleLike | None
    fan_in: FanIn


def conv(
    x: Expr | Concat, n: hints.Dimension, name: str, axes: hints.Axes, size: hints.PerAxis | None = None,
    offsets: hints.Offsets | None = None, stride: hints.PerAxis = 1, padding: hints.Padding = "same",
    dilation: hints.PerAxis = 1, var: ir.ScaleLike = 1, bias_var: ir.ScaleLike | None = None,
    fan_in: FanIn = "channels", shared: bool = True, **array: Unpack[hints.Shared],
) -> Expr:  # fmt: skip
    """h[s] = Σ_κ W[κ] x[stride·s + dilation·κ] + b over the axes (Appendix D, corrected; size 3 without offsets).

    W[κ] = ω/√channels, or ω/√(channels·|κ|); another fan_in is that of `Program.matrix`. `shared=False`: an own W[s, κ]
    for each position (locally connected).
    """
    if size is None and offsets is None:
        size = 3
    names = axes_of(axes)
    read = x.window(names, size=size, offsets=offsets, stride=stride, padding=padding, dilation=dilation)
    tap = read.dims[-1]
    own = () if shared else tuple(dim_of(cast(Expr, read), a) for a in names)
    if isinstance(fan_in, str) and fan_in not in ("channels", "channels*kernel"):
        message = f"fan_in of {name} is 'channels', 'channels*kernel', None or a number, got {fan_in!r}"
        raise ProgramError(message, code="NT108", location=caller_location())
    if fan_in == "channels*kernel":
        multiplier = scale(f"the multiplier of {name}", array.get("multiplier", 1))
        array["multiplier"] = multiplied(multiplier, root(Fraction(1, cast(int, tap.size))))
    per_matrix: hints.FanIn = "cols" if isinstance(fan_in, str) else fan_in
    h = times(read, name, n, var, axes=(tap, *own), fan_in=per_matrix, **array)
    return with_bias(h.sum(tap.axis), n, name, bias_var, array)


def conv_unshared(
    x: Expr | Concat, n: hints.Dimension, name: str, axes: hints.Axes, **more: Unpack[Convolutions]
) -> Expr:
    """h[s] = Σ_κ W[s, κ] x[stride·s + dilation·κ] + b: a convolution with own weights for each position."""
    return conv(x, n, name, axes, shared=False, **more)


def conv_transposed(
    x: Expr, n: hints.Dimension, name: str, axes: hints.Axes, like: Expr | None = None,
    size: hints.PerAxis | None = None, offsets: hints.Offsets | None = None, stride: hints.PerAxis = 1,
    padding: hints.Padding = "same", dilation: hints.PerAxis = 1, var: ir.ScaleLike = 1,
    bias_var: ir.ScaleLike | None = None, **array: Unpack[hints.Shared],
) -> Expr:  # fmt: skip
    """h[t] = Σ W[κ] x[s] over the (s, κ) with stride·s + dilation·κ = t: the adjoint of `conv` from `like` to x.

    The result has the sizes of `like` along the axes (x itself for stride 1).
    """
    if size is None and offsets is None:
        size = 3
    p, target = x.program, like if like is not None else x
    found = tuple(x.has_axis(a) for a in axes_of(axes))
    plan = resolve([dim_of(target, a) for a in found], size, offsets, stride, padding, dilation, caller_location())
    sizes = tuple(dim_of(x, a).size for a in found)
    if sizes != plan.sizes:
        mine, given = (", ".join(map(size_text, part)) for part in (plan.sizes, sizes))
        raise ProgramError(
            f"a convolution of this kind from {target!r} does not give the sizes of {x!r}: it gives {mine} along"
            f" {', '.join(a.name for a in found)}, {x!r} has {given}", code="NT107",
            location=caller_location(), hint="like= is the vector whose convolution has the sizes of x; "
            + p.origins((target.var, x.var), caller_location()),
        )  # fmt: skip
    tap = ir.Dim(p.fresh_axis("k", len(plan.offsets)), len(plan.offsets))
    y = p.matrix(name, n, x, var=var, axes=(tap,), **array) @ x
    outside: Literal["zero", "wrap"] = "wrap" if plan.wrap else "zero"
    line = y.indexed(
        lambda out, of: ir.Unwindow(out, of, found, tap.axis, plan.offsets, plan.stride, outside),
        {a: dim_of(target, a).size for a in found},
    )
    return with_bias(line, n, name, bias_var, array)


def _pool(windows: hints.ByAxis[int]) -> tuple[tuple[hints.AxisLike, ...], tuple[int, ...]]:
    if not isinstance(windows, Mapping) or not windows:
        message = f"the windows of a pool are a dict from axis to size, got {windows!r}"
        hint = "{'row': 2, 'col': 2}"
        raise ProgramError(message, code="NT107", location=caller_location(), hint=hint)
    return tuple(windows), tuple(windows.values())


def avg_pool(
    x: Expr, windows: hints.ByAxis[int], stride: hints.PerAxis | None = None, padding: hints.Padding = "valid"
) -> Expr:  # fmt: skip
    """y[s] = (1/|κ|) Σ_κ x[stride·s + κ], windows `{axis: size}`; the stride is the window's size if not given."""
    axes, sizes = _pool(windows)
    read = x.window(axes, size=sizes, stride=sizes if stride is None else stride, padding=padding)
    return read.mean(read.dims[-1].axis)


def max_pool(
    x: Expr, windows: hints.ByAxis[int], stride: hints.PerAxis | None = None, padding: hints.Padding = "valid"
) -> Expr:  # fmt: skip
    """y[s] = max_κ x[stride·s + κ] coordinatewise; positions outside are left out."""
    axes, sizes = _pool(windows)
    steps = sizes if stride is None else stride
    read = x.window(axes, size=sizes, stride=steps, padding=padding, outside="drop")
    return read.max(read.dims[-1].axis)


def global_avg_pool(x: Expr, axes: hints.Axes) -> Expr:
    """The mean over the axes."""
    for axis in axes_of(axes):
        x = x.mean(axis)
    return x
