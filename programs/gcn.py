"""The graph convolutional network."""

from __future__ import annotations

from typing import Literal

from netsor.build.program import Program
from netsor.ir import ScaleLike
from netsor.layers import graph_conv
from netsor.programs.per_layer import MaybeVariance, Phis, Variance, choice, functions, layer_count, per_layer


def gcn(
    depth: int = 2, phi: Phis = "relu", var_w: Variance = 1, var_b: MaybeVariance = None, var_v: ScaleLike = 1,
    readout: Literal["sum", "mean"] = "sum",
) -> Program:  # fmt: skip
    """hˡ_s = Wˡ Σ_t Â[s, t] xˡ⁻¹_t + bˡ, xˡ = φ(hˡ), f = Σ_s v·x^L_s/√n (or the mean over s).

    Inputs: node features x and a symmetric 0/1 adjacency A without loops; Â = D^{-1/2}(A + 1)D^{-1/2}, D its row sums.
    """
    depth = layer_count(depth)
    choice("readout", readout, "sum", "mean")
    p = Program("gcn")
    n = p.width("n")
    x = p.data("x", axes=("node",))
    A = p.scalar("A", axes=("node", "other"), per_sample=True)
    var_ws, var_bs = per_layer(var_w, depth, "var_w"), per_layer(var_b, depth, "var_b")
    for l, f in enumerate(functions(phi, depth), 1):
        y = graph_conv(A, x, "node")
        h = p.let(f"h{l}", p.matrix(f"W{l}", n, y, var=var_ws[l - 1]) @ y)
        b = 0 if var_bs[l - 1] is None else p.bias(f"b{l}", n, var=var_bs[l - 1])
        x = p.let(f"x{l}", f(h + b))
    pooled = x.sum("node") if readout == "sum" else x.mean("node")
    p.output(p.readout("v", n, var=var_v), pooled)
    return p
