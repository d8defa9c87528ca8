"""Coordinatewise expressions of a listing as sympy expressions, and its numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, assert_never

import sympy as sp

from netsor.errors import TooLargeError
from netsor.functions import Function
from netsor.parser import algebra
from netsor.parser import syntax as sx
from netsor.parser.scope import Scope
from netsor.text.expressions import normal

SYMPY: dict[str, Callable[..., sp.Expr]] = {
    "sqrt": sp.sqrt, "log": sp.log, "floor": sp.floor, "ceiling": sp.ceiling, "tan": sp.tan, "sinh": sp.sinh,
    "cosh": sp.cosh, "asin": sp.asin, "acos": sp.acos, "atan": sp.atan, "min": sp.Min, "max": sp.Max,
}  # fmt: skip
_MAX_ARGUMENTS = 12
Symbols = Mapping[int, sp.Expr]


def is_pi(node: sx.Item) -> bool:
    return isinstance(node, sx.Reference) and node.items is None and node.token.text == "pi"


def references(node: sx.Node) -> Iterator[sx.Reference]:
    """The references in an expression, those in brackets of calls and references left out."""
    match node:
        case sx.Reference():
            yield node
        case sx.Transpose():
            yield from references(node.of)
        case sx.MatMul():
            yield from references(node.matrix)
            yield from references(node.vector)
        case sx.Power():
            yield from references(node.base)
            yield from references(node.exponent)
        case sx.Product():
            yield from itertools.chain.from_iterable(references(f) for _, f in node.factors)
        case sx.Sum():
            yield from itertools.chain.from_iterable(references(t) for _, t in node.terms)
        case sx.Call():
            yield from itertools.chain.from_iterable(map(references, node.args))
        case sx.Literal():
            pass
        case _:
            assert_never(node)


class Evaluator:
    """Evaluates what has no lines of its own."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def evaluate(self, node: sx.Node, symbols: Symbols) -> sp.Expr:
        """The sympy expression; `symbols` stand for the operands, by identity of their nodes."""
        try:
            expr = self._evaluate(node, symbols)
            return normal(expr) if expr.has(sp.Abs, sp.sign, sp.Heaviside) else expr
        except algebra.BoundError as error:
            raise self.scope.parse_error(node.token, error.code, f"refused: {error}") from None
        except TooLargeError as error:
            raise self.scope.parse_error(node.token, "NT005", error.diagnostic.message, error.diagnostic.hint) from None

    def _evaluate(self, node: sx.Node, symbols: Symbols) -> sp.Expr:
        if id(node) in symbols:
            return symbols[id(node)]
        match node:
            case sx.Literal():
                return sp.Rational(node.token.text)
            case sx.Sum():
                values = [(minus, self._factors(t, symbols)) for minus, t in node.terms]
                return algebra.add([algebra.multiply([*f, sp.Integer(-1)] if minus else f) for minus, f in values])
            case sx.Product():
                return algebra.multiply(self._factors(node, symbols))
            case sx.Power():
                return algebra.power(self._evaluate(node.base, symbols), self._evaluate(node.exponent, symbols))
            case sx.Call():
                return self._call(node, symbols)
            case _:
                return self._constant(node)

    def _constant(self, node: sx.Node) -> sp.Expr:
        if is_pi(node):
            return sp.pi
        raise self.scope.parse_error(node.token, "NT002", "only numbers and coordinatewise functions fit here")

    def _factors(self, node: sx.Node, symbols: Symbols) -> list[sp.Expr]:
        """All factors of a product, so that sympy sees them at once and distributes no number."""
        if not isinstance(node, sx.Product) or id(node) in symbols:
            return [self._evaluate(node, symbols)]
        values = [(inverse, self._evaluate(f, symbols)) for inverse, f in node.factors]
        return [algebra.power(v, sp.Integer(-1)) if inverse else v for inverse, v in values]

    def _call(self, node: sx.Call, symbols: Symbols) -> sp.Expr:
        args = [self._evaluate(a, symbols) for a in node.args]
        if node.name in SYMPY and node.name not in self.scope.functions:
            return self._sympy_call(node, args)
        function = self.function(node)
        if len(args) != function.arity:
            raise self.scope.parse_error(
                node.token, "NT002", f"{function.name} takes {function.arity} arguments, got {len(args)}"
            )
        return algebra.apply(function, args, bool(function.kinks) and not function.user)

    def _sympy_call(self, node: sx.Call, args: list[sp.Expr]) -> sp.Expr:
        many = node.name in ("min", "max")
        if node.primes or node.items is not None or not 1 <= len(args) <= (_MAX_ARGUMENTS if many else 1):
            raise self.scope.parse_error(node.token, "NT002", f"not a form of {node.name}")
        if node.name == "sqrt":
            return algebra.power(args[0], sp.S.Half)
        if many and any(a.atoms(sp.Max, sp.Min) for a in args):
            raise self.scope.parse_error(node.token, "NT005", "min and max are not nested", "give the inner one a name")
        return algebra.apply(SYMPY[node.name], args, node.name in ("floor", "ceiling"))

    def function(self, node: sx.Call) -> Function:
        """The function of a call, its derivatives taken."""
        parameters = tuple(self.number(i) for i in node.items or ())
        function = self.scope.function(node.token, parameters)
        for index in node.primes:
            if index is None and function.arity > 1:
                raise self.scope.parse_error(
                    node.token, "NT002", f"{function.name} has {function.arity} arguments: say which derivative",
                    f"{function.name}'1",
                )  # fmt: skip
            if not 1 <= (index or 1) <= function.arity:
                raise self.scope.parse_error(node.token, "NT002", f"{function.name} has no argument {index}")
            function = function.derivative((index or 1) - 1)
        return function

    # ------------------------------------------------------------ numbers

    def number(self, node: sx.Item) -> Any:
        """A number: int and float as written, p/q a Fraction, else an exact sympy constant."""
        match node:
            case sx.Literal():
                return self._literal(node)
            case sx.Sum(terms=((True, sx.Literal() as literal),)):
                return -self._literal(literal)
            case sx.Placed() | sx.Strided():
                raise self.scope.parse_error(node.token, "NT002", "a number is expected here")
            case _:
                value = self.evaluate(node, {})
        return self._plain(value, node)

    def _literal(self, node: sx.Literal) -> int | float:
        text = node.token.text
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise self.scope.parse_error(node.token, "NT005", f"{text} is too large for a number")
        return int(text) if text.isdecimal() else value

    @staticmethod
    def _plain(value: sp.Expr, node: sx.Node) -> Any:
        if value.is_Integer:
            return int(value)
        return Fraction(int(value.p), int(value.q)) if value.is_Rational else value
