"""Reference values of E f(u)g(v), by quadrature in 42-digit ball arithmetic that shares nothing with the engine.

Run `python tests/expectation/make_reference.py` (it needs python-flint) to write `reference.json`, in some minutes.
All sums are Gauss–Legendre over panels that end at 0 (where every kink of these functions is) and double away from it:
on a line when |ρ| = 1, a product of two when ρ = 0, a product rule with the joint density for the other ρ, and for ρ
near ±1 a nested rule in the sum and the difference of u and v. Balls bound the rounding; `--check` repeats a seventh of
the values with more nodes on finer panels and prints the change, relative to the norm E f².
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flint import arb, arb_mat, ctx  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore

FILE = Path(__file__).with_name("reference.json")
SIGMAS = ("0.001", "1", "3", "100")
RHOS = ("-1", "-0.99", "0", "0.5", "0.999999", "1")
ctx.prec = 140
Ball = Any
Balls = list[Ball]
F = Callable[[Ball], Ball]
RANGE = arb("12.5")  # 1e-35 of the Gaussian lies outside
PI, ONE, ZERO = arb.pi(), arb(1), arb(0)
ROOT2, NORMAL_DENSITY = arb(2).sqrt(), 1 / (2 * PI).sqrt()
NEAR = 1e-4  # 1 − |ρ| below which the nested rule takes over
CHUNK = 128  # rows of the product rule's matrix at once


def cdf(x: Ball) -> Ball:
    return (-x / ROOT2).erfc() / 2


def density(x: Ball) -> Ball:
    return (-x * x / 2).exp() * NORMAL_DENSITY


def sigmoid(x: Ball) -> Ball:
    return 1 / (1 + (-x).exp())


def step(x: Ball) -> Ball:
    return ONE if x > 0 else ZERO


# name -> (function, its derivative away from jumps); the derivative is None where it is not a function
FUNCTIONS: dict[str, tuple[F, F | None]] = {
    "tanh": (lambda x: x.tanh(), lambda x: 1 / x.cosh() ** 2),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
    "silu": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) + x * sigmoid(x) * sigmoid(-x)),
    "softplus": (lambda x: (x if x > 0 else ZERO) + (-abs(x)).exp().log1p(), sigmoid),
    "gelu": (lambda x: x * cdf(x), lambda x: cdf(x) + x * density(x)),
    "sin3": (lambda x: (3 * x).sin(), lambda x: 3 * (3 * x).cos()),
    "elu": (lambda x: x if x > 0 else x.expm1(), lambda x: ONE if x > 0 else x.exp()),
    "leaky": (lambda x: x if x > 0 else x / 5, lambda x: ONE if x > 0 else ONE / 5),
    "abs": (abs, lambda x: ONE if x > 0 else -ONE),
    "erf": (lambda x: x.erf(), lambda x: 2 / PI.sqrt() * (-x * x).exp()),
    "exp": (lambda x: (x / 5).exp(), lambda x: (x / 5).exp() / 5),
    "relu": (lambda x: x if x > 0 else ZERO, step),
    "sign": (lambda x: ONE if x > 0 else -ONE, None),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "cube": (lambda x: x**3, lambda x: 3 * x * x),
}


class Rule:
    """Gauss–Legendre of an order on panels of at most `width`."""

    def __init__(self, order: int, width: str) -> None:
        roots = [arb.legendre_p_root(order, k, weight=True) for k in range(order)]
        self.nodes = [((x + 1) / 2, w / 2) for x, w in roots]
        self.width = arb(width)

    def panels(self, kinks: Sequence[Ball], smallest: Ball, times: int = 1) -> tuple[Balls, Balls]:
        """z and weights on ±RANGE; panels end at the kinks and double away from them, `smallest` first.

        Panels are `times` wider where the weight has no more than one Gaussian's slope.
        """
        edges = {float(-RANGE): -RANGE, float(RANGE): RANGE}
        width = times * self.width
        marks = [-RANGE + k * width for k in range(int(float(2 * RANGE / width)) + 1)]
        for kink in kinks:
            marks += [kink]
            reach = smallest
            while reach < width:
                marks += [kink - reach, kink + reach]
                reach = 2 * reach
        edges |= {float(m): m for m in marks if abs(m) < RANGE}
        z, weights = [], []
        for (_, low), (_, high) in itertools.pairwise(sorted(edges.items())):
            for t, w in self.nodes:
                z.append(low + (high - low) * t)
                weights.append((high - low) * w)
        return z, weights


NORMAL, FINE = Rule(26, "0.5"), Rule(34, "0.4")
Scales = tuple[Ball, Ball]


def smallest(*scales: Ball) -> Ball:
    """A quarter of the unit of the steepest argument."""
    return min([ONE, *(1 / s for s in scales if s > 0)]) / 4


def dot(x: Balls, y: Balls) -> Ball:
    return sum((a * b for a, b in zip(x, y, strict=True)), ZERO)


def line(f: F, s: Ball, m: Ball, rule: Rule) -> Ball:
    """E f(m + s z)"""
    if s == 0:
        return f(m)
    z, w = rule.panels([-m / s], smallest(s))
    return dot([a * density(x) for x, a in zip(z, w, strict=True)], [f(m + s * x) for x in z])


def planes(
    fs: Sequence[F], s: Scales, rho: Ball, m: Scales = (ZERO, ZERO), rule: Rule = NORMAL, gap: Ball = None
) -> Balls:  # fmt: skip
    """E f(u)f(v) for every f; `gap` is 1 − ρ², where it is known better than from ρ."""
    gap = (1 - rho) * (1 + rho) if gap is None else gap
    if s[0] == 0 or s[1] == 0 or rho == 0:
        return [line(f, s[0], m[0], rule) * line(f, s[1], m[1], rule) for f in fs]
    if abs(rho) == 1:
        z, w = rule.panels([-m[0] / s[0]], smallest(*s))
        return [
            dot([a * density(x) for x, a in zip(z, w, strict=True)],
                [f(m[0] + s[0] * x) * f(m[1] + rho * s[1] * x) for x in z])
            for f in fs
        ]  # fmt: skip
    return nested(fs, s, rho, gap, rule) if 1 - abs(float(rho)) < NEAR else product(fs, s, rho, m, rule)


def product(fs: Sequence[F], s: Scales, rho: Ball, m: Scales, rule: Rule) -> Balls:
    """Σ_ij p(x_i, y_j) f(x_i) f(y_j); the density p is smooth, and the panels end where f has a kink."""
    (x, a), (y, b) = (rule.panels([-mean / scale], smallest(scale)) for scale, mean in zip(s, m, strict=True))
    right = arb_mat([[w * f(m[1] + s[1] * z) for f in fs] for z, w in zip(y, b, strict=True)])
    gap = (1 - rho) * (1 + rho)
    height = 1 / (2 * PI * gap.sqrt())
    total = [ZERO for _ in fs]
    for start in range(0, len(x), CHUNK):
        rows = x[start : start + CHUNK]
        inner = arb_mat([[joint(p, q, rho, gap) for q in y] for p in rows]) * right
        for i, (p, w) in enumerate(zip(rows, a[start : start + CHUNK], strict=True)):
            for k, f in enumerate(fs):
                total[k] += w * f(m[0] + s[0] * p) * inner[i, k]
    return [height * t for t in total]


def joint(p: Ball, q: Ball, rho: Ball, gap: Ball) -> Ball:
    exponent = (p * p - 2 * rho * p * q + q * q) / (2 * gap)
    return (-exponent).exp() if exponent < 110 else ZERO


def nested(fs: Sequence[F], s: Scales, rho: Ball, gap: Ball, rule: Rule) -> Balls:
    """u = s₁(c x + d y), v = ±s₂(c x − d y) with c² = (1 + |ρ|)/2, d² = (1 − |ρ|)/2: for each y a line in x,
    with kinks at ±(d/c) y. With y ↔ −y also u/s₁ and v/s₂ are exchanged, so y > 0 is enough for equal variances.
    """
    side = ONE if rho > 0 else -ONE
    c, d = ((1 + abs(rho)) / 2).sqrt(), (gap / (1 + abs(rho)) / 2).sqrt()
    total = [ZERO for _ in fs]
    outer, weights = rule.panels([ZERO], ONE, 4)
    for y, b in zip(outer, weights, strict=True):
        if s[0] == s[1]:
            if y < 0:
                continue
            b = 2 * b
        kink = d * y / c
        x, a = rule.panels([-kink, kink], smallest(*s), 2)
        w = [b * density(y) * e * density(z) for z, e in zip(x, a, strict=True)]
        one, two = [s[0] * (c * z + d * y) for z in x], [side * s[1] * (c * z - d * y) for z in x]
        for k, f in enumerate(fs):
            total[k] += dot(w, [f(u) * f(v) for u, v in zip(one, two, strict=True)])
    return total


# ---------------------------------------------------------------- tables

Row = dict[str, object]
Name = tuple[str, int]


def known(sigma: str = "") -> list[Name]:
    """Every function and its derivative; E exp(u/5)² at σ = 100 would be 1e347."""
    found = [(name, order) for name, pair in FUNCTIONS.items() for order in (0, 1) if pair[order]]
    return [f for f in found if (f[0], sigma) != ("exp", "100")]


def functions(names: Sequence[Name]) -> list[F]:
    return [f for name, order in names if (f := FUNCTIONS[name][order])]


def kernels(names: Sequence[Name], sigma: str, rule: Rule = NORMAL) -> list[Row]:
    """E f(u)f(v) for zero means, equal variances and all ρ, and the norm E f²."""
    s = arb(sigma)
    far = [f for f in names if f[0] == "sin3" and sigma == "100"]
    near = [f for f in names if f not in far]
    table = {r: dict(zip(near, planes(functions(near), (s, s), arb(r), rule=rule), strict=True)) for r in RHOS}
    for r in RHOS:
        table[r] |= {f: sin3_far(f[1], s * s, arb(r)) for f in far}
    return [
        {"f": f[0], "order": f[1], "sigma": sigma, "rho": r, "value": text(table[r][f]), "norm": text(table["1"][f])}
        for f in names
        for r in RHOS
    ]


def sin3_far(order: int, k: Ball, rho: Ball) -> Ball:
    """Addition theorem and the characteristic function, where panels would need 1e7 nodes."""
    minus, plus = (-9 * k * (1 - rho)).exp(), (-9 * k * (1 + rho)).exp()
    return 9 * (minus + plus) / 2 if order else (minus - plus) / 2


MEANS = (("0.7", "1.4", "0.5", "0.3", "-0.8"), ("1.1", "0.4", "-0.99", "-0.6", "0.2"))


def means() -> list[Row]:
    """Nonzero means, unequal variances."""
    rows: list[Row] = []
    for given in MEANS:
        a, b, rho, m1, m2 = map(arb, given)
        where = dict(zip(("s1", "s2", "rho", "m1", "m2"), given, strict=True))
        found = planes(functions(known()), (a, b), rho, (m1, m2))
        for (name, order), value in zip(known(), found, strict=True):
            rows.append({"f": name, "order": order, **where, "value": text(value)})
    return sorted(rows, key=lambda row: known().index((str(row["f"]), int(str(row["order"])))))


VECTORS = {
    "general": (["0.8", "-0.3", "0.5"], ["0.2", "0.9", "0.4"]),
    "equal": (["0.8", "-0.3", "0.5"], ["0.8", "-0.3", "0.5"]),
    "opposite": (["0.8", "-0.3", "0.5"], ["-0.8", "0.3", "-0.5"]),
    "zero": (["0", "0", "0"], ["0.2", "0.9", "0.4"]),
}
DIRECTION = ["0.4", "1.0", "-0.7"]
GRADIENTS = ("tanh", "silu", "gelu", "elu", "erf", "relu", "leaky", "square")


def gradients() -> list[Row]:
    """d/dt of E f(u)f(v) at t = 0, covariances those of x + t·direction and y: central differences, extrapolated."""
    fs = functions([(name, 0) for name in GRADIENTS])
    rows: list[Row] = []
    for where, (x, y) in VECTORS.items():

        def values(t: Ball, x: list[str] = x, y: list[str] = y) -> Balls:
            a = [arb(p) + t * arb(q) for p, q in zip(x, DIRECTION, strict=True)]
            b = [arb(q) for q in y]
            s = dot(a, a).sqrt(), dot(b, b).sqrt()
            cross = [a[i] * b[j] - a[j] * b[i] for i, j in ((0, 1), (1, 2), (2, 0))]
            return planes(fs, s, dot(a, b) / (s[0] * s[1]), gap=dot(cross, cross) / (dot(a, a) * dot(b, b)))

        steps = (arb("1e-8"), arb("2e-8"), arb("4e-8"))
        slopes = [[(p - q) / (2 * t) for p, q in zip(values(t), values(-t), strict=True)] for t in steps]
        for name, one, two, four in zip(GRADIENTS, *slopes, strict=True):
            slope = (8 * one - 6 * two + four) / 3  # errors of order t (a kink at zero variance) and t² are gone
            rows.append({"f": name, "where": where, "slope": text(slope)})
    return sorted(rows, key=lambda row: GRADIENTS.index(str(row["f"])))


def text(x: Ball) -> str:
    """25 digits, all of which the ball knows, of a number beside 1e-25."""
    assert float(x.rad()) <= 1e-26 * max(1.0, abs(float(x.mid())))
    return str(x.mid().str(25, radius=False))


def check() -> None:
    """Print every seventh kernel's change under the finer rule, relative to its norm."""
    table = json.loads(FILE.read_text())["kernels"]
    old = {(e["f"], e["order"], e["sigma"], e["rho"]): e for e in table}
    for sigma in SIGMAS:
        for e in kernels(known(sigma)[::7], sigma, FINE):
            key = (e["f"], e["order"], sigma, e["rho"])
            change = (arb(e["value"]) - arb(old[key]["value"])) / arb(old[key]["norm"])
            print(*key, f"{float(change.mid()):.2g}", flush=True)


def main() -> None:
    table: dict[str, list[Row]] = {"kernels": [], "means": [], "gradients": []}
    by_function: dict[Name, list[Row]] = {}
    for sigma in SIGMAS:
        for row in kernels(known(sigma), sigma):
            by_function.setdefault((str(row["f"]), int(str(row["order"]))), []).append(row)
        print("σ =", sigma, file=sys.stderr, flush=True)
    table["kernels"] = [row for rows in by_function.values() for row in rows]
    table["means"], table["gradients"] = means(), gradients()
    FILE.write_text(json.dumps(table, indent=0))


if __name__ == "__main__":
    check() if "--check" in sys.argv else main()
