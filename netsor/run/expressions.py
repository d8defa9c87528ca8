"""Expressions evaluated with numpy: a recursion over the tree, heads through their definitions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from netsor.functions import Function, Head, argument_symbols
from netsor.measure import MOST_NODES, written_size

Array = np.ndarray[Any, np.dtype[np.float64]]
Env = Mapping[sp.Symbol, Any]


class NoValue(Exception):
    """The expression holds something that has no numpy counterpart."""


_erf: Callable[[Any], Any] = np.vectorize(math.erf, otypes=[float])
_erfc: Callable[[Any], Any] = np.vectorize(math.erfc, otypes=[float])

_UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "Abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceiling": np.ceil,
    "erf": _erf,
    "erfc": _erfc,
}


def evaluate(expr: sp.Expr, env: Env) -> Any:
    """The value of an expression; NaN where it is not a finite real number."""
    if written_size(expr) > MOST_NODES:
        raise NoValue("an expression is too large to be evaluated")
    with np.errstate(all="ignore"):
        return _value(expr, env)


def _value(e: sp.Expr, env: Env) -> Any:
    if isinstance(e, sp.Symbol):
        if e not in env:
            raise NoValue(f"{e} has no value")
        return env[e]
    if e.is_number and not e.args:
        return float(e) if e.is_real else math.nan
    if isinstance(e, Head):
        return _head(e, env)
    return _operation(e, env)


def _operation(e: sp.Expr, env: Env) -> Any:
    name = type(e).__name__
    if name in _UNARY and len(e.args) == 1:
        return _UNARY[name](_value(e.args[0], env))
    if isinstance(e, sp.Heaviside):
        at_zero = float(e.args[1]) if len(e.args) > 1 else 0.5
        return np.heaviside(_value(e.args[0], env), at_zero)
    values = [_value(a, env) for a in e.args] if not isinstance(e, sp.Piecewise) else []
    return _several(e, values, env)


def _several(e: sp.Expr, values: list[Any], env: Env) -> Any:
    if isinstance(e, sp.Add):
        return sum(values[1:], start=values[0])
    if isinstance(e, sp.Mul):
        return _product(values)
    if isinstance(e, sp.Pow):
        return np.power(np.asarray(values[0], dtype=float), values[1])
    if isinstance(e, sp.Max):
        return _fold(np.maximum, values)
    if isinstance(e, sp.Min):
        return _fold(np.minimum, values)
    if isinstance(e, sp.Piecewise):
        return _piecewise(e, env)
    raise NoValue(f"{type(e).__name__} has no numpy counterpart")


def _product(values: list[Any]) -> Any:
    result = values[0]
    for v in values[1:]:
        result = result * v
    return result


def _fold(op: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    result = values[0]
    for v in values[1:]:
        result = op(result, v)
    return result


def _piecewise(e: sp.Piecewise, env: Env) -> Any:
    pieces = [(_condition(c, env), _value(v, env)) for v, c in e.args]
    conditions, values = zip(*pieces, strict=True)
    shape = np.broadcast_shapes(*(np.shape(x) for x in (*conditions, *values)))
    return np.select(
        [np.broadcast_to(c, shape) for c in conditions], [np.broadcast_to(v, shape) for v in values], math.nan
    )


_RELATIONS: dict[type, Callable[[Any, Any], Any]] = {
    sp.StrictGreaterThan: np.greater,
    sp.GreaterThan: np.greater_equal,
    sp.StrictLessThan: np.less,
    sp.LessThan: np.less_equal,
    sp.Equality: np.equal,
    sp.Unequality: np.not_equal,
}


def _condition(c: Any, env: Env) -> Any:
    if c in (sp.true, sp.false):
        return np.asarray(bool(c))
    if isinstance(c, sp.And):
        return _fold(np.logical_and, [_condition(a, env) for a in c.args])
    if isinstance(c, sp.Or):
        return _fold(np.logical_or, [_condition(a, env) for a in c.args])
    if isinstance(c, sp.Not):
        return np.logical_not(_condition(c.args[0], env))
    if type(c) in _RELATIONS:
        return _RELATIONS[type(c)](_value(c.lhs, env), _value(c.rhs, env))
    raise NoValue(f"the condition {c} has no numpy counterpart")


# ---------------------------------------------------------------- heads


def _head(e: Head, env: Env) -> Any:
    spec: Function = e.spec
    values = [_value(a, env) for a in e.args]
    if spec.numpy is not None:
        return spec.numpy(values[0])
    if spec.numeric:
        return _numeric(spec, values)
    symbols = argument_symbols(spec.arity)
    return _value(_body(spec), dict(zip(symbols, values, strict=True)))


@cache
def _body(spec: Function) -> sp.Expr:
    return spec.definition(*argument_symbols(spec.arity))


def _numeric(spec: Function, values: list[Any]) -> Any:
    """A torch callable: torch is here only if the user's own function brought it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or spec.torch is None:
        raise NoValue(f"{spec.name} is a numeric function and torch is not loaded")
    result = spec.torch(*(torch.as_tensor(np.asarray(v, dtype=float)) for v in values))
    return result.detach().numpy()
