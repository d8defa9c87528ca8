"""What the statements of a plan are to native blocks, whether their pairs have axes or none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import assert_never

import sympy as sp
import torch

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.lowering.plan import arrays, operations, order, positions
from netsor.compilers.lowering.plan.operands import Name
from netsor.compilers.native.columns import Column, Mean, Own
from netsor.compilers.native.expectations import Missing

Functions = Callable[[sp.Expr], Fn]
OverAxes = (
    positions.Size | positions.Strided | positions.SameSize | positions.Features | positions.Move | positions.Grid
    | positions.Taps | positions.Window | positions.Inverse | positions.Back | positions.Along | positions.Indicator
    | arrays.Numbers | arrays.Number | arrays.Permute | arrays.Slice | arrays.Fit | arrays.Take | arrays.At
    | operations.Apply | operations.Box | operations.Contract | operations.Total
    | order.Read | order.Loop | order.Put | order.Wave
)  # fmt: skip


class Statements(ABC):
    """The statements of pairs, of which `get` are wanted, in order. Raises Missing at one that has no native code."""

    def __init__(self, get: frozenset[str], functions: Functions, dtype: torch.dtype) -> None:
        self.get, self.functions, self.dtype = get, functions, dtype
        self._laws: dict[Name, operations.Law] = {}

    def run(self, statements: Iterable[order.Statement]) -> None:
        for s in statements:
            try:
                self._statement(s)
            except Missing as error:
                out = getattr(s, "out", None)
                raise Missing(error.reason, error.name or (out.stem if isinstance(out, Name) else "")) from None

    def _statement(self, s: order.Statement) -> None:  # noqa: C901
        match s:
            case order.Note() | order.Free():
                pass
            case order.Guard():
                self.run(() if self.get.isdisjoint(s.results) else s.body)
            case order.Result():
                self.result(s)
            case arrays.Gram():
                self.gram(s)
            case arrays.Parameter():
                self.parameter(s)
            case arrays.Same() | arrays.Full():
                self.same(s)
            case operations.Add() | operations.Mul():
                self.arithmetic(s)
            case operations.Law():
                self._laws[s.out] = s
            case operations.Expect2():
                self._expect(s)
            case (
                positions.Size() | positions.Strided() | positions.SameSize() | positions.Features()
                | positions.Move() | positions.Grid() | positions.Taps() | positions.Window() | positions.Inverse()
                | positions.Back() | positions.Along() | positions.Indicator()
                | arrays.Numbers() | arrays.Number() | arrays.Permute() | arrays.Slice() | arrays.Fit() | arrays.Take()
                | arrays.At() | operations.Apply() | operations.Box() | operations.Contract() | operations.Total()
                | order.Read() | order.Loop() | order.Put() | order.Wave()
            ):  # fmt: skip
                self.over_axes(s)
            case operations.Softmax():
                raise Missing("a softmax of a kernel of pairs")
            case operations.Expect1():
                self._expect1(s)
            case operations.Variance() | operations.ExpectJ():
                raise Missing("an expectation over more than two Gaussian variables")
            case operations.Square() | operations.Radial() | operations.Placed():
                raise Missing("an expectation over a batch")
            case order.Store() | arrays.Reduce() | arrays.Windows():
                raise Missing("a function of the data")
            case _:
                assert_never(s)

    def _expect(self, s: operations.Expect2) -> None:
        law = self._laws[s.law]
        if law.means != (None, None):
            raise Missing("an expectation of variables with means")
        self.expect(s, law, self.functions(s.f), self.functions(s.g))

    def _expect1(self, s: operations.Expect1) -> None:
        if s.mean is not None:
            raise Missing("an expectation of a variable with a mean")
        found = [self.functions(f) for f in s.functions]
        self.expect1(s, lambda k: Mean(found[0], k) if len(found) == 1 else Own(found[0], found[1], k))

    @abstractmethod
    def result(self, s: order.Result) -> None:
        """Keep a kernel under its key."""

    @abstractmethod
    def gram(self, s: arrays.Gram) -> None:
        """An inner product of data."""

    @abstractmethod
    def parameter(self, s: arrays.Parameter) -> None:
        """A number that a call gives."""

    @abstractmethod
    def same(self, s: arrays.Same | arrays.Full) -> None:
        """The operand in the layout of the result."""

    @abstractmethod
    def arithmetic(self, s: operations.Add | operations.Mul) -> None:
        """A sum or a product."""

    @abstractmethod
    def expect(self, s: operations.Expect2, law: operations.Law, f: Fn, g: Fn) -> None:
        """E f(u)g(v) of variables without means."""

    @abstractmethod
    def expect1(self, s: operations.Expect1, column: Callable[[Column], Column]) -> None:
        """E f(u), or E f(u)g(u), of a variable of one input: a column of its variance."""

    @abstractmethod
    def over_axes(self, s: OverAxes) -> None:
        """Functions of positions, sums over axes, recurrences."""
