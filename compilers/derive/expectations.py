"""Expectations of products of functions: independence, parity, Gaussian nodes, substitution.

An integrand is a sum of monomials; a monomial is a list of factors over variables (references to nodes with their
symbols bound). Factors whose variables share no source are independent and their expectations multiply; the component
that may carry deltas is derived first and unifies the symbols of the others. A component is

    x·y           → K(x, y)                 (any nodes, also residual streams)
    f(u), f(u)g(v), F(u, v, …)   of Gaussian nodes → the expectation engine
    anything else → its non-Gaussian variables are replaced by their definitions, and expanded again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, assert_never, cast

import sympy as sp

from netsor import ir
from netsor.compilers.derive import indexing
from netsor.compilers.derive.chain import ChainRule
from netsor.compilers.derive.entries.arithmetic import add, mul, rewrite
from netsor.compilers.derive.entries.functions_of import bare_product, is_bare, is_whole, powers_of, separated, variable
from netsor.compilers.derive.entries.indices import Renaming
from netsor.compilers.derive.entries.scalars import scalar_function
from netsor.compilers.derive.entries.terms import (
    NONE,
    UNIT,
    Deltas,
    Term,
    Terms,
    collect,
    dense,
    right_to_left,
    scale,
    single,
)
from netsor.compilers.derive.entries.values import SECOND_MOMENT, ZERO, Expect, Kind, Law, Num, Value
from netsor.compilers.derive.nodes import (
    AnyNode,
    Atom,
    DataNode,
    Fun,
    Indexed,
    Lin,
    Normal,
    One,
    Product,
    Reduced,
    unsupported,
)
from netsor.compilers.derive.normalised import Normalised, radius_of
from netsor.compilers.derive.references import Ref, Scope
from netsor.errors import TooLargeError, UnsupportedError
from netsor.functions import Head, expression_parity
from netsor.indexing import index_map
from netsor.run.order import components

if TYPE_CHECKING:
    from netsor.compilers.derive.rules import Rules

Monomial = tuple[sp.Expr, ...]


class Expectations:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.normal: Normal = rules.normal

    # ------------------------------------------------------------ entry points

    def pair(self, kind: Kind, a: Ref, b: Ref) -> Terms:
        """K or T where neither side expands."""
        if kind != SECOND_MOMENT:
            return ChainRule(self).tangent(kind, a, b)
        scope = Scope()
        left, right = self._expression(scope, a, False), self._expression(scope, b, True)
        return self.expect(scope, left * right)

    def mean(self, a: Ref) -> Terms:
        scope = Scope()
        return self.expect(scope, self._expression(scope, a, False))

    def _expression(self, scope: Scope, a: Ref, right: bool) -> sp.Expr:
        """The node as an expression over variables of the scope; a Fun is opened, anything else is a variable."""
        if not isinstance(a.node, Fun):
            return scope.add(a, right)
        return self._open(scope, a.node.expr, a.node.args, a, right)

    def _open(self, scope: Scope, expr: sp.Expr, nodes: Sequence[AnyNode], a: Ref, right: bool) -> sp.Expr:
        table: dict[sp.Basic, sp.Basic] = {}
        for child in nodes:
            one = isinstance(child, One)
            table[child.symbol] = sp.Integer(1) if one else scope.add(self.rules.q.child(a, child, a.copy), right)
        for s in expr.free_symbols:
            if s not in table and s in self.normal.scalar_of:
                value = self.rules.scalar(self.normal.scalar_of[s], a.copy, dict(a.binding))
                plain = isinstance(value, Num) and value.value.is_number
                table[s] = cast(Num, value).value if plain else scope.scalar(value)
        return expr.xreplace(table)

    # ------------------------------------------------------------ expectation of an expression

    def expect(self, scope: Scope, expr: sp.Expr) -> Terms:
        """E expr as terms; deltas join symbols of right variables to symbols of left ones."""
        out: list[Term] = []
        for coefficient, monomial in self._monomials(scope, expr):
            out.extend(scale(self._monomial(scope, monomial), coefficient))
        return collect(out)

    def _monomials(self, scope: Scope, expr: sp.Expr) -> list[tuple[Value, Monomial]]:
        flat: dict[sp.Expr, sp.Symbol] = {}
        expanded = sp.expand(_opaque(expr, scope, flat))
        back = {d: e for e, d in flat.items()}
        out: list[tuple[Value, Monomial]] = []
        for term in sp.Add.make_args(expanded):
            constants: list[Value] = []
            factors: list[sp.Expr] = []
            for f in sp.Mul.make_args(term):
                g = f.xreplace(back)
                if g.free_symbols & scope.refs.keys():
                    factors.append(g)
                else:
                    constants.append(self._constant(scope, g))
            out.append((mul(*constants), tuple(factors)))
        return [(c, m) for c, m in out if c != ZERO]

    @staticmethod
    def _constant(scope: Scope, expr: sp.Expr) -> Value:
        names = sorted(expr.free_symbols, key=lambda s: s.name)
        return scalar_function(expr, names, [scope.scalars[s] for s in names])

    def _monomial(self, scope: Scope, factors: Monomial) -> Terms:
        """Independent components, those that may carry deltas first."""
        components = self._components(scope, factors)
        components.sort(key=lambda c: not is_bare(c))
        terms = UNIT
        for component in components:
            after = {d: self._unified_component(scope, component, d) for d, _ in terms}
            terms = collect((d | d2, mul(v, v2)) for d, v in terms for d2, v2 in after[d])
            if not terms:
                return ()
        return terms

    def _unified_component(self, scope: Scope, component: Monomial, deltas: Deltas) -> Terms:
        return self._unified(scope, sp.Mul(*component), deltas, component)

    def _unified(self, scope: Scope, expr: sp.Expr, deltas: Deltas, component: Monomial | None = None) -> Terms:
        """The expectation with right symbols replaced by left ones, so that equal references merge."""
        table = right_to_left(deltas)
        if not table:
            return self.expect(scope, expr) if component is None else self._component(scope, component)
        inner = Scope(scalars={s: rewrite(v, Renaming(table)) for s, v in scope.scalars.items()})
        moved: dict[sp.Basic, sp.Basic] = {}
        for s in self._variables(scope, expr):
            moved[s] = inner.add(scope.refs[s].renamed(table), s in scope.right)
        return self.expect(inner, expr.xreplace(moved))

    # ------------------------------------------------------------ components

    def _variables(self, scope: Scope, expr: sp.Expr) -> list[sp.Symbol]:
        inside = expr.free_symbols
        return [s for s in scope.refs if s in inside]

    def _is_gaussian(self, scope: Scope, s: sp.Symbol) -> bool:
        return scope.refs[s].node.id in self.normal.gaussian

    def _is_radius(self, scope: Scope, s: sp.Symbol) -> bool:
        return radius_of(scope.refs[s].node, self.normal.gaussian) is not None

    def _dependent(self, scope: Scope, s: sp.Symbol, t: sp.Symbol) -> bool:
        a, b = scope.refs[s].node, scope.refs[t].node
        return bool(self.rules.sources(a) & self.rules.sources(b))

    def _components(self, scope: Scope, factors: Monomial) -> list[Monomial]:
        groups: list[tuple[list[sp.Expr], list[sp.Symbol]]] = []
        for f in factors:
            variables = self._variables(scope, f)
            linked = [g for g in groups if any(s == t or self._dependent(scope, s, t) for s in variables for t in g[1])]
            for g in linked:
                groups.remove(g)
            groups.append(([*(x for g in linked for x in g[0]), f], [*(x for g in linked for x in g[1]), *variables]))
        return [tuple(g[0]) for g in groups]

    def _component(self, scope: Scope, factors: Monomial) -> Terms:
        expr = sp.Mul(*factors)
        variables = self._variables(scope, expr)
        bare = bare_product(factors)
        if bare is not None and len(bare) <= 2:
            return self._bare(scope, bare)
        offenders = [s for s in variables if not self._is_gaussian(scope, s)]
        opened = next((s for s in offenders if not self._is_radius(scope, s)), None)
        if opened is not None:
            return self.expect(scope, self._substitute(scope, expr, opened, opened in scope.right))
        if offenders:
            return Normalised(self, scope).expect(expr)
        return self._gaussian(scope, expr, variables)

    def _bare(self, scope: Scope, bare: list[sp.Symbol]) -> Terms:
        if len(bare) == 1:
            return single(self.rules.mean(scope.refs[bare[0]]))
        x, y = bare
        if x in scope.right and y not in scope.right:
            x, y = y, x
        terms = self.rules.second_moment(scope.refs[x], scope.refs[y])
        if (x in scope.right) == (y in scope.right):
            return single(dense(terms))
        return terms

    def _substitute(self, scope: Scope, expr: sp.Expr, s: sp.Symbol, right: bool) -> sp.Expr:
        """A non-Gaussian variable replaced by its definition, one level."""
        ref = scope.refs[s]
        node = ref.node
        match node:
            case Fun():
                body = self._open(scope, node.expr, node.args, ref, right)
            case Lin():
                body = sp.Integer(0)
                for c, child in node.terms:
                    body += self._open(scope, c * child.symbol, (child,), ref, right)
            case Indexed():
                if not index_map(node.line).is_renaming:
                    raise _not_gaussian(node)
                body = scope.add(indexing.renamed(self.rules.q, ref), right)
            case One() | Atom() | DataNode() | Product() | Reduced():
                raise _not_gaussian(node)
            case _:
                assert_never(node)
        return expr.xreplace({s: body})

    # ------------------------------------------------------------ Gaussian components

    def constants_out(self, scope: Scope, expr: sp.Expr) -> sp.Expr:
        """Variables of zero variance replaced by their means."""
        table: dict[sp.Basic, sp.Basic] = {}
        for s in self._variables(scope, expr):
            ref = scope.refs[s]
            if self._is_gaussian(scope, s) and ref.node.id not in self.normal.sampled:
                mean = self.rules.mean(ref)
                known = isinstance(mean, Num) and mean.value.is_number
                if known and self._covariance(scope, s, s, {s: mean}) == ZERO:
                    table[s] = cast(Num, mean).value
        return cast(sp.Expr, expr.xreplace(table)) if table else expr

    def _gaussian(self, scope: Scope, expr: sp.Expr, variables: list[sp.Symbol]) -> Terms:
        if len(variables) > 2:
            fixed = self.constants_out(scope, expr)
            if fixed != expr:
                return self.expect(scope, fixed)
        means = {s: self.rules.mean(scope.refs[s]) for s in variables}
        if all(m == ZERO for m in means.values()) and _odd(expr, tuple(variables)):
            return ()
        if len(variables) == 1:
            return single(self._one(scope, expr, variables[0], means))
        left = [s for s in variables if s not in scope.right]
        right = [s for s in variables if s in scope.right]
        if len(variables) == 2 and not expr.free_symbols & scope.scalars.keys():
            split = separated(expr, *variables)
            if split is not None:
                return self._two(scope, split, variables, means, bool(left) and bool(right))
        return self._many(scope, expr, variables, means)

    def _covariance(self, scope: Scope, s: sp.Symbol, t: sp.Symbol, means: dict[sp.Symbol, Value]) -> Value:
        value = dense(self.rules.second_moment(scope.refs[s], scope.refs[t]))
        return _minus(value, means[s], means[t])

    def _one(self, scope: Scope, expr: sp.Expr, s: sp.Symbol, means: dict[sp.Symbol, Value]) -> Value:
        k = self._covariance(scope, s, s, means)
        mean = None if means[s] == ZERO else means[s]
        f, params = _parameters(scope, expr.xreplace({s: variable(0)}))
        if k == ZERO and mean is None and not params:
            return Num(sp.sympify(f.subs(variable(0), 0)))
        return Expect(f, Law((k,), (), (mean,)), params)

    def _two(
        self, scope: Scope, split: tuple[sp.Expr, sp.Expr], variables: list[sp.Symbol], means: dict[sp.Symbol, Value],
        opposite: bool,
    ) -> Terms:  # fmt: skip
        x, y = variables
        f, g = split
        terms = self.rules.second_moment(scope.refs[x], scope.refs[y])
        if (x in scope.right) and y not in scope.right:
            x, y, f, g = y, x, g, f
            terms = self.rules.second_moment(scope.refs[x], scope.refs[y])
        if not opposite:
            terms = single(dense(terms))
        apart = mul(self._one(scope, f, x, means), self._one(scope, g, y, means))
        mm = mul(means[x], means[y])
        structured = [t for t in terms if t[0] != NONE]
        if not terms and mm == ZERO:
            return single(apart)
        if structured and len(terms) == 1 and mm == ZERO:
            return self._on_diagonal(scope, f * g, terms[0][0], apart)
        k12 = _minus(dense(terms), means[x], means[y])
        return single(self._expect2(scope, f, g, x, y, k12, means))

    def _on_diagonal(self, scope: Scope, expr: sp.Expr, deltas: Deltas, apart: Value) -> Terms:
        """Independent off a diagonal: E = m m̄ + δ (V − m m̄)."""
        out = [(d | deltas, v) for d, v in self._unified(scope, expr, deltas)]
        if apart != ZERO:
            on = rewrite(apart, Renaming(right_to_left(deltas)))
            out += [(NONE, apart), (deltas, mul(Num(sp.Integer(-1)), on))]
        return collect(out)

    def _expect2(
        self, scope: Scope, f: sp.Expr, g: sp.Expr, x: sp.Symbol, y: sp.Symbol, k12: Value,
        means: dict[sp.Symbol, Value],
    ) -> Value:  # fmt: skip
        if scope.refs[y].copy.side < scope.refs[x].copy.side:
            x, y, f, g = y, x, g, f
        k11, k22 = self._covariance(scope, x, x, means), self._covariance(scope, y, y, means)
        m1, m2 = (None if means[s] == ZERO else means[s] for s in (x, y))
        product = f.xreplace({x: variable(0)}) * g.xreplace({y: variable(1)})
        return Expect(product, Law((k11, k22), (k12,), (m1, m2)))

    def _many(self, scope: Scope, expr: sp.Expr, variables: list[sp.Symbol], means: dict[sp.Symbol, Value]) -> Terms:
        """Moments are entries of their own, which higher ones read."""
        powers = powers_of(expr)
        if powers is None:
            return self._joint(scope, expr, variables, means)
        key = frozenset((scope.refs[s], k) for s, k in powers.items())
        moments = self.rules.q.moments
        if key not in moments:
            found = dense(self._joint(scope, expr, variables, means))
            moments[key] = self.rules.q.moment({scope.refs[s]: k for s, k in powers.items()}, found)
        return single(moments[key])

    def _joint(self, scope: Scope, expr: sp.Expr, variables: list[sp.Symbol], means: dict[sp.Symbol, Value]) -> Terms:
        """Jointly Gaussian variables: bare ones by Stein's lemma, polynomials exactly, the rest by quadrature."""
        apart = self._uncorrelated(scope, expr, variables, means)
        if len(apart) > 1:
            return single(mul(*(dense(self.expect(scope, part)) for part in apart)))
        bare = [f for f in sp.Mul.make_args(expr) if f.is_Symbol and f in scope.refs]
        rest_variables = len(variables) > 2 or separated(expr, *variables) is None
        if bare and rest_variables and not _jumps(expr):
            return self._stein(scope, expr, bare[-1], variables, means)
        power = next((f for f in sp.Mul.make_args(expr) if f.is_Pow and f.base in scope.refs and is_whole(f.exp)), None)
        if power is not None and rest_variables and not _jumps(expr):
            return self._stein(scope, expr, power.base, variables, means)
        pairs = {p: self._covariance(scope, *p, means) for p in itertools.combinations_with_replacement(variables, 2)}
        variances = tuple(pairs[s, s] for s in variables)
        covariances = tuple(pairs[p] for p in itertools.combinations(variables, 2))
        names = {s: variable(i) for i, s in enumerate(variables)}
        f, params = _parameters(scope, expr)
        m = tuple(None if means[s] == ZERO else means[s] for s in variables)
        return single(Expect(f.xreplace(names), Law(variances, covariances, m), params))

    def _uncorrelated(
        self, scope: Scope, expr: sp.Expr, variables: list[sp.Symbol], means: dict[sp.Symbol, Value]
    ) -> list[sp.Expr]:
        """The expression as a product over sets of variables without covariance: W x and W v with E x v = 0."""
        factors = sp.Mul.make_args(expr)
        joined = [tuple(self._variables(scope, f)) for f in factors]
        joined += [(s, t) for s, t in itertools.combinations(variables, 2)
                   if self._covariance(scope, s, t, means) != ZERO]  # fmt: skip
        sets = _connected(variables, joined)
        numbers = [f for f in factors if not self._variables(scope, f)]
        parts = [sp.Mul(*(f for f in factors if any(s in group for s in self._variables(scope, f)))) for group in sets]
        return [sp.Mul(parts[0], *numbers), *parts[1:]]

    def _stein(
        self, scope: Scope, expr: sp.Expr, s: sp.Symbol, variables: list[sp.Symbol], means: dict[sp.Symbol, Value]
    ) -> Terms:
        """E[u F] = E[u] E[F] + Σ_j Cov(u, u_j) E[∂_j F]."""
        rest = expr / s
        out = list(scale(self.expect(scope, rest), means[s])) if means[s] != ZERO else []
        for t in variables:
            try:
                slope = sp.diff(rest, t)
            except TooLargeError:
                raise unsupported(f"an expectation over {len(variables)} variables by higher derivatives") from None
            if slope != 0:
                covariance = self._covariance(scope, s, t, means)
                if covariance != ZERO:
                    out.extend(scale(self.expect(scope, slope), covariance))
        return collect([(NONE, dense(tuple(out)))] if any(d for d, _ in out) else out)


