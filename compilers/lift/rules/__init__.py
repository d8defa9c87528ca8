"""What each ATen operation is in a program."""

from netsor.compilers.lift.rules import (
    attention,
    contract,
    convolution,
    elementwise,
    joins,
    normalisation,
    parts,
    pools,
    randomness,
    recurrent,
    reduce,
    shapes,
)
from netsor.compilers.lift.rules.table import RULES, near

__all__ = [
    "RULES", "attention", "contract", "convolution", "elementwise", "joins", "near", "normalisation", "parts", "pools",
    "randomness", "recurrent", "reduce", "shapes",
]  # fmt: skip
