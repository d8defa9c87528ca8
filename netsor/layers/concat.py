"""Concatenation of vectors of several widths: the next matrix is a row of independent blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Unpack

from netsor import ir
from netsor.build import hints
from netsor.build.scales import multiplied, scale
from netsor.errors import ProgramError, caller_location
from netsor.functions import Function

if TYPE_CHECKING:
    from netsor.build.expressions import Expr, Matrix
    from netsor.build.program import Program


def root(x: Fraction) -> ir.Number:
    """√x, exact where it is rational."""
    a, b = math.isqrt(x.numerator), math.isqrt(x.denominator)
    return Fraction(a, b) if Fraction(a, b) ** 2 == x else math.sqrt(x)


class Concat:
    """(x¹, …, xᵏ): a matrix applied to it is W x = Σᵢ Wᵢ xⁱ, Wᵢ = ω/√(n₁ + … + n_k)."""

    def __init__(self, parts: Sequence[Expr]) -> None:
        self.parts = tuple(parts)
        self.program: Program = parts[0].program

    @property
    def dims(self) -> tuple[ir.Dim, ...]:
        """The axes of the parts; they agree in the last (the taps of a window)."""
        return self.parts[0].dims

    def window(
        self, axes: hints.Axes, size: hints.PerAxis | None = None, offsets: hints.Offsets | None = None,
        stride: hints.PerAxis = 1, padding: hints.Padding = "same", dilation: hints.PerAxis = 1,
    ) -> Concat:  # fmt: skip
        """The windows of the parts, over one axis of taps."""
        windows = [x.window(axes, size, offsets, stride, padding, dilation) for x in self.parts]
        tap = windows[0].dims[-1].axis
        return Concat([windows[0], *(w.rename({w.dims[-1].axis: tap}) for w in windows[1:])])

    def __netsor_apply__(self, function: Function, args: Sequence[Any]) -> Concat:
        return Concat([function(x) for x in self.parts])

    def __netsor_matrix__(
        self, name: str, rows: hints.Dimension, var: ir.ScaleLike, **array: Unpack[hints.Matrices]
    ) -> Blocks:
        """The blocks Wᵢ, called name_1, name_2, …; √(nᵢ/Σn) makes the sum of the widths the fan-in."""
        widths = [x.rows for x in self.parts]
        ratios = [Fraction(w.ratio) for w in widths if isinstance(w, ir.Width)]
        whole = scale(f"the multiplier of {name}", array.get("multiplier", 1))
        blocks = []
        for i, (x, ratio) in enumerate(zip(self.parts, ratios, strict=True), 1):
            array["multiplier"] = multiplied(root(ratio / sum(ratios)), whole)
            blocks.append(self.program.matrix(f"{name}_{i}", rows, x, var, **array))
        return Blocks(blocks)


class Blocks:
    """A matrix [W₁ … W_k] applied to a concatenation."""

    def __init__(self, blocks: Sequence[Matrix]) -> None:
        self.blocks = tuple(blocks)

    def __matmul__(self, x: Concat) -> Expr:
        if not isinstance(x, Concat) or len(x.parts) != len(self.blocks):
            raise ProgramError(
                f"the matrix has {len(self.blocks)} blocks and is applied to a concatenation of as many vectors",
                code="NT102", location=caller_location(),
            )  # fmt: skip
        first, *rest = (W @ part for W, part in zip(self.blocks, x.parts, strict=True))
        return sum(rest, first)


def concat(*vectors: Expr) -> Concat:
    """The vectors below one another; a matrix applied to them has the sum of the widths as its fan-in."""
    if not vectors or any(not isinstance(x.rows, ir.Width) for x in vectors):
        raise ProgramError(
            "vectors with widths are concatenated, not data", code="NT102", location=caller_location(),
            hint="embed data with a matrix first",
        )  # fmt: skip
    return Concat(vectors)


def times(x: Expr | Concat, name: str, n: hints.Dimension, var: ir.ScaleLike, **array: Unpack[hints.Matrices]) -> Expr:
    """W x with a new matrix W called `name`."""
    if isinstance(x, Concat):
        return x.program.matrix(name, n, x, var, **array) @ x
    return x.program.matrix(name, n, x, var, **array) @ x


__all__ = ["Blocks", "Concat", "concat", "root", "times"]
