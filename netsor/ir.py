"""The grammar of NETSOR⊤ programs (Tensor Programs II, Definitions A.1, B.1 and B.8).

    matrix     A(n1, n2)   entries i.i.d. normal           InputMatrix | Trsp
    G-var      G(n)        Gaussian vector                 InputVector | MatMul
    H-var      H(n)        any vector                      Nonlin and the index forms
    C-var      C           scalar that tends to a constant InputScalar | Moment | Softmax
    data       X(d)        network input, d fixed          Data

    line  ::=  W   : A(n1, n2)                 InputMatrix
            |  v   : G(n)                      InputVector
            |  c   : C                         InputScalar
            |  x   : X(d)                      Data
            |  Wt  := W.T                      Trsp
            |  h   := W @ x                    MatMul
            |  y   := φ(x¹ … xᵏ; θ¹ … θˡ)      Nonlin
            |  c   := (1/n) Σ_α φ(x_α; θ)      Moment   (k = 0: a function of scalars)
            |  index forms over axes           Window Unwindow At Place Shift Rename Reduce Softmax

Every variable may carry axes: it is then a family, and a line over families is shorthand for its unrolled
straight-line program. Index forms are linear or coordinatewise and are written for an element t of the result.
This file holds the grammar and no logic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import sympy as sp

if TYPE_CHECKING:
    from netsor.errors import Location

Number = int | float | Fraction
Scale: TypeAlias = (
    Number | sp.Expr
)  # an expression in parameters (`hyperparameter`), which are given when a kernel is called
ScaleLike: TypeAlias = Scale | str  # a name stands for a parameter
Kind = Literal["A", "G", "H", "C", "X"]


# ---------------------------------------------------------------- dimensions and axes


@dataclass(frozen=True)
class Width:
    """A dimension that goes to infinity: `ratio` times the reference width.

    >>> ns.Program().width("m", ratio=2)
    Width(name='m', ratio=2)
    """

    name: str
    ratio: Number = 1


@dataclass(frozen=True)
class Feature:
    """The finite dimension of a network input, bound when data is given."""

    name: str


Dimension = Width | Feature


@dataclass(frozen=True)
class Axis:
    """A finite index (pixel row, token, time step, batch element); size None is taken from the data.

    >>> p = ns.Program()
    >>> p.data("x", axes=(p.axis("row", 8), "col")).axes
    (Axis(name='row', size=8), Axis(name='col', size=None))
    """

    name: str
    size: int | None = None


@dataclass(frozen=True)
class SizeOf:
    """The size of a data axis, bound when data is given."""

    axis: str


@dataclass(frozen=True)
class Strided:
    """⌈(of − minus) / stride⌉, the number of positions of a window."""

    of: Size
    minus: int
    stride: int


Size = int | SizeOf | Strided


@dataclass(frozen=True)
class Dim:
    """One axis of one variable, with the variable's own size along it."""

    axis: Axis
    size: Size


@dataclass(frozen=True, eq=False)
class Var:
    """A variable; two variables are equal only if they are the same one. Names are for people."""

    name: str
    kind: Kind
    rows: Dimension | None = None  # None for C-vars
    cols: Dimension | None = None  # matrices only
    dims: tuple[Dim, ...] = ()

    def __repr__(self) -> str:
        return self.name

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(d.axis for d in self.dims)

    def size(self, axis: Axis) -> Size:
        return next(d.size for d in self.dims if d.axis == axis)


def arg(i: int) -> sp.Symbol:
    """The symbol that stands for the i-th vector argument in a line's expression."""
    return sp.Symbol(f"x{i}", real=True)


def param(i: int) -> sp.Symbol:
    """The symbol that stands for the i-th scalar parameter in a line's expression."""
    return sp.Symbol(f"c{i}", real=True)


def hyperparameter(name: str) -> sp.Symbol:
    """The symbol of a positive number that is given when a kernel is called."""
    return sp.Symbol(name, positive=True)


# ---------------------------------------------------------------- lines


