"""What a kernel call costs before it is run: operations, bytes, peak memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never, cast

from netsor import ir
from netsor.compilers.derive.recursion import Recursion, entries_in
from netsor.compilers.derive.values import (
    Access,
    Add,
    Constant,
    Entry,
    Expect1,
    Expect2,
    ExpectJ,
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
    Sym,
    Value,
    walk,
)
from netsor.compilers.gram import default_tile
from netsor.compilers.lowering.module import in_order, scheduled
from netsor.compilers.radial import nodes
from netsor.sizes import number

FLOPS1, FLOPS2, FLOPS_JOINT = 30, 60, 10_000  # rough weights of one expectation, in additions


@dataclass(frozen=True)
class Cost:
    """`operations` in floating-point additions, `bytes` read and written, `peak` bytes alive at once."""

    operations: int
    bytes: int
    peak: int
    tile: int

    def __str__(self) -> str:
        return (
            f"{self.operations:.3g} operations, {self.bytes / 1e6:.3g} MB moved, {self.peak / 1e6:.3g} MB at once"
            f" (blocks of {self.tile} inputs)"
        )


def elements(dims: tuple[Sym, ...], sizes: Mapping[str, int]) -> int:
    """How many numbers an entry holds for one input or pair."""
    total = 1
    for s in dims:
        total *= size_number(s.size, sizes)
    return total


def size_number(size: ir.Size, sizes: Mapping[str, int]) -> int:
    return number(size, sizes.__getitem__)


def per_pair(r: Recursion, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """Numbers alive at once, numbers written and operations of one pair."""
    pair = [e for block in scheduled([b for b in in_order(r.used) if b[0].space == "pair"]) for e in block]
    last: dict[Entry, int] = {}
    for i, e in enumerate(pair):
        for x in entries_in(cast(Value, e.value)):
            last[x] = i
    kept = {e for q in (*r.results.values(), *r.terms.values()) for e in entries_in(q.value)}
    alive = peak = written = operations = 0
    for i, e in enumerate(pair):
        own = elements(e.dims, sizes)
        written += own
        alive += own
        operations += _operations(e, own, sizes)
        peak = max(peak, alive + 4 * own)
        alive -= sum(elements(x.dims, sizes) for x in set(pair) if last.get(x) == i and x not in kept)
    return max(peak, 1), max(written, 1), operations


def bytes_each(r: Recursion, itemsize: int) -> int:
    """Bytes of a number while it is computed."""
    return 8 if r.wide else itemsize


def tile(r: Recursion, sizes: Mapping[str, int], itemsize: int) -> int:
    """Inputs per side of a block when nothing else is asked for."""
    peak, _, _ = per_pair(r, sizes)
    return default_tile(peak // 8 or 1, bytes_each(r, itemsize), steps(r, sizes))


def steps(r: Recursion, sizes: Mapping[str, int]) -> int:
    """The length of the recurrences between pairs, 1 without."""
    looping = [d for e in r.used if e.space == "pair" and e.recurrent for d in e.dims]
    return max((size_number(d.size, sizes) for d in looping), default=1)


def aside(r: Recursion, sizes: Mapping[str, int]) -> int:
    """Bytes of the covariances at all nodes of a radial integral, which is done for one pair of batches at a time."""

    def held(v: Radial) -> int:
        one, two = (elements(side.rows, sizes) for side in v.sides)
        matrices = one * one + two * two + one * two
        return 8 * nodes(v.within) * matrices * (2 if v.theta is None else 4)

    return max((held(v) for e in r.used for v in walk(cast(Value, e.value)) if isinstance(v, Radial)), default=0)


def _operations(e: Entry, own: int, sizes: Mapping[str, int]) -> int:
    return own * sum(_weight(v, sizes) for v in walk(cast(Value, e.value)))


def _weight(v: Value, sizes: Mapping[str, int]) -> int:
    """Operations of one element of a value, what is inside it aside."""
    match v:
        case Access():
            return 0
        case Num() | Given() | Constant() | SizeValue() | FeatureDim() | Add() | Mul() | Ind() | Fn() | Soft():
            return 1
        case Sum():
            return size_number(v.sym.size, sizes)
        case Gram():
            return sizes.get("feature", 1)
        case Expect1():
            return FLOPS1
        case Expect2():
            return FLOPS2
        case ExpectJ():
            return FLOPS_JOINT
        case Radial():
            return nodes(v.within) * FLOPS2 * (1 if v.theta is None else 3)
        case _:
            assert_never(v)


def cost(r: Recursion, n1: int, n2: int | None, sizes: Mapping[str, Any], itemsize: int, side: int | None) -> Cost:
    """The cost of n1 × n2 pairs (of the symmetric call when n2 is None)."""
    itemsize = bytes_each(r, itemsize)
    peak, written, operations = per_pair(r, sizes)
    pairs = n1 * (n1 + 1) // 2 if n2 is None else n1 * n2
    side = min(side or tile(r, sizes, itemsize), max(n1, n2 or n1))
    inputs = sum(elements(e.dims, sizes) for e in r.used if e.space == "input") * (n1 + (n2 or 0))
    results = sum(elements(q.dims, sizes) for q in (*r.results.values(), *r.terms.values())) * n1 * (n2 or n1)
    block = peak * min(side, n1) * min(side, n2 or n1)
    held = (inputs + results + block) * itemsize + aside(r, sizes)
    return Cost(operations * pairs, 2 * written * pairs * itemsize, held, side)
