"""The simple recurrent network (Tensor Programs II, Program 2)."""

from __future__ import annotations

from typing import Literal

from netsor.build.expressions import Expr
from netsor.build.program import Program
from netsor.functions import Function, as_function
from netsor.ir import ScaleLike
from netsor.programs.per_layer import choice


def rnn(
    phi: str | Function = "tanh", readout: Literal["last", "mean"] = "last", var_w: ScaleLike = 1, var_u: ScaleLike = 1,
    var_b: ScaleLike | None = 1, var_v: ScaleLike = 1,
) -> Program:  # fmt: skip
    """gᵗ = W sᵗ⁻¹, sᵗ = φ(gᵗ + U ξᵗ + b), s⁰ = 0; f = v·s^T/√n, or v·(mean of s)/√n. The time axis is the data's."""
    choice("readout", readout, "last", "mean")
    p = Program("rnn")
    n = p.width("n")
    x = p.data("x", axes=("time",))
    f = as_function(phi)
    u = p.let("u", p.matrix("U", n, x, var=var_u) @ x)
    W = p.matrix("W", n, n, var=var_w)
    b = 0 if var_b is None else p.bias("b", n, var=var_b)

    def step(previous: Expr) -> Expr:
        g = p.let("g", W @ previous)
        return p.let("s", f(g + u + b))

    s = p.scan("time", 0, step)
    end = s.at("time", -1) if readout == "last" else s.mean("time")
    p.output(p.readout("v", n, var=var_v), end)
    return p
