"""The long short-term memory."""

from __future__ import annotations

from netsor.build.expressions import Expr
from netsor.build.program import Program
from netsor.ir import ScaleLike
from netsor.layers.cells import PerGate, lstm_cell


def lstm(
    var_w: PerGate = 1, var_u: PerGate = 1, var_b: PerGate = 1, mean_b: PerGate = 0, var_v: ScaleLike = 1
) -> Program:  # fmt: skip
    """(hᵗ, cᵗ) = lstm_cell(ξᵗ, hᵗ⁻¹, cᵗ⁻¹), h⁰ = c⁰ = 0, f = v·h^T/√n; numbers or dicts over the gates i, f, o, g."""
    p = Program("lstm")
    n = p.width("n")
    x = p.data("x", axes=("time",))

    def step(h: Expr, c: Expr) -> tuple[Expr, Expr]:
        h, c = lstm_cell(x, h, c, n, var_w=var_w, var_u=var_u, var_b=var_b, mean_b=mean_b)
        return p.let("h", h), c

    h, _ = p.scan("time", (0, 0), step)
    p.output(p.readout("v", n, var=var_v), h.at("time", -1))
    return p
