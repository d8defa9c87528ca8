"""Where gradient independence fails (Tensor Programs II, §6.3)."""

from __future__ import annotations

from netsor.build.program import Program
from netsor.functions import Function, as_function
from netsor.ir import Number, ScaleLike


def gia_counterexample(
    phi: str | Function = "square", var_1: ScaleLike = 1, var_2: ScaleLike = 1, mean_v: Number = 1,
    var_v: ScaleLike = 0, train_v: bool = False,
) -> Program:  # fmt: skip
    """x¹ = W¹ξ + 1, h² = W²x¹, x² = φ(h²), f = v·x²/√n with v the constant vector 1 (mean_v = 1, var_v = 0).

    At ξ = 0 and φ(u) = u²: the coordinates of dx¹ have mean 2 and second moment 8, where independence says 0 and 4.
    """
    p = Program("gia_counterexample")
    n = p.width("n")
    data = p.data("xi")
    h1 = p.let("h1", p.matrix("W1", n, data, var=var_1) @ data)
    x1 = p.let("x1", h1 + 1)
    h2 = p.let("h2", p.matrix("W2", n, n, var=var_2) @ x1)
    x2 = p.let("x2", as_function(phi)(h2))
    p.output(p.readout("v", n, mean=mean_v, var=var_v, trainable=train_v), x2)
    return p
