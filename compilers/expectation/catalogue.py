"""The activations by name, each with its exact derivative."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from netsor.compilers.expectation import functions as fn
from netsor.compilers.expectation.functions import Fn


def relu() -> Fn:
    return fn.relu_power(1)


def step() -> Fn:
    """[x > 0], ½ at 0."""
    return fn.relu_power(0)


def _named(f: Fn, source: str, call: fn.Call | None = None) -> Fn:
    return Fn(source.partition("(")[0], source, call or f.call, f.kinks, f.terms, f.trusted)


def sign() -> Fn:
    return _named(fn.combine((2.0, step()), (-1.0, fn.power(0))), "sign()", torch.sign)


def absolute() -> Fn:
    """|x|."""
    return _named(fn.combine((2.0, relu()), (-1.0, fn.power(1))), "absolute()", torch.abs)


def leaky_relu(a: float = 0.01) -> Fn:
    """x for x > 0, a·x for x < 0."""
    return _named(fn.combine((1.0 - a, relu()), (a, fn.power(1))), f"leaky_relu({a!r})")


def elu(a: float = 1.0) -> Fn:
    """x for x > 0, a·(exp(x) − 1) for x < 0."""
    parts = fn.combine((1.0, relu()), (a, fn.exp_left(1.0)), (-a, fn.power(0)), (a, step()))

    def call(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, a * torch.expm1(x.clamp(max=0)))

    return _named(parts, f"elu({a!r})", call)


def gelu() -> Fn:
    """x·Φ(x)."""
    half = math.sqrt(0.5)
    parts = fn.combine((0.5, fn.power(1)), (0.5, fn.times_power(fn.erf(half), 1)))
    return _named(parts, "gelu()", lambda x: 0.5 * x * torch.special.erfc(-half * x))


def gelu_prime() -> Fn:
    """Φ(x) + x·Φ′(x)."""
    return gelu().derivative


def tanh() -> Fn:
    return fn.function(torch.tanh, _tanh_slope, name="tanh", source="tanh()")


def _tanh_slope(x: Tensor) -> Tensor:
    decay = torch.exp(-2 * x.abs())
    return 4 * decay / (1 + decay) ** 2


def sigmoid() -> Fn:
    return fn.function(torch.sigmoid, _sigmoid_slope, name="sigmoid", source="sigmoid()")


def _sigmoid_slope(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def silu() -> Fn:
    """x·sigmoid(x)."""

    def slope(x: Tensor) -> Tensor:
        return torch.sigmoid(x) + x * _sigmoid_slope(x)

    return fn.function(lambda x: x * torch.sigmoid(x), slope, name="silu", source="silu()")


def softplus() -> Fn:
    """log(1 + exp(x))."""
    return fn.function(
        lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())), sigmoid(), name="softplus", source="softplus()"
    )
