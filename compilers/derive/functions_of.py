"""Functions of the variables of one scope: two sides, derivatives."""

from __future__ import annotations

from typing import NamedTuple

import sympy as sp

from netsor.errors import CheckError
from netsor.functions import Head


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
