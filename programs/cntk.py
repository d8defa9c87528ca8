"""The convolutional network of Arora et al., *On Exact Computation with an Infinitely Wide Neural Net*."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

from netsor.concat import root
from netsor.constants import size
from netsor.dsl import Program
from netsor.functions import relu
from netsor.layers import conv, global_avg_pool
from netsor.programs.per_layer import choice, layer_count

AXES = ("row", "col")


def cntk(
    convolutions: int = 10, kernel: int = 3, readout: Literal["mean", "flatten"] = "mean", train_ends: bool = False
) -> Program:  # fmt: skip
    """h¹ = W¹ ∗ ξ without division by the channels, hˡ⁺¹ = √(2/(n q²)) Wˡ⁺¹ ∗ relu(hˡ); weights N(0, 1), q × q kernels.

    mean: f = √(2/(n q²)) v·(mean of relu(h^L)); flatten: √(2/(n q²)) Σ_s v_s·relu(h^L[s]). `train_ends`: the first and
    the last layer are trained too. Their `--depth` is convolutions + 1.
    """
    convolutions = layer_count(convolutions, "convolutions")
    choice("readout", readout, "mean", "flatten")
    p = Program("cntk")
    n = p.width("n")
    x = p.data("x", axes=AXES)
    factor = root(Fraction(2, kernel**2))
    for l in range(1, convolutions + 1):
        first: dict[str, Any] = {"fan_in": None, "trainable": train_ends}
        array: dict[str, Any] = first if l == 1 else {"multiplier": factor}
        h = p.let(f"h{l}", conv(x, n, f"W{l}", AXES, size=kernel, **array))
        x = p.let(f"x{l}", relu(h))
    if readout == "mean":
        p.output(p.readout("v", n, trainable=train_ends), global_avg_pool(x, AXES), scale=factor)
        return p
    positions = [size(p, d) for d in x.dims if d.axis.name in AXES]
    count = math.prod(positions[1:], start=positions[0])
    p.output(p.readout("v", n, axes=AXES, trainable=train_ends), x * count.sqrt(), scale=factor)
    return p
