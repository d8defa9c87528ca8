"""How a call is cut into blocks so that it stays within a budget of bytes.

A call goes through bands of inputs: the quantities of the inputs of one band of rows and one band of columns are
computed, some inputs at a time, kept while all pairs of these inputs are, block by block, and dropped. One band holds
all inputs where they fit. With gradients, blocks whose graph does not fit are computed again in the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral

from netsor.compilers.budget.memory import Bytes
from netsor.compilers.budget.progress import Progress
from netsor.errors import InputError

Block = tuple[slice, slice]
CACHE = {"cpu": 1 << 20, "cuda": 64 << 20}  # bytes of one tensor of a block: in cache; or worth a launch and a wait
HELD = {"cpu": 16 << 20, "cuda": 256 << 20}  # bytes of all steps of one tensor of a recurrence
AT_ONCE = 64 * 1024 * 1024  # bytes for the quantities of the inputs that are computed together
ALL = 1 << 62


@dataclass(frozen=True)
class Limits:
    """What a caller says: bytes, inputs per side of a block, a bar or none; `shown` is the bar of a larger call."""

    memory: int | None = None
    tile: int | None = None
    progress: bool | None = None
    shown: Progress | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.tile, Integral) and not isinstance(self.tile, bool)
        if self.tile is not None and not (whole and self.tile > 0):
            raise InputError(f"tile is a number of inputs from 1, got {self.tile!r}", code="NT606", hint="tile=512")


@dataclass(frozen=True)
class Plan:
    """Inputs per side of a block of pairs, inputs computed at once, inputs of a side kept at once.

    `again`: blocks are computed once more in the backward pass. `spare` bytes may wait for the next tensors.
    """

    tile: int = ALL
    chunk: int = ALL
    band: int = ALL
    again: bool = False
    spare: int | None = None

    @property
    def few(self) -> int:
        """Pairs of a block of single pairs."""
        return max(1, self.tile * self.tile // 8)

    def blocks(self, rows: int, cols: int, symmetric: bool) -> Iterator[Block]:
        return blocks(rows, cols, self.tile, symmetric)

    def bands(self, rows: int, cols: int, symmetric: bool) -> Iterator[Block]:
        return blocks(rows, cols, self.band, symmetric)


def blocks(rows: int, cols: int, tile: int, symmetric: bool) -> Iterator[Block]:
    """Blocks in row order; in the symmetric call those on and above the diagonal."""
    for i in range(0, max(rows, 1), tile):
        for j in range(i if symmetric else 0, max(cols, 1), tile):
            yield slice(i, min(i + tile, rows)), slice(j, min(j + tile, cols))


@dataclass(frozen=True)
class Call:
    """n × m pairs (of n inputs with themselves when `symmetric`), with gradients when `tracked`."""

    n: int
    m: int
    symmetric: bool
    tracked: bool = False

    @property
    def pairs(self) -> int:
        """Each pair once."""
        return self.n * (self.n + 1) // 2 if self.symmetric else self.n * self.m

    @property
    def inputs(self) -> int:
        return self.n if self.symmetric else self.n + self.m

    @property
    def longest(self) -> int:
        return max(self.n, self.m, 1)

    def fixed(self, b: Bytes) -> int:
        """Results and inputs; with gradients the blocks, the results of all and their gradients are held together."""
        results, data = (3, 4) if self.tracked else (1, 1)
        return b.any + results * b.result * self.n * self.m + data * b.data * self.inputs

    def peak(self, b: Bytes, plan: Plan) -> int:
        """Bytes alive at once under a plan."""
        rows, cols = min(plan.tile, self.n), min(plan.tile, self.m)
        whole = plan.band >= self.longest
        kept = b.kept * (self.inputs if whole else 2 * plan.band)
        working = max(b.singles(min(plan.chunk, plan.band, self.longest)), b.pairs(rows, cols))
        if self.tracked and plan.again:
            kept, working = b.saved(rows, cols), b.singles(rows + cols) + b.pairs(rows, cols)
        elif self.tracked:
            kept += b.saved_single * self.inputs + b.saved_pair * self._pairs(min(plan.tile, self.longest))
        return self.fixed(b) + kept + working

    def _pairs(self, tile: int) -> int:
        """Pairs in the blocks."""
        return self.n * (self.n + tile) // 2 if self.symmetric else self.n * self.m


def planned(call: Call, b: Bytes, budget: int | None, tile: int) -> Plan:
    """The plan with the largest blocks, of at most `tile` inputs, that keeps within the budget if there is one.

    Raises InputError (NT606), which names the smallest budget there is.
    """
    tile = min(tile, call.longest)
    chunk = _largest(call.longest, lambda k: b.singles(k) - b.singles(1) <= AT_ONCE)  # what one needs is needed anyhow
    best = Plan(tile, chunk)
    if budget is None:
        return best
    if call.peak(b, best) <= budget:
        return replace(best, spare=_spare(call, b, budget, best))
    least = smallest(call, b)
    if call.peak(b, least) > budget:
        raise _impossible(call, b, least, budget)
    if call.tracked:
        return replace(least, tile=_largest(tile, lambda k: call.peak(b, replace(least, tile=k)) <= budget))
    found = _within(call, b, budget, tile, chunk)
    return replace(found, spare=_spare(call, b, budget, found))


def _spare(call: Call, b: Bytes, budget: int, plan: Plan) -> int:
    """Bytes that may wait: what the plan leaves, and half of what a block needs."""
    return budget - call.peak(b, plan) + b.pairs(plan.tile, plan.tile) // 2


def _within(call: Call, b: Bytes, budget: int, tile: int, chunk: int) -> Plan:
    """All inputs kept when they leave half of the budget to the blocks; else half of it for bands."""
    left = budget - call.fixed(b)
    found = smallest(call, b)
    if 2 * b.kept * call.inputs <= left:
        found = replace(found, band=ALL)

    def sized(k: int) -> Plan:
        return replace(found, tile=k, band=max(k, found.band))

    room = budget if found.band == ALL else max(budget - left // 2, call.peak(b, found))
    found = sized(_largest(tile, lambda k: call.peak(b, sized(k)) <= room))
    found = replace(found, chunk=_largest(chunk, lambda k: call.peak(b, replace(found, chunk=k)) <= budget))
    if found.band == ALL:
        return found
    side = found.tile
    times = _largest(-(-call.longest // side), lambda k: call.peak(b, replace(found, band=k * side)) <= budget)
    return replace(found, band=times * side)


def smallest(call: Call, b: Bytes) -> Plan:
    """The plan that needs the least: one pair at a time."""
    return min((Plan(1, 1, 1, call.tracked), Plan(1, 1, ALL, call.tracked)), key=lambda p: call.peak(b, p))


def _impossible(call: Call, b: Bytes, least: Plan, budget: int) -> InputError:
    need, fixed = call.peak(b, least), call.fixed(b)
    return InputError(
        f"the budget is {budget:,} bytes; {fixed:,} are for results and inputs and {need - fixed:,} for one pair of"
        f" inputs and what is needed of each of the two alone{' with their gradients' if call.tracked else ''}",
        code="NT606", hint=f"give at least memory={need}",
    )  # fmt: skip


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest k ≤ most that fits, at least 1; what fits is an interval from 1."""
    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


