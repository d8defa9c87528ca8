"""Growth of functions and of their weak derivatives (polynomial boundedness; Corollary 7.3).

Checks each function of a program: |φ(x)| ≤ C‖x‖^p + c, proven by structural bounds or refuted by values along a ray or
near a singular point; and the same for its weak derivative in every argument, which a jump does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy as sp

from netsor.checker.regularity.bounds import bound
from netsor.checker.regularity.extremes import at_infinity, at_points, jump
from netsor.checker.regularity.intervals import Bound
from netsor.checker.regularity.moments import is_infinite, moments
from netsor.checker.regularity.removable import polynomial_quotient
from netsor.functions import Function, Head, argument_symbols, undifferentiated
from netsor.measure import MOST_NODES, derivative_size, tree_size, written_size
from netsor.passes.differentiation import differentiated
from netsor.run.work import GIVEN_UP, Work

RangesKey = tuple[tuple[sp.Symbol, Bound], ...]


@dataclass(frozen=True)
class Growth:
    """True: polynomially bounded; False: refuted by `reason`, with log|φ| ~ |x|^order (0: a singular point)."""

    verdict: bool | None
    reason: str
    order: float = 0.0


@dataclass(frozen=True)
class Regularity:
    """Growth of a function and of its weak derivative (None with `jump` set: the derivative is no function)."""

    value: Growth
    derivative: Growth
    jump: str | None = None


@lru_cache(maxsize=4096)
def proven(e: sp.Expr, ranges: RangesKey = ()) -> bool:
    """Do structural bounds show that |e| is polynomially bounded?"""
    return bound(e, dict(ranges)).polynomial


def growth(e: sp.Expr, ranges: RangesKey = (), work: Work | None = None) -> Growth:
    """Is |e| polynomially bounded in its vector arguments, for parameters in their ranges?

    Arguments may have a range too: they are then not free, and no counterexample is searched for.
    """
    table, work = dict(ranges), work or Work()
    if not work.affords(min(written_size(e), MOST_NODES), ("bound", e, ranges)):
        return Growth(None, GIVEN_UP)
    if proven(e, ranges):
        return Growth(True, "polynomially bounded")
    unranged = not any(s in e.free_symbols for s in table)
    if unranged and work.affords(SEARCH * tree_size(e), ("quotient", e)) and _quotient(e):
        return Growth(True, "its singularities are removable")
    symbols = _symbols_of(e)
    if any(h.spec.numeric for h in e.atoms(Head)):
        return Growth(None, f"{e} holds a numeric function without a stated growth")
    if any(s.name.startswith("x") and s in e.free_symbols for s in table):
        return Growth(None, "no bound was found for the values that its arguments take")
    fixed = _at_middle(e, table)
    if fixed.has(sp.zoo, sp.nan, sp.oo):
        return Growth(None, "it is not a number at a typical value of its scalars")
    free = tuple(s for s in symbols if s in fixed.free_symbols)
    if not work.affords(SEARCH * written_size(fixed) * max(1, len(free)), ("search", fixed)):
        return Growth(None, GIVEN_UP)
    return _searched(fixed, free)


_quotient = lru_cache(maxsize=4096)(polynomial_quotient)
SEARCH = 100  # steps of a search for a counterexample, for each node and argument


@lru_cache(maxsize=4096)
def _searched(e: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Growth:
    """A point or a ray that refutes a polynomial bound."""
    found = at_points(e, symbols)
    if found is not None:
        known = moments(e, tuple(s for s in symbols if s.name.startswith("x")))
        infinite = next((f", and {is_infinite(p)}" for p in (1, 2) if known.worst(p) is not None), "")
        return Growth(False, f"{found}{infinite}", found.order)
    found = at_infinity(e, symbols)
    if found is not None:
        return Growth(False, str(found), found.order)
    return Growth(None, "neither a bound nor a counterexample was found")


def _symbols_of(e: sp.Expr) -> list[sp.Symbol]:
    return sorted(e.free_symbols, key=lambda s: (s.name[0] != "x", len(s.name), s.name))


def _at_middle(e: sp.Expr, table: dict[sp.Symbol, Bound]) -> sp.Expr:
    """Parameters at a typical value of their range."""
    values = {}
    for s, b in table.items():
        if s in e.free_symbols:
            inside = (b.low + b.high) / 2 if b.bounded else max(b.low, 0.0) + 0.5 if b.low > -1e300 else 0.5
            values[s] = sp.Rational(str(inside))
    return e.xreplace(values)


def regularity(e: sp.Expr, ranges: RangesKey = (), work: Work | None = None) -> Regularity:
    """Growth of e and of its weak derivatives in the vector arguments."""
    work = work or Work()
    value = growth(e, ranges, work)
    symbols = tuple(s for s in _symbols_of(e) if s.name.startswith("x"))
    if _may_jump(e):
        if not work.affords(SEARCH * written_size(e) * len(symbols), ("jump", e)):
            return Regularity(value, Growth(None, GIVEN_UP))
        where = _jump(e, symbols)
        if where is not None:
            return Regularity(value, Growth(None, f"it jumps at {where}: the weak derivative is no function"), where)
    return Regularity(value, derivative_growth(e, symbols, ranges, work))


_jump = lru_cache(maxsize=4096)(jump)


def derivative_growth(e: sp.Expr, symbols: Sequence[sp.Symbol], ranges: RangesKey, work: Work) -> Growth:
    """Growth of the derivatives in the given symbols, deltas (at points where e is continuous) left out."""
    undecided: Growth | None = None
    if written_size(e) <= MOST_NODES and work.affords(tree_size(e), ("tame", e)) and tame(e):
        return Growth(True, "polynomially bounded")
    for s in symbols:
        if derivative_size(e) > MOST_NODES or not work.affords(derivative_size(e), ("derivative", e, s)):
            return Growth(None, GIVEN_UP)
        try:
            found = growth(derivative(e, s), ranges, work)
        except (ValueError, NotImplementedError) as missing:
            found = Growth(None, str(missing))
        if found.verdict is False:
            return found
        if found.verdict is None:
            undecided = found
    return undecided or Growth(True, "polynomially bounded")


_BOUNDED = (sp.sin, sp.cos, sp.tanh, sp.erf, sp.atan)  # with their derivatives


@lru_cache(maxsize=1 << 15)
def tame(e: sp.Expr) -> bool:
    """Is e by its form polynomially bounded together with its weak derivatives?

    Symbols and rationals are, sums, products and natural powers of such expressions, and f(u) where f and f' are
    polynomially bounded on all of ℝ: (f(u))' = f'(u) u'.
    """
    if isinstance(e, sp.Symbol | sp.Rational):
        return True
    if isinstance(e, sp.Pow):
        return bool(e.exp.is_Integer and e.exp.is_positive) and tame(e.base)
    known = isinstance(e, (sp.Add, sp.Mul, *_BOUNDED)) or (isinstance(e, Head) and _tame_function(e.spec))
    return known and all(map(tame, e.args))


@lru_cache(maxsize=4096)
def _tame_function(f: Function) -> bool:
    """Are a continuous function and its derivatives polynomially bounded?"""
    if f.numeric or f.jumps:
        return False
    symbols = argument_symbols(f.arity)
    try:
        return all(proven(g.sym(*symbols)) for g in (f, *(f.derivative(i) for i in range(f.arity))))
    except (ValueError, NotImplementedError):
        return False


@lru_cache(maxsize=4096)
def derivative(e: sp.Expr, s: sp.Symbol) -> sp.Expr:
    """The weak derivative off the points where it is a delta. ValueError when a numeric function has none."""
    return without_deltas(differentiated(e, s))


def without_deltas(e: sp.Expr) -> sp.Expr:
    """The absolutely continuous part of a derivative."""
    if not e.has(sp.DiracDelta):
        return e
    return e.replace(lambda a: isinstance(a, sp.DiracDelta), lambda a: sp.Integer(0))


def _may_jump(e: sp.Expr) -> bool:
    """Holds a function with jumps, or one that is singular at a point."""
    for a in sp.preorder_traversal(e):
        if isinstance(a, Head) and (a.spec.jumps or undifferentiated(a.spec).user) and not a.spec.numeric:
            return True
        if isinstance(a, sp.Heaviside | sp.sign | sp.floor | sp.ceiling | sp.Piecewise):
            return True
        if isinstance(a, sp.Pow) and a.exp.is_negative and a.base.free_symbols:
            return True
    return False
