"""Which expectations are V-transforms: V_φ(C) = E φ(u)φ(ū) for (u, ū) of covariance C (Definition E.1)."""

from __future__ import annotations

from typing import Any

import sympy as sp

from netsor.compilers.derive.values import Access, Expect1, Expect2, ExpectJ, Value

Z = sp.Symbol("z", real=True)


def v_transform(v: Expect1 | Expect2 | ExpectJ) -> tuple[sp.Expr, Access] | None:
    """φ(z) and the entry C where the expectation is V_φ(C) at the indices of C."""
    match v:
        case Expect2(f=f, g=g, k12=Access() as cross, m1=None, m2=None) if f == g and _is_named(f):
            nodes = {_node(k) for k in (v.k11, v.k22, cross)}
            return (f, cross) if len(nodes) == 1 and None not in nodes else None
        case Expect1(f=sp.Pow(args=(f, exponent)), k=Access() as own, mean=None, params=()) if exponent == 2:
            return (f, own) if _is_named(f) and _node(own) is not None else None
        case _:
            return None


def _is_named(f: sp.Expr) -> bool:
    """φ(z) with a name: V_φ."""
    return isinstance(f, sp.Function) and f.args == (Z,)


def _node(v: Value) -> Any:
    """The variable whose second moments an entry holds."""
    if not isinstance(v, Access) or v.entry.kind != "K":
        return None
    nodes = {r.node for r in v.entry.refs}
    return nodes.pop() if len(nodes) == 1 else None
