"""The functions that every program knows: definition, derivative, parity, growth and kinks of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import sympy as sp

from netsor.build.definitions import refused
from netsor.functions.head import Function, Head, Parity, constant, exact, remade


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


zero = Function("zero", lambda x: sp.Integer(0), opaque=False, parity="even", growth="bounded")
step = Function(
    "step", lambda x: sp.Heaviside(x, sp.Rational(1, 2)), derivative=_no_derivative, growth="bounded", kinks=(0.0,),
    jumps=True, evaluate=_step_value,
)  # fmt: skip
sign = Function(
    "sign", lambda x: 2 * step.head(x) - 1, derivative=_no_derivative, parity="odd", growth="bounded", kinks=(0.0,),
    jumps=True, evaluate=_sign_value,
)  # fmt: skip
relu = Function(
    "relu", lambda x: x * step.head(x), derivative=lambda _: step, growth="polynomial", kinks=(0.0,),
    evaluate=_relu_value,
)  # fmt: skip
abs = Function(
    "abs", lambda x: 2 * relu.head(x) - x, derivative=lambda _: sign, parity="even", growth="polynomial", kinks=(0.0,),
    evaluate=_abs_value,
)  # fmt: skip


def leaky_relu(a: Any = 0.01) -> Function:
    """max(x, a x) for a ≤ 1.

    >>> ns.leaky_relu(0.1)
    leaky_relu[1/10]
    """
    return _leaky_relu(constant(a))


@cache
def _leaky_relu(c: sp.Expr) -> Function:
    slope = Function(
        f"leaky_relu[{c}]'", lambda x: c + (1 - c) * step.head(x), derivative=_no_derivative, growth="bounded",
        kinks=(0.0,), jumps=True,
    )  # fmt: skip
    made = Function(
        f"leaky_relu[{c}]", lambda x: c * x + (1 - c) * relu.head(x), derivative=lambda _: slope, growth="polynomial",
        kinks=(0.0,), evaluate=_zero_at_zero,
    )  # fmt: skip
    return remade(made, leaky_relu, c)


def _elu_tail(x: sp.Expr, order: int) -> sp.Expr:
    """d^order/dx^order of (eˣ − 1)[x < 0] away from 0, with [x < 0] = 1 − step(x)."""
    return (sp.exp(x) - (1 if order == 0 else 0)) * (1 - step.head(x))


def elu_alpha(alpha: Any) -> Function:
    """x for x > 0, alpha (eˣ − 1) otherwise."""
    return _elu_alpha(constant(alpha))


@cache
def _elu_alpha(c: sp.Expr) -> Function:
    suffix = "" if c == 1 else f"[{c}]"
    second = Function(
        f"elu{suffix}''", lambda x: c * _elu_tail(x, 1), growth="bounded", kinks=(0.0,), jumps=True,
    )  # fmt: skip
    first = Function(
        f"elu{suffix}'", lambda x: step.head(x) + c * _elu_tail(x, 1), derivative=lambda _: second, growth="bounded",
        kinks=(0.0,), jumps=bool(c != 1),
    )  # fmt: skip
    made = Function(
        f"elu{suffix}", lambda x: relu.head(x) + c * _elu_tail(x, 0), derivative=lambda _: first, growth="polynomial",
        kinks=(0.0,), evaluate=_zero_at_zero,
    )  # fmt: skip
    return remade(made, elu_alpha, c)


elu = elu_alpha(1)
erf = Function(
    "erf", lambda x: sp.erf(x), parity="odd", growth="bounded", evaluate=_zero_at_zero,
)  # fmt: skip
gelu = Function(
    "gelu", lambda x: x * (1 + erf.head(x / sp.sqrt(2))) / 2, growth="polynomial", evaluate=_zero_at_zero,
)  # fmt: skip
tanh = Function("tanh", lambda x: sp.tanh(x), parity="odd", growth="bounded", evaluate=_zero_at_zero)
sigmoid = Function("sigmoid", lambda x: (1 + tanh.head(x / 2)) / 2, growth="bounded")
silu = Function("silu", lambda x: x * sigmoid.head(x), growth="polynomial", evaluate=_zero_at_zero)
softplus = Function(
    "softplus", lambda x: sp.log(1 + sp.exp(x)), derivative=lambda _: sigmoid, growth="polynomial",
)  # fmt: skip
gaussian = Function("gaussian", lambda x: sp.exp(-(x**2)), parity="even", growth="bounded")
sin = Function("sin", lambda x: sp.sin(x), opaque=False, parity="odd", growth="bounded")
cos = Function("cos", lambda x: sp.cos(x), opaque=False, parity="even", growth="bounded")
exp = Function("exp", lambda x: sp.exp(x), opaque=False, growth="exponential")
identity = Function("identity", lambda x: x, opaque=False, parity="odd", growth="polynomial")
square = Function("square", lambda x: x**2, opaque=False, parity="even", growth="polynomial")
cube = Function("cube", lambda x: x**3, opaque=False, parity="odd", growth="polynomial")


def polynomial(coefficients: Sequence[Any]) -> Function:
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


_BUILTIN = [
    step, sign, relu, abs, elu, erf, gelu, tanh, sigmoid, silu, softplus, gaussian, sin, cos, exp,
    identity, square, cube,
]  # fmt: skip
_TABLE: dict[str, Function] = {f.name: f for f in _BUILTIN}
_FAMILIES: dict[str, Callable[..., Function]] = {
    "leaky_relu": leaky_relu,
    "elu": elu_alpha,
    "polynomial": lambda *c: polynomial(c),
}


def builtin_names() -> tuple[str, ...]:
    """Names of the functions every listing knows, parametrised ones included."""
    return tuple(sorted({*_TABLE, *_FAMILIES}))


def builtin(name: str, parameters: Sequence[Any] = ()) -> Function:
    """The built-in function of a name; parametrised ones take their numbers. KeyError when there is none."""
    if parameters:
        return _FAMILIES[name](*(exact(p) for p in parameters))
    if name == "leaky_relu":
        return leaky_relu()
    return _TABLE[name]


for _f in _BUILTIN:
    _f.made_by = (builtin, (_f.name,))


def as_function(phi: Any) -> Function:
    """A Function from its name; InputError says what to write instead of another name or a function of torch."""
    if isinstance(phi, Function):
        return phi
    if isinstance(phi, str):
        with suppress(KeyError):
            return builtin(phi)
        raise refused(f"no function is called {phi!r}", phi, f"the names are {', '.join(builtin_names())}")
    raise refused(
        f"a nonlinearity is a name or an ns.Function, got {phi!r}", phi,
        "ns.function(name, lambda x: …) makes one of an expression, ns.numeric(name, f) of a torch function",
    )  # fmt: skip
