"""Sympy expressions over coordinatewise functions, written as torch: as source text and as callables.

One printer serves both: `torch_function` compiles what `torch_source` prints. Heads of netsor.functions that torch
computes stably have a text in their row (`Function.sources`); every other head (derivatives such as `tanh''`, the
user's own) is printed through its definition, and a numeric function is called as it is.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import sympy as sp
import torch

from netsor.compilers.lowering.checked import evaluate
from netsor.compilers.lowering.identifiers import Numeric
from netsor.errors import UnsupportedError
from netsor.functions import Head, write_out
from netsor.functions.table import STEP

# sympy's own functions of one argument
SYMPY: dict[str, str] = {
    **{name: f"torch.{name}({{0}})" for name in ("sin", "cos", "tan", "exp", "log", "erf", "erfc", "floor", "sinh")},
    **{name: f"torch.{name}({{0}})" for name in ("cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "Abs": "torch.abs({0})",
    "sign": "torch.sign({0})",
    "ceiling": "torch.ceil({0})",
    "loggamma": "torch.lgamma({0})",
}

_SUM, _PRODUCT, _POWER, _ATOM = range(4)  # how tightly a text binds
Text = tuple[str, int]


def torch_source(
    expr: Any, symbols: Mapping[sp.Symbol, str] | Sequence[sp.Symbol], numeric: Numeric | None = None
) -> str:
    """The expression as torch source, symbols written as the given texts (or by their own names).

    `numeric` collects the callables of numeric functions; without it they are refused.
    """
    names = dict(symbols) if isinstance(symbols, Mapping) else {s: s.name for s in symbols}
    return _Printer(names, numeric).text(sp.sympify(expr))[0]


def torch_body(expr: sp.Expr, symbol: sp.Symbol, name: str, numeric: Numeric | None = None) -> str:
    """A function of one tensor: a constant has the shape, dtype and device of the argument."""
    source = torch_source(expr, {symbol: name}, numeric)
    return source if expr.free_symbols else f"torch.full_like({name}, {source})"


@cache
def torch_function(expr: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Callable[..., torch.Tensor]:
    """The expression as a function of tensors, one per symbol in order; the result has their common shape."""
    numeric = Numeric()
    names = {s: f"a{i}" for i, s in enumerate(symbols)}
    source = torch_source(expr, names, numeric)
    arguments = ", ".join(names.values())
    body = evaluate(f"lambda {arguments}: {source}", {"torch": torch, **numeric.found})
    if expr.free_symbols:
        return _on_tensors(body) if len(symbols) == len(expr.free_symbols) else _broadcast(_on_tensors(body))
    return _broadcast(body)


def _on_tensors(body: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def call(*values: Any) -> torch.Tensor:
        return body(*(torch.as_tensor(v) for v in values))

    return call


def _broadcast(body: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """For expressions that do not use every symbol: expanded to the arguments' common shape."""

    def call(*values: Any) -> torch.Tensor:
        tensors = [torch.as_tensor(v) for v in values]
        shape = torch.broadcast_tensors(*tensors)[0].shape
        dtype = reduce(torch.promote_types, (t.dtype for t in tensors))
        result = torch.as_tensor(body(*tensors), dtype=dtype, device=tensors[0].device)
        return result.expand(shape)

    return call


