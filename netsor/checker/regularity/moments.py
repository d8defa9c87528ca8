"""Which absolute moments of a function of Gaussian variables exist: poles, and the sets that they lie on.

Where |e| grows like r^−q, r the distance to a set of codimension d on which the Gaussian density is positive, the
integral of |e|^p is that of r^{d−1−pq} near r = 0: E|e|^p is finite only for p q < d. Sets are found from what may
vanish inside of e: zeros of any expression on lines in general position (d = 1), and the common zeros of linear forms,
of sums of powers of such, and of quadratic polynomials with a minimum of 0, alone and met with one another. q is
measured in many digits. How fast e grows at infinity is another question (`growth`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import mpmath as mp
import sympy as sp

from netsor.checker.regularity.bounds import bound
from netsor.checker.regularity.extremes import (
    DIGITS,
    DISTANCES,
    GENERIC,
    Curve,
    named,
    on_lines,
    unbounded,
    vanishing,
    without_value,
)
from netsor.checker.regularity.removable import polynomial_quotient
from netsor.errors import InputError, Location
from netsor.functions import Head, write_out
from netsor.measure import MOST_TERMS, tree_size, written_size

SLACK = 0.01  # of p q against d: q is measured to 1e-3, and a logarithm beside the power moves it by no more
MOST_SETS, MOST_MET = 60, 3  # sets that are looked at, and how many zero sets are met with one another
LARGEST = 400  # nodes of an expression whose zero sets are read off

Rows = tuple[tuple[sp.Expr, ...], ...]  # affine forms a·u + c that vanish together, as (a₁, …, a_k, c)


@dataclass(frozen=True)
class Pole:
    """|e| grows like a power −order of the distance to a set of this codimension; 0 for a logarithm."""

    where: str
    value: str
    order: float
    codimension: int

    def leaves(self, power: float) -> bool:
        """Is the integral of |e|^power over a neighborhood finite?"""
        return power * self.order < self.codimension - SLACK

    def __str__(self) -> str:
        return f"at {self.where} it is {self.value}"


@dataclass(frozen=True)
class Moments:
    """What is known of E|e|^p near points; `decided` says that all places where e may be unbounded were looked at."""

    poles: tuple[Pole, ...] = ()
    missing: str | None = None  # a point without a real value, of those that fill a set of positive probability
    decided: bool = True

    @property
    def bounded(self) -> bool:
        """Nowhere unbounded, as far as points are concerned."""
        return self.decided and not self.poles

    def exists(self, power: float) -> bool | None:
        """Is E|e|^power finite as far as points are concerned? None where that is not known."""
        if self.missing is not None or self.worst(power) is not None:
            return False
        return True if self.decided else None

    def worst(self, power: float) -> Pole | None:
        """A pole that makes E|e|^power infinite."""
        return next((p for p in self.poles if not p.leaves(power)), None)

    def refuse(self, e: object, power: int, what: str = "kernel", location: Location | None = None) -> None:
        """InputError (NT303) where E|e|^power is infinite or e has no real value on a set of positive probability."""
        if self.missing is not None:
            raise InputError(
                f"no {what} of {e}: it has no real value at {self.missing}", code="NT303", location=location,
                hint="a Gaussian variable takes every value: log(abs(z) + 1), sqrt(abs(z)) have one everywhere",
            )  # fmt: skip
        found = self.worst(power)
        if found is not None:
            text = f"no {what} of {e}: {found}, {_infinite(found, power)}"
            raise InputError(text, code="NT303", location=location, hint=REMEDY)


REMEDY = "add a positive constant to what may become zero"


def _infinite(pole: Pole, power: int) -> str:
    of = "the distance" if pole.codimension == 1 else f"the distance from a set of codimension {pole.codimension}"
    return f"where it grows like a power −{pole.order:.3g} of {of}: {is_infinite(power)}"


def is_infinite(power: int) -> str:
    """In words: E|·|^power = ∞."""
    moment = {1: "first absolute", 2: "second"}.get(power, f"absolute {power}th")
    return f"its {moment} moment is infinite"


@lru_cache(maxsize=4096)
def moments(e: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Moments:
    """The poles of e in variables with a joint density, other symbols at values in general position."""
    known = bound(e, {})
    if known.defined and not known.singular:
        return Moments()
    others = sorted(e.free_symbols - set(symbols), key=str)
    fixed = e.xreplace({c: sp.Rational(str(0.5 + GENERIC[i % len(GENERIC)] ** 2)) for i, c in enumerate(others)})
    inside = tuple(s for s in symbols if s in fixed.free_symbols)
    if not inside or fixed.has(sp.zoo, sp.nan, sp.oo):
        return Moments(decided=not fixed.has(sp.zoo, sp.nan, sp.oo))
    if others:
        known = bound(fixed, {})
    missing = None if known.defined else without_value(fixed, inside)
    if not known.singular or (len(inside) == 1 and polynomial_quotient(fixed)):
        return Moments(missing=missing, decided=known.defined)
    curve = Curve(fixed, inside)
    sets, read = _zero_sets(fixed, inside)
    met = list(_met(sets))
    poles = [
        *(Pole(*found, 1) for found in on_lines(curve)),
        *(p for rows in met[:MOST_SETS] if (p := _on_set(curve, rows)) is not None),
    ]
    decided = read and len(met) <= MOST_SETS and not _exponents(e, others)
    return Moments(tuple(poles), missing, decided)


def _exponents(e: sp.Expr, others: Sequence[sp.Symbol]) -> bool:
    """Does a power depend on what was put at a value in general position?"""
    return bool(others) and any(a.exp.has(*others) for a in write_out(e).atoms(sp.Pow))


# ---------------------------------------------------------------- linear sets


def _on_set(curve: Curve, rows: Rows) -> Pole | None:
    """The worst pole of e towards the points where all rows vanish, along directions in general position."""
    size, worst = len(curve.symbols), None
    with mp.workdps(DIGITS):
        a = mp.matrix([[_number(c) for c in row[:-1]] for row in rows])
        c = mp.matrix([_number(row[-1]) for row in rows])
        start = mp.matrix([mp.mpf(GENERIC[(3 * j + 1) % len(GENERIC)]) for j in range(size)])
        base = start - a.T * mp.lu_solve(a * a.T, a * start + c)
        for turn in range(6):
            way = [mp.mpf(GENERIC[(j + turn) % len(GENERIC)]) * (-1) ** (turn >> j % 3) for j in range(size)]
            at = [[base[j] + mp.mpf(r) * way[j] for j in range(size)] for r in DISTANCES]
            found = unbounded(curve, at)
            if found is not None and (worst is None or found[1] > worst.order):
                worst = Pole(named(curve, at[-1]), *found, len(rows))
    return worst


def _number(c: sp.Expr) -> mp.mpf:
    return mp.mpf(sp.N(c, DIGITS)._mpf_) if not c.is_Rational else mp.mpf(c.p) / c.q


def _met(sets: Sequence[Rows]) -> Iterator[Rows]:
    """The sets, and where up to MOST_MET of them meet."""
    seen: set[Rows] = set()
    for count in range(1, MOST_MET + 1):
        for some in combinations(sets, count):
            rows = _reduced([row for rows in some for row in rows])
            if rows is not None and rows not in seen:
                seen.add(rows)
                yield rows


def _reduced(rows: Sequence[tuple[sp.Expr, ...]]) -> Rows | None:
    """Independent rows with the same zeros; None where there are none."""
    reduced, pivots = sp.Matrix(rows).rref()
    if not pivots or pivots[-1] == reduced.cols - 1:
        return None
    return tuple(tuple(reduced.row(i)) for i in range(len(pivots)))


# ---------------------------------------------------------------- what vanishes where


def _zero_sets(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> tuple[list[Rows], bool]:
    """The zero sets of what may vanish inside of e, as linear sets, and whether all of them were read off."""
    if written_size(e) > LARGEST:
        return [], False
    body = write_out(e)
    found, read = dict[Rows, None](), not body.atoms(Head)
    for inner in vanishing(body):
        for factor in _factors(inner):
            rows = _zeros(factor, symbols)
            if rows:
                found[rows] = None
            read = read and rows is not None
    alone: list[Rows] = [tuple((*(sp.Integer(s == t) for t in symbols), sp.Integer(0)) for s in symbols)]
    return [*found, *(alone if not read and len(symbols) > 1 else ())], read


def _factors(e: sp.Expr) -> list[sp.Expr]:
    """e as a product, as far as it is one."""
    if e.is_polynomial() and tree_size(e) <= MOST_TERMS:
        return [f for f, _ in sp.factor_list(e)[1]]  # expanded
    return list(sp.Mul.make_args(e))


def _zeros(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> Rows | None:
    """The linear set on which e vanishes, () where it is empty or across lines; None where it is unknown."""
    e = e.args[0] if isinstance(e, sp.Abs) else e
    if e.free_symbols.isdisjoint(symbols) or bound(e, {}).gap > 0:
        return ()
    row = _affine(e, symbols)
    if row is not None:
        return (row,)
    if len(e.free_symbols) == 1:
        return ()
    rows = _sum_of_powers(e, symbols)
    return _quadratic(e, symbols) if rows is None else rows


def _affine(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> tuple[sp.Expr, ...] | None:
    if not e.is_polynomial(*symbols):
        return None
    poly = sp.Poly(e, *symbols)
    if poly.total_degree() > 1:
        return None
    return (*(poly.coeff_monomial(s) for s in symbols), poly.coeff_monomial(1))


def _sum_of_powers(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> Rows | None:
    """Σ c |a·u + b|^k with one k and c > 0: zero where all of the forms are."""
    rows, powers = [], set()
    for term in sp.Add.make_args(e):
        c, rest = term.as_coeff_Mul()
        base, k = rest.as_base_exp()
        if isinstance(base, sp.Abs):
            base = base.args[0]
        elif not (k.is_Integer and k % 2 == 0):
            return None
        row = _affine(base, symbols)
        if row is None or not c > 0:
            return None
        rows.append(row)
        powers.add(k)
    return _reduced(rows) if len(powers) == 1 else None


def _quadratic(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> Rows | None:
    """A quadratic polynomial ½ uᵀHu + b·u + c with H semidefinite and the extreme value 0: zero where H u + b is."""
    if not e.is_polynomial(*symbols) or sp.Poly(e, *symbols).total_degree() != 2:
        return None
    matrix, origin = sp.hessian(e, list(symbols)), dict.fromkeys(symbols, 0)
    if not (matrix.is_positive_semidefinite or matrix.is_negative_semidefinite):
        return None
    slope = sp.Matrix([e.diff(s).subs(origin) for s in symbols])
    rows = _reduced([(*matrix.row(i), slope[i]) for i in range(matrix.rows)])
    if rows is None:
        return None
    lowest = e.subs(origin) - (slope.T * matrix.pinv() * slope)[0] / 2
    return rows if lowest == 0 else () if lowest * matrix.trace() > 0 else None
