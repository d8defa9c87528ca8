"""The tangent kernel of two functions: Θ(F, Ḡ) = Σ_ij E[∂_i F ∂_j Ḡ] Θ(u_i, v_j).

This holds for Gaussian variables. A non-Gaussian one may stay in their place where it is *detached* (a factor of its
side, independent of the other factors) and nothing on the other side depends on it, except for one detached variable
that depends on nothing else there: Θ(u A, v B) = E[A B] Θ(u, v). Otherwise it is replaced by its definition, or the
other side, which is a function of it, is taken as one variable: Θ(u A, u) = E[A] Θ(u, u).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import sympy as sp

from netsor.compilers.derive.entries.arithmetic import mul
from netsor.compilers.derive.entries.functions_of import Sides, derivative
from netsor.compilers.derive.entries.terms import Term, Terms, collect
from netsor.compilers.derive.entries.values import Kind
from netsor.compilers.derive.normalised import Normalised
from netsor.compilers.derive.references import Ref, Scope

if TYPE_CHECKING:
    from netsor.compilers.derive.expectations import Expectations


class ChainRule:
    """Tangent kernels where neither side expands."""

    def __init__(self, expectations: Expectations) -> None:
        self.e = expectations

    def tangent(self, kind: Kind, a: Ref, b: Ref) -> Terms:
        """Θ(F, Ḡ) of two references."""
        scope = Scope()
        left = self._collapsed(scope, self.e._expression(scope, a, False), False)
        right = self._collapsed(scope, self.e._expression(scope, b, True), True)
        sides = self._matched(scope, Sides(left, right), a, b)
        mine, theirs = (self.e._variables(scope, side) for side in sides)
        if any(self.e._is_radius(scope, s) for s in (*mine, *theirs)):
            return Normalised(self.e, scope).tangent(kind, sides, self)
        return self.slopes(kind, scope, sides, mine, theirs)

    def slopes(
        self, kind: Kind, scope: Scope, sides: Sides, mine: list[sp.Symbol], theirs: list[sp.Symbol]
    ) -> Terms:  # fmt: skip
        """Σ_ij E[∂_i F ∂_j Ḡ] Θ(u_i, v_j) over some of the variables."""
        out: list[Term] = []
        for i, j in itertools.product(mine, theirs):
            theta = self.e.rules.tangent(scope.refs[i], scope.refs[j], kind)
            if not theta:
                continue
            integrand = derivative(sides.left, i) * derivative(sides.right, j)
            for deltas, value in theta:
                inner = self.e._unified(scope, integrand, deltas)
                out.extend((d | deltas, mul(value, v)) for d, v in inner)
        return collect(out)

    # ------------------------------------------------------------ which variables stay

    def _collapsed(self, scope: Scope, expr: sp.Expr, right: bool) -> sp.Expr:
        """Non-Gaussian variables replaced, but for detached ones."""
        while True:
            offender = next((s for s in self.e._variables(scope, expr) if self._must_open(scope, expr, s)), None)
            if offender is None:
                return expr
            expr = self.e._substitute(scope, expr, offender, right)

    def _must_open(self, scope: Scope, expr: sp.Expr, s: sp.Symbol) -> bool:
        if self.e._is_gaussian(scope, s) or self.e._is_radius(scope, s):
            return False
        return not self._detached(scope, expr, s)

    def _detached(self, scope: Scope, expr: sp.Expr, s: sp.Symbol) -> bool:
        """A factor that shares no source with the others."""
        linear = expr.is_Symbol or (expr.is_Mul and s in expr.args)
        others = [o for o in self.e._variables(scope, expr) if o != s]
        return linear and all(not self.e._dependent(scope, s, o) for o in others)

    def _matched(self, scope: Scope, sides: Sides, a: Ref, b: Ref) -> Sides:
        """Both sides with only those non-Gaussian variables that the other side allows."""
        while (found := self._offender(scope, sides)) is not None:
            for whole in (Sides(sides.left, scope.add(b, True)), Sides(scope.add(a, False), sides.right)):
                if self._offender(scope, whole) is None:
                    return whole
            s, right = found
            opened = self._collapsed(scope, self.e._substitute(scope, sides[right], s, right), right)
            sides = Sides(sides.left, opened) if right else Sides(opened, sides.right)
        return sides

    def _offender(self, scope: Scope, sides: Sides) -> tuple[sp.Symbol, bool] | None:
        """A non-Gaussian variable that must not stay, and whether it is on the right."""
        for right, (own, other) in enumerate((sides, sides[::-1])):
            for s in self.e._variables(scope, own):
                stays = self.e._is_gaussian(scope, s) or self.e._is_radius(scope, s)
                if not stays and not self._allowed(scope, own, other, s):
                    return s, bool(right)
        return None

    def _allowed(self, scope: Scope, own: sp.Expr, other: sp.Expr, s: sp.Symbol) -> bool:
        partners = [t for t in self.e._variables(scope, other) if self.e._dependent(scope, s, t)]
        if not partners:
            return True
        t, *more = partners
        back = [u for u in self.e._variables(scope, own) if self.e._dependent(scope, u, t)]
        return not more and self._detached(scope, other, t) and (back == [s] or self.e._is_gaussian(scope, t))
