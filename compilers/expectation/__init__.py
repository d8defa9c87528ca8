"""Gaussian expectations E f(u)g(v) of coordinatewise functions, in torch, with gradients and error bounds."""

from netsor.compilers.expectation.engine import E1, E2, E11, SlowExpectationWarning
from netsor.compilers.expectation.functions import (
    Fn,
    combine,
    cos,
    delta,
    erf,
    exp,
    exp_left,
    function,
    gaussian,
    named,
    power,
    relu_power,
    scaled,
    sin,
    times_power,
)
from netsor.compilers.expectation.kernels import E2_pairs, v_transform
from netsor.compilers.expectation.report import record

__all__ = [
    "E1", "E2", "E11", "E2_pairs", "Fn", "SlowExpectationWarning", "combine", "cos", "delta", "erf", "exp", "exp_left",
    "function", "gaussian", "named", "power", "record", "relu_power", "scaled", "sin", "times_power", "v_transform",
]  # fmt: skip
