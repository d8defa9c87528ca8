"""Functions of the variables of one scope: two sides, derivatives; degrees of homogeneous functions."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, cast

import sympy as sp

from netsor.errors import CheckError
from netsor.functions import Head

Z = sp.Symbol("z", real=True)


class Sides(NamedTuple):
    """F and Ḡ over the variables of one scope."""

    left: sp.Expr
    right: sp.Expr


def derivative(expr: sp.Expr, s: sp.Symbol) -> sp.Expr:
    """∂expr/∂s; an error where it is a distribution."""
    for h in expr.atoms(Head):
        if h.spec.jumps and s in h.free_symbols:
            raise CheckError(
                f"{h.spec.name} jumps: its derivative is a delta, and the NTK through it is infinite", code="NT305",
                hint="ask for the NNGP only, or use a function without jumps",
            )  # fmt: skip
    return sp.diff(expr, s)


@lru_cache(maxsize=1024)
def degree(f: sp.Expr) -> int | None:
    """p, when f(c·z) = c^p·f(z) for every c > 0; None when this is not seen."""
    if f == Z:
        return 1
    if not f.free_symbols:
        return 0
    if isinstance(f, sp.Heaviside):
        return 0 if degree(f.args[0]) is not None else None
    if isinstance(f, Head):
        return None if f.spec.numeric or f.spec.arity != 1 else degree(f.spec.definition(*f.args))
    if isinstance(f, sp.Pow) and f.exp.is_Integer:
        base = degree(f.base)
        return None if base is None else base * int(f.exp)
    degrees = [degree(a) for a in f.args]
    if None in degrees or not isinstance(f, sp.Add | sp.Mul):
        return None
    if isinstance(f, sp.Mul):
        return sum(cast(list[int], degrees))
    return degrees[0] if len(set(degrees)) == 1 else None
