"""Reference values of E f(u)g(v), by quadrature in 80-bit arithmetic that shares nothing with the engine under test.

Run `python tests/expectation/make_reference.py` to write `reference.json`, in some minutes. A value is a nested
Gauss–Legendre sum over panels that end at 0 (where every kink of these functions is) and double away from it; the
inner variable is v = m₂ + ρσ₂x + √(1−ρ²)σ₂y. `--check` repeats a seventh of the values with finer panels and prints
the change.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import erf as _erf
from scipy.special import erfc as _erfc

FILE = Path(__file__).with_name("reference.json")
SIGMAS = ("0.001", "1", "3", "100")
RHOS = ("-1", "-0.99", "0", "0.5", "0.999999", "1")
L = np.longdouble
RANGE = L(9.5)  # 1e-21 of the Gaussian lies outside
PI = L("3.14159265358979323846264338327950288")
ROOT2 = np.sqrt(L(2))
Array = Any
F = Callable[[Array], Array]


def erf(x: Array) -> Array:
    return L(1) * _erf(x.astype(float))


def cdf(x: Array) -> Array:
    return L(1) * _erfc((-x / ROOT2).astype(float)) / 2


def density(x: Array) -> Array:
    return np.exp(-x * x / 2) / np.sqrt(2 * PI)


def sigmoid(x: Array) -> Array:
    e = np.exp(-abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def step(x: Array) -> Array:
    return np.where(x > 0, L(1), L(0))


def left(x: Array) -> Array:
    return np.exp(np.minimum(x, 0))


# name -> (function, its derivative away from jumps); the derivative is None where it is not a function
FUNCTIONS: dict[str, tuple[F, F | None]] = {
    "tanh": (np.tanh, lambda x: 4 * np.exp(-2 * abs(x)) / (1 + np.exp(-2 * abs(x))) ** 2),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
    "silu": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) + x * sigmoid(x) * sigmoid(-x)),
    "softplus": (lambda x: np.maximum(x, 0) + np.log1p(np.exp(-abs(x))), sigmoid),
    "gelu": (lambda x: x * cdf(x), lambda x: cdf(x) + x * density(x)),
    "sin3": (lambda x: np.sin(3 * x), lambda x: 3 * np.cos(3 * x)),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), lambda x: np.where(x > 0, L(1), left(x))),
    "leaky": (lambda x: np.where(x > 0, x, x / 5), lambda x: np.where(x > 0, L(1), L(1) / 5)),
    "abs": (abs, lambda x: np.where(x > 0, L(1), L(-1))),
    "erf": (erf, lambda x: 2 / np.sqrt(PI) * np.exp(-x * x)),
    "exp": (lambda x: np.exp(x / 5), lambda x: np.exp(x / 5) / 5),
    "relu": (lambda x: np.maximum(x, 0), step),
    "sign": (lambda x: np.where(x > 0, L(1), L(-1)), None),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "cube": (lambda x: x**3, lambda x: 3 * x * x),
}


def legendre(n: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1], refined by Newton's method in 80 bits."""
    x: Array = np.polynomial.legendre.leggauss(n)[0].astype(L)
    slope: Array = x
    for _ in range(3):
        p0, p1 = np.ones_like(x), x
        for k in range(2, n + 1):
            p0, p1 = p1, ((2 * k - 1) * x * p1 - (k - 1) * p0) / k
        slope = n * (x * p1 - p0) / (x * x - 1)
        x = x - p1 / slope
    return (x + 1) / 2, 1 / ((1 - x * x) * slope**2)


class Rule:
    def __init__(self, order: int, width: float) -> None:
        (self.t, self.w), self.width = legendre(order), L(width)

    def nodes(self, centres: list[Array], smallest: Array, wave: Array) -> tuple[Array, Array]:
        """z and Gaussian weights `[…, nodes]`: panels of at most `width` that double away from every centre `[…]`."""
        size = min(self.width, L(2) / wave) if wave else self.width
        uniform = np.arange(-RANGE, RANGE + size, size, dtype=L)
        reach = np.concatenate([[L(0)], smallest * L(2) ** np.arange(0, 60)])
        reach = reach[reach < 4 * size]
        shape = np.shape(centres[0])
        parts = [np.broadcast_to(uniform, (*shape, len(uniform)))]
        for c in centres:
            parts += [np.asarray(c)[..., None] + reach, np.asarray(c)[..., None] - reach]
        edges = np.sort(np.clip(np.concatenate(parts, -1), -RANGE, RANGE), -1)
        low, high = edges[..., :-1, None], edges[..., 1:, None]
        z = (low + (high - low) * self.t).reshape(*shape, -1)
        return z, ((high - low) * self.w).reshape(*shape, -1) * density(z)


NORMAL, FINE = Rule(14, 1.0), Rule(20, 0.5)


def line(f: F, m: Array, s: Array, wave: int, rule: Rule) -> Array:
    """E f(m + s z), vectorised over m."""
    if s == 0:
        return f(np.asarray(m))
    z, w = rule.nodes([-m / s], min(L(1), 1 / s) / 4, wave * s)
    return (w * f(np.asarray(m)[..., None] + s * z)).sum(-1)


