"""E f(Z) for jointly Gaussian Z by panels of Gauss–Legendre nodes, in numpy; no closed form except for polynomials.

A product of factors is split into groups with uncorrelated arguments. In a group, every maximal affine argument of a
function is one Gaussian; after rank reduction at most two may remain, z₁ outside and z₂ inside, with panels that end
at the lines where an argument passes a kink. Polynomials take exact moments (Wick's theorem with means).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import sympy as sp

from netsor.compilers.reference.values import Array, evaluate
from netsor.errors import UnsupportedError
from netsor.functions import Head

Covariance = Callable[[sp.Symbol, sp.Symbol], float]
Mean = Callable[[sp.Symbol], float]
Form = tuple[dict[sp.Symbol, float], float]  # Σ coefficient · Gaussian + constant

REACH = 12.0  # standard deviations; the density is 1e-31 there
EVEN = np.arange(-REACH, REACH + 1, 2)
GRADES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


class Expectation:
    """E of expressions in Gaussian symbols with the given means and covariances."""

    def __init__(self, mean: Mean, cov: Covariance) -> None:
        self.mean = mean
        self.cov = cov
        self._known: dict[sp.Expr, float] = {}

    def __call__(self, expr: sp.Expr) -> float:
        if expr not in self._known:
            terms = sp.Add.make_args(sp.expand(expr))
            self._known[expr] = math.fsum(self._term(t) for t in terms)
        return self._known[expr]

    def _term(self, term: sp.Expr) -> float:
        coefficient, rest = term.as_independent(*term.free_symbols) if term.free_symbols else (term, sp.Integer(1))
        value = float(coefficient)
        factors = [_Factor(f) for f in sp.Mul.make_args(rest)] if rest != 1 else []
        for group in self._groups(factors):
            if value != 0:
                value *= self._group(group)
        return value

    def _groups(self, factors: Sequence[_Factor]) -> list[list[_Factor]]:
        """Factors joined when a Gaussian of one covaries with a Gaussian of another."""
        groups: list[list[_Factor]] = []
        for f in factors:
            joined = [g for g in groups if any(self._dependent(f, h) for h in g)]
            groups = [g for g in groups if g not in joined] + [[f, *itertools.chain(*joined)]]
        return groups

    def _dependent(self, f: _Factor, g: _Factor) -> bool:
        for a, b in itertools.product(f.forms, g.forms):
            size = math.sqrt(max(0.0, self.form_cov(a, a)) * max(0.0, self.form_cov(b, b)))
            if abs(self.form_cov(a, b)) > 1e-14 * size:
                return True
        return False

    def form_cov(self, a: Form, b: Form) -> float:
        return math.fsum(c * d * self.cov(g, h) for g, c in a[0].items() for h, d in b[0].items())

    def form_mean(self, a: Form) -> float:
        return a[1] + math.fsum(c * self.mean(g) for g, c in a[0].items())

    def _group(self, group: Sequence[_Factor]) -> float:
        if all(f.power is not None for f in group):
            forms = [f.forms[0] for f in group for _ in range(f.power or 0)]
            return self._wick(forms)
        forms, body, kinks = _joined(group)
        means = np.array([self.form_mean(f) for f in forms])
        root = _root(np.array([[self.form_cov(a, b) for b in forms] for a in forms]))
        if root.shape[1] > 2:
            raise UnsupportedError(
                f"E[{sp.Mul(*(f.expr for f in group))}] needs {root.shape[1]} Gaussian variables, this interpreter"
                " integrates over two", code="NT702",
            )  # fmt: skip
        lines = [(float(means[list(k)] @ np.array(s)) - at, np.array(s) @ root[list(k)]) for k, s, at in kinks]
        return _integral(lambda z: body(list(means[:, None] + root @ z)), lines, means, root)

    def _wick(self, forms: Sequence[Form]) -> float:
        """E of a product of Gaussians: E[X Y …] = E X · E[Y …] + Σ Cov(X, Yᵢ) E[… without Yᵢ]."""
        if not forms:
            return 1.0
        first, rest = forms[0], list(forms[1:])
        value = self.form_mean(first)
        total = value * self._wick(rest) if value != 0 else 0.0
        for i, other in enumerate(rest):
            c = self.form_cov(first, other)
            total += c * self._wick(rest[:i] + rest[i + 1 :]) if c != 0 else 0.0
        return total


class _Factor:
    """One factor of a product: an expression in dummies, each an affine form of Gaussians."""

    def __init__(self, expr: sp.Expr) -> None:
        self.expr = expr
        self.forms: list[Form] = []
        self.dummies: list[sp.Symbol] = []
        self.body = self._replaced(expr)
        base, exponent = self.body.as_base_exp()
        whole = base in self.dummies and exponent.is_Integer and exponent > 0
        self.power: int | None = int(exponent) if whole else None

    def _replaced(self, e: sp.Expr) -> sp.Expr:
        if not e.free_symbols:
            return e
        form = _affine(e)
        if form is None:
            return e.func(*(self._replaced(a) for a in e.args))
        if form not in self.forms:
            self.forms.append(form)
            self.dummies.append(sp.Dummy(f"d{len(self.forms)}", real=True))
        return self.dummies[self.forms.index(form)]


def _affine(e: sp.Expr) -> Form | None:
    """The coefficients of an affine expression; None for any other."""
    coefficients: dict[sp.Symbol, float] = {}
    constant = 0.0
    for term in sp.Add.make_args(e):
        if not term.free_symbols:
            constant += float(term)
            continue
        number, rest = term.as_coeff_Mul()
        symbols = [a for a in sp.Mul.make_args(rest) if a.free_symbols]
        others = sp.Mul(*(a for a in sp.Mul.make_args(rest) if not a.free_symbols))
        if len(symbols) != 1 or not symbols[0].is_Symbol:
            return None
        coefficients[symbols[0]] = coefficients.get(symbols[0], 0.0) + float(number * others)
    return coefficients, constant


Kink = tuple[tuple[int, ...], tuple[float, ...], float]  # Σ s_i · form_i = value


def _joined(group: Sequence[_Factor]) -> tuple[list[Form], Callable[[Sequence[Array]], Array], list[Kink]]:
    """All forms of a group, the product as a function of their values, and where it has kinks."""
    forms: list[Form] = []
    table: dict[sp.Symbol, int] = {}
    for f in group:
        for form, dummy in zip(f.forms, f.dummies, strict=True):
            if form not in forms:
                forms.append(form)
            table[dummy] = forms.index(form)
    kinks = [k for f in group for k in _kinks(f.body, table)]

    def body(values: Sequence[Array]) -> Array:
        given = {d: values[i] for d, i in table.items()}
        result: Array = np.ones_like(values[0])
        for f in group:
            result = result * evaluate(f.body, given)
        return result

    return forms, body, kinks


def _kinks(body: sp.Expr, table: Mapping[sp.Symbol, int]) -> list[Kink]:
    found: list[Kink] = []
    for e in sp.preorder_traversal(body):
        if isinstance(e, Head) and e.args[0] in table:
            found += [((table[e.args[0]],), (1.0,), float(k)) for k in e.spec.kinks]
        elif isinstance(e, sp.Heaviside | sp.Abs | sp.sign) and e.args[0] in table:
            found.append(((table[e.args[0]],), (1.0,), 0.0))
        elif isinstance(e, sp.floor | sp.ceiling) and e.args[0] in table:
            found += [((table[e.args[0]],), (1.0,), float(k)) for k in range(-40, 41)]
        elif isinstance(e, sp.Max | sp.Min):
            places = [table[a] for a in e.args if a in table]
            found += [((i, j), (1.0, -1.0), 0.0) for i, j in itertools.combinations(places, 2)]
            found += [((i,), (1.0,), float(a)) for i in places for a in e.args if a.is_number]
    return found


def _root(cov: Array) -> Array:
    """L with L Lᵀ = cov and as few columns as its rank (pivoted Cholesky)."""
    rest = cov.copy()
    scale = np.diag(cov).copy()
    columns: list[Array] = []
    while len(columns) < len(cov):
        relative = np.diag(rest) / np.where(scale > 0, scale, np.inf)
        if relative.max(initial=0.0) <= 1e-13:
            break
        k = int(np.argmax(np.where(relative > 1e-13, np.diag(rest), -1.0)))
        column = rest[:, k] / math.sqrt(rest[k, k])
        columns.append(column)
        rest = rest - np.outer(column, column)
    return np.stack(columns, 1) if columns else np.zeros((len(cov), 0))


# ---------------------------------------------------------------- quadrature


def _integral(f: Callable[[Array], Array], lines: Sequence[tuple[float, Array]], means: Array, root: Array) -> float:
    """∫ f(z) N(z; 0, 1) dz for z in R⁰, R¹, R²; the panels' order grows until two results agree."""
    rank = root.shape[1]
    if rank == 0:
        return float(f(np.zeros((0, 1)))[0])
    steep = [(m, a) for m, a in zip(means, root, strict=True) if np.linalg.norm(a) > 1.5]
    graded = [(m - s * g, a) for m, a in steep for g in GRADES for s in (1, -1)]
    rule = _line_rule if rank == 1 else _plane_rule
    previous = change = math.nan
    size = 0.0
    for order in (10, 20, 40, 80) if rank == 1 else (10, 16, 28, 48):
        value, size = rule(f, list(lines), graded, order)
        if abs(value - previous) <= 1e-12 * size:
            return value
        change, previous = abs(value - previous), value
    if change <= 1e-10 * size:
        return previous
    raise UnsupportedError("an expectation does not converge by quadrature", code="NT702")


