"""Variances and multipliers: numbers, or expressions in parameters that are given when a kernel is called."""

from __future__ import annotations

from typing import Any, cast

import sympy as sp

from netsor import ir
from netsor.build.quantity import quantity
from netsor.errors import Location, ProgramError, caller_location
from netsor.functions import exact
from netsor.names import checked


def multiplied(one: ir.Scale, two: ir.Scale) -> ir.Scale:
    """one · two, exact where one of them is an expression."""
    if isinstance(one, sp.Expr) or isinstance(two, sp.Expr):
        return scale("a variance or multiplier", exact(one) * exact(two))
    return one * two


def plain(value: ir.Scale, what: str, loc: Location | None) -> ir.Number:
    """A number; ProgramError for an expression."""
    if isinstance(value, sp.Expr):
        raise ProgramError(
            f"{what} is {value}, no number", code="NT108", location=loc,
            hint="ns.bind(p, {…}) gives the program's parameters values",
        )  # fmt: skip
    return value


def scale(what: str, value: Any) -> ir.Scale:
    """A number, or an expression in hyperparameters: sums, products and powers of numbers and symbols, or a name."""
    if isinstance(value, str):
        return ir.hyperparameter(checked(value, "a parameter")) if value.isidentifier() else quantity(what, value)
    if not (isinstance(value, sp.Expr) and value.free_symbols):
        return quantity(what, value)
    table = {s: ir.hyperparameter(checked(str(s), "a parameter")) for s in value.free_symbols}
    found = exact(cast(sp.Expr, value.xreplace(table)))
    if not found.free_symbols:
        return quantity(what, found)
    for part in sp.preorder_traversal(found):
        plain = isinstance(part, sp.Add | sp.Mul | sp.Symbol | sp.Rational)
        if not plain and not (isinstance(part, sp.Pow) and part.exp.is_Rational):
            raise ProgramError(
                f"{what} is {value}: {part} is no sum, product or power with a rational exponent", code="NT108",
                hint="give it a symbol of its own, and its value when the kernel is called", location=caller_location(),
            )  # fmt: skip
    return found
