"""Statements that read arrays: Gram matrices of data, views, elements at indices, functions of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netsor.compilers.derive.entries.indices import Sym
from netsor.compilers.lowering.plan.operands import Extent, Making, Mark, Offsets, Operand, Place, View


@dataclass(frozen=True)
class Gram(Making):
    """⟨x[n, rows, ·], y[m, cols, ·]⟩ / d over the features; symbols in both run together. `same`: one array."""

    x: Operand
    rows: tuple[Sym, ...]
    y: Operand
    cols: tuple[Sym, ...]
    same: bool


@dataclass(frozen=True)
class Numbers(Making):
    """An array that the program states: nested tuples."""

    array: Any


@dataclass(frozen=True)
class Parameter(Making):
    """The value of a parameter of variances and multipliers, one number."""

    parameter: str


@dataclass(frozen=True)
class Number(Making):
    """An index as a number, or as an array of numbers."""

    of: Place


@dataclass(frozen=True)
class Full(View):
    """A value of no sample, with dimensions of one element in front."""


@dataclass(frozen=True)
class Same(View):
    """Another name."""


@dataclass(frozen=True)
class Permute(View):
    """A view: dimension i is dimension order[i] of the operand."""

    order: tuple[int, ...]


@dataclass(frozen=True)
class Slice(View):
    """A view with dimensions kept, added or picked at an index."""

    marks: tuple[Mark | Place, ...]


@dataclass(frozen=True)
class Fit(View):
    """Dimensions (dim, size, own) cut, or filled with zeros, to a size; one element for `own` > 1 equal ones stays."""

    dims: tuple[tuple[int, Extent, Extent | None], ...]


@dataclass(frozen=True)
class Take(Making):
    """of[…, *index] behind the samples, by index arrays that broadcast; zero where an index is outside."""

    of: Operand
    index: tuple[Place, ...]


@dataclass(frozen=True)
class At(Making):
    """of at vectors of positions in some dimensions (behind the samples), which become the first one; zero outside."""

    of: Operand
    index: tuple[tuple[int, Place], ...]


@dataclass(frozen=True)
class Reduce(Making):
    """The sum, mean or max over a dimension of data."""

    of: Operand
    op: str
    dim: int


@dataclass(frozen=True)
class Windows(Making):
    """Windows of data: `[n, *positions, tap, *other axes, features]`, zero outside."""

    of: Operand
    dims: tuple[int, ...]
    offsets: tuple[Offsets, ...]
    stride: tuple[int, ...]
    sizes: tuple[Extent, ...]
    wrap: bool


Reading = Gram | Numbers | Parameter | Number | Full | Same | Permute | Slice | Fit | Take | At | Reduce | Windows