@dataclass(frozen=True, eq=False)
class InputMatrix:
    """W = multiplier · ω / √fan_in with ω_{αβ} ~ N(0, var); fan_in "cols", None (1) or a number. ω is trained."""

    out: Var
    var: Scale = 1
    multiplier: Scale = 1
    trainable: bool = True
    fan_in: Literal["cols"] | Number | None = "cols"
    loc: Location | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class InputVector:
    """g = multiplier · β, β_α i.i.d. N(mean, var); `cov` lists covariances of β with earlier input vectors' β.

    A family is independent over its axes, or has covariance var · M over an axis of `axis_cov`.
    """

    out: Var
    mean: Number = 0
    var: Scale = 1
    multiplier: Scale = 1
    trainable: bool = False
    readout: bool = False
    cov: tuple[tuple[Var, Number], ...] = ()
    axis_cov: tuple[tuple[Axis, tuple[tuple[Number, ...], ...]], ...] = ()
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class InputScalar:
    """A C-var with a given limit: a number, an array over its axes (nested tuples), or given with each sample.

    The limit "position" over one axis is 0, 1, 2, …
    """

    out: Var
    limit: Any = None
    per_sample: bool = False
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Data:
    """A network input ξ of fixed dimension, `[sample, *axes, feature]`."""

    out: Var
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Trsp:
    out: Var
    of: Var
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class MatMul:
    """out = matrix · vector; with data as the vector, out is an embedding."""

    out: Var
    matrix: Var
    vector: Var
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Nonlin:
    """out_α = expr(args_α; params), expr in the symbols arg(i) and param(j)."""

    out: Var
    expr: sp.Expr
    args: tuple[Var, ...]
    params: tuple[Var, ...] = ()
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Moment:
    """out = (1/n) Σ_α expr(args_α; params); without args a function of scalars."""

    out: Var
    expr: sp.Expr
    args: tuple[Var, ...]
    params: tuple[Var, ...] = ()
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class IndexLine:
    """An index form: its elements are elements of `of`, or sums of them. `netsor.indexing` says of which."""

    out: Var
    of: Var


@dataclass(frozen=True, eq=False)
class Window(IndexLine):
    """out[s, κ] = of[stride·s + offsets[κ]] jointly over `axes`; κ runs over the new axis `tap`.

    Positions outside are zero vectors ("zero"), are taken modulo the size ("wrap"), or are left out ("drop": only
    a max over `tap` may read the result).
    """

    axes: tuple[Axis, ...]
    tap: Axis
    offsets: tuple[tuple[int, ...], ...]
    stride: tuple[int, ...]
    outside: Literal["zero", "wrap", "drop"] = "zero"
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Unwindow(IndexLine):
    """The adjoint of Window: out[t] = Σ of[s, κ] over the (s, κ) with stride·s + offsets[κ] = t (modulo the size)."""

    axes: tuple[Axis, ...]
    tap: Axis
    offsets: tuple[tuple[int, ...], ...]
    stride: tuple[int, ...]
    outside: Literal["zero", "wrap", "drop"] = "zero"
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class At(IndexLine):
    """out = of[index] along `axis`; −1 is each sample's own last element."""

    axis: Axis
    index: int
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Place(IndexLine):
    """The adjoint of At: out[t] = of if t = index, else the zero vector."""

    axis: Axis
    index: int
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Shift(IndexLine):
    """out[t] = of[t − by] along `axis`, the zero vector outside. In a scan `of` is defined by a later line."""

    axis: Axis
    by: int = 1
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Rename(IndexLine):
    """out is `of` with axes renamed."""

    axes: tuple[tuple[Axis, Axis], ...]
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Reduce:
    """out = Σ, mean or coordinatewise max of `of` over `axis`."""

    out: Var
    of: Var
    axis: Axis
    op: Literal["sum", "mean", "max"]
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Softmax:
    """out_j = m_j exp(c_j) / Σ_l m_l exp(c_l) over `axis`, for C-vars; m = 1 without `mask`."""

    out: Var
    of: Var
    axis: Axis
    mask: Var | None = None
    loc: Location | None = None


IndexForm = Window | Unwindow | At | Place | Shift | Rename

Line = InputMatrix | InputVector | InputScalar | Data | Trsp | MatMul | Nonlin | Moment | IndexForm | Reduce | Softmax


# ---------------------------------------------------------------- statements about a program


@dataclass(frozen=True, eq=False)
class Output:
    """f = scale/√(|P| n) Σ_s readout_s · vector_s, s over the axes P of the readout; `at` lines precede it."""

    name: str
    readout: Var
    vector: Var
    scale: Number = 1
    at: int = 0
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Gradient:
    """`is_` = √n_out ∂f/∂of, one scale for the whole program."""

    of: Var
    is_: Var
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Returns:
    """A C-var whose limit is a result of the program."""

    name: str
    value: Var
    loc: Location | None = None


@dataclass(frozen=True, eq=False)
class Accepted:
    """Findings of a code that the author knows of, with the reason why they do not count."""

    code: str
    because: str
    loc: Location | None = None


class ProgramLike(Protocol):
    """What passes read. `netsor.build.program.Program` is the builder; `lines` is a snapshot."""

    name: str

    @property
    def widths(self) -> tuple[Width, ...]: ...
    @property
    def lines(self) -> tuple[Line, ...]: ...
    @property
    def outputs(self) -> tuple[Output, ...]: ...
    @property
    def gradients(self) -> tuple[Gradient, ...]: ...
    @property
    def returned(self) -> tuple[Returns, ...]: ...
    @property
    def functions(self) -> Mapping[str, Any]: ...
    @property
    def accepted(self) -> tuple[Accepted, ...]: ...
