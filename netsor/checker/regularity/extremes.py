"""Numeric witnesses against growth: values along rays to infinity and towards singular points, in many digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from typing import Any

import mpmath as mp
import sympy as sp

from netsor.functions import Head, undifferentiated, write_out
from netsor.measure import written_size

DIGITS = 200
DISTANCES = ("1e-8", "1e-16", "1e-32")  # from a point, of values that may grow beyond all bounds
_MOST_NODES = 2_000  # of an expression that is evaluated in many digits
GENERIC = (0.7310585786, -1.2533141373, 0.4142135624, 1.6180339887, -0.5772156649, 0.9159655942)


@dataclass(frozen=True)
class Extreme:
    """|e| at a point, where its growth is out of bounds."""

    where: str
    value: str
    order: float  # log|e| grows like |x|^order; 0 at a singular point

    def __str__(self) -> str:
        return f"at {self.where} it is {self.value}"


class Curve:
    """e along lines in its arguments, evaluated in many digits."""

    def __init__(self, e: sp.Expr, symbols: Sequence[sp.Symbol]) -> None:
        self.symbols = list(symbols)
        self.f = _callable(e, tuple(self.symbols))
        self.e = e

    def at(self, point: Sequence[Any]) -> Any:
        """The value, None when it is no finite real number."""
        with mp.workdps(DIGITS):
            try:
                value = self.f(*point)
                value = mp.mpf(value) if not isinstance(value, mp.mpc) else value
            except (ValueError, ZeroDivisionError, OverflowError, TypeError, ArithmeticError, NameError):
                return None
            if isinstance(value, mp.mpc):
                return value.real if value.imag == 0 else None
            return value if mp.isfinite(value) else None


@lru_cache(maxsize=512)
def _callable(e: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Callable[..., Any]:
    """In mpmath; without a value where the expression is too large or a function is numeric."""
    if written_size(e) > _MOST_NODES:
        return _unknown
    body = write_out(e)
    return _unknown if body.atoms(Head) else sp.lambdify(symbols, body, modules="mpmath")


def _unknown(*_: Any) -> Any:
    """A numeric function has no value beyond double precision."""
    raise ValueError


def lines_through(count: int) -> Iterator[tuple[int, list[Any]]]:
    """Each argument in turn, the others in general position, twice with opposite signs."""
    for i in range(count):
        for sign in (1, -1) if count > 1 else (1,):
            yield i, [sign * mp.mpf(GENERIC[j % len(GENERIC)]) for j in range(count)]


# ---------------------------------------------------------------- infinity


def at_infinity(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> Extreme | None:
    """A ray on which log|e| / log|x| grows beyond all bounds."""
    curve = Curve(e, symbols)
    for i, point in lines_through(len(symbols)):
        for sign in (1, -1):
            found = _on_ray(curve, i, point, sign)
            if found is not None:
                return found
    return None


def _on_ray(curve: Curve, i: int, point: list[Any], sign: int) -> Extreme | None:
    logs: list[tuple[Any, Any]] = []
    for t in (10, 30, 100, 300, 1000, 10**4, 10**5, 10**6):
        best = None
        for wiggle in (1, 1.0371, 1.0893):
            value = curve.at([*point[:i], sign * t * mp.mpf(wiggle), *point[i + 1 :]])
            if value is not None and value != 0 and (best is None or abs(value) > best):
                best = abs(value)
        if best is None:
            continue
        logs.append((mp.mpf(t), mp.log(best)))
        steep = logs[-1][1] / mp.log(t)
        if len(logs) >= 3 and steep > 40 and steep > 1.5 * logs[-2][1] / mp.log(logs[-2][0]) > 0:
            return Extreme(f"{curve.symbols[i]} = {sign * t}", mp.nstr(mp.exp(logs[-1][1]), 3), _order(logs))
    return None


def _order(logs: Sequence[tuple[Any, Any]]) -> float:
    """p for log|e| ~ |x|^p, from the last two points."""
    (t0, l0), (t1, l1) = logs[-2:]
    return float(mp.log(l1 / l0) / mp.log(t1 / t0)) if l0 > 0 and l1 > 0 else 1.0


# ---------------------------------------------------------------- points


def special_points(e: sp.Expr, symbols: Sequence[sp.Symbol], i: int, point: Sequence[Any]) -> list[Any]:
    """Values of argument i at which a base, a logarithm's argument or a jump's argument vanishes, others fixed."""
    found: list[Any] = []
    for inner in vanishing(e):
        if symbols[i] in inner.free_symbols:
            found += [r for r in _roots(inner, symbols, i, point) if all(abs(r - f) > 1e-9 for f in found)]
    return found


def vanishing(e: sp.Expr) -> list[sp.Expr]:
    """Expressions at whose zeros e may be singular or jump."""
    inner: list[sp.Expr] = []
    if written_size(e) > _MOST_NODES:
        return inner
    for a in sp.preorder_traversal(e):
        if isinstance(a, sp.Pow) and (a.exp.is_negative or not a.exp.is_number):
            inner.append(a.base)
        elif isinstance(a, sp.log | sp.Heaviside | sp.sign | sp.Abs):
            inner.append(a.args[0])
        elif isinstance(a, sp.tan):
            inner.append(sp.cos(a.args[0]))
        elif isinstance(a, sp.floor | sp.ceiling):
            inner += [a.args[0], a.args[0] - 1]
        elif isinstance(a, Head) and a.spec.kinks:
            inner += [a.args[0] - sp.Rational(str(k)) for k in a.spec.kinks]
        elif isinstance(a, Head) and undifferentiated(a.spec).user and not a.spec.numeric:
            inner += vanishing(a.spec.definition(*a.args))
    stripped = [x.args[0] if isinstance(x, sp.Abs) else x for x in inner]
    return list(dict.fromkeys(stripped))


def _roots(inner: sp.Expr, symbols: Sequence[sp.Symbol], i: int, point: Sequence[Any]) -> list[Any]:
    curve = Curve(inner, symbols)

    def value(t: Any) -> Any:
        return curve.at([*point[:i], t, *point[i + 1 :]])

    grid = [mp.mpf(k) / 4 for k in range(-20, 21)]
    values = [value(t) for t in grid]
    roots = [t for t, v in zip(grid, values, strict=True) if v is not None and v == 0]
    for a, b, u, v in zip(grid, grid[1:], values, values[1:], strict=False):
        if u is not None and v is not None and u * v < 0:
            roots.append(_bisect(value, a, b, u))
    return roots[:6]


def _bisect(value: Callable[[Any], Any], a: Any, b: Any, u: Any) -> Any:
    with mp.workdps(DIGITS):
        for _ in range(180):
            middle = (a + b) / 2
            v = value(middle)
            if v is None or v == 0:
                return middle
            a, b = (middle, b) if v * u > 0 else (a, middle)
        return (a + b) / 2


def at_points(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> Extreme | None:
    """A point near which |e| is unbounded."""
    curve = Curve(e, symbols)
    found = next((Extreme(where, value, 0.0) for where, value, _ in on_lines(curve)), None)
    return found or (_at_origin(curve) if len(symbols) > 1 else None)


def on_lines(curve: Curve) -> Iterator[tuple[str, str, float]]:
    """Where something vanishes on lines in general position and |e| is unbounded: place, value, q of |e| ~ r^−q."""
    for i, point in lines_through(len(curve.symbols)):
        for root in special_points(curve.e, curve.symbols, i, point):
            for sign in (1, -1):
                with mp.workdps(DIGITS):
                    at = [[*point[:i], root + sign * mp.mpf(r), *point[i + 1 :]] for r in DISTANCES]
                found = unbounded(curve, at)
                if found is not None:
                    yield f"{curve.symbols[i]} = {mp.nstr(root, 5)} {'+' if sign > 0 else '-'} 1e-32", *found


def _at_origin(curve: Curve) -> Extreme | None:
    """|e| is unbounded where all arguments vanish together, along a direction in general position."""
    for _, direction in lines_through(len(curve.symbols)):
        with mp.workdps(DIGITS):
            at = [[mp.mpf(r) * d for d in direction] for r in DISTANCES]
        found = unbounded(curve, at)
        if found is not None:
            return Extreme(named(curve, at[-1]), found[0], 0.0)
    return None


def named(curve: Curve, point: Sequence[Any]) -> str:
    """A point by its coordinates."""
    return ", ".join(f"{s} = {mp.nstr(x, 3)}" for s, x in zip(curve.symbols, point, strict=True))


def without_value(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> str | None:
    """A point at which e has no finite real value while it has one at others, all in general position."""
    curve, count = Curve(e, symbols), len(symbols)
    points = [
        [sign * scale * abs(GENERIC[(i + j) % len(GENERIC)]) for j, sign in enumerate(signs)]
        for i, scale in enumerate((1.0, 0.1, 3.0)) for signs in islice(product((1, -1), repeat=count), 32)
    ]  # fmt: skip
    missing = [p for p in points if curve.at([mp.mpf(x) for x in p]) is None]
    if not 0 < len(missing) < len(points):
        return None
    return ", ".join(f"{s} = {x:.3g}" for s, x in zip(symbols, missing[0], strict=True))


def unbounded(curve: Curve, approach: Sequence[Sequence[Any]]) -> tuple[str, float] | None:
    """The last value and q where |e| grows like r^−q along points at distances r of 1e-8, 1e-16, 1e-32; None else."""
    values = [curve.at(p) for p in approach]
    near = [abs(v) for v in values if v is not None]
    if len(near) < 3 or not near[2] > 1.4 * near[1] > 1.96 * near[0] > 0:
        return None
    return mp.nstr(near[2], 3), round(float(mp.log(near[2] / near[1], 10)) / 16, 3)


def jump(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> str | None:
    """A point where e is discontinuous in an argument, or None when none was found."""
    curve = Curve(e, symbols)
    for i, point in lines_through(len(symbols)):
        for root in special_points(e, symbols, i, point):
            if _sides_differ(curve, i, point, root):
                return f"{symbols[i]} = {mp.nstr(root, 5)}"
    return None


def _sides_differ(curve: Curve, i: int, point: list[Any], root: Any) -> bool:
    """The one-sided limits exist and are different."""
    with mp.workdps(DIGITS):
        limits = []
        for side in (1, -1):
            far, near = (curve.at([*point[:i], root + side * mp.mpf(10) ** -k, *point[i + 1 :]]) for k in (20, 40))
            if far is None or near is None or abs(far - near) > mp.mpf(10) ** -6 * (1 + abs(near)):
                return False
            limits.append(near)
        return bool(abs(limits[0] - limits[1]) > mp.mpf(10) ** -9 * (1 + abs(limits[0])))
