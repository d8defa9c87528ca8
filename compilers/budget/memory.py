"""How many bytes a kernel call needs, from the recursion and the sizes of axes alone: upper bounds.

Counted are the results, the arrays of the inputs, what pairs read of each input (with the functions of variances and
the series that a call keeps beside it), what is alive while the quantities of inputs and the kernels of pairs are
computed, with gradients also what autograd keeps of both, and the nodes that quadratures hold at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.functions_of import by_quadrature
from netsor.compilers.derive.entries.indices import Sym
from netsor.compilers.derive.entries.traversal import walk
from netsor.compilers.derive.entries.values import (
    Access,
    Add,
    Entry,
    Expect,
    FeatureDim,
    Fn,
    Given,
    Gram,
    Ind,
    Mul,
    Num,
    Radial,
    SizeValue,
    Soft,
    Sum,
    Value,
)
from netsor.compilers.derive.recursion import Recursion, entries_in
from netsor.compilers.expectation.quadrature import line
from netsor.compilers.expectation.quadrature.several import CHUNK as JOINT
from netsor.compilers.expectation.radial import CHUNK as RADIAL
from netsor.compilers.expectation.radial import nodes
from netsor.compilers.expectation.series.hermite import DEGREES
from netsor.compilers.lowering.build.recursion import plan
from netsor.compilers.lowering.plan.operands import Name
from netsor.compilers.lowering.plan.order import Free, unguarded
from netsor.compilers.lowering.plan.uses import into, view_of
from netsor.functions import Head, write_out
from netsor.sizes import number

TEMPORARY = 6  # tensors like an entry's that its evaluation holds beside it
ROOTS = 8  # functions of a variance that the expectations of a call share
SAVED = 3  # tensors that autograd keeps for an entry, with what its backward makes at once
VALUES = 8  # tensors of so many nodes at once
POLAR = 1 << 17  # nodes of an expectation of several Gaussians
SERIES = sum(DEGREES)  # coefficients of a function at one variance
FEW = 1 << 14  # bytes of indices, nodes and small tensors, whatever the program
TABLES = 1 << 21  # bytes of the rules of quadratures, which stay between calls
CLOSED = (  # what functions are written in whose expectations with one another have closed forms
    frozenset({"Heaviside"}),
    frozenset({"erf", "gaussian"}),
    frozenset({"sin", "cos", "exp"}),
)


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
class Bytes:
    """Bytes of one input (`data`, `kept`, and `single` while it is computed) and of one pair (`result`, `pair`).

    `saved_single` and `saved_pair` are what their gradients hold; `single_work` and `pair_work` the nodes.
    """

    data: int
    kept: int
    single: int
    pair: int
    result: int
    saved_single: int
    saved_pair: int
    single_work: Work
    pair_work: Work
    any: int  # whatever is computed
    least: int = 1  # pairs that are computed at once in any block

    def singles(self, count: int) -> int:
        """The quantities of so many inputs, while they are computed."""
        return self.single * count + self.single_work.of(count)

    def pairs(self, rows: int, cols: int) -> int:
        """The kernels of a block, while they are computed."""
        return self.pair * max(self.least, rows * cols) + self.pair_work.of(rows * cols)

    def saved(self, rows: int, cols: int) -> int:
        """A block with its gradients: what is kept for them of the pairs, and of the inputs of both sides."""
        return self.saved_pair * rows * cols + (self.saved_single + self.kept) * (rows + cols)


def elements(dims: tuple[Sym, ...], sizes: Mapping[str, int]) -> int:
    """How many numbers an entry holds for one input or pair."""
    total = 1
    for s in dims:
        total *= number(s.size, sizes.__getitem__)
    return total


def alive(r: Recursion, sizes: Mapping[str, int]) -> int:
    """Numbers alive at once while one pair is computed: those of the plan's names, and what an operation holds."""
    homes: dict[Name, Name] = {}  # name -> what its memory was made for
    own: dict[Name, int] = {}
    held = peak = 0
    for s in unguarded(plan(r).pairs.body):
        base = into(s) or view_of(s)
        for x in s.made():
            homes[x] = x if base is None else homes.get(base, base)
            if homes[x] is x:
                own[x] = _of_pair(x, sizes)
                held += own[x]
            peak = max(peak, held + 4 * _of_pair(x, sizes))
        for x in s.names if isinstance(s, Free) else ():
            ends = x is homes[x] or x.kind == "entry"  # a view that ends leaves what it is a view of
            held -= own.pop(homes[x], 0) if ends else 0
    return max(peak, 1)


def _of_pair(x: Name, sizes: Mapping[str, int]) -> int:
    """The numbers of one pair; what depends on one input only counts as none."""
    if x.layout is None or len(x.layout.of) < 2:
        return 0
    return elements(tuple(s for s in x.layout.axes if s is not None), sizes)


def bytes_each(r: Recursion, itemsize: int) -> int:
    """Bytes of a number while it is computed."""
    return 8 if r.wide else itemsize


