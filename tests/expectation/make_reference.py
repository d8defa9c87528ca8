"""Reference values of E f(u)g(v), by quadrature in 36-digit arithmetic that shares nothing with the engine under test.

Run `python tests/expectation/make_reference.py` (it needs gmpy2) to write `reference.json`, in some ten minutes.
A value is the nested Gauss–Legendre sum over panels that end at 0 (where every kink of these functions is) and double
away from it; the inner variable is v = m₂ + ρσ₂x + √(1−ρ²)σ₂y. `--check` repeats a seventh of the values with more
nodes and finer panels.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gmpy2 as mp  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]
from gmpy2 import mpfr  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

mp.get_context().precision = 120
FILE = Path(__file__).with_name("reference.json")
SIGMAS = ("0.001", "1", "3", "100")
RHOS = ("-1", "-0.99", "0", "0.5", "0.999999", "1")
RANGE = mpfr(9.5)  # 1e-21 of the Gaussian lies outside

F = Callable[[mpfr], mpfr]
PI = mp.const_pi()
one, half, zero = mpfr(1), mpfr(1) / 2, mpfr(0)
root2, normal = mp.sqrt(2), 1 / mp.sqrt(2 * PI)


def step(x: mpfr) -> mpfr:
    return one if x > 0 else zero


def sigmoid(x: mpfr) -> mpfr:
    return 1 / (1 + mp.exp(-x))


def cdf(x: mpfr) -> mpfr:
    return mp.erfc(-x / root2) / 2


def sech2(x: mpfr) -> mpfr:
    return 1 / mp.cosh(x) ** 2


# name -> (function, its derivative away from jumps); the derivative is None where it is not a function
FUNCTIONS: dict[str, tuple[F, F | None]] = {
    "tanh": (mp.tanh, sech2),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
    "silu": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) + x * sigmoid(x) * sigmoid(-x)),
    "softplus": (lambda x: max(x, zero) + mp.log1p(mp.exp(-abs(x))), sigmoid),
    "gelu": (lambda x: x * cdf(x), lambda x: cdf(x) + x * normal * mp.exp(-x * x / 2)),
    "sin3": (lambda x: mp.sin(3 * x), lambda x: 3 * mp.cos(3 * x)),
    "elu": (lambda x: x if x > 0 else mp.expm1(x), lambda x: one if x > 0 else mp.exp(x)),
    "leaky": (lambda x: x if x > 0 else x / 5, lambda x: one if x > 0 else one / 5),
    "abs": (abs, lambda x: one if x > 0 else -one),
    "erf": (mp.erf, lambda x: 2 / mp.sqrt(PI) * mp.exp(-x * x)),
    "exp": (lambda x: mp.exp(x / 5), lambda x: mp.exp(x / 5) / 5),
    "relu": (lambda x: max(x, zero), step),
    "sign": (lambda x: one if x > 0 else -one, None),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "cube": (lambda x: x**3, lambda x: 3 * x * x),
}


def legendre(n: int) -> list[tuple[mpfr, mpfr]]:
    """Nodes and weights on [0, 1]."""
    out = []
    for i in range(1, n + 1):
        slope = one
        x = mp.cos(PI * (i - mpfr(1) / 4) / (n + half))
        for _ in range(8):
            p0, p1 = one, x
            for k in range(2, n + 1):
                p0, p1 = p1, ((2 * k - 1) * x * p1 - (k - 1) * p0) / k
            slope = n * (x * p1 - p0) / (x * x - 1)
            x -= p1 / slope
        out.append(((x + 1) / 2, 1 / ((1 - x * x) * slope**2)))
    return out


class Rule:
    def __init__(self, order: int, width: float, scale: float) -> None:
        self.nodes, self.width, self.scale = legendre(order), mpfr(width), mpfr(scale)

    def panels(self, m: mpfr, s: mpfr, oscillation: mpfr, sharp: mpfr) -> Iterator[tuple[mpfr, mpfr]]:
        """(z, weight) for E F(m + s·z): panels of at most `width` in z that end at m + s·z = 0 and double away from it,
        starting at the smaller of 1 in u and `sharp` in z; shorter than a wavelength's share if F oscillates."""
        if s == 0:
            yield zero, one
            return
        centre = -m / s
        smallest = min(self.width, self.scale / s, sharp)
        for side in (-one, one):
            a, size = zero, smallest
            while a < RANGE + abs(centre):
                size = min(max(smallest, a), self.width)
                if oscillation:
                    size = min(size, 3 / (oscillation * s))
                low, high = sorted((centre + side * a, centre + side * (a + size)))
                low, high = max(low, -RANGE), min(high, RANGE)
                if high > low:
                    for t, w in self.nodes:
                        z = low + (high - low) * t
                        yield z, w * (high - low) * normal * mp.exp(-z * z / 2)
                a += size


