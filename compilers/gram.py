"""Gram matrices by blocks: sized to cache and to a memory budget, half of them in the symmetric call.

The quantities of each input alone are computed once; a block slices them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation import record
from netsor.compilers.expectation.scratch import current, scratch
from netsor.compilers.inputs import Inputs
from netsor.compilers.results import KernelResult, describe_log, flat
from netsor.errors import InputError

Block = tuple[slice, slice]
Pairs = Callable[[Any, Any, frozenset[str]], dict[str, Any]]
CACHE = 1024 * 1024  # bytes of one tensor of a block
MOSTLY = 8  # with more than one pair in so many near |ρ| = 1, all pairs are computed again
HELD = 16 * 1024 * 1024  # bytes of all steps of one tensor of a recurrence


def whole(
    each: Callable[[Inputs], Any], pairs: Pairs, one: Inputs, two: Inputs | None,
    get: frozenset[str], tile: int | None = None, wide: bool = False, fused: Any = None,
) -> KernelResult:  # fmt: skip
    """All pairs of one and two (of one with itself when two is None), by blocks of `tile` × `tile` inputs.

    `wide`: evaluated in float64 whatever the inputs' dtype, which the results keep. `fused`: the blocks
    compiled (`fuse.Fused`).
    """
    if wide and one.dtype != torch.float64:
        double = None if two is None else two.to(torch.float64)
        found = whole(each, pairs, one.to(torch.float64), double, get, tile)
        return found.to(one.dtype)
    two = None if two is not None and same(one, two) else two
    with record() as log, scratch():
        a = each(one)
        b = a if two is None else each(two)
        run = Blocks(each, pairs, a, b, get, fused)
        out = _assemble(run, tile or max(one.samples, b.data.samples))
    result = _result(a, out, get)
    result.method, result.error = describe_log(log)
    return result


def same(one: Inputs, two: Inputs) -> bool:
    """Are these the same numbers, in arrays that need no gradient?"""
    pairs = [(one.arrays[k], two.arrays[k]) for k in one.arrays]
    plain = not any(t.requires_grad for p in pairs for t in p)
    return plain and all(x.shape == y.shape and x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs)


class Blocks:
    """The kernels of any block. Pairs too close to |ρ| = 1, for float32 or a compiled block, are computed again."""

    def __init__(
        self, each: Callable[[Inputs], Any], pairs: Pairs, a: Any, b: Any, get: frozenset[str], fused: Any = None
    ) -> None:
        self.each, self.pairs, self.a, self.b, self.get = each, pairs, a, b, get
        self.symmetric = a is b
        self.near: list[Tensor] = []  # numbers of the two inputs, [entries, 2]
        self.chunk = 1024
        tensors = (*a.data.arrays.values(), *b.data.arrays.values())
        self.differentiable = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        self.fused = None if self.differentiable else fused
        if self.fused is not None:
            self.a, self.b = self.fused.extended(a, b)
            self.numbers = torch.arange(max(self.shape), device=a.data.device, dtype=a.data.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        return self.a.data.samples, self.b.data.samples

    def __call__(self, rows: slice, cols: slice) -> dict[str, Tensor]:
        if self.fused is not None:
            columns = self.numbers[cols] if self.symmetric else -1 - self.numbers[cols]  # nothing meets itself
            found = self.fused(self.a.rows(rows), self.b.cols(cols), self.numbers[rows][:, None], columns[None])
            if found is not None:
                self._again(found[1], rows, cols)
                return found[0]
        shared = current()
        assert shared is not None
        shared.tangents = not self.get.isdisjoint(("ntk", "terms"))
        shared.watching = self.a.data.dtype == torch.float32 and not self.differentiable
        out = flat(self.pairs(self.a.rows(rows), self.b.cols(cols), self.get))
        if shared.near is not None:
            self._again(shared.near, rows, cols)
        shared.watching = False
        shared.release()
        return out

    def _again(self, mask: Tensor, rows: slice, cols: slice) -> None:
        found = mask.expand(rows.stop - rows.start, cols.stop - cols.start).nonzero()
        if len(found):
            self.near.append(found + torch.tensor([rows.start, cols.start], device=found.device))

    def repair(self, out: dict[str, Tensor], tile: int) -> None:
        """Compute the entries again that were too near for float32, and write them into the whole kernels."""
        if not self.near:
            return
        a = self.each(self.a.data.to(torch.float64))
        b = a if self.symmetric else self.each(self.b.data.to(torch.float64))
        found = torch.cat(self.near)
        if len(found) * MOSTLY > math.prod(self.shape):
            self._all_again(out, a, b, tile)
            return
        for i, j in (part.unbind(1) for part in found.split(self.chunk)):
            for key, value in flat(self.pairs(a.rows(i), b.cols(j, aligned=True), self.get)).items():
                out[key][i, j] = value[:, 0].to(out[key].dtype)
                if self.symmetric:
                    out[key][j, i] = mirrored(value)[0].to(out[key].dtype)

    def _all_again(self, out: dict[str, Tensor], a: Any, b: Any, tile: int) -> None:
        """In float64, by blocks, in which the inputs share more than in pairs of their own."""
        shared = current()
        assert shared is not None
        for rows, cols in blocks(*self.shape, tile, self.symmetric):
            for key, value in flat(self.pairs(a.rows(rows), b.cols(cols), self.get)).items():
                _place(out, key, value.to(out[key].dtype), (rows, cols), self.shape, self.symmetric)
            shared.release()


def blocks(rows: int, cols: int, tile: int, symmetric: bool) -> Iterator[Block]:
    """Blocks in row order; in the symmetric call those on and above the diagonal."""
    for i in range(0, rows, tile):
        for j in range(i if symmetric else 0, cols, tile):
            yield slice(i, min(i + tile, rows)), slice(j, min(j + tile, cols))


def _assemble(run: Blocks, tile: int) -> dict[str, Any]:
    n, m = run.shape
    run.chunk = max(1, tile * tile // 8)
    if n <= tile and m <= tile:
        out = run(slice(0, n), slice(0, m))
        run.repair(out, tile)
        return _nested(out)
    out = {}
    parts: dict[str, list[tuple[Block, Tensor]]] = {}
    for rows, cols in blocks(n, m, tile, run.symmetric):
        for key, value in run(rows, cols).items():
            if run.differentiable:
                parts.setdefault(key, []).append(((rows, cols), value))
            else:
                _place(out, key, value, (rows, cols), (n, m), run.symmetric)
    for key, found in parts.items():
        out[key] = _joined(found, (n, m), run.symmetric)
    run.repair(out, tile)
    return _nested(out)


def _place(out: dict[str, Any], key: str, value: Tensor, block: Block, shape: tuple[int, int], symmetric: bool) -> None:
    rows, cols = block
    if key not in out:
        out[key] = value.new_empty((*shape, *value.shape[2:]))
    out[key][rows, cols] = value
    if symmetric and rows != cols:
        out[key][cols, rows] = mirrored(value)


def mirrored(value: Tensor) -> Tensor:
    """[m, n, *axes, *axes′] from [n, m, *axes, *axes′]: the two copies change places."""
    half = (value.dim() - 2) // 2
    axes = list(range(2, value.dim()))
    return value.permute(1, 0, *axes[half:], *axes[:half])


def _joined(found: list[tuple[Block, Tensor]], shape: tuple[int, int], symmetric: bool) -> Tensor:
    """Blocks put together without writing in place, for gradients."""
    grid: dict[tuple[int, int], Tensor] = {}
    for (rows, cols), value in found:
        grid[rows.start, cols.start] = value
        if symmetric and rows != cols:
            grid[cols.start, rows.start] = mirrored(value)
    starts = sorted({i for i, _ in grid})
    across = sorted({j for _, j in grid})
    return torch.cat([torch.cat([grid[i, j] for j in across], 1) for i in starts], 0)


def _nested(out: dict[str, Any]) -> dict[str, Any]:
    terms = {k.removeprefix("terms."): v for k, v in out.items() if k.startswith("terms.")}
    rest = {k: v for k, v in out.items() if not k.startswith("terms.")}
    return rest | ({"terms": terms} if terms else {})


def _result(a: Any, out: dict[str, Any], get: frozenset[str]) -> KernelResult:
    result = KernelResult()
    for key, value in out.items():
        if key in ("nngp", "ntk", "terms"):
            setattr(result, key, value)
        else:
            result.vectors[key] = value
    for key in get:
        single = getattr(a, f"result_{key}", None)
        if single is not None:
            result.vectors[key] = single
    return result


# ---------------------------------------------------------------- sizes of blocks


def default_tile(elements: int, itemsize: int, steps: int = 1) -> int:
    """Inputs per side of a block so that one tensor of the block fits in cache, or, in a recurrence, one of its steps.

    All `steps` of a recurrence are kept, in at most HELD bytes a tensor.
    """
    one = itemsize * max(1, elements)
    return max(1, math.isqrt(CACHE // one), math.isqrt(min(CACHE * steps, HELD) // one) if steps > 1 else 1)


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


def tile_for(budget: int, fixed: int, per_pair: int) -> int:
    """The largest block that a budget of bytes allows, beside what is needed in any case."""
    left = budget - fixed
    if left < per_pair:
        raise InputError(
            f"one pair needs {per_pair:,} bytes beside {fixed:,} for inputs and results; the budget is {budget:,}",
            code="NT606", hint=f"give at least memory={fixed + per_pair}",
        )  # fmt: skip
    return math.isqrt(left // per_pair)