# ---------------------------------------------------------------- helpers


def _connected(variables: Sequence[sp.Symbol], joined: Sequence[tuple[sp.Symbol, ...]]) -> list[set[sp.Symbol]]:
    """Variables in classes that groups of them join, by first member."""
    here = [s for s in variables if any(s in group for group in joined)]
    reads = [{here.index(t) for group in joined if s in group for t in group} for s in here]
    return [{here[i] for i in members} for members in components(reads)]


def _not_gaussian(node: AnyNode) -> UnsupportedError:
    return unsupported(f"a nonlinear function of {node.name}, which is not Gaussian", node)


def _minus(second: Value, m1: Value, m2: Value) -> Value:
    mm = mul(m1, m2)
    return second if mm == ZERO else add(second, mul(Num(sp.Integer(-1)), mm))


def _opaque(expr: sp.Expr, scope: Scope, flat: dict[sp.Expr, sp.Symbol]) -> sp.Expr:
    """Maximal non-polynomial parts replaced by dummies, so that expansion stays outside functions."""
    if expr.is_Symbol or expr.is_number:
        return expr
    if expr.is_Add or expr.is_Mul:
        return expr.func(*(_opaque(a, scope, flat) for a in expr.args))
    if expr.is_Pow and is_whole(expr.exp) and expr.base.free_symbols & scope.refs.keys():
        return _opaque(expr.base, scope, flat) ** expr.exp
    if expr not in flat:
        flat[expr] = sp.Dummy(real=True)
    return flat[expr]


def _jumps(expr: sp.Expr) -> bool:
    """A derivative of a function that jumps is a delta: Stein's lemma must not be applied through it."""
    return any(h.spec.jumps for h in expr.atoms(Head))


@lru_cache(maxsize=4096)
def _odd(expr: sp.Expr, variables: tuple[sp.Symbol, ...]) -> bool:
    return expression_parity(expr, *variables) == "odd"


def _parameters(scope: Scope, expr: sp.Expr) -> tuple[sp.Expr, tuple[Value, ...]]:
    used = sorted(expr.free_symbols & scope.scalars.keys(), key=lambda s: s.name)
    table = {s: ir.param(i) for i, s in enumerate(used)}
    return expr.xreplace(table), tuple(scope.scalars[s] for s in used)