NORMAL, FINE = Rule(16, 2.0, 1.0), Rule(24, 1.0, 1.0)


def line(f: F, m: mpfr, s: mpfr, wave: mpfr, rule: Rule) -> mpfr:
    return mp.fsum(w * f(m + s * z) for z, w in rule.panels(m, s, wave, one))


def plane(f: F, g: F, k: tuple[mpfr, mpfr, mpfr], m: tuple[mpfr, mpfr], wave: int, rule: Rule) -> mpfr:
    """E f(u)g(v), k = (k11, k22, k12)."""
    s1, s2 = mp.sqrt(k[0]), mp.sqrt(k[1])
    rho = k[2] / (s1 * s2) if s1 * s2 else zero
    gap = 1 - rho * rho
    if abs(gap) < mpfr(10) ** -30:
        side = mp.sign(rho)
        if m == (0, 0):
            return line(
                lambda x: f(s1 * x) * g(side * s2 * x), zero, one, 2 * wave * max(s1, s2), split_at(rule, s1, s2)
            )
        raise ValueError("no means at ρ = ±1")
    if rho == 0:
        return line(f, m[0], s1, mpfr(wave), rule) * line(g, m[1], s2, mpfr(wave), rule)
    rest = s2 * mp.sqrt(gap)
    sharp = mp.sqrt(gap)
    total = []
    for x, w in rule.panels(m[0], s1, mpfr(wave), sharp):
        value = f(m[0] + s1 * x)
        if value:
            total.append(w * value * line(g, m[1] + rho * s2 * x, rest, mpfr(wave), rule))
    return mp.fsum(total)


def split_at(rule: Rule, s1: mpfr, s2: mpfr) -> Rule:
    """The rule for a function of z whose features have scale 1/σ."""
    out = Rule.__new__(Rule)
    out.nodes, out.width, out.scale = rule.nodes, rule.width, min(rule.scale, rule.scale / max(s1, s2))
    return out


Row = dict[str, object]


def kernel_cases() -> list[tuple[str, int, str]]:
    """Zero means, equal variances: every function and its derivative; E exp(u/5)² at σ = 100 would be 1e347."""
    known = [(name, order) for name, pair in FUNCTIONS.items() for order in (0, 1) if pair[order]]
    return [(*f, s) for f in known for s in SIGMAS if (f[0], s) != ("exp", "100")]


def kernels(case: tuple[str, int, str], rule: Rule | None = None) -> list[Row]:
    """E f(u)f(v) for all ρ, and the norm E f²."""
    name, order, s = case
    f, k, rule = FUNCTIONS[name][order], mpfr(s) ** 2, rule or NORMAL
    assert f is not None
    wave = 3 if name == "sin3" else 0
    norm = plane(f, f, (k, k, k), (zero, zero), wave, rule)
    rows: list[Row] = []
    for r in RHOS:
        if wave and s == "100" and r not in ("-1", "0", "1"):
            value = _sin3_far(order, k, mpfr(r))
        else:
            value = plane(f, f, (k, k, mpfr(r) * k), (zero, zero), wave, rule)
        rows.append({"f": name, "order": order, "sigma": s, "rho": r, "value": text(value), "norm": text(norm)})
    return rows


def _sin3_far(order: int, k: mpfr, rho: mpfr) -> mpfr:
    """Addition theorem and the characteristic function, where panels would need 1e7 nodes."""
    minus, plus = mp.exp(-9 * k * (1 - rho)), mp.exp(-9 * k * (1 + rho))
    return 9 * (minus + plus) / 2 if order else (minus - plus) / 2


MEANS = (("0.7", "1.4", "0.5", "0.3", "-0.8"), ("1.1", "0.4", "-0.99", "-0.6", "0.2"))


