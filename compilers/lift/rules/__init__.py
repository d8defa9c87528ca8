"""What each ATen operation is in a program."""

from netsor.compilers.lift.rules import contract, convolution, elementwise, reduce, shapes
from netsor.compilers.lift.rules.table import RULES, near

__all__ = ["RULES", "contract", "convolution", "elementwise", "near", "reduce", "shapes"]
