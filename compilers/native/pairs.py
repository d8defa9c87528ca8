"""The pairs of a plan as a body of instructions; what has no instruction is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

import sympy as sp
import torch

from netsor.compilers.evaluate.results import TERM
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.lowering.plan import arrays, operations, order, positions
from netsor.compilers.lowering.plan.operands import Array, Name, Operand, Quantity
from netsor.compilers.native.body import Argument, Body, Side, Value
from netsor.compilers.native.columns import Kept
from netsor.compilers.native.expectations import Expectations, Missing, Series
from netsor.names import shown

Functions = Callable[[sp.Expr], Fn]


@dataclass(frozen=True)
class Pairs:
    """The bodies of two inputs and of one input twice; the arrays whose Gram matrices they read, their series, and how
    many expectations are formulas.
    """

    two: Body
    own: Body
    grams: tuple[tuple[str, str], ...]
    series: tuple[Series, ...]
    formulas: int
    parameters: tuple[str, ...] = ()  # whose values stand behind the quantities that `each` keeps

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(self.two.results)


def pairs(plan: order.Plan, get: frozenset[str], functions: Functions, dtype: torch.dtype) -> Pairs:
    """The instructions for what is asked for. Raises Missing."""
    series: dict[Series, int] = {}
    parameters: dict[str, int] = {}
    two, own = (_Walk(plan, get, functions, dtype, twice, series, parameters) for twice in (False, True))
    for walk in (two, own):
        walk.run(plan.pairs.body)
    if not two.grams:
        raise Missing("kernels that no inner product of the data enters")
    return Pairs(two.body, own.body, tuple(two.grams), tuple(series), two.expectations.formulas, tuple(parameters))


class _Walk:
    def __init__(
        self, plan: order.Plan, get: frozenset[str], functions: Functions, dtype: torch.dtype, own: bool,
        series: dict[Series, int], parameters: dict[str, int],
    ) -> None:  # fmt: skip
        self.get, self.functions, self.dtype, self.parameters = get, functions, dtype, parameters
        self.body = Body()
        self.expectations = Expectations(self.body, own, series)
        self.grams: list[tuple[str, str]] = []
        self.names: dict[Name, Argument] = {}
        self.laws: dict[Name, operations.Law] = {}
        self.kept = {name: place for place, name in enumerate(dict.fromkeys(plan.each.kept))}

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
                self._result(s)
            case arrays.Gram():
                self._gram(s)
            case arrays.Same() | arrays.Full():
                self._define(s.out, self._value(s.of))
            case operations.Add():
                self._define(s.out, self._value(s.x) * float(s.alpha) + self._value(s.y) * float(s.beta))
            case operations.Mul():
                self._define(s.out, self._value(s.x) * self._value(s.y))
            case operations.Law():
                self.laws[s.out] = s
            case operations.Expect2():
                self._expect(s)
            case (
                arrays.Numbers() | arrays.Number() | arrays.Permute() | arrays.Slice() | arrays.Fit() | arrays.Take()
                | arrays.At() | arrays.Reduce() | arrays.Windows()
            ):  # fmt: skip
                raise Missing("arrays with axes")
            case (
                positions.Size() | positions.Strided() | positions.SameSize() | positions.Features() | positions.Move()
                | positions.Grid() | positions.Taps() | positions.Window() | positions.Inverse() | positions.Back()
                | positions.Along() | positions.Indicator()
            ):  # fmt: skip
                raise Missing("positions on an axis")
            case arrays.Parameter():
                self._parameter(s)
            case operations.Box() | operations.Contract() | operations.Total() | operations.Softmax():
                raise Missing("a sum over an axis")
            case operations.Apply():
                raise Missing(f"a function of scalars, {s.f}")
            case (
                operations.Variance() | operations.Expect1() | operations.ExpectJ() | operations.Square()
                | operations.Radial() | operations.Placed()
            ):  # fmt: skip
                raise Missing("an expectation over other than two Gaussian variables")
            case order.Read() | order.Loop() | order.Put() | order.Wave():
                raise Missing("a recurrence")
            case order.Store():
                raise Missing("a function of the data")
            case _:
                assert_never(s)

    # ------------------------------------------------------------ operands

    def _define(self, out: Name, value: Value) -> None:
        if out.layout is None or out.layout.axes:
            raise Missing("axes")
        self.names[out] = value.arg

    def _value(self, x: Operand) -> Value:
        return Value(self.body, self._argument(x), self.dtype)

    def _argument(self, x: Operand) -> Argument:
        match x:
            case Name():
                return self.names[x]
            case Quantity():
                if x.name.layout is None or x.name.layout.axes or x.copy not in (1, 2):
                    raise Missing(f"{shown(x.name.stem)} of one input, with axes")
                return Side(1 if x.copy == 1 else 2, Kept(self.kept[x.name]))
            case Array():
                raise Missing(f"the array {shown(x.name)} beside its Gram matrix")
            case int() | float():
                return float(x)
            case _:
                assert_never(x)

    # ------------------------------------------------------------ statements

    def _parameter(self, s: arrays.Parameter) -> None:
        place = len(self.kept) + self.parameters.setdefault(s.parameter, len(self.parameters))
        self._define(s.out, Value(self.body, Side(1, Kept(place)), self.dtype))

    def _gram(self, s: arrays.Gram) -> None:
        if s.rows or s.cols or not isinstance(s.x, Array) or not isinstance(s.y, Array):
            raise Missing("a Gram matrix with axes")
        self._define(s.out, Value(self.body, self.body.add("gram", which=len(self.grams)), self.dtype))
        self.grams.append((s.x.name, s.y.name))

    def _expect(self, s: operations.Expect2) -> None:
        law = self.laws[s.law]
        if law.means != (None, None):
            raise Missing("an expectation of variables with means")
        k11, k22, k12 = map(self._value, law.covariances)
        self._define(s.out, self.expectations.value(self.functions(s.f), self.functions(s.g), k11, k22, k12, law.same))

    def _result(self, s: order.Result) -> None:
        if s.sizes:
            raise Missing(f"{shown(s.name)} with axes")
        self.body.results[s.name if s.key is None else TERM + s.key] = self._argument(s.of)
