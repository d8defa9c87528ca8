"""E F for F = f(A g + c) · Π g_i, g standard normal, A of low rank.

In an orthonormal basis of the rows of A the variables are ζ and what is orthogonal to it; the polynomial's mean given
ζ is Isserlis' theorem. Two rules for ζ:
 * for f without kinks and rank up to four, a lattice in a ball (the trapezoid rule), whose error e^{−2πd/h} falls
   geometrically with the step h when f is analytic within d of the reals; h shrinks with the steepness of the forms;
 * for rank one and two, Gauss–Legendre panels that end at the zeros and kinks of every form and double in width away
   from them, so that steep functions are resolved.
The bound is what a coarser rule of the same kind changes, and what lies further out than REACH − 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netsor.compilers.expectation.quadrature.nodes import legendre

Array = np.ndarray[Any, Any]
REACH, WIDTH = 9.0, 1.5
ORDERS = ((14, 10), (20, 14))  # of panels: the rule, and the coarser one that bounds it
STEPS = {1: 0.1, 2: 0.2, 3: 0.25, 4: 0.3}  # of a lattice, by rank, for forms of slope 1
COARSER, GENTLEST = 1.25, 0.6  # the second lattice's step; the slope from which the Gaussian's own width decides
GOOD = 2e-13  # bound beyond which the next rule is tried
SMALL = 1e-11  # share of a row that is linearly dependent on earlier ones
MOST = 4_000_000  # nodes of panels
LARGEST = {
    1: 400_000,
    2: 400_000,
    3: 12_000_000,
    4: 12_000_000,
}  # of a lattice, by rank; panels resolve steep functions
CHUNK = 400_000

Nodes = Iterable[tuple[Array, Array]]  # ζ `[rank, …]` and Gaussian weights, in parts


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
    """E F, a bound of its error, and √(E F²); None when the rank is too high or there are too many nodes."""
    basis = orthonormal(q.rows)
    slopes = q.rows @ basis.T
    best: tuple[float, float, float] | None = None
    for fine, coarse in _rules(q, slopes):
        (value, square, outside), (other, *_) = (_sums(q, basis, slopes, nodes) for nodes in (fine, coarse))
        scale = square**0.5
        bound = abs(value - other) + outside + 1e-15 * scale
        best = (value, bound, scale) if best is None or bound < best[1] else best
        if bound <= GOOD * scale:
            break
    return best


def _rules(q: Integrand, slopes: Array) -> Iterator[tuple[Nodes, Nodes]]:
    """Pairs of a rule and a coarser one, the cheapest first."""
    rank = slopes.shape[1]
    if rank in STEPS and not any(q.kinks):
        fine, coarse = (_lattice(slopes, STEPS[rank] * c) for c in (1, COARSER))
        if fine is not None and coarse is not None:
            yield fine, coarse
    for orders in ORDERS if rank <= 2 else ():
        fine, coarse = (_nodes(q, slopes, order) for order in orders)
        if fine is not None and coarse is not None:
            yield fine, coarse


def _sums(q: Integrand, basis: Array, slopes: Array, nodes: Nodes) -> tuple[float, float, float]:
    """Σ w F, Σ w F², and Σ w |F| outside of the ball of radius REACH − 1."""
    total = np.zeros(3)
    for zeta, weights in nodes:
        with np.errstate(all="ignore"):
            forms = np.tensordot(slopes, zeta, 1) + q.centre.reshape(-1, *(1,) * (zeta.ndim - 1))
            whole = q.f(forms) * _polynomial(q.factors, basis, zeta)
            part = weights * whole
            outside = (zeta**2).sum(0) > (REACH - 1) ** 2
            total += [part.sum(), (part * whole).sum(), np.abs(part[outside]).sum()]
    mean, square, rest = total.tolist()
    return mean, square, rest


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


def _lattice(slopes: Array, step: float) -> Nodes | None:
    """The points of a lattice in the ball of radius REACH; its steps fall with the slopes along each direction."""
    rank = slopes.shape[1]
    steps = step / np.maximum(np.abs(slopes).max(0), GENTLEST)
    ball = math.pi ** (rank / 2) / math.gamma(rank / 2 + 1) * REACH**rank
    return None if ball / np.prod(steps) > LARGEST[rank] else _lattice_points(steps)


def _lattice_points(steps: Array) -> Iterator[tuple[Array, Array]]:
    axes = [h * np.arange(-np.floor(REACH / h), np.floor(REACH / h) + 1) for h in steps]
    cell = float(np.prod(steps)) / (2 * np.pi) ** (len(steps) / 2)
    rest = int(np.prod([len(a) for a in axes[1:]]))
    size = max(1, CHUNK // rest)
    for start in range(0, len(axes[0]), size):
        part = [axes[0][start : start + size], *axes[1:]]
        square = sum(a.reshape(-1, *(1,) * (len(axes) - 1 - i)) ** 2 for i, a in enumerate(part))
        inside = np.nonzero(np.asarray(square) <= REACH**2)
        zeta = np.stack([a[i] for a, i in zip(part, inside, strict=True)])
        yield zeta, cell * np.exp(-(zeta**2).sum(0) / 2)


def _nodes(q: Integrand, slopes: Array, order: int) -> Nodes | None:
    """Panels on a line or in a plane."""
    x, w = legendre(order)
    breaks = [(row, k - c) for row, c, points in zip(slopes, q.centre, q.kinks, strict=True) for k in (*points, 0.0)]
    if slopes.shape[1] == 0:
        return [(np.zeros((0, 1)), np.ones(1))]
    if slopes.shape[1] == 1:
        steep = max(1.0, float(np.abs(slopes).max()))
        edges = _edges([np.array(k / row[0]) for row, k in breaks if row[0]], 0.25 / steep)
        z, weights = _panels(edges, x, w)
        return [(z[None], weights)]
    found = _plane(breaks, slopes, x, w)
    return None if found is None else [found]


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
