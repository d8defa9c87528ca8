"""Expectations of the recursion → statements: which rule takes them, and in which form."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import sympy as sp

from netsor import ir
from netsor.checker.regularity.moments import Moments, moments
from netsor.compilers.derive.entries.functions_of import of_one, of_two, variable
from netsor.compilers.derive.entries.indices import Sym
from netsor.compilers.derive.entries.values import SECOND_MOMENT, Access, Expect, Law, Num, Radial, Value
from netsor.compilers.lowering.build.scope import NOTHING, Scope
from netsor.compilers.lowering.plan import arrays
from netsor.compilers.lowering.plan import operations as do
from netsor.compilers.lowering.plan.operands import Layout, Name, Operand
from netsor.functions import Head

Emit = Callable[[Scope, Value, Sequence[Sym]], Operand]


def expectation(scope: Scope, v: Expect, order: Sequence[Sym], emit: Emit) -> Operand:
    """E F of one variable, of two as a product, or of several by quadrature."""
    one, two = of_one(v), of_two(v)
    if one is not None:
        return _one_variable(scope, one, v.law, order, emit)
    return _joint(scope, v, order, emit) if two is None else _two_variables(scope, two, v, order, emit)


def _one_variable(scope: Scope, f: sp.Expr, law: Law, order: Sequence[Sym], emit: Emit) -> Operand:
    """E f(u), as E g(u)h(u) where f is a product whose factors have closed forms."""
    (k,), (mean,) = _law(scope, law.variances, law.means, order, emit)
    functions = _two_factors(f) or (f,)
    if scope.space == "input" and len(functions) == 2 and mean is None and isinstance(k, Name):
        k = scope.code.make(do.Variance, k.layout, k, stem=f"V{k.stem.removeprefix('K')}")
    return scope.code.make(do.Expect1, scope.broadcast(k, mean), functions, k, mean)


def _two_variables(
    scope: Scope, sides: tuple[sp.Expr, sp.Expr], v: Expect, order: Sequence[Sym], emit: Emit
) -> Operand:
    """E f(u)g(v)."""
    k11, k22 = (emit(scope.inside(sided=isinstance(k, Access)), k, order) for k in v.law.variances)
    (k12,), (m1, m2) = _law(scope, v.law.covariances, v.law.means, order, emit)
    covariances, means = (k11, k22, k12), (m1, m2)
    layout = scope.broadcast(*covariances, *means)
    stem = f"L{scope.code.stem[1:]}" if scope.code.stem[1:2] == "_" else "L"
    law = scope.code.make(do.Law, layout, covariances, means, _is_one_variable(v.law), stem=stem)
    return scope.code.make(do.Expect2, layout, *sides, law, v in scope.sloped)


def _law(
    scope: Scope, cov: tuple[Value, ...], means: tuple[Value | None, ...], order: Sequence[Sym], emit: Emit
) -> tuple[tuple[Operand, ...], tuple[Operand | None, ...]]:
    covariances = tuple(emit(scope, c, order) for c in cov)
    return covariances, tuple(None if m is None else emit(scope, m, order) for m in means)


def _joint(scope: Scope, v: Expect, order: Sequence[Sym], emit: Emit) -> Operand:
    """E F(u₀, u₁, …) by quadrature."""
    variables = tuple(variable(i) for i in range(len(v.law.means)))
    table = (*variables, *(ir.param(i) for i in range(len(v.params))))
    covariances, means = _law(scope, v.law.triangle, v.law.means, order, emit)
    params = tuple(emit(scope, c, order) for c in v.params)
    layout = scope.broadcast(*covariances, *means, *params)
    kinks, bounded = _joint_kinks(v.f, variables), _refused(v.f, variables).bounded
    return scope.code.make(do.ExpectJ, layout, v.f, table, covariances, means, kinks, bounded, params)


def _refused(f: sp.Expr, variables: tuple[sp.Symbol, ...]) -> Moments:
    """The poles of F. InputError (NT303) where E|F| is infinite, also where two variables become one.

    F is a product over sets of variables; two factors of one form are the two sides of a kernel and meet on its
    diagonal, where E|F| is the second moment of each.
    """
    known = moments(f, variables)
    if known.bounded and known.missing is None:
        return known
    known.refuse(f, 1)
    parts = [(part, tuple(s for s in variables if s in part.free_symbols)) for part in _apart(f, variables)]
    for (one, mine), (other, theirs) in itertools.combinations(parts, 2):
        if any(other.xreplace(dict(zip(p, mine, strict=False))) == one for p in itertools.permutations(theirs)):
            moments(one, mine).refuse(one, 2)
    return known


def _apart(f: sp.Expr, variables: tuple[sp.Symbol, ...]) -> list[sp.Expr]:
    """f as a product of factors without variables in common."""
    groups: list[tuple[sp.Expr, set[sp.Basic]]] = []
    for factor in sp.Mul.make_args(f):
        own = factor.free_symbols & set(variables)
        linked = [g for g in groups if g[1] & own]
        groups = [g for g in groups if g not in linked]
        groups.append((sp.Mul(factor, *(g[0] for g in linked)), own.union(*(g[1] for g in linked))))
    return [part for part, own in groups if own]


def radial(scope: Scope, v: Radial, order: Sequence[Sym], emit: Emit) -> Operand:
    """Matrices over the batches stand in the last dimensions; the result's are moved into place."""
    one, two = v.sides
    kept = scope.kept(order)
    outer = [s for s in kept if s not in one.out and s not in two.out]
    matrices = [_square(scope, one.covariance, outer, one.rows, one.cols, emit)]
    if not v.within:
        matrices.append(_square(scope, two.covariance, outer, two.rows, two.cols, emit))
        matrices.append(_square(scope, v.cross, outer, one.rows, two.rows, emit))
    theta = None
    if v.theta is not None and not v.within:
        theta = _square(scope, v.theta, outer, one.rows, two.rows, emit)
    own = scope.broadcast(*matrices, theta)
    of = NOTHING if own is None else own.of
    axes = () if own is None else own.axes[: len(outer)]
    power, eps = (one.power, two.power), (one.eps, two.eps)
    layout = Layout(scope.leads, (*axes, *one.out, *two.out), of)
    found = scope.code.make(do.Radial, layout, (one.f, two.f), power, eps, tuple(matrices), theta)
    sizes = tuple(scope.extent(q) for q in (*one.out, *two.out))
    places = tuple(kept.index(q) for q in (*one.out, *two.out))
    free = tuple(i for i in range(len(kept)) if kept[i] in outer)
    whole = dict(zip(outer, axes, strict=True))
    layout = Layout(scope.leads, tuple(whole.get(s, s) for s in kept), of)
    return scope.code.make(do.Placed, layout, found, free, sizes, places)


