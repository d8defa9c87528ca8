"""Types of what users give and get: numbers, arrays, axes, dimensions, options of arrays. No values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

import sympy as sp

from netsor import ir
from netsor.errors import Location

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netsor.build.expressions import Expr, Matrix

# ---------------------------------------------------------------- numbers and arrays


class Array(Protocol):
    """An array of numpy or a tensor of torch."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def tolist(self) -> object: ...


K = TypeVar("K", covariant=True)
V = TypeVar("V", covariant=True)
T = TypeVar("T")


class Table(Protocol[K, V]):
    """A mapping whose keys may be of a narrower type."""

    def items(self) -> Iterable[tuple[K, V]]: ...


Real: TypeAlias = ir.Number | Decimal | sp.Expr | Array  # of one number; not more than a rational where it says so
ArrayLike: TypeAlias = "Real | Sequence[ArrayLike]"  # numbers in nested sequences, too
Inputs: TypeAlias = "ArrayLike | Mapping[str, ArrayLike]"  # of one input or by name; ragged samples in a list
Numbers: TypeAlias = "NDArray[Any]"  # of float64, or of exact numbers of sympy (dtype object)

# ---------------------------------------------------------------- axes and dimensions

AxisLike: TypeAlias = str | ir.Axis
DimLike: TypeAlias = AxisLike | ir.Dim
Axes: TypeAlias = AxisLike | Iterable[AxisLike]
PerAxis: TypeAlias = int | Sequence[int]
Offsets: TypeAlias = Sequence[int | Sequence[int]]
Padding: TypeAlias = str | int
Dimension: TypeAlias = "ir.Dimension | Expr"  # a width, the features of data, or a vector that has one
Variable: TypeAlias = "Expr | Matrix | ir.Var | str"
ByAxis: TypeAlias = Table[AxisLike, T]
ByVariable: TypeAlias = "Table[Variable, T]"

Readouts: TypeAlias = "Iterable[str | Expr | ir.Var] | None"  # of a check, in place of the marked ones


AxisCov: TypeAlias = "ArrayLike | ByAxis[ArrayLike]"
Operand: TypeAlias = "Expr | Real"
State: TypeAlias = "Expr | int"  # of a scan before its first element; 0 is the zero vector
FanIn: TypeAlias = Literal["cols"] | ir.Number | None


class Shared(TypedDict, total=False):
    """Options of the arrays of a layer whose axes are the layer's own."""

    multiplier: ir.ScaleLike
    trainable: bool


class Arrays(Shared, total=False):
    """Options of arrays whose fan-in is the layer's own."""

    axes: Iterable[DimLike]


class Matrices(Arrays, total=False):
    """Options of `Program.matrix`."""

    fan_in: FanIn


class Embeddings(Shared, total=False):
    """Options of a vector for each position."""

    mean: ir.Number


class Vectors(Arrays, total=False):
    """Options of `Program.bias` and `Program.readout`."""

    cov: ByVariable[ir.Number] | None
    axis_cov: AxisCov | None


class Blocked(Protocol[V]):
    """Vectors below one another: a matrix applied to them is a row of independent blocks."""

    def __netsor_matrix__(self, name: str, rows: Dimension, var: ir.ScaleLike, **array: Unpack[Matrices]) -> V: ...


# ---------------------------------------------------------------- findings


class Fields(TypedDict, total=False):
    """Of a `Diagnostic`, beside its message."""

    code: str
    severity: str
    variable: str | None
    line: int | None
    clause: str | None
    location: Location | None
    hint: str | None
    accepted: str | None