def _line_rule(
    f: Callable[[Array], Array], lines: list[tuple[float, Array]], graded: list[tuple[float, Array]], order: int
) -> tuple[float, float]:
    ends = [-m / a[0] for m, a in lines + graded if a[0] != 0]
    z, w = _panels(np.array([ends]), order)
    values = f(z) * w[0] * _density(z[0])
    return float(values.sum()), float(np.abs(values).sum())


def _plane_rule(
    f: Callable[[Array], Array], lines: list[tuple[float, Array]], graded: list[tuple[float, Array]], order: int
) -> tuple[float, float]:
    outer = [-m / a[0] for m, a in graded if a[0] != 0]
    for m, a in lines:
        if a[0] != 0:
            outer += [-m / a[0] + s * g * abs(a[1] / a[0]) for g in GRADES[:6] for s in (1, -1)]
    for (m, a), (n, b) in itertools.combinations(lines, 2):
        determinant = a[0] * b[1] - a[1] * b[0]
        if determinant != 0:
            outer.append((n * a[1] - m * b[1]) / determinant)
    z1, w1 = (x[0] for x in _panels(np.array([outer]), order))
    crossing = [(m, a) for m, a in lines + graded if a[1] != 0]
    total = size = 0.0
    for part in np.array_split(np.arange(len(z1)), max(1, len(z1) // 256)):
        ends = np.array([-(m + a[0] * z1[part]) / a[1] for m, a in crossing]).T.reshape(len(part), -1)
        z2, w2 = _panels(ends, order)
        z = np.stack([np.broadcast_to(z1[part, None], z2.shape).ravel(), z2.ravel()])
        weight = ((w1[part] * _density(z1[part]))[:, None] * (w2 * _density(z2))).ravel()
        values = f(z) * weight
        total, size = total + float(values.sum()), size + float(np.abs(values).sum())
    return total, size


def _panels(ends: Array, order: int) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and weights on [−R, R], rows of panels ending at the even numbers and at `ends`."""
    whole = np.broadcast_to(EVEN, (len(ends), len(EVEN)))
    edges = np.sort(np.concatenate([whole, np.clip(ends, -REACH, REACH)], 1), 1)
    x, w = _gauss_legendre(order)
    middle, half = (edges[:, 1:] + edges[:, :-1]) / 2, (edges[:, 1:] - edges[:, :-1]) / 2
    nodes = middle[:, :, None] + half[:, :, None] * x
    return nodes.reshape(len(ends), -1), (half[:, :, None] * w).reshape(len(ends), -1)


@lru_cache
def _gauss_legendre(order: int) -> tuple[Array, Array]:
    x, w = np.polynomial.legendre.leggauss(order)
    return x, w


def _density(z: Array) -> Array:
    return np.asarray(np.exp(-z * z / 2) / math.sqrt(2 * math.pi))
