"""Structural bounds of expressions: an interval, a lower bound of |e|, and the growth of |e| in its arguments.

`level` 0 is polynomial growth, 1 exponential of a polynomial, and so on: an upper bound. `singular` means that |e| may
be unbounded near a point (a null set). Bounds hold for all values of the symbols in their ranges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import sympy as sp

from netsor import functions
from netsor.checker.regularity import intervals
from netsor.checker.regularity.intervals import INF, UNKNOWN, Bound, exponential, fixed_power, logarithm, product
from netsor.functions import Function, Head, argument_symbols
from netsor.measure import MOST_NODES, written_size

Range = tuple[float, float]


Ranges = Mapping[sp.Symbol, Bound]


def bound(e: sp.Expr, ranges: Ranges) -> Bound:
    """The bound of an expression; symbols without a range are any real numbers. Unknown where it is too large."""
    return _bound(e, ranges) if written_size(e) <= MOST_NODES else UNKNOWN


def _bound(e: sp.Expr, ranges: Ranges) -> Bound:
    if isinstance(e, sp.Symbol):
        return ranges.get(e, Bound())
    if isinstance(e, sp.Rational):
        return Bound(float(e), float(e)) if abs(e.p) < 1 << 1000 > e.q else UNKNOWN
    if e.is_number and not e.free_symbols and not e.atoms(Head):
        return _number(e)
    if isinstance(e, sp.Add):
        return intervals.added([_bound(a, ranges) for a in e.args])
    if isinstance(e, sp.Mul):
        return _product(e, ranges)
    if isinstance(e, sp.Pow):
        return _power(e, ranges)
    return _function(e, ranges)


def _number(e: sp.Expr) -> Bound:
    if not e.is_real:
        return UNKNOWN
    value = float(e)
    return Bound(value, value)


# ---------------------------------------------------------------- products, with cancelling singularities


def _base(e: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
    """A factor as (|base|, exponent); None when it is no power."""
    base, exponent = (e.base, e.exp) if isinstance(e, sp.Pow) else (e, sp.Integer(1))
    if isinstance(base, sp.Pow) and base.exp.is_number:
        base, exponent = base.base, base.exp * exponent
    if isinstance(base, sp.Abs) or (isinstance(base, Head) and base.spec is functions.abs):
        base = base.args[0]
    return base, exponent


def _log_base(e: sp.Expr) -> sp.Expr | None:
    """b for the factors log b, log |b| and their natural powers."""
    if isinstance(e, sp.Pow) and e.exp.is_Integer and e.exp > 0:
        e = e.base
    if not isinstance(e, sp.log):
        return None
    found = _base(e.args[0])
    return None if found is None else found[0]


def _half_line(e: sp.Mul, ranges: Ranges) -> Bound | None:
    """The bound of a product with a factor step(a s + b) or relu(a s + b): elsewhere than where a s + b > 0 it is 0."""
    for factor in e.args:
        gate = isinstance(factor, Head) and factor.spec in (functions.step, functions.relu)
        if not (gate or isinstance(factor, sp.Heaviside)):
            continue
        inner = factor.args[0]
        if len(inner.free_symbols) != 1:
            continue
        (s,) = inner.free_symbols
        slope, offset = inner.coeff(s, 1), inner.coeff(s, 0)
        known = ranges.get(s, Bound())
        if not (slope.is_Rational and offset.is_Rational and slope * s + offset == inner):
            continue
        end = intervals.outside(-offset / slope, slope > 0)
        inside = Bound(max(known.low, end), known.high) if slope > 0 else Bound(known.low, min(known.high, end))
        if inside.low >= inside.high or (inside.low, inside.high) == (known.low, known.high):
            continue
        part = _product(e, {**ranges, s: inside})
        return Bound(min(part.low, 0.0), max(part.high, 0.0), part.level, part.singular, part.defined)
    return None


def _product(e: sp.Mul, ranges: Ranges) -> Bound:
    inside = _half_line(e, ranges)
    if inside is not None:
        return inside
    e, shares = _without_shares(e, ranges)
    parts = [*(_bound(a, ranges) for a in e.args), *shares]
    total = parts[0]
    for p in parts[1:]:
        total = product(total, p)
    if not total.singular or not all(p.defined for p in parts):
        return total
    cancelled = _cancels(e, parts[: len(e.args)], ranges)
    return Bound(total.low, total.high, total.level, False, True) if cancelled else total


def _without_shares(e: sp.Mul, ranges: Ranges) -> tuple[sp.Mul, list[Bound]]:
    """Factors a^k / (a + b + …)^k with a, b, … ≥ 0 lie in [0, 1]: the product without them, and their bounds."""
    factors, shares = _without_roots(list(e.args), ranges)
    for d in list(factors):
        power = int(-d.exp) if isinstance(d, sp.Pow) and d.exp.is_Integer and d.exp < 0 else 0
        if not power or not isinstance(d.base, sp.Add) or any(_bound(t, ranges).low < 0 for t in d.base.args):
            continue
        whole = {t**k: k for t in d.base.args if t.free_symbols for k in range(1, power + 1)}
        found = next((f for f in factors if f in whole), None)
        if found is not None:
            factors.remove(found)
            factors[factors.index(d)] = d.base ** (whole[found] - power)
            shares.append(Bound(0.0, 1.0))
    return (sp.Mul(*factors, sp.Integer(1), evaluate=False) if shares else e), shares


def _without_roots(factors: list[sp.Expr], ranges: Ranges) -> tuple[list[sp.Expr], list[Bound]]:
    """Shares b^k / (b² + …)^{k/2}, the terms not negative, lie in [−1, 1]: the factors without them."""
    shares: list[Bound] = []
    for i, d in enumerate(factors):
        if not (isinstance(d, sp.Pow) and d.exp.is_Rational and d.exp < 0 and isinstance(d.base, sp.Add)):
            continue
        if any(_bound(t, ranges).low < 0 for t in d.base.args):
            continue
        squares = {t.base for t in d.base.args if isinstance(t, sp.Pow) and t.exp == 2}
        for j, f in enumerate(factors):
            base, k = (f.base, f.exp) if isinstance(f, sp.Pow) else (f, sp.S.One)
            taken = min(k, -2 * factors[i].exp) if k.is_Integer and isinstance(factors[i], sp.Pow) else sp.S.Zero
            if base in squares and taken.is_Integer and taken > 0:
                factors[j] = base ** (k - taken)
                factors[i] = d.base ** (factors[i].exp + taken / 2)
                shares.append(Bound(-1.0, 1.0))
    return factors, shares


def _dominated(b: sp.Expr, e: sp.Mul, ranges: Ranges) -> bool:
    """A factor exp(−c b^{−2m} + …), c > 0, the rest bounded above, beats every power of b near b = 0."""
    for f in e.args:
        inner = f.args[0] if isinstance(f, sp.exp) else sp.S.Zero
        for term in sp.Add.make_args(inner):
            c, rest = term.as_coeff_Mul()
            even = isinstance(rest, sp.Pow) and rest.base == b and rest.exp.is_Integer and rest.exp < 0
            if c < 0 and even and rest.exp % 2 == 0 and _bound(inner - term, ranges).high < INF:
                return True
    return False


def _cancels(e: sp.Mul, parts: Sequence[Bound], ranges: Ranges) -> bool:
    """|b|^q |log|b||^k is bounded near b = 0 for q > 0, and for q ≥ 0 without logarithms; q the total exponent."""
    powers: dict[sp.Expr, float] = {}
    logs: set[sp.Expr] = set()
    singular: set[sp.Expr] = set()
    for factor, part in zip(e.args, parts, strict=True):
        log_base = _log_base(factor)
        if log_base is not None:
            logs.add(log_base)
            singular |= {log_base} if part.singular else set()
            continue
        base, exponent = _base(factor) or (factor, sp.Integer(1))
        powers[base] = powers.get(base, 0.0) + _bound(exponent, ranges).low
        if part.singular:
            singular.add(base)
    for b in singular:
        if b.free_symbols and _bound(b, ranges).level == 0 and _dominated(b, e, ranges):
            continue
        q = powers.get(b, 0.0)
        if _bound(b, ranges).level > 0 or _bound(b, ranges).singular or not (q > 0 or (q == 0 and b not in logs)):
            return False
    return True


# ---------------------------------------------------------------- powers and functions


def _power(e: sp.Pow, ranges: Ranges) -> Bound:
    base, exponent = _bound(e.base, ranges), _bound(e.exp, ranges)
    if e.exp.is_number and exponent.defined:
        return fixed_power(base, e.exp)
    if base.low < 0 or not exponent.bounded:
        return exponential(product(exponent, logarithm(base))) if base.low > 0 else UNKNOWN
    singular = base.singular or (exponent.low < 0 and base.gap == 0)
    return Bound(0.0, INF, base.level, singular, base.defined)


_BOUNDED: dict[str, Range] = {  # sympy's own functions
    "sin": (-1, 1), "cos": (-1, 1), "tanh": (-1, 1), "erf": (-1, 1), "erfc": (0, 2), "atan": (-2, 2), "sign": (-1, 1),
    "Heaviside": (0, 1), "acot": (-2, 2),
}  # fmt: skip


def _function(e: sp.Expr, ranges: Ranges) -> Bound:
    args = [_bound(a, ranges) for a in e.args if isinstance(a, sp.Expr)]
    if isinstance(e, Head):
        return _head(e.spec, args)
    name = type(e).__name__
    if name in _BOUNDED:
        low, high = _BOUNDED[name]
        return Bound(low, high, 0, False, args[0].defined)
    return _special(name, e, args, ranges) or UNKNOWN


def _special(name: str, e: sp.Expr, args: Sequence[Bound], ranges: Ranges) -> Bound | None:
    a = args[0] if args else UNKNOWN
    match name:
        case "exp":
            return exponential(a)
        case "log":
            return logarithm(a)
        case "Abs":
            return intervals.absolute(a)
        case "floor" | "ceiling":
            return Bound(a.low - 1, a.high + 1, a.level, a.singular, a.defined)
        case _:
            return _rarer(name, e, args, ranges)


def _rarer(name: str, e: sp.Expr, args: Sequence[Bound], ranges: Ranges) -> Bound | None:
    a = args[0] if args else UNKNOWN
    match name:
        case "sinh" | "cosh":
            if a.bounded:
                top = math.cosh(min(max(-a.low, a.high), 700))
                return Bound(-top, top, 0, False, a.defined)
            return Bound(1.0 if name == "cosh" else -INF, INF, a.level + 1, a.singular, a.defined)
        case "asinh":
            return Bound(-INF, INF, a.level, a.singular, a.defined)
        case "Max" | "Min":
            pick = max if name == "Max" else min
            both = intervals.added(args)
            low, high = pick(p.low for p in args), pick(p.high for p in args)
            return Bound(low, high, both.level, both.singular, both.defined)
        case "tan":
            return _bound(sp.sin(e.args[0]) / sp.cos(e.args[0], evaluate=False), ranges)
        case "Piecewise":
            pieces = [_bound(v, ranges) for v, _ in e.args]
            both = intervals.added(pieces)
            low, high = min(p.low for p in pieces), max(p.high for p in pieces)
            return Bound(low, high, both.level, both.singular, both.defined)
        case _:
            return None


def _head(spec: Function, args: Sequence[Bound]) -> Bound:
    """A built-in function by its range, sharper where it keeps intervals; any other by its definition."""
    low, high = spec.range
    if spec is functions.abs:
        return intervals.absolute(args[0])
    if spec is functions.relu:
        a = args[0]
        return Bound(max(a.low, 0.0), max(a.high, 0.0), a.level, a.singular, a.defined)
    if math.isfinite(low) and math.isfinite(high):
        return Bound(low, high, 0, False, args[0].defined)
    if math.isfinite(low) and spec.growth == "polynomial":
        a = args[0]
        inside = _of_definition(spec, tuple(args)) if a.bounded else Bound()
        return Bound(max(low, inside.low), inside.high, a.level, a.singular, a.defined)
    return _of_head(spec, args)


_FACTS: dict[str, int] = {"bounded": 0, "polynomial": 0, "exponential": 1, "super-gaussian": 1}


def _of_head(spec: Function, args: Sequence[Bound]) -> Bound:
    """A head by its definition; a numeric one by the growth it was declared with."""
    if not spec.numeric:
        body = _of_definition(spec, tuple(args))
        if body.polynomial or spec.growth not in ("bounded", "polynomial"):
            return body
    if spec.growth is None or spec.growth not in _FACTS:
        return UNKNOWN
    inner = max((a.level for a in args), default=0)
    defined = all(a.defined for a in args)
    if spec.growth == "bounded":
        return Bound(defined=defined)
    return Bound(level=inner + _FACTS[spec.growth], singular=any(a.singular for a in args), defined=defined)


@lru_cache(maxsize=4096)
def _of_definition(spec: Function, args: tuple[Bound, ...]) -> Bound:
    return _bound(_definition(spec), dict(zip(argument_symbols(spec.arity), args, strict=True)))


@cache
def _definition(spec: Function) -> sp.Expr:
    return spec.definition(*argument_symbols(spec.arity))