class _Printer:
    """Prints an expression; `text` returns the source and how tightly it binds."""

    def __init__(self, names: Mapping[sp.Symbol, str], numeric: Numeric | None) -> None:
        self.names = names
        self.numeric = numeric

    def text(self, e: sp.Expr) -> Text:
        if not e.free_symbols and not any(h.spec.numeric for h in e.atoms(Head)):
            return constant(e)
        for kind, rule in self._rules():
            if isinstance(e, kind):
                return rule(e)
        raise UnsupportedError(f"the function {type(e).__name__} in {e} has no torch counterpart", code="NT701")

    def _rules(self) -> tuple[tuple[Any, Callable[[Any], Text]], ...]:
        return (
            (sp.Symbol, self._symbol),
            (sp.Add, self._add),
            (sp.Mul, self._mul),
            (sp.Pow, self._pow),
            (Head, self._head),
            ((sp.Max, sp.Min), self._extremum),
            (sp.Heaviside, self._heaviside),
            (sp.Piecewise, self._piecewise),
            ((sp.DiracDelta, sp.Subs, sp.Derivative), self._weak),
            (sp.Function, self._sympy),
        )

    def inside(self, e: sp.Expr) -> str:
        """As an argument of a call."""
        return self.text(e)[0]

    def tight(self, e: sp.Expr, level: int) -> str:
        source, binds = self.text(e)
        return source if binds >= level else f"({source})"

    # ------------------------------------------------------------ arithmetic

    def _symbol(self, e: sp.Symbol) -> Text:
        if e not in self.names:
            raise UnsupportedError(f"the symbol {e} has no value", code="NT701")
        name = self.names[e]
        return name, _ATOM if name.isidentifier() or name.endswith((")", "]")) else _SUM

    def _add(self, e: sp.Add) -> Text:
        source = ""
        for term in e.as_ordered_terms():
            minus = term.could_extract_minus_sign()
            part = self.tight(-term if minus else term, _PRODUCT)
            if source:
                source += f" - {part}" if minus else f" + {part}"
            else:
                source = f"-{part}" if minus else part
        return source, _SUM

    def _mul(self, e: sp.Mul) -> Text:
        if e.could_extract_minus_sign():
            return "-" + self.tight(-e, _PRODUCT), _PRODUCT
        top, bottom = [], []
        for factor in e.as_ordered_factors():
            if factor.is_Rational and not is_decimal(factor) and is_short(factor):
                top += [sp.Integer(factor.p)] if factor.p != 1 else []
                bottom += [sp.Integer(factor.q)] if factor.q != 1 else []
            elif factor.is_Pow and factor.exp.is_number and factor.exp.could_extract_minus_sign():
                bottom.append(1 / factor)
            else:
                top.append(factor)
        source = " * ".join(self.tight(f, _POWER) for f in top) or "1"
        for f in bottom:
            source += " / " + self.tight(f, _POWER)
        return source, _PRODUCT

    def _pow(self, e: sp.Pow) -> Text:
        base, exponent = e.args
        if exponent == sp.Rational(1, 2):
            return f"torch.sqrt({self.inside(base)})", _ATOM
        if exponent.is_number and exponent.could_extract_minus_sign():
            return "1 / " + self.tight(1 / e, _POWER), _PRODUCT
        return f"{self.tight(base, _ATOM)} ** {self.tight(exponent, _ATOM)}", _POWER

    # ------------------------------------------------------------ functions

    def _head(self, e: Head) -> Text:
        spec = e.spec
        if spec.numeric:
            return self._numeric(e)
        if not spec.sources:
            return self.text(spec.definition(*e.args))
        (x,) = e.args
        parameter = "".join(self.tight(c, _ATOM) for c in spec.parameters[:1])
        return spec.sources[0].format(self.inside(x), x=self.tight(x, _ATOM), c=parameter), binding(spec.sources[0])

    def _numeric(self, e: Head) -> Text:
        if self.numeric is None:
            raise UnsupportedError(
                f"{e.spec.name} is a numeric function: it has no source", code="NT701",
                hint="give it an expression with ns.function",
            )  # fmt: skip
        return f"{self.numeric.name(e.spec)}({', '.join(map(self.inside, e.args))})", _ATOM

    def _sympy(self, e: sp.Function) -> Text:
        name = type(e).__name__
        if name not in SYMPY or len(e.args) != 1:
            raise UnsupportedError(f"the function {name} has no torch counterpart", code="NT701")
        return SYMPY[name].format(self.inside(e.args[0])), _ATOM

    def _extremum(self, e: sp.Expr) -> Text:
        largest = isinstance(e, sp.Max)
        numbers = [a for a in e.args if a.is_number]
        rest = [self.inside(a) for a in sorted(e.args, key=sp.default_sort_key) if not a.is_number]
        call = "torch.maximum" if largest else "torch.minimum"
        fixed = [f"torch.tensor({constant(number)[0]}, dtype=torch.float64)" for number in numbers]
        return reduce(lambda a, b: f"{call}({a}, {b})", [*rest, *fixed]), _ATOM

    def _heaviside(self, e: sp.Heaviside) -> Text:
        x = self.inside(e.args[0])
        at_zero = e.args[1] if len(e.args) > 1 else sp.Rational(1, 2)
        if at_zero == 0:
            return f"torch.relu(torch.sign({x}))", _ATOM
        if at_zero == 1:
            return f"(1 - torch.relu(torch.sign(-({x}))))", _ATOM
        return STEP.format(x), _PRODUCT

    def _piecewise(self, e: sp.Piecewise) -> Text:
        like = self._like(e)
        source, number = "torch.nan", True  # `torch.where` of two numbers would have a dtype of its own
        for value, condition in reversed(e.args):
            part = self.inside(value)
            if not value.free_symbols:
                part = f"torch.full_like({like}, {part})" if number else part
            if condition == sp.true:
                source, number = part, False
            else:
                source, number = f"torch.where({self._condition(condition)}, {part}, {source})", False
        return source, _ATOM

    def _like(self, e: sp.Expr) -> str:
        """A tensor of the arguments."""
        return self._symbol(min(e.free_symbols, key=sp.default_sort_key))[0]

    def _condition(self, e: Any) -> str:
        if isinstance(e, sp.core.relational.Relational):
            return f"{self.tight(e.lhs, _SUM)} {e.rel_op} {self.tight(e.rhs, _SUM)}"
        if isinstance(e, sp.And | sp.Or):
            parts = (f"({self._condition(a)})" for a in sorted(e.args, key=sp.default_sort_key))
            return (" & " if isinstance(e, sp.And) else " | ").join(parts)
        if isinstance(e, sp.Not):
            return f"~({self._condition(e.args[0])})"
        raise UnsupportedError(f"the condition {e} has no torch counterpart", code="NT701")

    def _weak(self, e: sp.Expr) -> Text:
        """Derivatives of jumps: the weak derivative's absolutely continuous part, zero."""
        inner = {type(f) for f in e.atoms(sp.Function)}
        if isinstance(e, sp.DiracDelta) or inner <= {sp.floor, sp.ceiling, sp.sign}:
            return f"torch.zeros_like({self._like(e)})", _ATOM
        raise UnsupportedError(f"{e} has no torch counterpart", code="NT701")