def _square(
    scope: Scope, v: Value, outer: list[Sym], rows: tuple[Sym, ...], cols: tuple[Sym, ...], emit: Emit
) -> Operand:
    x = emit(scope, v, [*outer, *rows, *cols])
    own = scope.layout(x)
    if isinstance(v, Num):
        own = Layout(scope.leads, (None,) * (len(outer) + len(rows) + len(cols)), NOTHING)
        x = scope.code.make(arrays.Full, own, x)
    sizes = (tuple(scope.extent(s) for s in side) for side in (rows, cols))
    front = () if own is None else own.axes[: len(outer)]
    of = NOTHING if own is None else own.of
    return scope.code.make(do.Square, Layout(scope.leads, (*front, *rows, *cols), of), x, *sizes)


def _joint_kinks(f: sp.Expr, variables: tuple[sp.Symbol, ...]) -> tuple[int, ...] | None:
    """The variables at whose zeros F has its kinks; None when a kink lies anywhere else."""
    kinked: set[int] = set()
    for h in f.atoms(Head):
        if not h.spec.kinks:
            continue
        factors = [x.as_base_exp()[0] for a in h.args for x in sp.Mul.make_args(a) if not x.is_number]
        if any(k != 0 for k in h.spec.kinks) or not all(x in variables for x in factors):
            return None
        kinked |= {variables.index(x) for x in factors}
    return tuple(sorted(kinked))


def _two_factors(f: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
    """f = g·h with functions that are not powers of z, so that the diagonal rule keeps their closed forms."""
    factors: list[sp.Expr] = []
    for x in sp.Mul.make_args(f):
        base, exponent = x.as_base_exp()
        if exponent.is_Integer and exponent == 2 and not base.is_Symbol:
            factors += [base, base]
        elif x.is_number:
            return None
        else:
            factors.append(x)
    return (factors[0], factors[1]) if len(factors) == 2 else None


def _is_one_variable(law: Law) -> bool:
    """Are u and v one variable of two inputs, at indices of their own or at the same ones?"""
    (a, b), (c,) = law.variances, law.covariances
    if not (isinstance(a, Access) and isinstance(b, Access) and isinstance(c, Access)) or not law.centred:
        return False
    nodes = {r.what for r in (*a.entry.refs, *c.entry.refs)}
    if a.entry is not b.entry or a.entry.space != "input" or c.entry.space != "pair" or len(nodes) != 1:
        return False
    plain = all(isinstance(i, Sym) for i in c.idx) and a.entry.kind == c.entry.kind == SECOND_MOMENT
    return plain and (c.idx == a.idx + b.idx or c.idx == a.idx == b.idx)
