"""Windows over finite axes, as torch's convolutions and pools read them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from netsor import ir
from netsor.build.expressions import Expr
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.dimensions.shapes import whole_axis
from netsor.compilers.lift.values import Atom, Dims, Value


def listed(x: Any, rank: int) -> list[int]:
    """One number per spatial axis."""
    return [int(i) for i in x] * (rank if len(x) == 1 else 1) if isinstance(x, list | tuple) else [int(x)] * rank


def offsets(kernel: Sequence[int], pads: Sequence[int], dilation: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Where the taps read relative to stride·s, in the order of torch's kernel."""
    taps = itertools.product(*(range(k) for k in kernel))
    return tuple(tuple(t * d - p for t, d, p in zip(tap, dilation, pads, strict=True)) for tap in taps)


def pads_of(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """How many positions come before the first: "same" puts the odd one behind."""
    if padding == "same":
        return [d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True)]
    return [0] * len(kernel) if padding == "valid" else listed(padding, len(kernel))


def spatial(L: Lifter, expr: Expr, dims: Dims, rank: int) -> tuple[Expr, Dims, list[ir.Axis]]:
    """The last dimensions as one axis each."""
    found: list[ir.Axis] = []
    last = []
    for dim in dims[-rank:]:
        axis = whole_axis(L, dim, "a window slides over it")
        if axis is None:
            axis = L.program.fresh_axis("one", 1)
            expr = expr.place(axis, 0, 1)
        found.append(axis)
        last.append(dim or (Atom("axis", (1, 1), axis),))
    return expr, (*dims[:-rank], *last), found


def windowed(
    L: Lifter, expr: Expr, axes: Sequence[ir.Axis], kernel: Sequence[int], stride: Sequence[int], pads: Sequence[int],
    dilation: Sequence[int], outside: Literal["zero", "drop"] = "zero",
) -> tuple[Expr, ir.Axis]:  # fmt: skip
    """x[stride·s + dilation·κ − pad] over a new axis of taps κ; the sizes are those of the operation's result."""
    L.program.var_of(expr)
    where = offsets(kernel, pads, dilation)
    tap = L.program.fresh_axis("k", len(where))
    sizes = {axis: s[0] for axis, s in zip(axes, L.step.sizes[-len(axes) :], strict=True)}
    form = (tuple(axes), tap, where, tuple(stride), outside)
    return expr.indexed(lambda out, of: ir.Window(out, of, *form), sizes), tap


def unwindowed(
    L: Lifter, expr: Expr, axes: Sequence[ir.Axis], tap: ir.Axis, where: tuple[tuple[int, ...], ...],
    stride: Sequence[int],
) -> Expr:  # fmt: skip
    """Σ of expr[s, κ] over the (s, κ) with stride·s + offset_κ = t: the adjoint of `windowed`."""
    sizes = {axis: s[0] for axis, s in zip(axes, L.step.sizes[-len(axes) :], strict=True)}
    return expr.indexed(lambda out, of: ir.Unwindow(out, of, tuple(axes), tap, where, tuple(stride), "zero"), sizes)


def resized(L: Lifter, v: Value, rank: int) -> Value:
    """With the sizes of the operation's result; a single position is no axis."""
    dims, expr = list(v.dims), v.expr
    for i in range(len(dims) - rank, len(dims)):
        (atom,) = dims[i]
        size = L.step.sizes[i]
        assert atom.axis is not None
        if size == (1, 1):
            dims[i], expr = (), as_expr(L.program, Value((), expr)).at(atom.axis, 0)
        else:
            dims[i] = (replace(atom, size=size),)
    return Value(tuple(dims), expr, v.power)


__all__ = ["listed", "offsets", "pads_of", "resized", "spatial", "unwindowed", "windowed"]
