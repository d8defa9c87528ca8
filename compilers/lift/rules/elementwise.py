"""Coordinatewise functions, sums and products."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy as sp
import torch

from netsor import functions as fn
from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.masks import is_infinite, kept, masked
from netsor.compilers.lift.rules.table import RULES, rule
from netsor.compilers.lift.values import Constant, Data, Outputs, Value
from netsor.functions import Function

HOMOGENEOUS: dict[str, Function] = {"relu": fn.relu, "abs": fn.abs}
PLAIN: dict[str, Function] = {
    "tanh": fn.tanh, "sigmoid": fn.sigmoid, "erf": fn.erf, "silu": fn.silu, "sin": fn.sin, "cos": fn.cos,
    "exp": fn.exp, "sign": fn.sign,
}  # fmt: skip
SAME = ("clone", "detach_", "contiguous", "alias", "_to_copy", "to", "lift_fresh_copy", "dropout_eval")


def applied(L: Lifter, x: Any, f: Callable[[Any], Any], homogeneous: bool = False) -> Value:
    """f of a value, coordinatewise; f(n^k x) = n^k f(x) is asked where the value grows or vanishes."""
    v = L.value(x)
    if v.power != 0 and not homogeneous:
        what = "grow" if v.power > 0 else "vanish"
        raise L.refuse(
            "NT811", f"{L.step.name} is applied to activations that {what} with the width, as n^{v.power}",
            "a weight matrix has variance c/fan-in, a bias and an embedding a constant variance",
        )  # fmt: skip
    return Value(v.dims, f(as_expr(L.program, v)), v.power)


def _register(name: str, f: Function, homogeneous: bool) -> None:
    RULES[name] = lambda L, x, **_: applied(L, x, f, homogeneous)


for _name, _f in HOMOGENEOUS.items():
    _register(_name, _f, True)
for _name, _f in PLAIN.items():
    _register(_name, _f, False)


@rule(*SAME)
def _same(L: Lifter, x: Any, *_: Any, **__: Any) -> Any:
    return x


@rule("gelu")
def _gelu(L: Lifter, x: Any, approximate: str = "none") -> Value:
    if approximate == "none":
        return applied(L, x, fn.gelu)
    return applied(L, x, lambda y: y * (1 + fn.tanh((y + y**3 * sp.Rational("0.044715")) * sp.sqrt(2 / sp.pi))) / 2)


@rule("mish")
def _mish(L: Lifter, x: Any) -> Value:
    return applied(L, x, lambda y: y * fn.tanh(fn.softplus(y)))


@rule("hardsigmoid", "hardswish")
def _hard(L: Lifter, x: Any) -> Value:
    """relu6(x + 3)/6, and x times it."""

    def f(y: Any) -> Any:
        gate = (fn.relu(y + 3) - fn.relu(y - 3)) / 6
        return gate * y if L.step.name == "hardswish" else gate

    return applied(L, x, f)


@rule("tanhshrink")
def _tanhshrink(L: Lifter, x: Any) -> Value:
    return applied(L, x, lambda y: y - fn.tanh(y))


@rule("log_sigmoid")
def _log_sigmoid_of(L: Lifter, x: Any) -> Value:
    return applied(L, x, lambda y: -fn.softplus(-y))


@rule("sqrt", "rsqrt", "reciprocal")
def _root(L: Lifter, x: Any) -> Value:
    """Of scalars of the limit, as in a normalisation written out."""
    v = scalar(L, x)
    root = as_expr(L.program, v) if L.step.name == "reciprocal" else as_expr(L.program, v).sqrt()
    power = v.power if L.step.name == "reciprocal" else v.power / 2
    return Value(v.dims, root, power) if L.step.name == "sqrt" else Value(v.dims, 1 / root, -power)


def scalar(L: Lifter, x: Any) -> Value:
    """A value without a width."""
    v = L.value(x)
    if v.only("wide"):
        raise L.no_rule("a root or a quotient of vectors of the width", "of their mean or norm; or divide by numbers")
    return v


@rule("leaky_relu")
def _leaky_relu(L: Lifter, x: Any, slope: float = 0.01) -> Value:
    return applied(L, x, fn.leaky_relu(slope), homogeneous=True)


@rule("elu")
def _elu(L: Lifter, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if input_scale != 1:
        raise L.no_rule("an input scale", "scale the input before")
    f, c = fn.elu_alpha(alpha), L.number(scale)[0]
    return applied(L, x, lambda y: f(y) * c)


@rule("selu")
def _selu(L: Lifter, x: Any) -> Value:
    return _elu(L, x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@rule("softplus")
def _softplus(L: Lifter, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(βx))/β; torch's linear continuation beyond βx > 20 differs by less than 3e-9."""
    if threshold < 20:
        raise L.no_rule(f"the threshold {threshold}", "threshold=20")
    b = L.number(beta)[0]
    return applied(L, x, lambda y: fn.softplus(y * b) / b)


@rule("relu6", "hardtanh", "clamp", "clamp_min")
def _clamp(L: Lifter, x: Any, low: Any = None, high: Any = None) -> Value:
    """low + relu(x − low) − relu(x − high)."""
    defaults: dict[str, tuple[Any, Any]] = {"relu6": (0, 6), "hardtanh": (-1, 1)}
    low, high = (
        g if g is not None else d for g, d in zip((low, high), defaults.get(L.step.name, (None, None)), strict=True)
    )

    def f(y: Any) -> Any:
        below = y if low is None else fn.relu(y - L.number(low)[0]) + L.number(low)[0]
        return below if high is None else below - fn.relu(y - L.number(high)[0])

    v = L.value(x)
    if low is not None and high is None and v.power > 0 and not v.only("wide"):
        return dataclasses.replace(v, expr=fn.relu(as_expr(L.program, v)))  # n^k max(y, low/n^k), as of norms
    if low is None and high is not None:
        return applied(L, x, lambda y: y - fn.relu(y - L.number(high)[0]))
    return applied(L, x, f)


