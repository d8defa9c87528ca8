"""Gaussian expectations E f(u)g(v) of coordinatewise functions, in torch, with gradients and error bounds."""

from .catalogue import (
    absolute,
    elu,
    gelu,
    gelu_prime,
    leaky_relu,
    relu,
    sigmoid,
    sign,
    silu,
    softplus,
    step,
    tanh,
)
from .engine import E1, E2, E11
from .functions import (
    Fn,
    combine,
    cos,
    delta,
    erf,
    exp,
    exp_left,
    function,
    gaussian,
    power,
    relu_power,
    scaled,
    sin,
    times_power,
)
from .kernels import E2_pairs, v_transform
from .report import record

__all__ = [
    "E1", "E2", "E11", "E2_pairs", "Fn", "absolute", "combine", "cos", "delta", "elu", "erf", "exp", "exp_left",
    "function", "gaussian", "gelu", "gelu_prime", "leaky_relu", "power", "record", "relu", "relu_power", "scaled",
    "sigmoid", "sign", "silu", "sin", "softplus", "step", "tanh", "times_power", "v_transform",
]  # fmt: skip