def needed(r: Recursion, sizes: Mapping[str, int], itemsize: int) -> Bytes:
    """The bytes of a recursion at these sizes of axes; `itemsize` is that of the inputs."""
    item = bytes_each(r, itemsize)
    singles = [e for e in r.used if e.space == "input"]
    pairs = [e for e in r.used if e.space == "pair"]
    own = {e: elements(e.dims, sizes) for e in (*singles, *pairs)}
    outputs = (*r.results.values(), *r.terms.values())
    result = sum(elements(q.dims, sizes) for q in outputs)
    numeric = _by_values(r)
    read = {x for v in [*(e.value for e in pairs), *(q.value for q in outputs)] for x in entries_in(v)}
    kept = sum(own[x] * (ROOTS + (2 * SERIES if numeric else 0)) for x in read if x.space == "input")
    widest = max((own[e] for e in singles), default=0)
    series = 2 * SERIES * sum(own[e] for e in singles) if numeric else 0
    double = item == 4  # some pairs may be taken again in float64, and their inputs with them
    return Bytes(
        data=_data(r, sizes) * (item + 8 * double),
        kept=kept * (item + 8 * double),
        single=(sum(own[e] for e in singles) + TEMPORARY * widest + series) * 8,
        pair=(alive(r, sizes) + TEMPORARY * max((own[e] for e in pairs), default=1)) * item,
        result=max(1, result) * (item + (itemsize if r.wide else 0)),
        saved_single=SAVED * sum(own[e] for e in singles) * item + _saved_nodes(singles, sizes),
        saved_pair=SAVED * sum(own[e] for e in pairs) * item + _saved_nodes(pairs, sizes),
        single_work=_work(singles, own, sizes),
        pair_work=_work(pairs, own, sizes),
        any=FEW + (TABLES if numeric or _joint(r) else 0),
        least=2 if double else 1,
    )


def _data(r: Recursion, sizes: Mapping[str, int]) -> int:
    """Numbers of the arrays of one input, with the functions of data that are kept beside them."""
    arrays = {x.out for x in r.program.lines if isinstance(x, ir.Data)}
    scalars = {x.out for x in r.program.lines if isinstance(x, ir.InputScalar) and x.per_sample}
    for v in _values(r.used):
        arrays.update(v.array if isinstance(v, Gram) else ())
    features = sizes.get("feature", 1)
    return sum(_size(a, sizes) * features for a in arrays) + sum(_size(a, sizes) for a in scalars)


def _size(var: ir.Var, sizes: Mapping[str, int]) -> int:
    total = 1
    for d in var.dims:
        total *= number(d.size, sizes.__getitem__)
    return total


def _values(entries: Any) -> Iterator[Value]:
    for e in entries:
        yield from walk(e.value)


# ---------------------------------------------------------------- nodes


def _by_values(r: Recursion) -> bool:
    """Is a function expanded in a series, or integrated, for want of a closed form?"""
    return any(isinstance(v, Expect) and not by_quadrature(v) and not _closed(v) for v in _values(r.used))


def _joint(r: Recursion) -> bool:
    return any(map(by_quadrature, _values(r.used)))


def _closed(v: Expect) -> bool:
    return any(_kinds(v.f) <= family for family in CLOSED)


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


def _work(entries: list[Entry], own: Mapping[Entry, int], sizes: Mapping[str, int]) -> Work:
    found = Work()
    for e in entries:
        for v in walk(e.value):
            found |= _work_of(v, own[e], sizes)
    return found


def _work_of(v: Value, own: int, sizes: Mapping[str, int]) -> Work:
    """Bytes of the nodes of one value's quadrature, for an entry of `own` numbers."""
    match v:
        case Expect():
            return _work_of_expectation(v, own)
        case Radial():
            held = 8 * VALUES * RADIAL + _held(v, sizes)
            return Work(held, held)
        case (
            Num() | Access() | Given() | Gram() | SizeValue() | FeatureDim() | Add() | Mul() | Sum()
            | Ind() | Fn() | Soft()
        ):  # fmt: skip
            return Work()
        case _:
            assert_never(v)


def _work_of_expectation(v: Expect, own: int) -> Work:
    if by_quadrature(v):
        return Work(8 * VALUES * POLAR * own, 8 * VALUES * JOINT)
    held = 0 if _closed(v) else 8 * VALUES * line.CHUNK  # more than one integral for each entry holds
    return Work(held, held)


def _held(v: Radial, sizes: Mapping[str, int]) -> int:
    """Bytes of the covariances at all nodes of a radial integral, which is done for one pair of batches at a time."""
    one, two = (elements(side.rows, sizes) for side in v.sides)
    matrices = one * one + two * two + one * two
    return 8 * nodes(v.within) * matrices * (2 if v.theta is None else 4)


def _saved_nodes(entries: list[Entry], sizes: Mapping[str, int]) -> int:
    """What autograd keeps of the nodes of quadratures, for one input or pair."""
    return sum(_saved(v, elements(e.dims, sizes), sizes) for e in entries for v in walk(e.value))


def _saved(v: Value, own: int, sizes: Mapping[str, int]) -> int:
    match v:
        case Radial():
            return _held(v, sizes)
        case Expect():
            return 8 * SAVED * POLAR * own if by_quadrature(v) else 0
        case (
            Num() | Access() | Given() | Gram() | SizeValue() | FeatureDim() | Add() | Mul() | Sum()
            | Ind() | Fn() | Soft()
        ):  # fmt: skip
            return 0
        case _:
            assert_never(v)