def plane(f: F, g: F, s: tuple[Array, Array], rho: Array, m: tuple[Array, Array], wave: int, rule: Rule) -> Array:
    """E f(u)g(v)."""
    if abs(rho) == 1:
        z, w = rule.nodes([np.asarray(-m[0] / s[0])], min(L(1), 1 / s[0], 1 / s[1]) / 4, 2 * wave * max(s))
        return (w * f(m[0] + s[0] * z) * g(m[1] + rho * s[1] * z)).sum()
    gap = np.sqrt((1 - rho) * (1 + rho))
    rest = s[1] * gap
    centres = [np.asarray(-m[0] / s[0])] + ([np.asarray(-m[1] / (rho * s[1]))] if rho else [])
    z, w = rule.nodes(centres, min(L(1), 1 / s[0], 1 / s[1], gap) / 4, wave * max(s))
    total = L(0)
    for part in np.array_split(np.arange(len(z)), max(1, len(z) // 200)):
        total += (w[part] * f(m[0] + s[0] * z[part]) * line(g, m[1] + rho * s[1] * z[part], rest, wave, rule)).sum()
    return total


Row = dict[str, object]


def kernel_cases() -> list[tuple[str, int, str]]:
    """Zero means, equal variances: every function and its derivative; E exp(u/5)² at σ = 100 would be 1e347."""
    known = [(name, order) for name, pair in FUNCTIONS.items() for order in (0, 1) if pair[order]]
    return [(*f, s) for f in known for s in SIGMAS if (f[0], s) != ("exp", "100")]


def kernels(case: tuple[str, int, str], rule: Rule = NORMAL) -> list[Row]:
    """E f(u)f(v) for all ρ, and the norm E f²."""
    name, order, sigma = case
    f, s = FUNCTIONS[name][order], L(sigma)
    assert f is not None
    wave = 3 if name == "sin3" else 0
    far = wave and sigma == "100"

    def value(rho: Array) -> Array:
        return sin3_far(order, s * s, rho) if far else plane(f, f, (s, s), rho, (L(0), L(0)), wave, rule)

    norm = value(L(1))
    return [
        {"f": name, "order": order, "sigma": sigma, "rho": r, "value": text(value(L(r))), "norm": text(norm)}
        for r in RHOS
    ]


def sin3_far(order: int, k: Array, rho: Array) -> Array:
    """Addition theorem and the characteristic function, where panels would need 1e7 nodes."""
    minus, plus = np.exp(-9 * k * (1 - rho)), np.exp(-9 * k * (1 + rho))
    return 9 * (minus + plus) / 2 if order else (minus - plus) / 2


MEANS = (("0.7", "1.4", "0.5", "0.3", "-0.8"), ("1.1", "0.4", "-0.99", "-0.6", "0.2"))


def means(name: str, order: int) -> list[Row]:
    """Nonzero means, unequal variances."""
    f = FUNCTIONS[name][order]
    assert f is not None
    rows: list[Row] = []
    for given in MEANS:
        a, b, rho, m1, m2 = map(L, given)
        value = plane(f, f, (a, b), rho, (m1, m2), 3 if name == "sin3" else 0, NORMAL)
        where = dict(zip(("s1", "s2", "rho", "m1", "m2"), given, strict=True))
        rows.append({"f": name, "order": order, **where, "value": text(value)})
    return rows


VECTORS = {
    "general": ([0.8, -0.3, 0.5], [0.2, 0.9, 0.4]),
    "equal": ([0.8, -0.3, 0.5], [0.8, -0.3, 0.5]),
    "opposite": ([0.8, -0.3, 0.5], [-0.8, 0.3, -0.5]),
    "zero": ([0.0, 0.0, 0.0], [0.2, 0.9, 0.4]),
}
DIRECTION = [0.4, 1.0, -0.7]


def gradients(name: str) -> list[Row]:
    """d/dt of E f(u)f(v) at t = 0, covariances those of x + t·direction and y: central differences, extrapolated."""
    f = FUNCTIONS[name][0]
    rows: list[Row] = []
    for where, (x, y) in VECTORS.items():

        def value(t: Array, x: list[float] = x, y: list[float] = y) -> Array:
            a = np.array(x, dtype=L) + t * np.array(DIRECTION, dtype=L)
            b = np.array(y, dtype=L)
            s = np.sqrt(a @ a), np.sqrt(b @ b)
            return plane(f, f, s, (a @ b) / (s[0] * s[1]), (L(0), L(0)), 0, NORMAL)

        steps = (L("1e-5"), L("2e-5"), L("4e-5"))
        one, two, four = ((value(t) - value(-t)) / (2 * t) for t in steps)
        slope = (8 * one - 6 * two + four) / 3  # errors of order t (a kink at zero variance) and t² are gone
        rows.append({"f": name, "where": where, "slope": text(slope)})
    return rows


def text(x: Array) -> str:
    return np.format_float_scientific(x, precision=19)


def check() -> None:
    """Print every seventh kernel's change under the finer rule, relative to its norm."""
    table = json.loads(FILE.read_text())["kernels"]
    known = {(e["f"], e["order"], e["sigma"], e["rho"]): e for e in table}
    for case in kernel_cases()[::7]:
        for e in kernels(case, FINE):
            old = known[e["f"], e["order"], e["sigma"], e["rho"]]
            print(*case, e["rho"], f"{(L(str(e['value'])) - L(str(old['value']))) / L(str(old['norm'])):.2g}")


def main() -> None:
    pairs = [(name, order) for name, pair in FUNCTIONS.items() for order in (0, 1) if pair[order]]
    table = {
        "kernels": [row for case in kernel_cases() for row in kernels(case)],
        "means": [row for name, order in pairs for row in means(name, order)],
        "gradients": [row for name in GRADIENTS for row in gradients(name)],
    }
    FILE.write_text(json.dumps(table, indent=0))


GRADIENTS = ("tanh", "silu", "gelu", "elu", "erf", "relu", "leaky", "square")

if __name__ == "__main__":
    check() if "--check" in sys.argv else main()
