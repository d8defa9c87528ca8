"""The transformer of Tensor Programs II, E.5."""

from __future__ import annotations

from netsor.build.program import Program
from netsor.ir import Number, ScaleLike
from netsor.layers import attention, layer_norm
from netsor.programs.per_layer import Phis, Variance, functions, layer_count, per_layer


def transformer(
    depth: int = 1, phi: Phis = "relu", var_u: Variance = 1, var_w: Variance = 1, var_v: ScaleLike = 1,
    eps: Number = 0.0,
) -> Program:  # fmt: skip
    """k = U x⁻, y_i = Σ_j a_ij k_j + k_i, a_i = softmax_j(k_i·k_j/n), z = LN(y), g = W^a z, h = W^b φ(g), x = LN(h + z)

    f = v·(mean of x over the tokens)/√n; LN without affine map.
    """
    depth = layer_count(depth)
    p = Program("transformer")
    n = p.width("n")
    x = p.data("x", axes=("token",))
    var_us, var_ws = per_layer(var_u, depth, "var_u"), per_layer(var_w, depth, "var_w")
    for l, f in enumerate(functions(phi, depth), 1):
        k = p.let(f"k{l}", p.matrix(f"U{l}", n, x, var=var_us[l - 1]) @ x)
        z = p.let(f"z{l}", layer_norm(p.let(f"y{l}", attention(k, k, k, "token") + k), eps))
        g = p.let(f"g{l}", p.matrix(f"W{l}a", n, n, var=var_ws[l - 1]) @ z)
        h = p.let(f"h{l}", p.matrix(f"W{l}b", n, n, var=var_ws[l - 1]) @ f(g))
        x = p.let(f"x{l}", layer_norm(h + z, eps))
    p.output(p.readout("v", n, var=var_v), x.mean("token"))
    return p
