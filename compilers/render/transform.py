"""Which expectations are V-transforms: V_φ(C) = E φ(u)φ(ū) for (u, ū) of covariance C (Definition E.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

import sympy as sp

from netsor.compilers.derive.values import Access, Expect1, Expect2, ExpectJ, Value, split

Z = sp.Symbol("z", real=True)


@dataclass(frozen=True)
class Transform:
    """V_φ(factor·C) with φ(z) an expression and C an entry at its indices."""

    f: sp.Expr
    factor: sp.Expr
    kernel: Access


def v_transform(v: Expect1 | Expect2 | ExpectJ) -> Transform | None:
    """The expectation as a V-transform, where it is one."""
    match v:
        case Expect2():
            alike = v.f == v.g and v.m1 is None and v.m2 is None and _is_named(v.f)
            return _transform(v.f, v.k12, v.k11, v.k22) if alike else None
        case Expect1():
            base, exponent = v.f.as_base_exp()
            alike = exponent == 2 and v.mean is None and v.params == () and _is_named(base)
            return _transform(base, v.k) if alike else None
        case ExpectJ():
            return None
        case _:
            assert_never(v)


def _transform(f: sp.Expr, cross: Value, *own: Value) -> Transform | None:
    """One variable's kernel, times one number, in all places."""
    (factor, kernel), *others = map(split, (cross, *own))
    alike = all(c == factor and _node(k) == _node(kernel) for c, k in others)
    return Transform(f, factor, kernel) if isinstance(kernel, Access) and _node(kernel) and alike else None


def _is_named(f: sp.Expr) -> bool:
    """φ(z) with a name: V_φ."""
    return isinstance(f, sp.Function) and f.args == (Z,)


def _node(v: Value) -> Any:
    """The variable whose second moments an entry holds."""
    if not isinstance(v, Access) or v.entry.kind != "K":
        return None
    nodes = {r.node for r in v.entry.refs}
    return nodes.pop() if len(nodes) == 1 else None
