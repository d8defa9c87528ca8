"""Expressions as text: `relu(h1 + b1)`, `0.5 * x^2`, `1 / sqrt(s + 0.00001)`.

`normal` rebuilds an expression from the bottom by the same constructors that the reader uses, and `Writer` writes
products and quotients as one chain, so that reading the text gives the normal expression again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy as sp

from netsor import functions
from netsor.functions import Function, Head

SUM, PRODUCT, POWER, ATOM = range(4)

_OURS: dict[Any, Function] = {
    sp.Abs: functions.abs,
    sp.sign: functions.sign,
    sp.tanh: functions.tanh,
    sp.erf: functions.erf,
}


def normal(expr: sp.Expr) -> sp.Expr:
    """The expression rebuilt bottom-up, sympy's own tanh, erf, Abs, sign and Heaviside as functions of the language."""
    if not expr.args:
        return functions.exact(expr) if isinstance(expr, sp.Float) else expr
    args = [normal(a) for a in expr.args]
    if isinstance(expr, sp.Heaviside):
        return functions.step.head(args[0])
    ours = _OURS.get(expr.func)
    built = expr.func(*args) if ours is None else ours.head(*args)
    return normal(built) if built.func is not expr.func and built.has(*_OURS) else built


def number(value: Any) -> str:
    """A number so that reading it gives it back: floats by repr, exact numbers as decimals or p/q."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, sp.Basic):
        return Writer({}, str).text(sp.sympify(value))
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}" if value.denominator > 1 else str(value.numerator)
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e16 else repr(float(value))


def rational(value: sp.Rational) -> str:
    """A decimal when a float's shortest form is exactly the number, else p/q."""
    if value.q == 1:
        return str(value.p)
    try:
        short = repr(float(value))
    except OverflowError:
        return f"{value.p}/{value.q}"
    return short if sp.Rational(short) == value else f"{value.p}/{value.q}"


class Writer:
    """Writes expressions; `names` lists the symbols in program order, `function` names heads."""

    def __init__(self, names: Mapping[sp.Symbol, str], function: Callable[[Function], str]) -> None:
        self.names = names
        self.order = {s: i for i, s in enumerate(names)}
        self.function = function

    def text(self, expr: sp.Expr, level: int = SUM) -> str:
        """The text, in brackets when it binds less tightly than `level`."""
        own, text = self._write(expr)
        return f"({text})" if own < level else text

    def _write(self, expr: sp.Expr) -> tuple[int, str]:
        if isinstance(expr, sp.Symbol):
            return ATOM, self.names.get(expr, expr.name)
        if isinstance(expr, sp.Rational):
            text = rational(expr)
            return (SUM if expr < 0 else PRODUCT if "/" in text else ATOM), text
        if isinstance(expr, sp.Add):
            return SUM, self._sum(expr)
        if isinstance(expr, sp.Mul):
            return self._product(expr)
        if isinstance(expr, sp.Pow):
            return self._power(expr)
        return ATOM, self._call(expr)

    # ------------------------------------------------------------ sums and products

    def _sum(self, expr: sp.Add) -> str:
        """Later variables first, negative terms after the positive ones, constants last."""
        keyed = []
        for term in expr.args:
            negative = bool(term.as_coeff_Mul()[0] < 0)
            text = self.text(-term if negative else term, PRODUCT)
            made = sorted(-self.order.get(s, 0) for s in term.free_symbols) or [1]
            keyed.append((negative, made, -len(text), text))
        first, *rest = sorted(keyed)
        head = f"-{first[3]}" if first[0] else first[3]
        return head + "".join(f" {'-' if t[0] else '+'} {t[3]}" for t in rest)

    def _product(self, expr: sp.Mul) -> tuple[int, str]:
        coefficient, rest = expr.as_coeff_Mul()
        if coefficient < 0:
            return SUM, "-" + self.text(sp.Mul(-coefficient, *sp.Mul.make_args(rest)), PRODUCT)
        over: list[sp.Expr] = []
        under: list[sp.Expr] = []
        for factor in sp.Mul.make_args(rest):
            inverse = isinstance(factor, sp.Pow) and factor.exp.is_Rational and factor.exp < 0
            (under if inverse else over).append(1 / factor if inverse else factor)
        texts = self._ordered(over)
        if coefficient != 1 or not texts:
            texts.insert(0, rational(coefficient))
        return PRODUCT, " / ".join([" * ".join(texts), *self._ordered(under)])

    def _ordered(self, factors: Sequence[sp.Expr]) -> list[str]:
        """Factors of earlier variables first."""
        keyed = [
            (max((self.order.get(s, 0) for s in f.free_symbols), default=-1), self.text(f, POWER)) for f in factors
        ]
        return [text for _, text in sorted(keyed)]

    def _power(self, expr: sp.Pow) -> tuple[int, str]:
        base, exponent = expr.args
        if exponent.is_Rational and exponent < 0:
            return PRODUCT, f"1 / {self.text(sp.Pow(base, -exponent), POWER)}"
        if exponent == sp.S.Half:
            return ATOM, f"sqrt({self.text(base)})"
        return POWER, f"{self.text(base, ATOM)}^{self.text(exponent, ATOM)}"

    # ------------------------------------------------------------ functions

    def _call(self, expr: sp.Expr) -> str:
        if expr is sp.S.Exp1:
            return "exp(1)"
        args = [self.text(a) for a in expr.args]
        if isinstance(expr, Head):
            return f"{self.function(expr.spec)}({', '.join(args)})"
        if isinstance(expr, sp.Max | sp.Min):
            return f"{type(expr).__name__.lower()}({', '.join(sorted(args))})"
        if isinstance(expr, sp.Function):
            return f"{type(expr).__name__}({', '.join(args)})"
        return str(expr.xreplace({s: sp.Symbol(n) for s, n in self.names.items()}) if args else expr)


_FAMILY = re.compile(r"(?P<name>\w+)\[(?P<parameters>[^\]]*)\](?P<primes>'*)")


def builtin_text(function: Function) -> str:
    """A built-in function's name, its parameters as the language writes numbers: `leaky_relu[0.2]'`."""
    found = _FAMILY.fullmatch(function.name)
    if found is None:
        return function.name
    parameters = [p.strip() for p in found["parameters"].split(",")]
    texts = [rational(sp.Rational(p)) if re.fullmatch(r"-?\d+(/\d+)?", p) else p for p in parameters]
    return f"{found['name']}[{', '.join(texts)}]{found['primes']}"
