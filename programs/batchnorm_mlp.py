"""A multilayer perceptron with batch normalisation (Tensor Programs II, E.4)."""

from __future__ import annotations

from netsor.build.program import Program
from netsor.ir import Number, ScaleLike
from netsor.layers import batch_norm
from netsor.programs.per_layer import Phis, Variance, functions, layer_count, per_layer


def batchnorm_mlp(
    depth: int = 2, phi: Phis = "relu", eps: Number = 1e-5, var_w: Variance = 1, var_v: ScaleLike = 1
) -> Program:  # fmt: skip
    """hˡ = Wˡxˡ⁻¹, xˡ = φ(BN(hˡ)), f_i = v·x^L_i/√n: one data sample is a batch, and `batch` is the output's axis."""
    depth = layer_count(depth)
    p = Program("batchnorm_mlp")
    n = p.width("n")
    x = p.data("x", axes=("batch",))
    var_ws = per_layer(var_w, depth, "var_w")
    for l, f in enumerate(functions(phi, depth), 1):
        h = p.let(f"h{l}", p.matrix(f"W{l}", n, x, var=var_ws[l - 1]) @ x)
        x = p.let(f"x{l}", f(batch_norm(h, "batch", eps)))
    p.output(p.readout("v", n, var=var_v), x)
    return p
