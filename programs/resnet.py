"""Residual networks."""

from __future__ import annotations

from typing import Literal

from netsor.build.program import Program
from netsor.functions import Function, as_function
from netsor.ir import Number, ScaleLike
from netsor.programs.per_layer import MaybeVariance, Phis, Variance, choice, functions, layer_count, per_layer


def resnet(
    depth: int = 3, phi: Phis = "relu", kind: Literal["post", "pre"] = "post", var_0: ScaleLike = 1,
    var_w: Variance = 1, var_b: MaybeVariance = None, var_v: ScaleLike = 1, scale: Number = 1.0,
    final_phi: str | Function | None = None,
) -> Program:  # fmt: skip
    """x⁰ = W⁰ξ; post: xˡ = xˡ⁻¹ + scale·φ(Wˡxˡ⁻¹ + bˡ); pre: xˡ = xˡ⁻¹ + scale·(Wˡφ(xˡ⁻¹) + bˡ); f = v·ψ(x^L)/√n."""
    depth = layer_count(depth, least=0)
    choice("kind", kind, "post", "pre")
    p = Program("resnet")
    n = p.width("n")
    data = p.data("x")
    x = p.let("x0", p.matrix("W0", n, data, var=var_0) @ data)
    var_ws, var_bs = per_layer(var_w, depth, "var_w"), per_layer(var_b, depth, "var_b")
    for l, f in enumerate(functions(phi, depth), 1):
        W = p.matrix(f"W{l}", n, n, var=var_ws[l - 1])
        b = 0 if var_bs[l - 1] is None else p.bias(f"b{l}", n, var=var_bs[l - 1])
        branch = f(p.let(f"h{l}", W @ x) + b) if kind == "post" else p.let(f"h{l}", W @ f(x)) + b
        x = p.let(f"x{l}", x + scale * branch)
    if final_phi is not None:
        x = as_function(final_phi)(x)
    p.output(p.readout("v", n, var=var_v), x)
    return p
