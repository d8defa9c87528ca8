"""What the statements of a plan cost: operations and numbers of one input or pair, nodes of quadratures in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

import sympy as sp

from netsor.compilers.derive.entries.indices import Sym
from netsor.compilers.expectation.quadrature import line
from netsor.compilers.expectation.quadrature.several import CHUNK as JOINT
from netsor.compilers.expectation.radial import CHUNK as RADIAL
from netsor.compilers.expectation.radial import nodes
from netsor.compilers.lowering.plan import arrays, operations, order, positions
from netsor.compilers.lowering.plan.operands import Layout, Name, Operand, View
from netsor.functions import Head, write_out
from netsor.sizes import number

FLOPS1, FLOPS2, FLOPS_JOINT = 30, 60, 10_000  # rough weights of one expectation, in additions
SAVED = 3  # tensors that autograd keeps for an entry, with what its backward makes at once
VALUES = 8  # tensors of so many nodes at once
POLAR = 1 << 17  # nodes of an expectation of several Gaussians
CLOSED = (  # what functions are written in whose expectations with one another have closed forms
    frozenset({"Heaviside"}),
    frozenset({"erf", "gaussian"}),
    frozenset({"sin", "cos", "exp"}),
)


SHARING = (View, operations.Variance, operations.Law)  # names of what is there


@dataclass(frozen=True)
class Work:
    """Bytes of nodes held at once: `each` for an entry, at most `most`."""

    each: int = 0
    most: int = 0

    def of(self, count: int) -> int:
        return min(self.most, self.each * count)

    def __or__(self, other: Work) -> Work:
        return Work(max(self.each, other.each), max(self.most, other.most))


@dataclass(frozen=True)
class Effort:
    """Of one input or pair: numbers written, operations, bytes of nodes, and those that autograd keeps of them.

    `by_values`: a function is expanded in a series, or integrated, for want of a closed form; `joint`: expectations of
    several Gaussians or over batches.
    """

    written: int = 0
    operations: int = 0
    work: Work = Work()
    saved: int = 0
    by_values: bool = False
    joint: bool = False

    def times(self, count: int) -> Effort:
        return Effort(
            self.written * count, self.operations * count, self.work, self.saved * count, self.by_values, self.joint
        )

    def __add__(self, other: Effort) -> Effort:
        return Effort(
            self.written + other.written, self.operations + other.operations, self.work | other.work,
            self.saved + other.saved, self.by_values or other.by_values, self.joint or other.joint,
        )  # fmt: skip


def effort(body: Iterable[order.Statement], sizes: Mapping[str, int], copies: int) -> Effort:
    """Of what depends on so many copies: on both inputs of a pair (2), or on an input (1)."""
    return _Counter(sizes, copies).all(body)


def elements(dims: Iterable[Sym | None], sizes: Mapping[str, int]) -> int:
    """How many numbers stand over these symbols; where there is none, one."""
    return math.prod(number(s.size, sizes.__getitem__) for s in dims if s is not None and s.number >= 0)


class _Counter:
    def __init__(self, sizes: Mapping[str, int], copies: int) -> None:
        self.sizes, self.copies = sizes, copies
        self.taps: dict[Name, int] = {}  # of the moves of boxes
        self.matrices: dict[Name, int] = {}  # elements of one kernel over a batch

    def all(self, body: Iterable[order.Statement]) -> Effort:
        found = Effort()
        for s in body:
            found += self._inside(s)
            for x in () if isinstance(s, SHARING) else s.made():
                found += Effort(written=self._count(x.layout))
        return found

    def _count(self, layout: Layout | None) -> int:
        """The numbers of one input or pair."""
        return 0 if layout is None or len(layout.of) < self.copies else elements(layout.axes, self.sizes)

    def _cell(self, cell: order.Cell) -> int:
        """The positions at which a cell is filled."""
        axes = () if cell.name.layout is None else cell.name.layout.axes
        return elements((axes[p] for p in cell.places), self.sizes)

    def _inside(self, s: order.Statement) -> Effort:  # noqa: C901
        match s:
            case order.Guard():
                return self.all(s.body)
            case order.Loop():
                return sum((self._step(step) for step in s.steps), Effort())
            case order.Wave():
                return self._wave(s)
            case positions.Move():
                return self._move(s)
            case operations.Square():
                return self._matrix(s)
            case arrays.Gram():
                return self._weighed(s.out, self.sizes.get("feature", 1))
            case (
                operations.Add() | operations.Mul() | operations.Apply() | arrays.Take() | arrays.At() | arrays.Reduce()
                | arrays.Windows() | positions.Indicator()
            ):  # fmt: skip
                return self._weighed(s.out, 1)
            case operations.Softmax():
                return self._weighed(s.out, 3)
            case operations.Box():
                return self._weighed(s.out, max((self.taps[m] for m in s.moves), default=1))
            case operations.Total():
                return self._total(s)
            case operations.Contract():
                return self._weighed(s.out, self._summed(s))
            case operations.Expect1():
                return self._expectation(s.out, s.functions, FLOPS1)
            case operations.Expect2():
                return self._expectation(s.out, (s.f, s.g), FLOPS2)
            case operations.ExpectJ():
                return self._joint(s)
            case operations.Radial():
                return self._radial(s)
            case (
                order.Note() | order.Free() | order.Result() | order.Store() | order.Read() | order.Put()
                | positions.Size() | positions.Strided() | positions.SameSize() | positions.Features()
                | positions.Grid() | positions.Taps() | positions.Window() | positions.Inverse() | positions.Back()
                | positions.Along() | arrays.Numbers() | arrays.Number() | arrays.Parameter() | arrays.Full()
                | arrays.Same() | arrays.Permute() | arrays.Slice() | arrays.Fit() | operations.Placed()
                | operations.Variance() | operations.Law()
            ):  # fmt: skip
                return Effort()  # views, names, and what is small
            case _:
                assert_never(s)

    # ------------------------------------------------------------ recurrences

    def _step(self, step: order.Step) -> Effort:
        return self.all(step.body).times(self._cell(step.cell))

    def _wave(self, s: order.Wave) -> Effort:
        return self.all(s.body).times(self._cell(s.cells[0]))

    # ------------------------------------------------------------ arithmetic

    def _weighed(self, out: Name, weight: int) -> Effort:
        return Effort(operations=self._count(out.layout) * weight)

    def _move(self, s: positions.Move) -> Effort:
        self.taps[s.out] = len(s.offsets)
        return Effort()

    def _total(self, s: operations.Total) -> Effort:
        layout = s.of.layout if isinstance(s.of, Name) else None
        return Effort(operations=self._count(layout))

    def _summed(self, s: operations.Contract) -> int:
        return elements((q for q, _ in s.sizes if q not in s.kept), self.sizes)

    # ------------------------------------------------------------ expectations

    def _expectation(self, out: Name, functions: Iterable[sp.Expr], weight: int) -> Effort:
        """By a formula, a series, or one integral for each entry; more than one at a time holds nodes."""
        closed = has_closed_form(functions)
        held = 0 if closed else 8 * VALUES * line.CHUNK
        count = self._count(out.layout)
        return Effort(operations=count * weight, work=Work(held, held), by_values=not closed)

    def _joint(self, s: operations.ExpectJ) -> Effort:
        own = self._count(s.out.layout)
        work = Work(8 * VALUES * POLAR * own, 8 * VALUES * JOINT)
        return Effort(operations=own * FLOPS_JOINT, work=work, saved=8 * SAVED * POLAR * own, joint=True)

    def _matrix(self, s: operations.Square) -> Effort:
        axes = () if s.out.layout is None else s.out.layout.axes
        self.matrices[s.out] = elements(axes[len(axes) - len(s.rows) - len(s.cols) :], self.sizes)
        return Effort()

    def _radial(self, s: operations.Radial) -> Effort:
        """The covariances at all nodes, for one pair of batches at a time."""
        within, directions = len(s.covariances) == 1, 1 if s.theta is None else 3
        matrices = sum(self.matrices[x] for x in _names(s.covariances)) * (3 if within else 1)
        held = 8 * nodes(within) * matrices * (2 if s.theta is None else 4)
        nodes_held = 8 * VALUES * RADIAL + held
        return Effort(
            operations=self._count(s.out.layout) * nodes(within) * FLOPS2 * directions,
            work=Work(nodes_held, nodes_held), saved=held, joint=True,
        )  # fmt: skip


def _names(operands: Iterable[Operand]) -> Iterator[Name]:
    return (x for x in operands if isinstance(x, Name))


# ---------------------------------------------------------------- closed forms


def has_closed_form(functions: Iterable[sp.Expr]) -> bool:
    """Do the expectations of these functions with one another?"""
    found = frozenset().union(*map(_kinds, functions))
    return any(found <= family for family in CLOSED)


@lru_cache(maxsize=1024)
def _kinds(f: sp.Expr) -> frozenset[str]:
    """The functions that an expression is written in; exp(−az²) is a Gaussian."""
    return frozenset(map(_kind, write_out(f).atoms(sp.Function)))


def _kind(h: sp.Expr) -> str:
    if isinstance(h, sp.exp):
        (x,) = h.args
        curved = any(x.is_polynomial(z) and sp.degree(x, z) == 2 for z in x.free_symbols)
        return "gaussian" if curved else "exp"
    return "" if isinstance(h, Head) else type(h).__name__