@rule("log_sigmoid_forward")
def _log_sigmoid(L: Lifter, x: Any) -> Value:
    return applied(L, x, lambda y: -fn.softplus(-y))


@rule("neg")
def _neg(L: Lifter, x: Any) -> Any:
    return times(L, x, -1)


@rule("square")
def _square(L: Lifter, x: Any) -> Value:
    return _pow(L, x, 2)


@rule("pow")
def _pow(L: Lifter, x: Any, exponent: Any) -> Value:
    if (
        isinstance(exponent, Pair)
        or not isinstance(exponent, int | float)
        or not float(exponent).is_integer()
        or exponent < 1
    ):
        raise L.no_rule(f"the exponent {exponent}", "whole exponents from 1 on")
    k = int(exponent)
    v = L.value(x)
    return Value(v.dims, as_expr(L.program, v) ** k, v.power * k)


# ---------------------------------------------------------------- two operands


def scaled(L: Lifter, x: Any, c: Any, k: Fraction) -> Any:
    """c·n^k times a tensor."""
    if isinstance(x, Outputs):
        return Outputs(x.dims, tuple(dataclasses.replace(t, coef=t.coef * c, power=t.power + k) for t in x.terms))
    v = L.value(x)
    return dataclasses.replace(v, expr=v.expr * c, power=v.power + k)


def times(L: Lifter, x: Any, number: Any) -> Any:
    """A tensor times a number."""
    return scaled(L, x, *L.number(number))


def is_number(x: Any) -> bool:
    """A number, or a constant tensor of one."""
    return isinstance(x, int | float | Pair) or (isinstance(x, Constant) and all(s == (1, 1) for s in x.sizes))


@rule("mul")
def multiplied(L: Lifter, a: Any, b: Any) -> Any:
    if is_number(b):
        return times(L, a, b)
    if is_number(a):
        return times(L, b, a)
    x, y, dims = L.aligned(L.value(a), L.value(b))
    return Value(dims, x.expr * y.expr, x.power + y.power)


@rule("div")
def _div(L: Lifter, a: Any, b: Any, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None:
        raise L.no_rule("a rounded quotient")
    if isinstance(b, Data):
        return multiplied(L, a, Data(b.step, "reciprocal"))
    if isinstance(b, Constant) and not is_number(b):
        return multiplied(L, a, Constant(b.sizes, tuple(1 / torch.as_tensor(v).double() for v in b.values)))  # type: ignore[arg-type]
    if not is_number(b):
        d = scalar(L, b)
        return multiplied(L, a, Value(d.dims, 1 / as_expr(L.program, d), -d.power))
    c, k = L.number(b)
    return scaled(L, a, 1 / c, -k)


@rule("add")
def added(L: Lifter, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    for mask, scores in ((b, a), (a, b)):
        if is_infinite(mask) and isinstance(scores, Value) and alpha == 1:
            return masked(L, scores, kept(L, mask, True))
    return combined(L, a, b if alpha == 1 else times(L, b, alpha), operator.add)


@rule("sub")
def _sub(L: Lifter, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return combined(L, a, times(L, b, -1 if alpha == 1 else -alpha), operator.add)


@rule("rsub")
def _rsub(L: Lifter, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return combined(L, b, times(L, a, -1 if alpha == 1 else -alpha), operator.add)


def combined(L: Lifter, a: Any, b: Any, op: Callable[[Any, Any], Any]) -> Any:
    """A sum; what vanishes beside something else is refused, not dropped."""
    if isinstance(a, Outputs) and isinstance(b, Outputs):
        if [len(d) for d in a.dims] != [len(d) for d in b.dims]:
            raise L.no_rule("outputs of different shapes are added")
        _same_outputs(L, a, b)
        return Outputs(a.dims, a.terms + b.terms)
    x, y, dims = L.aligned(L.value(a), L.value(b))
    if is_zero(y) or is_zero(x):
        kept = x if is_zero(y) else y
        return Value(dims, kept.expr, kept.power)
    if x.power != y.power:
        low, high = sorted((x.power, y.power))
        raise L.refuse(
            "NT811", f"summands of the orders n^{low} and n^{high}: the smaller one vanishes beside the other",
            "bring both to the same order, with variances c/fan-in and no further factors of the width",
        )  # fmt: skip
    return Value(dims, op(x.expr, y.expr), x.power)


def _same_outputs(L: Lifter, a: Outputs, b: Outputs) -> None:
    """Different outputs of one readout are independent: their sum is none of its outputs."""
    sizes = [[x.size for x in v.only("out")] for v in (a, b)]
    first = {t.parameter: t.first for t in a.terms}
    if any(first.get(t.parameter, t.first) != t.first or (t.parameter in first and sizes[0] != sizes[1])
           for t in b.terms):  # fmt: skip
        raise L.no_rule("different outputs of one readout are added", "a readout for each, or one output of their sum")


def is_zero(v: Value) -> bool:
    return not hasattr(v.expr, "program") and v.expr == 0


__all__ = ["added", "applied", "combined", "is_number", "is_zero", "multiplied", "times"]
