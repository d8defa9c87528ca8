"""The multilayer perceptron (Tensor Programs II, Program 1)."""

from __future__ import annotations

from netsor.build.expressions import Expr, Matrix
from netsor.build.program import Program
from netsor.ir import ScaleLike
from netsor.programs.per_layer import MaybeVariance, Phis, Variance, functions, layer_count, per_layer


def mlp(
    depth: int = 2, phi: Phis = "relu", var_w: Variance = 1, var_b: MaybeVariance = 1, var_v: ScaleLike = 1,
    tied: bool = False,
) -> Program:  # fmt: skip
    """hˡ = Wˡ xˡ⁻¹, xˡ = φ(hˡ + bˡ), f = v·x^L/√n, x⁰ the data.

    `tied`: layers 2 … L share one matrix W and one bias b (of the second layer's variances); W¹ and b¹ are their own.
    """
    depth = layer_count(depth)
    p = Program("mlp")
    n = p.width("n")
    x = p.data("x")
    var_ws, var_bs = per_layer(var_w, depth, "var_w"), per_layer(var_b, depth, "var_b")
    arrays: dict[str, tuple[Matrix, Expr | int]] = {}
    for l, f in enumerate(functions(phi, depth), 1):
        suffix = "" if tied and l > 1 else str(l)
        if suffix not in arrays:
            bias = 0 if var_bs[l - 1] is None else p.bias(f"b{suffix}", n, var=var_bs[l - 1])
            arrays[suffix] = (p.matrix(f"W{suffix}", n, x, var=var_ws[l - 1]), bias)
        W, b = arrays[suffix]
        h = p.let(f"h{l}", W @ x)
        x = p.let(f"x{l}", f(h + b))
    p.output(p.readout("v", n, var=var_v), x)
    return p
