"""Functions of a normalised Gaussian family, y = c/√(mean_k c_k² + ε): batch normalisation.

A radius is a mean over axes of the square of a Gaussian node. Positively homogeneous functions move out of it,
relu(c/r) = relu(c)/r, so an integrand becomes f(c_i) g(c̄_j) r^{-2p} r̄^{-2p̄}: one radial value. A homogeneous function
of a product is a sum of products, relu(γc) = γc/2 + |γ||c|/2, whose independent factors have expectations of their own;
what does not vary (γ and β of variance 0) is its mean.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.arithmetic import mul
from netsor.compilers.derive.entries.functions_of import Sides, degree, derivative
from netsor.compilers.derive.entries.indices import Sym
from netsor.compilers.derive.entries.terms import Terms, collect, dense, scale, single
from netsor.compilers.derive.entries.values import ZERO, Kind, Radial, RadialSide, Value
from netsor.compilers.derive.nodes import AnyNode, Fun, Reduced, unsupported
from netsor.compilers.derive.references import Ref
from netsor.functions import Head, expression_parity
from netsor.functions import abs as absolute
from netsor.functions import sign as signum

if TYPE_CHECKING:
    from netsor.compilers.derive.chain import ChainRule
    from netsor.compilers.derive.expectations import Expectations, Monomial
    from netsor.compilers.derive.references import Scope

Z = sp.Symbol("z", real=True)


@dataclass(frozen=True)
class Radius:
    """mean over `axes` of the square of `node`."""

    node: AnyNode
    axes: tuple[ir.Axis, ...]


def radius_of(node: AnyNode, gaussian: frozenset[int]) -> Radius | None:
    """The radius that a node is, if it is one."""
    axes: list[ir.Axis] = []
    inner = node
    while isinstance(inner, Reduced) and inner.line.op == "mean":
        axes.append(inner.line.axis)
        inner = inner.of
    if not axes or not isinstance(inner, Fun) or len(inner.args) != 1:
        return None
    (arg,) = inner.args
    if inner.expr != arg.symbol**2 or arg.id not in gaussian:
        return None
    return Radius(arg, tuple(axes))


@dataclass
class _Form:
    """f per Gaussian variable, and (power, ε) per radius."""

    functions: dict[sp.Symbol, sp.Expr]
    radii: dict[sp.Symbol, tuple[sp.Expr, sp.Expr]]


class Normalised:
    """Radial values for integrands of one scope."""

    def __init__(self, expectations: Expectations, scope: Scope) -> None:
        self.e, self.scope = expectations, scope
        self.rules = expectations.rules

    def expect(self, expr: sp.Expr) -> Terms:
        """E expr of one component; in a form without homogeneous functions of products it is a radial value."""
        flat = self.homogenised(self.e.constants_out(self.scope, expr))
        if flat != expr:
            return self.e.expect(self.scope, flat)
        return self._radial(sp.Mul.make_args(expr))

    def tangent(self, kind: Kind, sides: Sides, chain: ChainRule) -> Terms:
        """Θ(F, Ḡ): the chain rule over independent variables (γ, β), and Price's theorem over the families."""
        radii = [s for side in sides for s in self.e._variables(self.scope, side) if self._radius(s)]
        mine, theirs = (self._others(side, radii) for side in sides)
        out = list(chain.slopes(kind, self.scope, sides, mine, theirs))
        left, right = (self._families(side, radii) for side in sides)
        for (c1, rest1, one), (c2, rest2, two) in itertools.product(left, right):
            value = self._two_sided(self._form(one), self._form(two), kind)
            if value != ZERO:
                out += scale(self.e.expect(self.scope, rest1 * rest2), mul(c1, c2, value))
        return collect(out)

    def _others(self, side: sp.Expr, radii: list[sp.Symbol]) -> list[sp.Symbol]:
        """The variables of one side that are neither radii nor elements of a normalised family."""
        out: list[sp.Symbol] = []
        for s in self.e._variables(self.scope, side):
            if any(self._belongs(s, r) for r in radii):
                derivative(side, s)  # an error where it jumps
            elif any(self.e._dependent(self.scope, s, r) for r in radii if s not in radii):
                raise unsupported("a function of a normalised vector and of another Gaussian vector together")
            elif s not in radii:
                out.append(s)
        return out

    def _families(self, side: sp.Expr, radii: list[sp.Symbol]) -> list[tuple[Value, sp.Expr, Monomial]]:
        """F as a sum of (number, function of independent variables, factors of a normalised family)."""
        out: list[tuple[Value, sp.Expr, Monomial]] = []
        for coefficient, factors in self.e._monomials(
            self.scope, self.homogenised(self.e.constants_out(self.scope, side))
        ):
            rest = [f for f in factors if not self._of_family(f, radii)]
            if len(rest) < len(factors):
                out.append((coefficient, sp.Mul(*rest), tuple(f for f in factors if f not in rest)))
        return out

    def _of_family(self, factor: sp.Expr, radii: list[sp.Symbol]) -> bool:
        return any(self.e._dependent(self.scope, s, r) for s in self.e._variables(self.scope, factor) for r in radii)

    # ------------------------------------------------------------ homogeneity

    def _radius(self, s: sp.Symbol) -> Radius | None:
        return radius_of(self.scope.refs[s].node, self.rules.normal.gaussian)

    def _positive(self, e: sp.Expr) -> bool:
        """A power of (radius + number), a square, or a positive number."""
        if e.is_number:
            return bool(e.is_positive)
        base, exponent = e.as_base_exp()
        return self._radius_in(base) is not None or bool(exponent.is_Integer and exponent % 2 == 0)

    def _radius_in(self, base: sp.Expr) -> tuple[sp.Symbol, sp.Expr] | None:
        """(radius, ε) of radius + ε."""
        terms = sp.Add.make_args(base)
        names = [t for t in terms if t.is_Symbol and t in self.scope.refs and self._radius(t)]
        rest = sp.Add(*(t for t in terms if t not in names))
        return (names[0], rest) if len(names) == 1 and rest.is_number else None

    def homogenised(self, expr: sp.Expr) -> sp.Expr:
        """Positive factors moved out of homogeneous functions, and these of products opened, innermost first."""
        if expr.is_Symbol or expr.is_number:
            return expr
        inner = expr.func(*(self.homogenised(a) for a in expr.args))
        if not isinstance(inner, Head):
            return inner
        factors = sp.Mul.make_args(inner.args[0])
        out = [f for f in factors if not f.is_number and self._positive(f)]
        kept = [f for f in factors if f not in out]
        several = sum(not f.is_number for f in kept) > 1
        if not out and not several:
            return inner
        q = degree(inner.spec.sym(Z)) if inner.spec.arity == 1 else None
        if q not in (0, 1):
            raise unsupported(f"{inner.spec.name} of a normalised vector (it is not positively homogeneous)")
        opened = _of_product(inner, q, kept) if several else inner.spec.head(sp.Mul(*kept))
        return opened * sp.Mul(*out) ** q

    # ------------------------------------------------------------ monomials

    def _form(self, factors: Monomial) -> _Form:
        form = _Form({}, {})
        for f in factors:
            base, exponent = f.as_base_exp()
            found = self._radius_in(base)
            if found is not None:
                s, eps = found
                power, old = form.radii.get(s, (sp.Integer(0), eps))
                if old != eps:
                    raise unsupported("one radius with two different ε")
                form.radii[s] = (power - exponent, eps)
                continue
            variables = self.e._variables(self.scope, f)
            if len(variables) != 1 or self._radius(variables[0]):
                raise unsupported("a function of a normalised vector and of other variables together")
            form.functions[variables[0]] = form.functions.get(variables[0], sp.Integer(1)) * f
        return form

    def _radial(self, factors: Monomial) -> Terms:
        """E of a product of functions of elements and powers of radii; 0 when it is odd in the elements."""
        form = self._form(factors)
        if expression_parity(sp.Mul(*form.functions.values()), *form.functions) == "odd":
            return ()
        radii = list(form.radii)
        if len(radii) == 1:
            return single(self._one_sided(form))
        if len(radii) != 2:
            raise unsupported("a product of functions of three or more normalised batches")
        first, second = sorted(radii, key=lambda s: s in self.scope.right)
        forms = [_Form({}, {r: form.radii[r]}) for r in (first, second)]
        for s, f in form.functions.items():
            owner = next((x for x in forms if self._belongs(s, next(iter(x.radii)))), None)
            if owner is None:
                raise unsupported("a function of a normalised vector and of another Gaussian vector together")
            owner.functions[s] = f
        return single(self._two_sided(forms[0], forms[1], None))

    def _belongs(self, s: sp.Symbol, r: sp.Symbol) -> bool:
        """Is the Gaussian variable an element of the radius's family?"""
        radius = cast(Radius, self._radius(r))
        ref, home = self.scope.refs[s], self.scope.refs[r]
        outside = {a: b for a, b in ref.binding if a not in radius.axes}
        return ref.node is radius.node and ref.copy == home.copy and outside == dict(home.binding)

    def _family(self, r: sp.Symbol) -> tuple[Ref, tuple[Sym, ...]]:
        """The radius's family at fresh symbols of its axes."""
        radius, home = cast(Radius, self._radius(r)), self.scope.refs[r]
        fresh = {d.axis: self.rules.q.fresh(d, home.copy) for d in radius.node.dims if d.axis in radius.axes}
        table = dict(home.binding) | fresh
        ref = self.rules.q.ref(radius.node, home.copy, lambda d: table[d.axis])
        if self.rules.mean(ref) != ZERO:
            raise unsupported("normalisation of a vector whose mean is not zero", radius.node)
        return ref, tuple(fresh[a] for a in radius.axes)

    def _side(self, form: _Form) -> tuple[RadialSide, Ref, tuple[Sym, ...]]:
        """One batch: its power, ε, covariance, function and the element that the function reads."""
        if len(form.functions) != 1 or len(form.radii) != 1:
            raise unsupported("more than one element of a normalised batch on one side")
        ((s, f),) = form.functions.items()
        ((r, (power, eps)),) = form.radii.items()
        if not self._belongs(s, r):
            raise unsupported("a function of a normalised vector and of another Gaussian vector together")
        radius = cast(Radius, self._radius(r))
        one, k = self._family(r)
        two, l = self._family(r)
        covariance = dense(self.rules.second_moment(one, two))
        out = tuple(self.scope.refs[s].at(a) for a in radius.axes)
        side = RadialSide(f.xreplace({s: Z}), float(power), float(eps), covariance, k, l, out)
        return side, one, k

    def _two_sided(self, left: _Form, right: _Form, kind: Kind | None) -> Value:
        one, u, _ = self._side(left)
        two, v, _ = self._side(right)
        cross = dense(self.rules.second_moment(u, v))
        theta = None if kind is None else dense(self.rules.tangent(u, v, kind))
        if kind is not None and theta == ZERO:
            return ZERO
        return Radial((one, two), cross, theta)

    def _one_sided(self, form: _Form) -> Value:
        """f(c_i) g(c_j) r^{-2p} within one batch."""
        ((r, (power, eps)),) = form.radii.items()
        pairs = list(form.functions.items())
        if len(pairs) == 1:
            pairs = _split(pairs[0])
        if len(pairs) != 2:
            raise unsupported("a moment of normalised values of more than two elements")
        sides = [self._side(_Form({s: f}, {r: (power / 2, eps)}))[0] for s, f in pairs]
        return Radial((sides[0], sides[1]), sides[0].covariance, None, within=True)


def _of_product(h: Head, q: int, factors: list[sp.Expr]) -> sp.Expr:
    """φ(x y …): φ is a sign + b for q = 0, a identity + b |·| for q = 1."""
    up, down = h.spec.head(sp.Integer(1)), h.spec.head(sp.Integer(-1))
    odd, even = (up - down) / 2, (up + down) / 2
    if q == 0:
        return odd * sp.Mul(*(signum.sym(f) for f in factors)) + even
    return odd * sp.Mul(*factors) + even * sp.Mul(*(absolute.sym(f) for f in factors))


def _split(pair: tuple[sp.Symbol, sp.Expr]) -> list[tuple[sp.Symbol, sp.Expr]]:
    """f(c_i) as a product of two functions of the same element."""
    s, f = pair
    factors = list(sp.Mul.make_args(f))
    if len(factors) == 1:
        base, exponent = f.as_base_exp()
        if exponent.is_Integer and exponent > 1:
            return [(s, base), (s, base ** (exponent - 1))]
        return [(s, f), (s, sp.Integer(1))]
    return [(s, factors[0]), (s, sp.Mul(*factors[1:]))]
