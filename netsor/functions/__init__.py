"""Coordinatewise functions: expression, derivative, parity and growth."""

from netsor.functions.definitions import as_function, proposed
from netsor.functions.facts import MOST_COMPARED, expression_kinks, expression_parity, write_out
from netsor.functions.head import (
    FLIPPED,
    Function,
    Growth,
    Head,
    Parity,
    argument_symbols,
    constant,
    exact,
    undifferentiated,
)
from netsor.functions.own import function, numeric
from netsor.functions.table import (
    abs,
    builtin,
    builtin_names,
    cos,
    cube,
    elu,
    elu_alpha,
    erf,
    exp,
    gaussian,
    gelu,
    identity,
    leaky_relu,
    polynomial,
    relu,
    sigmoid,
    sign,
    silu,
    sin,
    softplus,
    square,
    step,
    tanh,
    zero,
)

__all__ = [
    "FLIPPED", "MOST_COMPARED", "Function", "Growth", "Head", "Parity", "argument_symbols", "constant", "exact",
    "expression_kinks", "expression_parity", "function", "numeric", "proposed", "undifferentiated", "write_out",
    "abs", "as_function", "builtin", "builtin_names", "cos", "cube", "elu", "elu_alpha", "erf", "exp", "gaussian",
    "gelu", "identity", "leaky_relu", "polynomial", "relu", "sigmoid", "sign", "silu", "sin", "softplus", "square",
    "step", "tanh", "zero",
]  # fmt: skip
