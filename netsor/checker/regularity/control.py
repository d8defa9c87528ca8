"""Parameter control (Definition B.5) of every function that takes C-vars as parameters.

φ(x; θ) is controlled at θ° when φ(·; θ°) is polynomially bounded and |φ(x; θ) − φ(x; θ°)| ≤ f(θ) ψ(x) with f continuous
at θ°, f(θ°) = 0, ψ polynomially bounded. Proven: φ is continuous in θ and |∂φ/∂θ| has a polynomial bound, uniformly
over a range of θ. Refuted: φ(·; θ°) is unbounded, or differs from φ(·; θ) by a fixed amount for θ arbitrarily near, or
by an amount of more than polynomial growth.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import mpmath as mp
import sympy as sp

from netsor.checker.regularity.bounds import bound
from netsor.checker.regularity.continuity import continuous
from netsor.checker.regularity.extremes import Curve, at_infinity, at_points, special_points
from netsor.checker.regularity.growth import SEARCH, Growth, RangesKey, derivative, growth
from netsor.checker.regularity.intervals import Bound
from netsor.functions import Head, sign, step
from netsor.measure import MOST_NODES, derivative_size, written_size
from netsor.run.work import GIVEN_UP, Work

Point = tuple[tuple[sp.Symbol, float], ...]


def parameters(e: sp.Expr) -> list[sp.Symbol]:
    return sorted((s for s in e.free_symbols if s.name.startswith("c")), key=lambda s: int(s.name[1:]))


def control(
    e: sp.Expr, table: Mapping[sp.Symbol, Bound], limit: Mapping[sp.Symbol, float],
    fixed: frozenset[sp.Symbol] = frozenset(), work: Work | None = None,
) -> Growth:  # fmt: skip
    """The verdict for one function, its parameters' ranges, their limits where known, and those that do not vary."""
    work = work or Work()
    size = min(derivative_size(e), MOST_NODES) * len(parameters(e)) + min(written_size(e), MOST_NODES)
    if not work.affords(size, ("control", e)):
        return Growth(None, GIVEN_UP)
    key = tuple(sorted(((c, b) for c, b in table.items() if c in e.free_symbols), key=lambda p: p[0].name))
    proof = proven(e, key, fixed)
    if proof.verdict:
        return proof
    free = parameters(e)
    if not all(c in limit for c in free):
        missing = ", ".join(c.name for c in free if c not in limit)
        return Growth(None, f"no proof for all values of {missing}")
    if _lifted(e, tuple((c, limit[c]) for c in free)):
        return Growth(True, "Lipschitz in functions of its parameters that are continuous at their limit")
    if not work.affords(10 * SEARCH * written_size(e), ("refute", e)):
        return Growth(None, GIVEN_UP)
    return refuted(e, tuple((c, limit[c]) for c in free)) or Growth(None, "neither proven nor refuted")


@lru_cache(maxsize=2048)
def proven(e: sp.Expr, ranges: RangesKey, fixed: frozenset[sp.Symbol] = frozenset()) -> Growth:
    """φ is polynomially bounded and Lipschitz in θ with a polynomial constant, for θ in its range."""
    table = dict(ranges)
    e = _signs_pulled_out(e, table)
    if not bound(e, table).polynomial:
        return Growth(None, "the function has no polynomial bound for all values of its parameters")
    for c in [c for c in parameters(e) if c not in fixed]:
        if _jumps_with(e, c):
            return Growth(None, f"the function jumps at a point that moves with {c}")
        if not _derivative_bounded(e, c, ranges):
            return Growth(None, f"its derivative in {c} has no polynomial bound")
    return Growth(True, "Lipschitz in its parameters, with a polynomial constant")


@lru_cache(maxsize=2048)
def _lifted(e: sp.Expr, limit: Point) -> bool:
    """Controlled in g₁(θ), g₂(θ), … for the largest expressions in the parameters alone, continuous at the limit."""
    if e.has(sp.Piecewise):
        return False
    at = {c: sp.Rational(str(v)) for c, v in limit}
    new: dict[sp.Expr, sp.Symbol] = {}
    ranges: list[tuple[sp.Symbol, Bound]] = []

    def lift(a: sp.Expr) -> sp.Expr:
        if not a.args or not a.free_symbols:
            return a
        if not _only_parameters(a):
            return a.func(*map(lift, a.args))
        return new.setdefault(a, sp.Symbol(f"c{1000 + len(new)}", real=True))

    lifted = lift(e)
    for g, c in new.items():
        value = g.xreplace(at)
        if not value.is_number or not value.is_finite or not value.is_real or not continuous(g, at):
            return False
        ranges.append((c, _around(float(value))))
    ranges += [(c, _around(v)) for c, v in limit if c in lifted.free_symbols]
    return bool(new) and proven(lifted, tuple(sorted(ranges, key=lambda pair: pair[0].name))).verdict is True


def _around(value: float) -> Bound:
    radius = 1e-6 * max(1.0, abs(value))
    return Bound(value - radius, value + radius)


def _derivative_bounded(e: sp.Expr, c: sp.Symbol, ranges: RangesKey) -> bool:
    if derivative_size(e) > MOST_NODES:
        return False
    try:
        slope = derivative(e, c)
    except (ValueError, NotImplementedError):
        return False
    return bound(slope, dict(ranges)).polynomial


