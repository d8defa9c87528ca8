"""The pairs of a plan as a body of instructions; what has no instruction is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import torch

from netsor.compilers.derive.outputs import Key
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.lowering.plan import arrays, operations, order, positions
from netsor.compilers.lowering.plan.operands import Array, Name, Operand, Quantity
from netsor.compilers.native.body import Argument, Body, Side, Value
from netsor.compilers.native.columns import Column, Kept
from netsor.compilers.native.expectations import Expectations, Missing, Series, of_one
from netsor.compilers.native.statements import Functions, OverAxes, Statements
from netsor.names import shown


@dataclass(frozen=True)
class Pairs:
    """The bodies of two inputs and of one input twice; the arrays whose Gram matrices they read, their series, and how
    many expectations are formulas.
    """

    two: Body
    own: Body
    results: tuple[Key, ...]
    grams: tuple[tuple[str, str], ...]
    series: tuple[Series, ...]
    formulas: int
    parameters: tuple[str, ...] = ()  # whose values stand behind the quantities that `each` keeps


def pairs(plan: order.Plan, get: frozenset[str], functions: Functions, dtype: torch.dtype) -> Pairs:
    """The instructions for what is asked for. Raises Missing."""
    series: dict[Series, int] = {}
    parameters: dict[str, int] = {}
    two, own = (_Walk(plan, get, functions, dtype, twice, series, parameters) for twice in (False, True))
    for walk in (two, own):
        walk.run(plan.pairs.body)
    if not two.grams:
        raise Missing("kernels that no inner product of the data enters")
    return Pairs(
        two.body,
        own.body,
        tuple(two.results),
        tuple(two.grams),
        tuple(series),
        two.expectations.formulas,
        tuple(parameters),
    )


class _Walk(Statements):
    def __init__(
        self, plan: order.Plan, get: frozenset[str], functions: Functions, dtype: torch.dtype, own: bool,
        series: dict[Series, int], parameters: dict[str, int],
    ) -> None:  # fmt: skip
        super().__init__(get, functions, dtype)
        self.body, self.parameters = Body(), parameters
        self.expectations = Expectations(self.body, own, series)
        self.results: list[Key] = []
        self.grams: list[tuple[str, str]] = []
        self.names: dict[Name, Argument] = {}
        self.kept = {name: place for place, name in enumerate(dict.fromkeys(plan.each.kept))}

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

    def parameter(self, s: arrays.Parameter) -> None:
        place = len(self.kept) + self.parameters.setdefault(s.parameter, len(self.parameters))
        self._define(s.out, Value(self.body, Side(1, Kept(place)), self.dtype))

    def gram(self, s: arrays.Gram) -> None:
        if s.rows or s.cols or not isinstance(s.x, Array) or not isinstance(s.y, Array):
            raise Missing("a Gram matrix with axes")
        self._define(s.out, Value(self.body, self.body.add("gram", which=len(self.grams)), self.dtype))
        self.grams.append((s.x.name, s.y.name))

    def same(self, s: arrays.Same | arrays.Full) -> None:
        self._define(s.out, self._value(s.of))

    def arithmetic(self, s: operations.Add | operations.Mul) -> None:
        x, y = self._value(s.x), self._value(s.y)
        found = x * y if isinstance(s, operations.Mul) else x * float(s.alpha) + y * float(s.beta)
        self._define(s.out, found)

    def expect(self, s: operations.Expect2, law: operations.Law, f: Fn, g: Fn) -> None:
        k11, k22, k12 = map(self._value, law.covariances)
        self._define(s.out, self.expectations.value(f, g, k11, k22, k12, law.same))

    def expect1(self, s: operations.Expect1, column: Callable[[Column], Column]) -> None:
        self._define(s.out, Value(self.body, of_one(self._argument(s.k), column), self.dtype))

    def result(self, s: order.Result) -> None:
        if s.sizes:
            raise Missing(f"{shown(s.key.asked)} with axes")
        self.results.append(s.key)
        self.body.results.append(self._argument(s.of))

    def over_axes(self, s: OverAxes) -> None:
        match s:
            case (
                arrays.Numbers() | arrays.Number() | arrays.Permute() | arrays.Slice() | arrays.Fit() | arrays.Take()
                | arrays.At()
            ):  # fmt: skip
                raise Missing("arrays with axes")
            case (
                positions.Size() | positions.Strided() | positions.SameSize() | positions.Features() | positions.Move()
                | positions.Grid() | positions.Taps() | positions.Window() | positions.Inverse() | positions.Back()
                | positions.Along() | positions.Indicator()
            ):  # fmt: skip
                raise Missing("positions on an axis")
            case operations.Box() | operations.Contract() | operations.Total():
                raise Missing("a sum over an axis")
            case operations.Apply():
                raise Missing(f"a function of scalars, {s.f}")
            case order.Read() | order.Loop() | order.Put() | order.Wave():
                raise Missing("a recurrence")
            case _:
                assert_never(s)
