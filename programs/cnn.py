"""The convolutional network (Tensor Programs II, Appendix D and E.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from netsor.build.hints import PerAxis
from netsor.build.program import Program
from netsor.ir import ScaleLike
from netsor.layers import conv, global_avg_pool
from netsor.layers.convolution import FanIn
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


def cnn(
    depth: int = 3, phi: Phis = "relu", axes: Sequence[str] = ("row", "col"), kernel: Kernel = 3, stride: PerAxis = 1,
    padding: str | int = "same", dilation: PerAxis = 1, readout: Literal["flatten", "mean"] = "flatten",
    var_w: Variance = 1, var_v: ScaleLike = 1, var_b: MaybeVariance = None, fan_in: FanIn = "channels",
) -> Program:  # fmt: skip
    """hˡ[s] = Σ_κ Wˡ[κ] xˡ⁻¹[stride·s + dilation·κ] + bˡ, xˡ = φ(hˡ); x⁰ the image.

    flatten: f = Σ_s v_s·x^L[s]/√(|P| n); mean: f = v·(mean of x^L)/√n. `kernel` is a size, a tuple of sizes (one per
    axis) or a list of offsets; stride and dilation are numbers or one per axis.
    """
    depth = layer_count(depth)
    choice("readout", readout, "flatten", "mean")
    p = Program("cnn")
    n = p.width("n")
    x = p.data("x", axes=axes)
    var_ws, var_bs = per_layer(var_w, depth, "var_w"), per_layer(var_b, depth, "var_b")
    form: dict[str, Any] = kernel_window(kernel) | {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "fan_in": fan_in,
    }
    for l, f in enumerate(functions(phi, depth), 1):
        h = p.let(f"h{l}", conv(x, n, f"W{l}", axes, var=var_ws[l - 1], **form))
        b = 0 if var_bs[l - 1] is None else p.bias(f"b{l}", n, var=var_bs[l - 1])
        x = p.let(f"x{l}", f(h + b))
    if readout == "flatten":
        p.output(p.readout("v", n, var=var_v, axes=axes), x)
    else:
        p.output(p.readout("v", n, var=var_v), global_avg_pool(x, axes))
    return p
