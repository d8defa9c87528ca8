"""The gated recurrent unit (Tensor Programs II, Appendix D)."""

from __future__ import annotations

from netsor.build.expressions import Expr
from netsor.build.program import Program
from netsor.ir import ScaleLike
from netsor.layers.cells import PerGate, gru_cell


def gru(
    var_w: PerGate = 1, var_u: PerGate = 1, var_b: PerGate = 1, mean_b: PerGate = 0, var_v: ScaleLike = 1
) -> Program:  # fmt: skip
    """hᵗ = gru_cell(ξᵗ, hᵗ⁻¹), h⁰ = 0, f = v·h^T/√n; numbers or dicts over the gates z, r, h."""
    p = Program("gru")
    n = p.width("n")
    x = p.data("x", axes=("time",))

    def step(previous: Expr) -> Expr:
        h = gru_cell(x, previous, n, var_w=var_w, var_u=var_u, var_b=var_b, mean_b=mean_b)
        return p.let("h", h)

    h = p.scan("time", 0, step)
    p.output(p.readout("v", n, var=var_v), h.at("time", -1))
    return p
