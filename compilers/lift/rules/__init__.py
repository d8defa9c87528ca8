"""What each ATen operation is in a program."""

from netsor.compilers.lift.rules import (
    attention,
    contract,
    einsum,
    elementwise,
    normalisation,
    randomness,
    recurrent,
    reduce,
    several,
)
from netsor.compilers.lift.rules.dimensions import joins, parts, shapes
from netsor.compilers.lift.rules.positions import convolution, pools, transposed
from netsor.compilers.lift.rules.table import RULES, near

__all__ = [
    "RULES", "attention", "contract", "convolution", "einsum", "elementwise", "joins", "near", "normalisation",
    "parts", "pools", "randomness", "recurrent", "reduce", "several", "shapes", "transposed",
]  # fmt: skip