@cache
def binding(template: str) -> int:
    """How tightly the text of a function binds, whatever its argument."""
    match ast.parse(template.format("x", x="x", c="c"), mode="eval").body:
        case ast.Call():
            return _ATOM
        case ast.BinOp(op=ast.Mult() | ast.Div()):
            return _PRODUCT
        case ast.BinOp(op=ast.Pow()):
            return _POWER
        case _:
            return _SUM


# ---------------------------------------------------------------- numbers


def is_decimal(value: sp.Rational) -> bool:
    """Is the rational a short decimal, as a person would have typed it?"""
    return value.q != 1 and 10**6 % int(value.q) == 0


def is_short(value: sp.Rational) -> bool:
    """Are numerator and denominator integers that every float is exact for?"""
    return max(abs(int(value.p)), int(value.q)) <= 2**53


def constant(e: sp.Expr) -> Text:
    """A number: an integer, a short decimal, a fraction, a multiple of torch.pi, or the nearest float."""
    if e.could_extract_minus_sign():
        return "-" + _tight_constant(-e), _PRODUCT
    if e.is_Integer and is_short(e):
        return str(int(e)), _ATOM
    if e.is_Rational and is_short(e):
        return (repr(float(e)), _ATOM) if is_decimal(e) else (f"{e.p} / {e.q}", _PRODUCT)
    if e is sp.pi:
        return "torch.pi", _ATOM
    if e.is_Pow and e.base.is_Integer and e.exp in (sp.Rational(1, 2), sp.Rational(-1, 2)):
        return f"{e.base} ** {float(e.exp)!r}", _POWER
    value = float(write_out(e).evalf(20))
    if math.isnan(value):
        raise UnsupportedError(f"the constant {e} is not a number", code="NT701")
    return repr(value), _ATOM


def _tight_constant(e: sp.Expr) -> str:
    source, binds = constant(e)
    return source if binds >= _PRODUCT else f"({source})"
