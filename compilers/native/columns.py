"""Quantities of one input that pairs read: functions of what `each` has made, evaluated by torch for a whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

import sympy as sp
import torch
from torch import Tensor

from netsor.compilers.expectation import engine
from netsor.compilers.expectation.blocks import fast
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.lowering.torch_functions import torch_function


@dataclass(frozen=True)
class Kept:
    """The quantity at a place among those that `each` keeps."""

    place: int


@dataclass(frozen=True)
class InverseRoot:
    """1/√(k + noise), and 0 where it is infinite."""

    k: Column
    noise: float


@dataclass(frozen=True)
class Root:
    """√(k/2π)."""

    k: Column


@dataclass(frozen=True)
class Own:
    """E f(u)g(u), u ~ N(0, k)."""

    f: Fn
    g: Fn
    k: Column


@dataclass(frozen=True)
class Mean:
    """E f(u), u ~ N(0, k)."""

    f: Fn
    k: Column


@dataclass(frozen=True)
class Computed:
    """An operation of columns and numbers."""

    op: str
    args: tuple[Column | float, ...]


@dataclass(frozen=True)
class Applied:
    """f of columns, in the symbols that stand for them."""

    f: sp.Expr
    symbols: tuple[sp.Symbol, ...]
    args: tuple[Column | float, ...]


@dataclass(frozen=True)
class Mixed:
    """Σ over the positions of a column `[positions, features]` by weights of a shape, of their second index, or of
    their first.
    """

    weights: Column
    of: Column
    shape: tuple[int, int]
    first: bool


@dataclass(frozen=True)
class Reach:
    """Of the coefficients of an element in a series, w: those of two serve |r| ≤ 1/ww′ (`axes.series`)."""

    which: int
    number: int


Column = Kept | InverseRoot | Root | Own | Mean | Computed | Applied | Mixed | Reach


def evaluate(column: Column, kept: Sequence[Tensor]) -> Tensor:
    """The column `[n]`."""
    match column:
        case Kept():
            return kept[column.place]
        case InverseRoot():
            return fast.inverse_root(evaluate(column.k, kept), column.noise)
        case Root():
            return fast.root(evaluate(column.k, kept))
        case Own():
            return fast.E11(column.f, column.g, evaluate(column.k, kept))
        case Mean():
            return engine.E1(column.f, evaluate(column.k, kept))
        case Computed():
            return OPERATIONS[column.op](*_arguments(column.args, kept))
        case Applied():
            return torch_function(column.f, column.symbols)(*_arguments(column.args, kept))
        case Mixed():
            weights = evaluate(column.weights, kept).unflatten(-1, column.shape)
            weights = weights.mT if column.first else weights
            return (weights @ evaluate(column.of, kept).unflatten(-1, (weights.shape[-1], -1))).flatten(1)
        case Reach():
            raise AssertionError("the coefficients of a block say how far they reach")
        case _:
            assert_never(column)


def _arguments(args: tuple[Column | float, ...], kept: Sequence[Tensor]) -> list[Tensor]:
    like = kept[0]
    return [like.new_tensor(x) if isinstance(x, float | int) else evaluate(x, kept) for x in args]


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "neg": torch.neg, "abs": torch.abs,
    "sqrt": torch.sqrt, "at least": torch.maximum, "at most": torch.minimum,
    "where": lambda x, a, b: torch.where(x >= 0, a, b),
}  # fmt: skip
