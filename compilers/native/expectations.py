"""E f(u)g(v) of a pair of inputs as instructions: a formula of few operations, or Mehler's series.

The formulas are those of compiled blocks (`expectation.blocks.fused`), run on values that are printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks import formulas
from netsor.compilers.expectation.blocks.fused import Geometry, TracedBlock
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.terms import Delta, Term
from netsor.compilers.native.body import Argument, Body, Ref, Side, Value
from netsor.compilers.native.columns import Column, InverseRoot, Own, Root
from netsor.names import shown

TWIN = 8  # a covariance within so many roundings of the variance of both is that of one variable


class Missing(Exception):
    """What has no instruction, in words; `name` is the entry whose statement it is."""

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(f"{shown(name)}: {reason}" if name else reason)
        self.reason, self.name = reason, name


@dataclass(frozen=True)
class Series:
    """Σ a_k b_k r^k: a of f and the first input's variance, b of g and the second's."""

    f: Fn
    g: Fn
    k11: Column
    k22: Column


class Expectations:
    """The expectations of one body: of two inputs, or, `own`, of one input twice. `series` are shared by both."""

    def __init__(self, body: Body, own: bool, series: dict[Series, int]) -> None:
        self.body, self.own, self.series = body, own, series
        self.formulas = 0  # expectations that are none

    def value(self, f: Fn, g: Fn, k11: Value, k22: Value, k12: Value, same: bool) -> Value:
        """E f(u)g(v); `same`: u and v are one variable of two inputs."""
        if not isinstance(k11.arg, Side) or not isinstance(k22.arg, Side):
            raise Missing("an expectation whose variances are not those of one input each")
        alike = self.own and k11.arg.column == k22.arg.column
        own = Value(self.body, Side(1, Own(f, g, k11.arg.column)), k12.dtype) if alike else None
        if own is not None and same:
            return own
        if not isinstance(k12.arg, Ref):
            k12 = Value(self.body, self.body.add("same", k12.arg), k12.dtype)
        found, size, steep = self._general(f, g, k11, k22, k12)
        if own is not None:  # where the covariance is the variance
            room = twin(k11, k12)
            found, size = room.chosen(own, found), room.chosen(0.0, size)
        self._near(size, steep)
        return found

    def _near(self, size: Value, steep: bool) -> None:
        assert isinstance(size.arg, Ref)
        self.body.sizes.append(size.arg)
        if steep:
            self.body.steep.append(size.arg)

    def _general(self, f: Fn, g: Fn, k11: Value, k22: Value, k12: Value) -> tuple[Value, Value, bool]:
        """The expectation, |r|, and whether the expectation is steep near |r| = 1."""
        rule = formulas.rule(f, g)
        block = Block(k11, k22, self._staged(k12), (0.0, 0.0) if rule is None else rule[1])
        geometry: Any = block.geometry
        if rule is not None:
            self.formulas += 1
            out: Any = rule[0](block)
            return out, geometry.size, block.steep
        refuse(f, g)
        if not isinstance(k11.arg, Side) or not isinstance(k22.arg, Side):
            raise Missing(f"an expectation of {f.name} and {g.name} whose variances are not those of one input each")
        series = Series(f, g, k11.arg.column, k22.arg.column)
        found, size = self._summed(self.series.setdefault(series, len(self.series)), k11.arg, k22.arg, geometry)
        return found, size, True

    def _summed(self, which: int, one: Side, two: Side, geometry: Geometry) -> tuple[Value, Value]:
        """A series, and what of a pair must stay below 1."""
        del one, two
        r: Any = geometry.r
        size: Any = geometry.size
        return Value(self.body, self.body.add("series", r.arg, which=which, later=True), r.dtype), size

    def _staged(self, k12: Value) -> Value:
        """The covariance in a stage of its own, when an expectation of this one has gone into it."""
        assert isinstance(k12.arg, Ref)
        if not self._contains_root(k12.arg):
            return k12
        return Value(self.body, self.body.add("same", k12.arg, later=True), k12.dtype)

    def _contains_root(self, ref: Argument) -> bool:
        if not isinstance(ref, Ref):
            return False
        made, stage = self.body.code[ref.number], self.body.stages[ref.number]
        inside = (x for x in made.args if isinstance(x, Ref) and self.body.stages[x.number] == stage)
        return made.op == "sqrt" or any(self._contains_root(x) for x in inside)


class Block(TracedBlock):
    """A pair as the formulas want it: values in the place of tensors. `steep`: a formula has divided by √(1 − r²)."""

    steep = False

    def __init__(self, k11: Any, k22: Any, k12: Any, noise: tuple[float, float]) -> None:
        self.k11, self.k22, self.k12, self.noise = k11, k22, k12, noise
        self.geometry = Geometry(k12, self._column(k11, noise[0]), self._column(k22, noise[1]))

    def _column(self, k: Any, noise: float | None) -> Any:
        """1/√(k + noise), or √(k/2π) without one."""
        if not isinstance(k.arg, Side):
            return _inverse_root(k, noise)
        side = k.arg
        column = Root(side.column) if noise is None else InverseRoot(side.column, noise)
        return Value(k.body, Side(side.copy, column, side.at, side.size), k.dtype)

    @property
    def complement(self) -> Tensor:
        self.steep = True
        return super().complement

    def relu(self) -> Tensor:
        return self.geometry.relu(self._column(self.k11, None), self._column(self.k22, None))


def _inverse_root(k: Any, noise: float | None) -> Any:
    if noise is None:
        return k.clamp(min=0.0).sqrt() * math.sqrt(0.5 / math.pi)
    positive = k.clamp(min=0.0) + noise
    return (-positive).chosen(0.0, 1.0 / positive.sqrt())


def of_one(k: Argument, column: Callable[[Column], Column]) -> Argument:
    """A function of the variance of one input."""
    if not isinstance(k, Side):
        raise Missing("an expectation whose variance is not that of one input")
    return replace(k, column=column(k.column))


def twin(k11: Value, k12: Value) -> Value:
    """At least 0 where a covariance is that of one variable."""
    return k11 * (TWIN * torch.finfo(k12.dtype).eps) - (k12 - k11).abs()


def refuse(f: Fn, g: Fn) -> None:
    """Missing when Mehler's series of f and g does not converge."""
    if any(isinstance(t, Delta) for h in (f, g) for _, t in h.terms):
        raise Missing(f"an expectation of a distribution ({f.name}, {g.name})")


def is_polynomial(f: Fn) -> bool:
    return all(isinstance(t, Term) and not (t.linear or t.quadratic or t.gate) for _, t in f.terms)
