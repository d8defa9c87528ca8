"""Functions of the variables of one scope: two sides, derivatives, monomials; degrees of homogeneous functions."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple, cast

import sympy as sp

from netsor.compilers.derive.entries.values import Expect, Radial, Value
from netsor.errors import CheckError
from netsor.functions import Head

Z = sp.Symbol("z", real=True)


@cache
def variable(i: int) -> sp.Symbol:
    """The i-th variable of an expectation."""
    return sp.Symbol(f"z{i}", real=True)


@lru_cache(maxsize=4096)
def separated(expr: sp.Expr, x: sp.Symbol, y: sp.Symbol) -> tuple[sp.Expr, sp.Expr] | None:
    """expr = f(x) g(y), or None."""
    f: list[sp.Expr] = []
    g: list[sp.Expr] = []
    for factor in sp.Mul.make_args(expr):
        has = factor.has(x), factor.has(y)
        if has == (True, True):
            return None
        (g if has[1] else f).append(factor)
    return sp.Mul(*f), sp.Mul(*g)


def of_one(v: Expect) -> sp.Expr | None:
    """f of E f(u), in z; None for several variables and where scalars stand in it."""
    return v.f.xreplace({variable(0): Z}) if len(v.law.means) == 1 and not v.params else None


def of_two(v: Expect) -> tuple[sp.Expr, sp.Expr] | None:
    """f and g of E f(u)g(v), both in z; None for any other expectation."""
    if len(v.law.means) != 2 or v.params:
        return None
    found = separated(v.f, variable(0), variable(1))
    return None if found is None else (found[0].xreplace({variable(0): Z}), found[1].xreplace({variable(1): Z}))


def by_quadrature(v: Value) -> bool:
    """Is a value an expectation of several Gaussians or over batches, taken at nodes?"""
    return isinstance(v, Radial) or (isinstance(v, Expect) and len(v.law.means) > 1 and of_two(v) is None)


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


def is_whole(e: sp.Expr) -> bool:
    return bool(e.is_Integer and e > 0)


def bare_product(factors: tuple[sp.Expr, ...]) -> list[sp.Symbol] | None:
    """The variables of x·y·…, a square counted twice; None when a factor is a function."""
    out: list[sp.Symbol] = []
    for f in factors:
        if f.is_Symbol:
            out.append(f)
        elif f.is_Pow and f.base.is_Symbol and f.exp == 2:
            out += [f.base, f.base]
        else:
            return None
    return out


def powers_of(expr: sp.Expr) -> dict[sp.Symbol, int] | None:
    """The powers of a monomial; None for anything else."""
    pairs = [f.as_base_exp() for f in sp.Mul.make_args(expr)]
    if not all(base.is_Symbol and is_whole(exponent) for base, exponent in pairs):
        return None
    return {base: int(exponent) for base, exponent in pairs}


def is_bare(factors: tuple[sp.Expr, ...]) -> bool:
    return bare_product(factors) is not None