def means(case: tuple[str, int]) -> list[Row]:
    """Nonzero means, unequal variances."""
    name, order = case
    f = FUNCTIONS[name][order]
    assert f is not None
    rows: list[Row] = []
    for given in MEANS:
        a, b, rho, m1, m2 = map(mpfr, given)
        wave = 3 if name == "sin3" else 0
        value = plane_with_kink(f, (a * a, b * b, rho * a * b), (m1, m2), wave, NORMAL)
        where = dict(zip(("s1", "s2", "rho", "m1", "m2"), given, strict=True))
        rows.append({"f": name, "order": order, **where, "value": text(value)})
    return rows


def plane_with_kink(f: F, k: tuple[mpfr, mpfr, mpfr], m: tuple[mpfr, mpfr], wave: int, rule: Rule) -> mpfr:
    """As `plane`; outer panels also shrink towards the u at which the conditional mean of v is zero."""
    s1, s2 = mp.sqrt(k[0]), mp.sqrt(k[1])
    rho = k[2] / (s1 * s2)
    rest = s2 * mp.sqrt(1 - rho * rho)
    points = {-RANGE, RANGE, *(RANGE * (i - 20) / 20 for i in range(41)), -m[0] / s1}
    turn = -m[1] / (rho * s2)
    points |= {turn + side * rest / abs(rho * s2) * mpfr(2) ** j for side in (-1, 0, 1) for j in range(-1, 5)}
    ends = sorted(p for p in points if abs(p) <= RANGE)
    total = []
    for a, b in itertools.pairwise(ends):
        for t, w in rule.nodes:
            x = a + (b - a) * t
            inner = line(f, m[1] + rho * s2 * x, rest, mpfr(wave), rule)
            total.append(w * (b - a) * normal * mp.exp(-x * x / 2) * f(m[0] + s1 * x) * inner)
    return mp.fsum(total)


VECTORS = {
    "general": ([0.8, -0.3, 0.5], [0.2, 0.9, 0.4]),
    "equal": ([0.8, -0.3, 0.5], [0.8, -0.3, 0.5]),
    "opposite": ([0.8, -0.3, 0.5], [-0.8, 0.3, -0.5]),
    "zero": ([0.0, 0.0, 0.0], [0.2, 0.9, 0.4]),
}
DIRECTION = [0.4, 1.0, -0.7]


def gradients(name: str) -> list[Row]:
    """d/dt of E f(u)f(v) at t = 0, covariances those of x + t·direction and y: central differences."""
    t = mpfr(10) ** -7
    f = FUNCTIONS[name][0]
    assert f is not None
    rows: list[Row] = []
    for where, (x, y) in VECTORS.items():
        ends = []
        for side in (-t, t):
            moved = [mpfr(a) + side * mpfr(d) for a, d in zip(x, DIRECTION, strict=True)]
            k = (dot(moved, moved), dot(y, y), dot(moved, y))
            ends.append(plane(f, f, k, (zero, zero), 0, NORMAL))
        rows.append({"f": name, "where": where, "slope": text((ends[1] - ends[0]) / (2 * t))})
    return rows


def dot(x: list[mpfr], y: list[mpfr]) -> mpfr:
    return mp.fsum(mpfr(a) * mpfr(b) for a, b in zip(x, y, strict=True))


def text(x: mpfr) -> str:
    return f"{x:.25g}"


def check() -> None:
    """Print every seventh kernel's change under the finer rule, relative to its norm."""
    table = json.loads(FILE.read_text())["kernels"]
    known = {(e["f"], e["order"], e["sigma"], e["rho"]): e for e in table}
    for case in kernel_cases()[::7]:
        for e in kernels(case, FINE):
            old = known[e["f"], e["order"], e["sigma"], e["rho"]]
            print(*case, e["rho"], f"{(mpfr(e['value']) - mpfr(old['value'])) / mpfr(old['norm']):.2g}")


def main() -> None:
    functions = [(name, order) for name, pair in FUNCTIONS.items() for order in (0, 1) if pair[order]]
    smooth_or_conical = ["tanh", "silu", "gelu", "elu", "erf", "relu", "leaky", "square"]
    with multiprocessing.Pool() as pool:
        tables = {
            "kernels": pool.map(kernels, kernel_cases(), 1),
            "means": pool.map(means, functions, 1),
            "gradients": pool.map(gradients, smooth_or_conical, 1),
        }
    parts = []
    for name, groups in tables.items():
        lines = ",\n".join(json.dumps(row) for rows in groups for row in rows)
        parts.append(f'"{name}": [\n{lines}\n]')
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    check() if "--check" in sys.argv else main()
