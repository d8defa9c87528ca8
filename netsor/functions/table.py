"""The functions that every program knows, one row each; everything else about them is read from here.

A row says what `Function` says: definition, derivative, parity, growth, kinks, range, and how numpy and torch compute
it where the definition would lose digits or time. A row is all that a further function needs: listings, checker,
compiler, finite width and limit know it by its facts, not by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from netsor.build import hints
from netsor.functions.head import Function, Head, Parity, constant, exact, remade

TABLE: dict[str, Function] = {}
INF = math.inf
_erf: Callable[[Any], Any] = np.vectorize(math.erf, otypes=[float])
_erfc: Callable[[Any], Any] = np.vectorize(math.erfc, otypes=[float])

# torch
STEP = "(1 + torch.sign({0})) / 2"  # ½ at 0, keeps dtype and NaN
_RELU = "torch.maximum({0}, torch.zeros(()))"  # its derivative by autograd is ½ at 0, that of torch.relu is 0
_BELOW = "torch.exp(torch.clamp({0}, max=0))"
_F = "torch.nn.functional"


def builtin_names() -> tuple[str, ...]:
    """Names of the functions every listing knows, parametrised ones included."""
    return tuple(sorted({*TABLE, *FAMILIES}))


def builtin(name: str, parameters: Sequence[Any] = ()) -> Function:
    """The built-in function of a name; parametrised ones take their numbers. KeyError when there is none."""
    if parameters:
        return FAMILIES[name](*(exact(p) for p in parameters))
    if name == "leaky_relu":
        return leaky_relu()
    return TABLE[name]


def listed(f: Function) -> Function:
    """Add a row; the function is pickled as its name."""
    TABLE[f.name] = remade(f, builtin, f.name)
    return f


def _sign_of(x: sp.Expr) -> int | None:
    """The sign of a sympy number, None when x is not a number."""
    if not x.is_number or x.atoms(Head):
        return None
    if x.is_zero:
        return 0
    return 1 if x.is_positive else -1 if x.is_negative else None


def _step_value(x: sp.Expr) -> sp.Expr | None:
    s = _sign_of(x)
    return None if s is None else sp.Rational(1 + s, 2)


def _sign_value(x: sp.Expr) -> sp.Expr | None:
    s = _sign_of(x)
    return None if s is None else sp.Integer(s)


def _relu_value(x: sp.Expr) -> sp.Expr | None:
    s = _sign_of(x)
    return None if s is None else (x if s > 0 else sp.Integer(0))


def _zero_at_zero(x: sp.Expr) -> sp.Expr | None:
    return sp.Integer(0) if x.is_number and x.is_zero else None


def _abs_value(x: sp.Expr) -> sp.Expr | None:
    s = _sign_of(x)
    return None if s is None else s * x


def _no_derivative(_: int) -> Function:
    return zero


# ---------------------------------------------------------------- with kinks

zero = Function("zero", lambda x: sp.Integer(0), opaque=False, parity="even", growth="bounded", range=(0, 0))
step = listed(Function(
    "step", lambda x: sp.Heaviside(x, sp.Rational(1, 2)), derivative=_no_derivative, growth="bounded", kinks=(0.0,),
    jumps=True, range=(0, 1), evaluate=_step_value, numpy=lambda x: np.heaviside(x, 0.5), sources=(STEP,),
))  # fmt: skip
sign = listed(Function(
    "sign", lambda x: 2 * step.head(x) - 1, derivative=_no_derivative, parity="odd", growth="bounded", kinks=(0.0,),
    jumps=True, range=(-1, 1), evaluate=_sign_value, numpy=np.sign, sources=("torch.sign({0})",),
))  # fmt: skip
relu = listed(Function(
    "relu", lambda x: x * step.head(x), derivative=lambda _: step, growth="polynomial", kinks=(0.0,),
    range=(0, INF), evaluate=_relu_value, numpy=lambda x: np.maximum(x, 0.0), sources=(_RELU,),
))  # fmt: skip
abs = listed(Function(
    "abs", lambda x: 2 * relu.head(x) - x, derivative=lambda _: sign, parity="even", growth="polynomial", kinks=(0.0,),
    range=(0, INF), evaluate=_abs_value, numpy=np.abs, sources=("torch.abs({0})",),
))  # fmt: skip


def leaky_relu(a: hints.Real = 0.01) -> Function:
    """x for x > 0, a x otherwise.

    >>> ns.leaky_relu(0.1)
    leaky_relu[1/10]
    """
    return _leaky_relu(constant(a))


@cache
def _leaky_relu(c: sp.Expr) -> Function:
    slope = Function(
        f"leaky_relu[{c}]'", lambda x: c + (1 - c) * step.head(x), derivative=_no_derivative, growth="bounded",
        kinks=(0.0,), jumps=True, sources=("{c} + (1 - {c}) * (" + STEP + ")",), parameters=(c,),
    )  # fmt: skip
    made = Function(
        f"leaky_relu[{c}]", lambda x: c * x + (1 - c) * relu.head(x), derivative=lambda _: slope, growth="polynomial",
        kinks=(0.0,), range=(-INF if c > 0 else 0, INF), evaluate=_zero_at_zero,
        numpy=lambda x: np.where(x > 0, x, float(c) * x), parameters=(c,),
    )  # fmt: skip
    return remade(made, leaky_relu, c)


def _left(x: sp.Expr) -> sp.Expr:
    """[x < 0], ½ at 0."""
    return step.head(-x)


def elu_alpha(alpha: Any) -> Function:
    """x for x > 0, alpha (eˣ − 1) otherwise."""
    return _elu_alpha(constant(alpha))


@cache
def _elu_alpha(c: sp.Expr) -> Function:
    name = "elu" if c == 1 else f"elu[{c}]"
    sources = (
        (_F + ".elu({0})", _BELOW, _BELOW + " * (1 - (" + STEP + "))") if c == 1 else
        (_RELU + " + {c} * torch.expm1(torch.minimum({0}, torch.zeros(())))",
         "{c} * " + _BELOW + " + (1 - {c}) * (" + STEP + ")", "{c} * " + _BELOW + " * (1 - (" + STEP + "))")
    )  # fmt: skip
    second = Function(
        f"{name}''", lambda x: c * sp.exp(x) * _left(x), growth="bounded", kinks=(0.0,), jumps=True,
        sources=sources[2:], parameters=(c,),
    )  # fmt: skip
    first = Function(
        f"{name}'", lambda x: step.head(x) + c * sp.exp(x) * _left(x), derivative=lambda _: second, growth="bounded",
        kinks=(0.0,), jumps=bool(c != 1), sources=sources[1:], parameters=(c,),
    )  # fmt: skip
    made = Function(
        name, lambda x: relu.head(x) + c * (sp.exp(x) - 1) * _left(x), derivative=lambda _: first,
        growth="polynomial", kinks=(0.0,), range=(-float(c) if c > 0 else 0.0, INF), evaluate=_zero_at_zero,
        numpy=lambda x: np.where(x > 0, x, float(c) * np.expm1(np.minimum(x, 0.0))), sources=sources, parameters=(c,),
    )  # fmt: skip
    return remade(made, elu_alpha, c)


elu = elu_alpha(1)
TABLE[elu.name] = elu

# ---------------------------------------------------------------- analytic

erf = listed(Function(
    "erf", lambda x: sp.erf(x), parity="odd", growth="bounded", range=(-1, 1), evaluate=_zero_at_zero, numpy=_erf,
    sources=("torch.erf({0})",),
))  # fmt: skip
gelu = listed(Function(
    "gelu", lambda x: x * (1 + erf.head(x / sp.sqrt(2))) / 2, growth="polynomial", range=(-0.17, INF),
    evaluate=_zero_at_zero, numpy=lambda x: 0.5 * x * _erfc(-math.sqrt(0.5) * x),
    sources=("0.5 * {x} * torch.erfc(-0.7071067811865476 * {x})",),
))  # fmt: skip
tanh = listed(Function(
    "tanh", lambda x: sp.tanh(x), parity="odd", growth="bounded", range=(-1, 1), evaluate=_zero_at_zero, numpy=np.tanh,
    sources=("torch.tanh({0})", "4 * torch.sigmoid(2 * {x}) * torch.sigmoid(-2 * {x})"),
))  # fmt: skip
sigmoid = listed(Function(
    "sigmoid", lambda x: (1 + tanh.head(x / 2)) / 2, growth="bounded", range=(0, 1),
    numpy=lambda x: np.exp(-np.logaddexp(0.0, -x)),
    sources=("torch.sigmoid({0})", "torch.sigmoid({0}) * torch.sigmoid(-{x})"),
))  # fmt: skip
silu = listed(Function(
    "silu", lambda x: x * sigmoid.head(x), growth="polynomial", range=(-0.28, INF), evaluate=_zero_at_zero,
    numpy=lambda x: x * np.exp(-np.logaddexp(0.0, -x)), sources=(_F + ".silu({0})",),
))  # fmt: skip
softplus = listed(Function(
    "softplus", lambda x: sp.log(1 + sp.exp(x)), derivative=lambda _: sigmoid, growth="polynomial", range=(0, INF),
    numpy=lambda x: np.logaddexp(0.0, x), sources=("-" + _F + ".logsigmoid(-{x})",),
))  # fmt: skip
gaussian = listed(Function(
    "gaussian", lambda x: sp.exp(-(x**2)), parity="even", growth="bounded", range=(0, 1),
    numpy=lambda x: np.exp(-(x**2)), sources=("torch.exp(-({x} ** 2))",),
))  # fmt: skip

# ---------------------------------------------------------------- written out at once

sin = listed(Function("sin", lambda x: sp.sin(x), opaque=False, parity="odd", growth="bounded", range=(-1, 1)))
cos = listed(Function("cos", lambda x: sp.cos(x), opaque=False, parity="even", growth="bounded", range=(-1, 1)))
exp = listed(Function("exp", lambda x: sp.exp(x), opaque=False, growth="exponential", range=(0, INF)))
identity = listed(Function("identity", lambda x: x, opaque=False, parity="odd", growth="polynomial"))
square = listed(Function(
    "square", lambda x: x**2, opaque=False, parity="even", growth="polynomial", range=(0, INF)
))  # fmt: skip
cube = listed(Function("cube", lambda x: x**3, opaque=False, parity="odd", growth="polynomial"))


def polynomial(coefficients: Sequence[hints.Real]) -> Function:
    """Σ_i coefficients[i] xⁱ.

    >>> ns.polynomial([0, 1, 0, -1]).parity  # x − x³
    'odd'
    """
    c = [constant(a) for a in coefficients]
    text = ", ".join(map(str, c))

    def parity() -> Parity:
        nonzero = {i % 2 for i, a in enumerate(c) if a != 0}
        return "odd" if nonzero == {1} else "even" if nonzero == {0} else None

    def value(x: sp.Expr) -> sp.Expr:
        return sp.Add(*(a * x**i for i, a in enumerate(c)))

    made = Function(f"polynomial[{text}]", value, opaque=False, parity=parity(), growth="polynomial")
    return remade(made, polynomial, c)


# ---------------------------------------------------------------- by name

FAMILIES: dict[str, Callable[..., Function]] = {
    "leaky_relu": leaky_relu,
    "elu": elu_alpha,
    "polynomial": lambda *c: polynomial(c),
}
ALIASES = {  # names in other libraries
    "swish": "silu", "logistic": "sigmoid", "linear": "identity", "heaviside": "step", "absolute": "abs",
    "fabs": "abs", "leakyrelu": "leaky_relu",
}  # fmt: skip