# ---------------------------------------------------------------- sizes of blocks


def default_tile(elements: int, itemsize: int, steps: int = 1, kind: str = "cpu") -> int:
    """Inputs per side of a block so that one tensor of the block fits in cache, or, in a recurrence, one of its steps;
    on a GPU so that it keeps the device busy.

    All `steps` of a recurrence are kept, in at most HELD bytes a tensor.
    """
    one, cache = itemsize * max(1, elements), CACHE.get(kind, CACHE["cpu"])
    held = min(cache * steps, HELD.get(kind, HELD["cpu"]))
    return max(1, math.isqrt(cache // one), math.isqrt(held // one) if steps > 1 else 1)


def evened(tile: int, count: int) -> int:
    """The smallest blocks that are as few as those of `tile` inputs: all of nearly one size."""
    return -(-count // max(1, -(-count // tile)))


def parse_memory(memory: str | int | float) -> int:
    """Bytes from 2e9, "2GB", "500 MB", "1.5GiB"."""
    if isinstance(memory, int | float):
        return int(memory)
    units = {
        "kb": 1e3,
        "mb": 1e6,
        "gb": 1e9,
        "tb": 1e12,
        "kib": 2**10,
        "mib": 2**20,
        "gib": 2**30,
        "tib": 2**40,
        "b": 1,
    }
    text = memory.strip().lower().replace(" ", "")
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            try:
                return int(float(text.removesuffix(unit)) * units[unit])
            except ValueError:
                break
    raise InputError(f"memory is a number of bytes or a text like '2GB', got {memory!r}", code="NT606")
