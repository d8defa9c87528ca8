"""Which expectations are V-transforms: V_φ(C) = E φ(u)φ(ū) for (u, ū) of covariance C (Definition E.1)."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.arithmetic import split
from netsor.compilers.derive.entries.functions_of import Z, of_one, of_two
from netsor.compilers.derive.entries.values import SECOND_MOMENT, Access, Expect, Value
from netsor.compilers.derive.nodes import AnyNode


@dataclass(frozen=True)
class Transform:
    """V_φ(factor·C) with φ(z) an expression and C an entry at its indices."""

    f: sp.Expr
    factor: sp.Expr
    kernel: Access


def v_transform(v: Expect) -> Transform | None:
    """The expectation as a V-transform, where it is one."""
    if not v.law.centred:
        return None
    one, two = of_one(v), of_two(v)
    if two is not None:
        return (
            _transform(two[0], *v.law.covariances, *v.law.variances) if two[0] == two[1] and _is_named(two[0]) else None
        )
    if one is None:
        return None
    base, exponent = one.as_base_exp()
    return _transform(base, *v.law.variances) if exponent == 2 and _is_named(base) else None


def _transform(f: sp.Expr, cross: Value, *own: Value) -> Transform | None:
    """One variable's kernel, times one number, in all places."""
    (factor, kernel), *others = map(split, (cross, *own))
    alike = all(c == factor and _node(k) == _node(kernel) for c, k in others)
    return Transform(f, factor, kernel) if isinstance(kernel, Access) and _node(kernel) and alike else None


def _is_named(f: sp.Expr) -> bool:
    """φ(z) with a name: V_φ."""
    return isinstance(f, sp.Function) and f.args == (Z,)


def _node(v: Value) -> AnyNode | ir.Var | None:
    """The variable whose second moments an entry holds."""
    if not isinstance(v, Access) or v.entry.kind != SECOND_MOMENT:
        return None
    nodes = {r.what for r in v.entry.refs}
    return nodes.pop() if len(nodes) == 1 else None
