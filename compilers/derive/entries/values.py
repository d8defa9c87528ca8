"""The language of recursions: entries indexed by symbols, and the values that define them.

    entry    K_h1[n, n̄, s, s′] = value
    value  ::=  number | entry[index, …] | given[index, …] | Gram(ξ, ξ̄) | size | Add | Mul | Σ_symbol value
             |  indicator | function of scalars | softmax | E F(u₁ … u_k) | E of normalised batches

A field's type says what it is: a value, an index, a symbol (`Bound` where it is summed over inside), a copy, or a part
of a value that has such fields. `traversal` reads these types, so that a new class needs no line there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.indices import Copy, Index, Sym

if TYPE_CHECKING:
    from netsor.compilers.derive.references import AnyRef

Space = Literal["const", "input", "pair"]
Bound = Annotated[Sym, "summed or integrated over inside the value"]


@dataclass(frozen=True)
class Kind:
    """What an entry is of its variables: K, T (Θ, of one trained `array` alone where it is named), M, S; A: a part."""

    letter: Literal["K", "T", "M", "S", "A"]
    array: ir.Var | None = None

    def __str__(self) -> str:
        return self.letter if self.array is None else f"{self.letter}_{self.array.name}"


SECOND_MOMENT, TANGENT, MEAN, SCALAR, PART = Kind("K"), Kind("T"), Kind("M"), Kind("S"), Kind("A")


@dataclass(eq=False)
class Entry:
    """One equation of the recursion. `space`: const, input (for each input alone) or pair."""

    name: str
    space: Space
    dims: tuple[Sym, ...]
    value: Value
    kind: Kind = SECOND_MOMENT
    of: tuple[str, ...] = ()
    recurrent: bool = False
    refs: tuple[AnyRef, ...] = ()  # the references whose kernel this is
    deltas: frozenset[tuple[Sym, Sym]] = frozenset()  # zero off these diagonals

    @property
    def copy(self) -> Copy:
        """The copy that an entry is read at where it is made."""
        return {"const": Copy.NONE, "input": Copy.OWN, "pair": Copy.SHORTER}[self.space]

    def __repr__(self) -> str:
        return self.name


# ---------------------------------------------------------------- values


@dataclass(frozen=True)
class Num:
    """A number; while a recursion is derived, also an expression in parameters (`parametrised`)."""

    value: sp.Expr


@dataclass(frozen=True)
class Access:
    entry: Entry
    copy: Copy
    idx: tuple[Index, ...]


@dataclass(frozen=True)
class Numbers:
    """An array that stands in the program: nested tuples."""

    name: str
    numbers: tuple[object, ...]


@dataclass(frozen=True)
class Parameter:
    """A variance or a multiplier that a call gives."""

    symbol: sp.Symbol

    @property
    def name(self) -> str:
        return str(self.symbol.name)


@dataclass(frozen=True)
class Position:
    """The index itself, as a number."""


Source = ir.Var | Numbers | Parameter | Position


@dataclass(frozen=True)
class Given:
    """What is given with each sample (a scalar of `copy`), with the program, or by the call."""

    of: Source
    copy: Copy
    idx: tuple[Index, ...] = ()


@dataclass(frozen=True)
class Gram:
    """⟨ξ[idx1], ξ̄[idx2]⟩ / d of two arrays of data (`array`, each may be a function of data)."""

    array: tuple[ir.Var, ir.Var]
    copy1: Copy
    idx1: tuple[Index, ...]
    copy2: Copy
    idx2: tuple[Index, ...]


@dataclass(frozen=True)
class SizeValue:
    size: ir.Size
    copy: Copy


@dataclass(frozen=True)
class FeatureDim:
    """The dimension d of a network input."""

    var: ir.Var


@dataclass(frozen=True)
class Add:
    args: tuple[Value, ...]


@dataclass(frozen=True)
class Mul:
    args: tuple[Value, ...]


@dataclass(frozen=True)
class Sum:
    sym: Bound
    body: Value


@dataclass(frozen=True)
class Ind:
    """1 where the two indices are equal and inside, else 0; with `right` None, 1 where `left` is inside."""

    left: Index
    right: Index | None
    size: ir.Size
    copy: Copy


@dataclass(frozen=True)
class Fn:
    """A function of scalar values: `expr` in the symbols c0, c1, …"""

    expr: sp.Expr
    args: tuple[Value, ...]


@dataclass(frozen=True)
class Soft:
    """mask_j exp(c_j) / Σ_l mask_l exp(c_l) over `sym`."""

    sym: Sym
    value: Value
    mask: Value | None


@dataclass(frozen=True)
class Law:
    """A Gaussian law of k variables: variances, covariances (u₀, u₁), (u₀, u₂), …, (u₁, u₂), …; a mean of None is 0."""

    variances: tuple[Value, ...]
    covariances: tuple[Value, ...]
    means: tuple[Value | None, ...]

    @property
    def triangle(self) -> tuple[Value, ...]:
        """The upper triangle of the covariance matrix, row by row."""
        above = iter(self.covariances)
        k = len(self.variances)
        return tuple(self.variances[i] if i == j else next(above) for i in range(k) for j in range(i, k))

    @property
    def centred(self) -> bool:
        return all(m is None for m in self.means)


@dataclass(frozen=True)
class Expect:
    """E F(u₀, …, u_{k−1}) under a law; `f` in the symbols z0, z1, … of `variable` and the scalars c0, c1, …"""

    f: sp.Expr
    law: Law
    params: tuple[Value, ...] = ()


@dataclass(frozen=True)
class RadialSide:
    """One normalised batch: f of its element `out`, r^{-2 power}, ε, and the covariance over `rows` and `cols`."""

    f: sp.Expr
    power: float
    eps: float
    covariance: Value
    rows: tuple[Bound, ...]
    cols: tuple[Bound, ...]
    out: tuple[Sym, ...]


@dataclass(frozen=True)
class Radial:
    """E f(c_i) g(c̄_j) r^{-2p} r̄^{-2p̄}; `cross` is E c_k c̄_l over the rows of both sides.

    With `theta` (the tangent kernel of the families) its derivative in that direction; `within`: both sides are one
    batch with one radius.
    """

    sides: tuple[RadialSide, RadialSide]
    cross: Value
    theta: Value | None
    within: bool = False


Value = (
    Num | Access | Given | Gram | SizeValue | FeatureDim | Add | Mul | Sum | Ind | Fn | Soft | Expect
    | Radial
)  # fmt: skip

Part = Law | RadialSide  # of a value

ONE = Num(sp.Integer(1))
ZERO = Num(sp.Integer(0))
