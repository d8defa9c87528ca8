"""Quotients N/D of one argument whose singularities are removable: (x² − 1)/(x − 1), (1 − cos x)/x².

N is analytic on the real line, D a polynomial, and N vanishes at every real root of D at least as often as D does. The
quotient then extends to an analytic function; off the roots |D| is bounded from below, so it grows no faster than N.
"""

from __future__ import annotations

import sympy as sp

from netsor.checker.regularity.bounds import bound
from netsor.functions import Head
from netsor.measure import MOST_TERMS, tree_size

_ENTIRE = (sp.sin, sp.cos, sp.exp, sp.sinh, sp.cosh, sp.tanh, sp.erf)
_LARGEST = 200  # nodes
_MOST_DEGREE = 20


def polynomial_quotient(e: sp.Expr) -> bool:
    """Proven: e is such a quotient, and polynomially bounded."""
    if len(e.free_symbols) != 1 or tree_size(e) > _LARGEST:
        return False
    (s,) = e.free_symbols
    top, bottom = sp.fraction(sp.together(e))
    if tree_size(bottom) > MOST_TERMS or not bottom.is_polynomial(s) or not _analytic(top):
        return False
    poly = sp.Poly(bottom, s)
    if not poly.domain.is_Exact or not all(c.is_Rational for c in poly.all_coeffs()) or poly.degree() > _MOST_DEGREE:
        return False
    return bound(top, {}).polynomial and _vanishes_at_roots(top, poly, s)


def _vanishes_at_roots(top: sp.Expr, poly: sp.Poly, s: sp.Symbol) -> bool:
    """At every real root, as often as the polynomial; roots that are not rational are left undecided."""
    rest = poly
    for root, times in poly.ground_roots().items():
        rest = rest.quo(sp.Poly(s - root, s) ** times)
        slope = top
        for _ in range(times):
            if slope.subs(s, root) != 0:
                return False
            slope = sp.diff(slope, s)
    return rest.degree() == 0 or bool(rest.count_roots() == 0)


def _analytic(e: sp.Expr) -> bool:
    """Composed of functions that are analytic on the real line."""
    if not e.args:
        return isinstance(e, sp.Symbol) or bool(e.is_real)
    if isinstance(e, sp.Pow) and not isinstance(e, sp.exp):
        return (e.is_number and bool(e.is_real)) or (e.exp.is_Integer and bool(e.exp > 0) and _analytic(e.base))
    ours = isinstance(e, Head) and e.spec.analytic
    return (ours or isinstance(e, (sp.Add, sp.Mul, *_ENTIRE))) and all(map(_analytic, e.args))
