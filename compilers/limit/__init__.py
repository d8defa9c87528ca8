"""The limit of any program, also where gradient independence fails (Tensor Programs III)."""

from netsor.compilers.limit.ask import limit
from netsor.compilers.limit.result import METHODS, LimitResult

__all__ = ["METHODS", "LimitResult", "limit"]
