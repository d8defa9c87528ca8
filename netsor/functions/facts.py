"""Facts about expressions in functions: written out, parity, kinks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import sympy as sp
from sympy.core.relational import Relational

from netsor.errors import TooLargeError
from netsor.functions.head import Function, Head, Parity, exact
from netsor.functions.table import erf, step, tanh
from netsor.measure import MOST_TERMS, terms, tree_size, written_size

MOST_WRITTEN = 200_000  # nodes
MOST_COMPARED = 2_000  # nodes of an expression whose parity is sought


def write_out(expr: sp.Expr, keep: Callable[[Function], bool] = lambda f: False) -> sp.Expr:
    """Every head replaced by its definition, down to sympy's own functions and the heads of functions to be kept.

    TooLargeError before an expression of more than MOST_WRITTEN nodes is made.
    """
    if written_size(expr) > MOST_WRITTEN:
        raise TooLargeError("an expression whose functions are too large to be written out")
    while True:
        heads = {h for h in expr.atoms(Head) if not keep(h.spec) and not h.spec.numeric}
        if not heads:
            return expr
        expr = expr.xreplace({h: h.spec.definition(*h.args) for h in heads})


def expression_parity(expr: sp.Expr, *symbols: sp.Symbol) -> Parity:
    """'odd' or 'even' when flipping the sign of all symbols provably flips or keeps the expression.

    None also where an expression is too large to be expanded.
    """
    flipped = expr.subs({s: -s for s in symbols}, simultaneous=True)
    for parity, candidate in (("even", expr), ("odd", -expr)):
        if flipped == candidate or _vanishes(flipped - candidate):
            return parity  # type: ignore[return-value]
    if written_size(expr) > MOST_COMPARED:
        return None
    basic = {step, tanh, erf}.__contains__
    for parity, difference in (("even", flipped - expr), ("odd", flipped + expr)):
        if _vanishes(write_out(difference, basic)):
            return parity  # type: ignore[return-value]
    return None


def _vanishes(difference: sp.Expr) -> bool:
    """Is zero when expanded."""
    if tree_size(difference) > MOST_COMPARED or terms(difference) > MOST_TERMS:
        return False
    return bool(sp.expand(difference) == 0)


def expression_kinks(expr: sp.Expr, symbol: sp.Symbol) -> tuple[float, ...]:
    """Points where an inner kinked function of one variable sits, or where one piece follows another."""
    points: set[float] = set()
    for e in _switches(expr):
        if e.has(symbol) and e.is_polynomial(symbol):
            points.update(float(r) for r in sp.real_roots(sp.Poly(e, symbol)))
        elif e.has(symbol):
            points.update(_crossings(write_out(e), symbol))
    return tuple(sorted(points))


def _switches(expr: sp.Expr) -> set[sp.Expr]:
    """Expressions at whose zeros something inside changes its branch."""
    found = {h.args[0] - exact(k) for h in expr.atoms(Head) if len(h.args) == 1 for k in h.spec.kinks}
    found |= {e.args[0] for e in expr.atoms(sp.Heaviside, sp.sign, sp.Abs)}
    found |= {r.lhs - r.rhs for p in expr.atoms(sp.Piecewise) for r in p.atoms(Relational)}
    return found | {a - b for e in expr.atoms(sp.Max, sp.Min) for a, b in combinations(e.args, 2)}


_REACH, _GRID = 32, 64  # where crossings are sought, and in how many steps per unit


def _crossings(expr: sp.Expr, symbol: sp.Symbol) -> list[float]:
    """Points where an expression becomes positive or ceases to be, by bisection; none where it has no value."""
    steps = expr.replace(sp.Heaviside, lambda x, *_: sp.Piecewise((1, x > 0), (0, True)))
    if expr.atoms(Head):
        return []
    f = sp.lambdify(symbol, steps, "math")
    grid = [i / _GRID + 1 / 999 for i in range(-_REACH * _GRID, _REACH * _GRID)]
    try:
        signs = [f(x) > 0 for x in grid]
    except (ArithmeticError, ValueError):
        return []
    ends = [(a, b) for a, b, s, t in zip(grid, grid[1:], signs, signs[1:], strict=False) if s != t]
    return [_bisected(lambda x: f(x) > 0, a, b) for a, b in ends]


def _bisected(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where `holds` changes between low and high."""
    first = holds(low)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) == first else (low, middle)
    return round(high, 14)
