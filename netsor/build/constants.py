"""Constant scalars over axes: 1, the size, the position, and the masks δ(s, t) and t ≤ s.

The sizes of data axes are known only with the data, so these are lines. The limit "position" of an InputScalar over
one axis is each element's own index, 0-based.
"""

from __future__ import annotations

from fractions import Fraction

from netsor import ir
from netsor.build.expressions import Expr
from netsor.build.program import Program
from netsor.functions import step


def free_name(p: Program, stem: str) -> str:
    """`stem`, numbered when the name is taken."""
    name, k = stem, 2
    while name in p:
        name, k = f"{stem}_{k}", k + 1
    return name


def one(p: Program, dim: ir.Dim) -> Expr:
    """1 for every element of the axis."""
    return p.constant(1, (dim,), free_name(p, f"one_{dim.axis.name}"))


def size(p: Program, dim: ir.Dim) -> Expr:
    """The number of elements: Σ 1 over the axis."""
    return p.let(free_name(p, f"size_{dim.axis.name}"), one(p, dim).sum(dim.axis))


def position(p: Program, dim: ir.Dim) -> Expr:
    """0, 1, 2, … along the axis."""
    limit = tuple(range(dim.size)) if isinstance(dim.size, int) else "position"
    return p.constant(limit, (dim,), free_name(p, f"position_{dim.axis.name}"))


def until(p: Program, s: ir.Dim, t: ir.Dim) -> Expr:
    """[t ≤ s], a causal mask over two axes."""
    return 1 - step(position(p, t) - position(p, s) - Fraction(1, 2))


def delta(p: Program, s: ir.Dim, t: ir.Dim) -> Expr:
    """δ(s, t) over two axes."""
    return 2 - 2 * step((position(p, s) - position(p, t)) ** 2)
