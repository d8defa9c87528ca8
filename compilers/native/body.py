"""The kernels of one pair as instructions on numbers: each made once, and in stages that a loop each computes.

A stage ends where an expectation's result is the covariance of the next, so that the chains of operations in flight
at once stay short.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from netsor.compilers.native.columns import Column, Computed


@dataclass(frozen=True)
class Ref:
    """The result of an instruction, by its number."""

    number: int


@dataclass(frozen=True)
class Side:
    """A quantity of the first (1) or the second (2) input; of one with axes element `at` of `size`."""

    copy: int
    column: Column
    at: Any = None
    size: int = 1


Argument = Ref | Side | float


@dataclass(frozen=True)
class Instruction:
    """`op` of the arguments; of "gram" and "series" `which` one."""

    op: str
    args: tuple[Argument, ...] = ()
    which: int = 0


@dataclass
class Body:
    """Instructions in order, with the stage of each; the results.

    `sizes` must stay below 1; `steep` of them also where float64 is used for the digits of float32.
    """

    code: list[Instruction] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    sizes: list[Ref] = field(default_factory=list)
    steep: list[Ref] = field(default_factory=list)
    results: list[Argument] = field(default_factory=list)
    _known: dict[Instruction, Ref] = field(default_factory=dict)

    def add(self, op: str, *args: Argument, which: int = 0, later: bool = False) -> Ref:
        """The instruction, made once; `later` puts it behind a stage of its arguments."""
        made = Instruction(op, args, which)
        if made not in self._known:
            self._known[made] = Ref(len(self.code))
            self.code.append(made)
            self.stages.append(self.stage(*args) + later)
        return self._known[made]

    def stage(self, *args: Argument) -> int:
        return max((self.stages[x.number] for x in args if isinstance(x, Ref)), default=0)

    def value(self, arg: Argument, dtype: torch.dtype) -> Value:
        return Value(self, arg, dtype)

    def alive(self) -> set[int]:
        """The instructions that something reads."""
        left = [x.number for x in (*self.results, *self.sizes) if isinstance(x, Ref)]
        found: set[int] = set()
        while left:
            k = left.pop()
            if k not in found:
                found.add(k)
                left += [x.number for x in self.code[k].args if isinstance(x, Ref)]
        return found


FOLDED: dict[str, Callable[..., float]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "neg": lambda x: -x,
    "abs": math.fabs,
}  # fmt: skip


class Value:
    """A number of a pair with the operators of a tensor, as far as the formulas of blocks use them.

    What depends on one input alone becomes a column of that input, what depends on none a number.
    """

    def __init__(self, body: Body, arg: Argument, dtype: torch.dtype) -> None:
        self.body, self.arg, self.dtype = body, arg, dtype

    def _make(self, op: str, *args: Any) -> Value:
        return Value(self.body, combined(self.body, op, *(_argument(x) for x in args)), self.dtype)

    @classmethod
    def __torch_function__(cls, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Value:
        if f is not torch.where:
            raise TypeError(f"{f} of a value that is printed")
        condition, x, y = args
        assert isinstance(condition, Value)
        return condition.chosen(x, y)

    def chosen(self, x: Any, y: Any) -> Value:
        """x where the value is at least 0, y elsewhere."""
        return self._make("where", self, x, y)

    def __add__(self, x: Any) -> Value:
        return self._make("add", self, x)

    def __radd__(self, x: Any) -> Value:
        return self._make("add", x, self)

    def __sub__(self, x: Any) -> Value:
        return self._make("sub", self, x)

    def __rsub__(self, x: Any) -> Value:
        return self._make("sub", x, self)

    def __mul__(self, x: Any) -> Value:
        return self._make("mul", self, x)

    def __rmul__(self, x: Any) -> Value:
        return self._make("mul", x, self)

    def __truediv__(self, x: Any) -> Value:
        return self._make("div", self, x)

    def __rtruediv__(self, x: Any) -> Value:
        return self._make("div", x, self)

    def __neg__(self) -> Value:
        return self._make("neg", self)

    def __ge__(self, x: Any) -> Value:
        """A condition: what is at least 0 where it holds (`chosen`)."""
        return self - x

    def __le__(self, x: Any) -> Value:
        return x - self

    def abs(self) -> Value:
        return self._make("abs", self)

    def sqrt(self) -> Value:
        return self._make("sqrt", self)

    def rsqrt(self) -> Value:
        return 1.0 / self.sqrt()

    def reciprocal(self) -> Value:
        return 1.0 / self

    def square(self) -> Value:
        return self * self

    def clamp(self, min: float | None = None, max: float | None = None) -> Value:
        above = self if min is None else self._make("at least", self, min)
        return above if max is None else above._make("at most", above, max)

    def at_most(self, x: Any) -> Value:
        return self._make("at most", self, x)

    def add_(self, x: Any, alpha: float = 1) -> Value:
        return self + alpha * x

    def sub_(self, x: Any, alpha: float = 1) -> Value:
        return self - alpha * x

    def mul_(self, x: Any) -> Value:
        return self * x

    def addcmul_(self, x: Any, y: Any, value: float = 1) -> Value:
        return self + value * (x * y)

    rsqrt_, sqrt_ = rsqrt, sqrt


def _argument(x: Any) -> Argument:
    return x.arg if isinstance(x, Value) else float(x)


def combined(body: Body, op: str, *args: Argument) -> Argument:
    """The operation: a number of numbers, a column of columns of one input, else an instruction."""
    if op in FOLDED and all(isinstance(x, float) for x in args):
        return FOLDED[op](*args)
    if op == "mul" and 1.0 in args:
        return args[1] if args[0] == 1.0 else args[0]
    if op == "sub" and args[1] == 0.0:
        return args[0]
    if op == "add" and 0.0 in args:
        return args[1] if args[0] == 0.0 else args[0]
    sides = {(x.copy, x.at, x.size) for x in args if isinstance(x, Side)}
    if len(sides) == 1 and not any(isinstance(x, Ref) for x in args):
        column = Computed(op, tuple(x.column if isinstance(x, Side) else x for x in args if not isinstance(x, Ref)))
        copy, at, size = sides.pop()
        return Side(copy, column, at, size)
    return body.add(op, *args)
