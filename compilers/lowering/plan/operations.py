"""Statements that compute: arithmetic and sums, and expectations over Gaussian variables."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from netsor.compilers.derive.entries.indices import Sym
from netsor.compilers.lowering.plan.operands import Binary, Extent, Making, Name, Operand, View


@dataclass(frozen=True)
class Add(Binary):
    """alpha·x + beta·y."""

    alpha: int | float
    beta: int | float


@dataclass(frozen=True)
class Mul(Binary):
    """x·y."""


@dataclass(frozen=True)
class Apply(Making):
    """f(*args) element by element: f in the symbols c0, c1, … (scalars) and a0, a1, … (data); of integers a number."""

    f: sp.Expr
    args: tuple[Operand, ...]
    symbols: tuple[sp.Symbol, ...]


@dataclass(frozen=True)
class Box(Making):
    """Σ over taps of the operand moved along several dimensions by the same tap; outside counts as zero."""

    of: Operand
    moves: tuple[Name, ...]


@dataclass(frozen=True)
class Contract(Making):
    """The product of operands `[samples, *axes]`, summed over what the result does not have; symbols have sizes."""

    of: tuple[Operand, ...]
    axes: tuple[tuple[Sym, ...], ...]
    kept: tuple[Sym, ...]
    sizes: tuple[tuple[Sym, Extent], ...]


@dataclass(frozen=True)
class Total(Making):
    """The sum over the last dimension, of one element when the terms do not depend on it."""

    of: Operand
    size: Extent


@dataclass(frozen=True)
class Softmax(Making):
    """mask_j exp(x_j) / Σ_l mask_l exp(x_l) over a dimension, counted from the end."""

    of: Operand
    dim: int
    size: Extent
    mask: Operand | None


# ---------------------------------------------------------------- expectations


@dataclass(frozen=True)
class Expect1(Making):
    """E Π f(u) of one or two functions, u ~ N(mean, k)."""

    functions: tuple[sp.Expr, ...]
    k: Operand
    mean: Operand | None


@dataclass(frozen=True)
class Variance(Making):
    """The variances of a variable of each input, of which expectations make functions once."""

    of: Operand


@dataclass(frozen=True)
class Law(Making):
    """(u, v) of these variances, covariance and means, for the expectations that read it next; its layout is theirs.

    `same`: one variable of two inputs.
    """

    covariances: tuple[Operand, Operand, Operand]
    means: tuple[Operand | None, Operand | None]
    same: bool


@dataclass(frozen=True)
class Expect2(Making):
    """E f(u)g(v) under a law; `slope`: E f′(u)g′(v) under it is asked for later."""

    f: sp.Expr
    g: sp.Expr
    law: Name
    slope: bool


@dataclass(frozen=True)
class ExpectJ(Making):
    """E F(z0, z1, …; c0, c1, …): the covariance's upper triangle by rows; `kinks` and `bounded` as in `joint`."""

    f: sp.Expr
    symbols: tuple[sp.Symbol, ...]
    covariances: tuple[Operand, ...]
    means: tuple[Operand | None, ...]
    kinks: tuple[int, ...] | None
    bounded: bool
    params: tuple[Operand, ...]


@dataclass(frozen=True)
class Square(View):
    """A kernel over the elements of a batch as matrices: rows and columns flattened, behind the other dimensions."""

    rows: tuple[Extent, ...]
    cols: tuple[Extent, ...]


@dataclass(frozen=True)
class Radial(Making):
    """E f(c_i) g(c̄_j) r^{-2p} r̄^{-2p̄} of one batch or of two; `theta` turns it into a derivative in that direction."""

    functions: tuple[sp.Expr, sp.Expr]
    powers: tuple[float, float]
    eps: tuple[float, float]
    covariances: tuple[Operand, ...]  # of one batch, or of both and between them
    theta: Operand | None


@dataclass(frozen=True)
class Placed(View):
    """Matrices `[…, rows, cols]` unflattened to `sizes` and moved to `places`; an equal place is a diagonal."""

    free: tuple[int, ...]
    sizes: tuple[Extent, ...]
    places: tuple[int, ...]


Arithmetic = Add | Mul | Apply | Box | Contract | Total | Softmax
Expectation = Variance | Law | Expect1 | Expect2 | ExpectJ | Square | Radial | Placed
