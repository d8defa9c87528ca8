"""What a tensor of the module is in the program: its dimensions are products of the sample, finite axes and widths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from netsor import ir
from netsor.build.expressions import Expr, Matrix
from netsor.compilers.lift.export import SAMPLES, Pair, Size, Step


@dataclass(frozen=True)
class Atom:
    """A factor of a dimension. `axis` names a finite index; `rows` is the parameter's dimension a width comes from."""

    kind: str  # "sample" | "axis" | "wide" | "out"
    size: Size
    axis: ir.Axis | None = None
    rows: frozenset[tuple[str, int]] = frozenset()


Dim = tuple[Atom, ...]
Dims = tuple[Dim, ...]
SAMPLE = Atom("sample", SAMPLES)


def axis_atom(axis: ir.Axis) -> Atom:
    """A finite axis as a factor of a dimension: its size is the same in both exports."""
    size = axis.size or 1
    return Atom("axis", (size, size), axis)


@dataclass(frozen=True)
class Value:
    """n^power · expr; without a width it is a family of scalars (C-vars).

    Scores of a softmax may have a `mask`: factors of their exponentials. `scored` is the width that a product of two
    vectors was summed over.
    """

    dims: Dims
    expr: Any  # Expr or a number
    power: Fraction = Fraction(0)
    mask: Value | None = None
    scored: Size | None = None

    @property
    def atoms(self) -> Dim:
        return tuple(a for dim in self.dims for a in dim)

    def only(self, kind: str) -> Dim:
        return tuple(a for a in self.atoms if a.kind == kind)


@dataclass(frozen=True)
class Term:
    """A summand of an output: coef · v·x/√n, or a bias of the outputs (x None), from the output `first` on."""

    parameter: str
    readout: Expr | None
    x: Expr | None
    coef: Any = 1
    power: Fraction = Fraction(0)
    first: int = 0


@dataclass(frozen=True)
class Outputs:
    """Tensors of outputs: i.i.d. given the arrays before them; "out" atoms index them."""

    dims: Dims
    terms: tuple[Term, ...]

    def only(self, kind: str) -> Dim:
        return tuple(a for dim in self.dims for a in dim if a.kind == kind)


@dataclass(frozen=True)
class Parameter:
    """A parameter's tensor, seen with dimensions `order` (its own are 0, 1, …; None is an added one of size 1).

    `cut` is a part of a matrix: its own dimension, where the part starts, and its size.
    """

    name: str
    sizes: tuple[Size, ...]
    order: tuple[int | None, ...]
    cut: tuple[int, Size, Size] | None = None

    @property
    def between_widths(self) -> bool:
        """A matrix from a width to a width."""
        return sum(a != b for a, b in self.sizes) > 1

    @property
    def whole(self) -> bool:
        """The tensor as it is declared."""
        return self.cut is None and self.order == tuple(range(len(self.sizes)))


@dataclass(frozen=True, eq=False)
class Data:
    """A tensor that depends on the inputs alone: torch computes it, and a function of it."""

    step: Step
    function: str = ""  # "exp" | "reciprocal" | "not"

    @property
    def sizes(self) -> tuple[Size, ...]:
        return self.step.sizes


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that depends on nothing."""

    sizes: tuple[Size, ...]
    values: tuple[Any, Any] = field(repr=False)


Tensor = Value | Outputs | Parameter | Data | Constant | Pair | int | float  # what an operation may be given


@dataclass(frozen=True)
class Placed:
    """A matrix of the program: which of the parameter's dimensions are rows, and the axes summed with its columns."""

    matrix: Matrix
    power: Fraction
    row_dim: int
    rows: Dim
    cols: Dim
    taps: ir.Axis | None


@dataclass(frozen=True)
class Input:
    """An array of the program: data nodes, their dimensions, the one that comes last as features (None: scalars)."""

    steps: tuple[Step, ...]
    dims: Dims
    features: int | None
    classes: int | None = None  # one-hot
    padding: int | None = None  # the id whose vector is 0
    function: str = ""


def product(atoms: Sequence[Atom]) -> Size:
    return math.prod(a.size[0] for a in atoms), math.prod(a.size[1] for a in atoms)


def grouped(atoms: Sequence[Atom], sizes: Sequence[Size]) -> Dims | Atom:
    """The atoms as factors of dimensions of the given sizes; where one would have to be split, that atom."""
    left = list(atoms)
    dims: list[Dim] = []
    for size in sizes:
        dim: list[Atom] = []
        while product(dim) != size:
            if not left or product(dim)[0] > size[0]:
                return dim[-1] if dim else atoms[-1]
            dim.append(left.pop(0))
        dims.append(tuple(dim))
    if dims and all(a.size == (1, 1) for a in left):
        dims[-1], left = (*dims[-1], *left), []
    return tuple(dims) if not left else left[0]


def without(dims: Dims, gone: Sequence[int], keep: bool) -> Dims:
    """The dimensions after a reduction."""
    empty: Dim = ()
    return tuple(empty if i in gone else d for i, d in enumerate(dims) if keep or i not in gone)


def renamed(value: Value, table: dict[ir.Axis, ir.Axis]) -> Value:
    """The same family over other axes."""
    table = {a: b for a, b in table.items() if a != b}
    if not table:
        return value
    dims = tuple(tuple(replace(x, axis=table.get(x.axis, x.axis)) if x.axis else x for x in d) for d in value.dims)
    expr = value.expr
    if isinstance(expr, Expr):
        present = {a: b for a, b in table.items() if a in expr.axes}
        expr = expr.rename(present) if present else expr
    return replace(value, dims=dims, expr=expr)


__all__ = [
    "SAMPLE", "Atom", "Constant", "Data", "Dim", "Dims", "Input", "Outputs", "Parameter", "Placed", "Tensor", "Term",
    "Value", "axis_atom", "grouped", "product", "renamed", "without",
]  # fmt: skip
