"""A convolutional network with coordinatewise max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from netsor.build.program import Program
from netsor.ir import ScaleLike
from netsor.layers import conv, global_avg_pool, max_pool
from netsor.programs.per_layer import (
    Kernel,
    MaybeVariance,
    Phis,
    Variance,
    choice,
    functions,
    kernel_window,
    layer_count,
    per_layer,
)


def maxpool_cnn(
    depth: int = 2, phi: Phis = "relu", axes: Sequence[str] = ("row", "col"), kernel: Kernel = 3,
    pool: int | Sequence[int | None] | None = 2, readout: Literal["flatten", "mean"] = "mean", var_w: Variance = 1,
    var_v: ScaleLike = 1, var_b: MaybeVariance = None,
) -> Program:  # fmt: skip
    """hˡ[s] = Σ_κ Wˡ[κ] xˡ⁻¹[s + κ] + bˡ, xˡ = max pool of φ(hˡ) over windows of `pool` pixels along each axis.

    `pool` is a number or one per layer, None where there is no pooling; readouts and `kernel` as in `cnn`.
    """
    depth = layer_count(depth)
    choice("readout", readout, "flatten", "mean")
    p = Program("maxpool_cnn")
    n = p.width("n")
    x = p.data("x", axes=axes)
    var_ws, var_bs = per_layer(var_w, depth, "var_w"), per_layer(var_b, depth, "var_b")
    pools = per_layer(pool, depth, "pool")
    for l, f in enumerate(functions(phi, depth), 1):
        h = p.let(f"h{l}", conv(x, n, f"W{l}", axes, var=var_ws[l - 1], **kernel_window(kernel)))
        b = 0 if var_bs[l - 1] is None else p.bias(f"b{l}", n, var=var_bs[l - 1])
        y = p.let(f"y{l}", f(h + b))
        x = y if pools[l - 1] is None else p.let(f"x{l}", max_pool(y, {axis: pools[l - 1] for axis in axes}))
    if readout == "flatten":
        p.output(p.readout("v", n, var=var_v, axes=axes), x)
    else:
        p.output(p.readout("v", n, var=var_v), global_avg_pool(x, axes))
    return p
