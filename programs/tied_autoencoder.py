"""An autoencoder whose decoder is the encoder's transpose: it passes the Simple GIA Check, and is not BP-like."""

from __future__ import annotations

from netsor.build.program import Program
from netsor.functions import Function, as_function
from netsor.ir import Number, ScaleLike


def tied_autoencoder(
    phi: str | Function = "tanh", var_1: ScaleLike = 1, var_w: ScaleLike = 1, mean_v: Number = 0, var_v: ScaleLike = 1
) -> Program:  # fmt: skip
    """x = W¹ξ, h = W x, a = φ(h), y = Wᵀa, f = v·y/√n: W and Wᵀ meet in the forward pass."""
    p = Program("tied_autoencoder")
    n = p.width("n")
    data = p.data("xi")
    x = p.let("x", p.matrix("W1", n, data, var=var_1) @ data)
    W = p.matrix("W", n, n, var=var_w)
    h = p.let("h", W @ x)
    a = p.let("a", as_function(phi)(h))
    y = p.let("y", p.let("Wt", W.T) @ a)
    p.output(p.readout("v", n, mean=mean_v, var=var_v), y)
    return p