def _jumps_with(e: sp.Expr, c: sp.Symbol) -> bool:
    """Holds a function with jumps whose argument depends on the parameter."""
    for a in sp.preorder_traversal(e):
        jumps = isinstance(a, sp.Heaviside | sp.sign | sp.floor | sp.ceiling | sp.Piecewise)
        if isinstance(a, Head):
            jumps = a.spec.jumps or a.spec.numeric or (a.spec.user and bool(a.spec.kinks))
        if jumps and c in a.free_symbols:
            return True
    return False


def _signs_pulled_out(e: sp.Expr, table: Mapping[sp.Symbol, Bound]) -> sp.Expr:
    """step(c·a) = step(a) for c > 0; the same for sign."""

    def sided(a: Any) -> bool:
        return isinstance(a, sp.Heaviside | sp.sign) or (isinstance(a, Head) and a.spec in (step, sign))

    def pulled(a: Any) -> Any:
        inner = a.args[0]
        kept = [f for f in sp.Mul.make_args(inner) if bound(f, table).low <= 0 or not _only_parameters(f)]
        return a.func(sp.Mul(*kept), *a.args[1:]) if len(kept) < len(sp.Mul.make_args(inner)) else a

    return e.replace(sided, pulled) if any(sided(a) for a in sp.preorder_traversal(e)) else e


def _only_parameters(e: sp.Expr) -> bool:
    return bool(e.free_symbols) and all(s.name.startswith("c") for s in e.free_symbols)


# ---------------------------------------------------------------- refutation


@lru_cache(maxsize=2048)
def refuted(e: sp.Expr, limit: Point) -> Growth | None:
    """A counterexample to B.5 at the limit, or None."""
    values = {c: sp.Rational(str(v)) for c, v in limit}
    at_limit = e.xreplace(values)
    if at_limit.has(sp.zoo, sp.nan, sp.oo):
        return Growth(False, "at the limit of its parameters it is not a number")
    symbols = sorted((s for s in e.free_symbols if s.name.startswith("x")), key=lambda s: int(s.name[1:]))
    unbounded = growth(at_limit)
    if unbounded.verdict is False:
        return Growth(False, f"at the limit of its parameters it is not polynomially bounded: {unbounded.reason}")
    return _differs(e, at_limit, symbols, limit)


def _differs(e: sp.Expr, at_limit: sp.Expr, symbols: Sequence[sp.Symbol], limit: Point) -> Growth | None:
    """Parameters approaching the limit along a direction, with a difference that does not vanish."""
    centre = [mp.mpf(v) for _, v in limit]
    for direction in itertools.islice(itertools.product((1, -1), repeat=len(centre)), 8):
        gaps, steps = [], (8, 16, 32)
        for k in steps:
            moved = [c + d * mp.mpf(2) ** -k for c, d in zip(centre, direction, strict=True)]
            near = e.xreplace({c: _exactly(v) for (c, _), v in zip(limit, moved, strict=True)})
            gaps.append(_largest_gap(near, at_limit, symbols, mp.mpf(2) ** -k))
        if all(g is not None for g in gaps) and gaps[-1] > 1e-3 and gaps[-1] > 0.5 * gaps[0]:
            return Growth(False, f"2^-{steps[-1]} away from the limit it differs by {mp.nstr(gaps[-1], 3)} near 0")
        if symbols and _faster(e, at_limit, symbols, limit, direction):
            return Growth(False, "its difference from the limit grows faster than any polynomial, however near it is")
    return None


def _exactly(value: Any) -> sp.Rational:
    with mp.workdps(60):
        return sp.Rational(mp.nstr(value, 40))


def _faster(
    e: sp.Expr, at_limit: sp.Expr, symbols: Sequence[sp.Symbol], limit: Point, direction: Sequence[int]
) -> bool:
    """The difference is not polynomially bounded at parameters near the limit, at three distances."""
    for k in (2, 4, 6):
        moved = {c: _exactly(mp.mpf(v) + d * mp.mpf(2) ** -k) for (c, v), d in zip(limit, direction, strict=True)}
        if at_infinity(e.xreplace(moved) - at_limit, symbols) is None:
            return False
    return True


def _largest_gap(near: sp.Expr, at_limit: sp.Expr, symbols: Sequence[sp.Symbol], step: Any) -> Any:
    """The largest difference over bounded points, at all scales around zero and around special points."""
    difference = Curve(near - at_limit, symbols)
    if not symbols:
        value = difference.at([])
        return None if value is None else abs(value)
    base = [mp.mpf("0.7310585786"), mp.mpf("-0.4142135624"), mp.mpf("0.6180339887")]
    best: Any = None
    for i in range(len(symbols)):
        point = [base[j % 3] for j in range(len(symbols))]
        roots = special_points(near, symbols, i, point) + special_points(at_limit, symbols, i, point)
        for t in _grid(roots, step):
            value = difference.at([*point[:i], t, *point[i + 1 :]])
            if value is not None and (best is None or abs(value) > best):
                best = abs(value)
    return best


def _grid(roots: Sequence[Any], step: Any) -> list[Any]:
    offsets = [mp.mpf(0), step / 2, -step / 2, step, -step, 2 * step, -2 * step, step**2, -(step**2)]
    centres = [mp.mpf(0), mp.mpf(1), mp.mpf(-1), *roots]
    return [c + o for c in centres for o in offsets]


__all__ = ["at_points", "control", "parameters", "proven", "refuted"]
