"""Linear networks trained in the maximal update parametrisation, by recursions of moments; netsor is not used.

One hidden layer, f = v·U ξ/(n√d): θ = Uᵀv/n, A = UᵀU/n and B = v·v/n move by closed formulas. Two hidden layers,
f = v·W U ξ/(n√d): every vector is a combination of words in W₀, W₀ᵀ applied to the columns of U₀ or to v₀, and
⟨(W₀ᵀW₀)^k u, u⟩ → the k-th Catalan number, the moments of the Marchenko-Pastur law of a square matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb

Number = Fraction
Vector = dict[tuple[str, int], Fraction]  # (root, number of matrices applied to it) to its coefficient
Data = Sequence[Sequence[Fraction]]


def one_hidden(x: Data, y: Sequence[Fraction], lr: Fraction, steps: int) -> list[list[Fraction]]:
    """The outputs times 1 for inputs ξ/√d given, by step."""
    d = range(len(x[0]))
    theta, b = [Fraction(0)] * len(d), Fraction(1)
    a = [[Fraction(i == j) for j in d] for i in d]
    found = []
    for _ in range(steps + 1):
        f = [sum((t * c for t, c in zip(theta, row, strict=True)), Fraction(0)) for row in x]
        found.append(f)
        g = [sum(((o - t) * row[k] for o, t, row in zip(f, y, x, strict=True)), Fraction(0)) for k in d]
        ag = [sum((a[i][j] * g[j] for j in d), Fraction(0)) for i in d]
        tg, gag = sum(theta[k] * g[k] for k in d), sum(g[k] * ag[k] for k in d)
        new = [theta[k] - lr * ag[k] - lr * b * g[k] + lr**2 * g[k] * tg for k in d]
        a = [
            [a[i][j] - lr * (theta[i] * g[j] + g[i] * theta[j]) + lr**2 * b * g[i] * g[j] for j in d] for i in d
        ]  # fmt: skip
        b, theta = b - 2 * lr * tg + lr**2 * gag, new
    return found


def catalan(k: int) -> int:
    return comb(2 * k, k) // (k + 1)


def product(p: Vector, q: Vector) -> Fraction:
    """⟨p, q⟩/n of two vectors of the same layer."""
    return sum(
        (a * b * catalan((i + j) // 2) for (r, i), a in p.items() for (s, j), b in q.items() if r == s), Fraction(0)
    )


def total(*terms: tuple[Fraction, Vector]) -> Vector:
    found: Vector = {}
    for c, p in terms:
        for key, a in p.items():
            found[key] = found.get(key, Fraction(0)) + c * a
    return found


def applied(p: Vector, moved: Sequence[tuple[Vector, Vector]]) -> Vector:
    """(W₀ + Σ left rightᵀ/n) p; the transpose is had with the pairs swapped."""
    first = {(r, i + 1): a for (r, i), a in p.items()}
    return total((Fraction(1), first), *((product(right, p), left) for left, right in moved))


def two_hidden(x: Data, y: Sequence[Fraction], lr: Fraction, steps: int) -> list[list[Fraction]]:
    columns: list[Vector] = [{(f"u{k}", 0): Fraction(1)} for k in range(len(x[0]))]
    v: Vector = {("v", 0): Fraction(1)}
    moved: list[tuple[Vector, Vector]] = []
    found = []
    for _ in range(steps + 1):
        h = [total(*zip(row, columns, strict=True)) for row in x]
        k = [applied(p, moved) for p in h]
        f = [product(v, p) for p in k]
        found.append(f)
        chi = [o - t for o, t in zip(f, y, strict=True)]
        back = applied(v, [(right, left) for left, right in moved])
        dk = [(v, p, c) for p, c in zip(h, chi, strict=True)]
        columns = [
            total((Fraction(1), u), *((-lr * c * row[m], back) for c, row in zip(chi, x, strict=True)))
            for m, u in enumerate(columns)
        ]  # fmt: skip
        v_next = total((Fraction(1), v), *((-lr * c, p) for c, p in zip(chi, k, strict=True)))
        moved = [*moved, *((total((-lr * c, left)), right) for left, right, c in dk)]
        v = v_next
    return found
