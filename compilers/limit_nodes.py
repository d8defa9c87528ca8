"""E F for F = f(A g + c) · Π g_i, g standard normal and A of rank one or two, by panels that end at the kinks of f.

In an orthonormal basis of the rows of A the variables are ζ and what is orthogonal to it; the polynomial's mean given
ζ is Isserlis' theorem. Gauss–Legendre panels double in width away from the zeros and kinks of every form, so that steep
functions are resolved. The bound is what a rule of lower order on the same panels changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
REACH, WIDTH = 9.0, 1.5
ORDERS = (20, 14)
SMALL = 1e-11  # share of a row that is linearly dependent on earlier ones
MOST = 4_000_000  # nodes


@dataclass(frozen=True)
class Integrand:
    """f of the forms `rows · g + centre`, kinks of f in each, and the variables (with repeats) of the polynomial."""

    rows: Array
    centre: Array
    kinks: Sequence[Sequence[float]]
    f: Callable[[Array], Array]
    factors: Sequence[int]


def normal_moment(k: int) -> int:
    """E gᵏ"""
    return 0 if k % 2 else int(np.prod(np.arange(1, k, 2), dtype=object)) if k else 1


def expectation(q: Integrand) -> tuple[float, float, float] | None:
    """E F, a bound of its error, and √(E F²); None when the rank is more than two or there are too many nodes."""
    basis = orthonormal(q.rows)
    if len(basis) > 2:
        return None
    slopes = q.rows @ basis.T
    found = []
    for order in ORDERS:
        nodes = _nodes(q, slopes, order)
        if nodes is None:
            return None
        zeta, weights = nodes
        with np.errstate(all="ignore"):
            forms = np.tensordot(slopes, zeta, 1) + q.centre.reshape(-1, *(1,) * (zeta.ndim - 1))
            whole = q.f(forms) * _polynomial(q.factors, basis, zeta)
            found.append((float((weights * whole).sum()), float((weights * whole**2).sum())))
    (fine, square), (coarse, _) = found
    scale = square**0.5
    return fine, abs(fine - coarse) + 1e-15 * scale, scale


def orthonormal(rows: Array) -> Array:
    """A basis of the rows, in their order."""
    basis: list[Array] = []
    for row in rows:
        rest = row.copy()
        for _ in range(2):
            for e in basis:
                rest = rest - (rest @ e) * e
        size = float(np.linalg.norm(rest))
        if size > SMALL * float(np.linalg.norm(row)):
            basis.append(rest / size)
    return np.array(basis).reshape(len(basis), rows.shape[1])


def _polynomial(factors: Sequence[int], basis: Array, zeta: Array) -> Array:
    """E[Π g_i | ζ] with g_i = b_i·ζ + rest, Cov rest = 1 − BᵀB (Isserlis)."""
    means = {i: np.tensordot(basis[:, i], zeta, 1) for i in set(factors)}

    def of(left: tuple[int, ...]) -> Any:
        if not left:
            return 1.0
        first, *others = left
        total = means[first] * of(tuple(others))
        for k, other in enumerate(others):
            cov = float(first == other) - float(basis[:, first] @ basis[:, other])
            if abs(cov) > SMALL:
                total = total + cov * of((*others[:k], *others[k + 1 :]))
        return total

    return np.asarray(of(tuple(factors)))


# ---------------------------------------------------------------- nodes


def _nodes(q: Integrand, slopes: Array, order: int) -> tuple[Array, Array] | None:
    """ζ `[rank, …]` and Gaussian weights."""
    x, w = np.polynomial.legendre.leggauss(order)
    breaks = [(row, k - c) for row, c, points in zip(slopes, q.centre, q.kinks, strict=True) for k in (*points, 0.0)]
    if slopes.shape[1] == 0:
        return np.zeros((0, 1)), np.ones(1)
    if slopes.shape[1] == 1:
        steep = max(1.0, float(np.abs(slopes).max()))
        edges = _edges([np.array(k / row[0]) for row, k in breaks if row[0]], 0.25 / steep)
        z, weights = _panels(edges, x, w)
        return z[None], weights
    return _plane(breaks, slopes, x, w)


def _plane(breaks: Sequence[tuple[Array, float]], slopes: Array, x: Array, w: Array) -> tuple[Array, Array] | None:
    """ζ₁ outside, ζ₂ inside; a form a₁ζ₁ + a₂ζ₂ = k breaks the inner line, and the outer one where two such meet."""
    inner = [(row, k) for row, k in breaks if abs(row[1]) > SMALL * np.abs(row).max()]
    meets = [k / row[0] for row, k in breaks if row[0]]
    for i, (a, k) in enumerate(inner):
        for b, m in inner[:i]:
            det = a[0] * b[1] - b[0] * a[1]
            if abs(det) > SMALL * np.abs(a).max() * np.abs(b).max():
                meets.append((k * b[1] - m * a[1]) / det)
    meets = sorted({round(float(m), 12) for m in meets})
    thin = min([1.0, *(abs(row[1] / row[0]) for row, _ in inner if row[0])])
    steep = max(1.0, float(np.abs(slopes).max()))
    outer, weights = _panels(_edges([np.array(m) for m in meets], 0.25 * min(thin, 1 / steep)), x, w)
    lines = {(round(float(row[0] / row[1]), 12), round(float(k / row[1]), 12)) for row, k in inner}
    narrow = max(1.0, float(np.abs(slopes[:, 1]).max()))
    edges = _edges([k - a * outer for a, k in sorted(lines)], 0.25 / narrow)
    if edges.size * len(x) > MOST:
        return None
    z, inside = _panels(edges, x, w)
    return np.stack([np.broadcast_to(outer[:, None], z.shape), z]), weights[:, None] * inside


def _edges(centres: Sequence[Array], smallest: float) -> Array:
    """Ends of panels `[…, end]` on ±REACH: uniform ones, and doubling away from every centre."""
    uniform = np.arange(-REACH, REACH + WIDTH / 2, WIDTH)
    reach = smallest * 2.0 ** np.arange(0, max(1, int(np.ceil(np.log2(2 * WIDTH / smallest)))))
    shape = np.shape(centres[0]) if centres else ()
    parts = [np.broadcast_to(uniform, (*shape, len(uniform)))]
    for c in centres:
        parts += [c[..., None], c[..., None] + reach, c[..., None] - reach]
    return np.sort(np.clip(np.concatenate(parts, -1), -REACH, REACH), -1)


def _panels(edges: Array, x: Array, w: Array) -> tuple[Array, Array]:
    """Gauss–Legendre nodes `[…, node]` and weights times the Gaussian density."""
    low, high = edges[..., :-1, None], edges[..., 1:, None]
    z = ((low + high) / 2 + (high - low) / 2 * x).reshape(*edges.shape[:-1], -1)
    weights = ((high - low) / 2 * w).reshape(*edges.shape[:-1], -1)
    return z, weights * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
