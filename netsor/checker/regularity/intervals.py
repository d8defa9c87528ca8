"""Interval arithmetic of bounds: sums, products, fixed powers, absolute values, exp and log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

INF = math.inf


@dataclass(frozen=True)
class Bound:
    """low ≤ e ≤ high, |e| ≥ gap, and the growth of |e|."""

    low: float = -INF
    high: float = INF
    level: int = 0
    singular: bool = False
    defined: bool = True  # a real number almost everywhere
    apart: float = 0.0  # |e| is at least this where low ≤ 0 ≤ high

    @property
    def gap(self) -> float:
        return max(self.low, -self.high, self.apart, 0.0)

    @property
    def polynomial(self) -> bool:
        """Proven: |e| ≤ C‖x‖^p + c."""
        return self.defined and not self.singular and self.level == 0

    @property
    def bounded(self) -> bool:
        return self.low > -INF and self.high < INF


UNKNOWN = Bound(level=9, singular=True, defined=False)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def product(a: Bound, b: Bound) -> Bound:
    ends = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Bound(
        min(ends), max(ends), max(a.level, b.level), a.singular or b.singular, a.defined and b.defined,
        _times(a.gap, b.gap) if a.gap < INF and b.gap < INF else 0.0,
    )  # fmt: skip


def fixed_power(base: Bound, q: sp.Expr) -> Bound:
    power = float(q)
    if not q.is_Integer and base.low < 0:
        return UNKNOWN
    if power < 0:
        return _negative_power(base, q)
    even = q.is_Integer and q % 2 == 0
    if base.low >= 0:
        low, high = _raise(base.low, power), _raise(base.high, power)
    elif even:
        low, high = _raise(base.gap, power), _raise(max(-base.low, base.high), power)
    else:
        low, high = _signed(base.low, power), _signed(base.high, power)
    return Bound(low, high, base.level, base.singular, base.defined, _raise(base.gap, power))


def _raise(value: float, power: float) -> float:
    if value == INF:
        return INF
    try:
        return float(value**power)
    except OverflowError:
        return INF


def _signed(value: float, power: float) -> float:
    """An odd power."""
    return _raise(value, power) if value >= 0 else -_raise(-value, power)


def _negative_power(base: Bound, q: sp.Expr) -> Bound:
    power = float(q)
    if base.gap == 0:
        low = 0.0 if base.low >= 0 or (q.is_Integer and q % 2 == 0) else -INF
        return Bound(low, INF, 0, True, base.defined)
    top = _raise(base.gap, power)
    if base.low > 0 or (q.is_Integer and q % 2 == 0):
        bottom = 0.0 if base.high == INF or base.low <= 0 else _raise(base.high, power)
        return Bound(bottom, top, 0, False, base.defined)
    return Bound(-top, top if base.high > 0 else 0.0, 0, False, base.defined)


def exponential(a: Bound) -> Bound:
    high = math.exp(min(a.high, 700.0)) if a.high < INF else INF
    low = 0.0 if a.low < -700 else math.exp(min(a.low, 700.0))
    if a.high < INF:
        return Bound(low, high, 0, False, a.defined)
    return Bound(low, INF, a.level + 1, a.singular, a.defined)


def logarithm(a: Bound) -> Bound:
    if a.low < 0:
        return UNKNOWN
    low = math.log(a.low) if a.low > 0 else -INF
    high = math.log(a.high) if 0 < a.high < INF else INF
    return Bound(low, high, max(a.level - 1, 0), a.singular or a.low == 0, a.defined)


def added(parts: Sequence[Bound]) -> Bound:
    """The bound of a sum."""
    return Bound(
        sum(p.low for p in parts), sum(p.high for p in parts), max(p.level for p in parts),
        any(p.singular for p in parts), all(p.defined for p in parts),
    )  # fmt: skip


def absolute(a: Bound) -> Bound:
    """The bound of |e|."""
    return Bound(a.gap, max(-a.low, a.high), a.level, a.singular, a.defined)


def outside(value: sp.Rational, low: bool) -> float:
    """The value as a float, rounded away from the half-line that it ends."""
    end = float(value)
    return end if sp.Rational(end) == value else math.nextafter(end, -INF if low else INF)
