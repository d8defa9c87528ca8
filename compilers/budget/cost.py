"""What a kernel call costs before it is run: operations, bytes, peak memory, blocks and time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from netsor.compilers.budget.memory import alive, bytes_each, needed, of_input, of_pair
from netsor.compilers.budget.plan import Call, Plan, default_tile, planned
from netsor.compilers.budget.progress import rate, spoken
from netsor.compilers.derive.recursion import Recursion
from netsor.sizes import number

SECOND = 2_000_000_000  # operations of about a second: a block has no more
FASTER = {"cuda": 100}  # times as many on a device
STATEMENT = 2e-5  # seconds that a statement takes for small tensors


@dataclass(frozen=True)
class Cost:
    """`operations` in floating-point additions, `bytes` read and written, `peak` bytes alive at once, `result` bytes.

    `tile` inputs per side of a block of pairs; the quantities of `chunk` inputs are computed at once, and those of
    `band` inputs of either side are kept at once (`bands` times). `seconds` is a guess for this machine.
    """

    operations: int
    bytes: int
    peak: int
    tile: int
    chunk: int
    band: int
    result: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.operations:.3g} operations, {self.bytes / 1e6:.3g} MB moved, {self.peak / 1e6:.3g} MB at once,"
            f" {self.result / 1e6:.3g} MB of them the result, {spoken(self.seconds)}"
            f" (blocks of {self.tile} inputs, {self.band} kept at once, {self.chunk} computed at once)"
        )


def per_pair(r: Recursion, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Numbers written and operations of one pair."""
    found = of_pair(r, sizes)
    return max(found.written, 1), found.operations


def operations(r: Recursion, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Of one input alone and of one pair."""
    return of_input(r, sizes).operations, of_pair(r, sizes).operations


def tile(r: Recursion, sizes: Mapping[str, int], itemsize: int, kind: str = "cpu") -> int:
    """Inputs per side of a block when nothing else is asked for: it fits the cache and takes about a second at most."""
    side = default_tile(alive(r, sizes) // 8 or 1, bytes_each(r, itemsize), steps(r, sizes), kind)
    most = SECOND * FASTER.get(kind, 1)
    return max(1, min(side, math.isqrt(most // max(1, per_pair(r, sizes)[1]))))


def steps(r: Recursion, sizes: Mapping[str, int]) -> int:
    """The length of the recurrences between pairs, 1 without."""
    looping = [d for e in r.used if e.space == "pair" and e.recurrent for d in e.dims]
    return max((number(d.size, sizes.__getitem__) for d in looping), default=1)


def plan(
    r: Recursion, call: Call, sizes: Mapping[str, int], itemsize: int, budget: int | None, kind: str = "cpu"
) -> Plan:
    """The blocks of a call within a budget of bytes, or as large as is fast on a kind of device."""
    return planned(call, needed(r, sizes, itemsize), budget, tile(r, sizes, itemsize, kind))


def cost(r: Recursion, call: Call, sizes: Mapping[str, int], dtype: torch.dtype, budget: int | None) -> Cost:
    """The cost of a call."""
    item, b = bytes_each(r, dtype.itemsize), needed(r, sizes, dtype.itemsize)
    blocks = plan(r, call, sizes, dtype.itemsize, budget)
    written, operations = per_pair(r, sizes)
    return Cost(
        operations * call.pairs, 2 * written * call.pairs * item, call.peak(b, blocks), min(blocks.tile, call.longest),
        min(blocks.chunk, call.longest), min(blocks.band, call.longest), b.result * call.n * call.m,
        seconds(r, call, sizes, blocks, dtype),
    )  # fmt: skip


def seconds(
    r: Recursion, call: Call, sizes: Mapping[str, int], blocks: Plan, dtype: torch.dtype,
    device: torch.device | None = None,
) -> float:  # fmt: skip
    """A guess at the time of a call: operations at the rate of this machine, and statements."""
    single, pair = operations(r, sizes)
    tiles = _count(call, blocks.tile)
    computed = call.inputs if blocks.band >= call.longest else 2 * _count(call, blocks.band) * blocks.band
    inside = tiles * min(blocks.tile, call.n) * min(blocks.tile, call.m)
    return (pair * inside + single * computed) * rate(device or torch.device("cpu"), dtype) + (
        STATEMENT * len(r.used) * tiles
    )


def _count(call: Call, side: int) -> int:
    """Blocks of so many inputs per side."""
    rows, cols = -(-call.n // side), -(-call.m // side)
    return rows * (rows + 1) // 2 if call.symmetric else rows * cols
