"""Sums over windows: Σ over taps of a tensor moved along several dimensions by the same tap.

Taps that are a product of independent offsets (rows × columns) are summed one group of dimensions after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks.work import Work, untracked


@dataclass(frozen=True)
class Move:
    """How a dimension moves with a tap: `dim` counts from behind the sample dimensions."""

    dim: int
    offsets: tuple[int, ...]
    stride: int
    size: int
    wrap: bool
    back: bool


def forward(dim: int, offsets: tuple[int, ...], stride: int, size: int, wrap: bool) -> Move:
    """Output s reads stride·s + offset; `size` outputs."""
    return Move(dim, offsets, stride, size, wrap, False)


def adjoint(dim: int, offsets: tuple[int, ...], stride: int, size: int, wrap: bool) -> Move:
    """Input s is added to output stride·s + offset; `size` outputs."""
    return Move(dim, offsets, stride, size, wrap, True)


def box(x: Tensor, leads: int, *moves: Move, work: Work | None = None) -> Tensor:
    """Σ over taps of x moved along all dimensions of `moves` by the same tap; outside counts as zero."""
    work = work or Work()
    for group in separated(moves):
        x = _wrapping(work, x, leads, group) if any(m.wrap for m in group) else _box(work, x, leads, group)
    return x


@lru_cache(maxsize=1024)
def separated(moves: tuple[Move, ...]) -> list[tuple[Move, ...]]:
    """Groups of dimensions that move together, when the taps are all combinations of the groups' offsets."""
    groups: list[list[Move]] = []
    for m in moves:
        home = next((g for g in groups if _bound(g[0].offsets, m.offsets)), None)
        if home is None:
            groups.append([m])
        else:
            home.append(m)
    taps = list(zip(*(g[0].offsets for g in groups), strict=True))
    count = 1
    for g in groups:
        count *= len(set(g[0].offsets))
    if not len(set(taps)) == len(taps) == count:
        return [tuple(moves)]
    return [tuple(_distinct(g)) for g in groups]


def _bound(a: Sequence[int], b: Sequence[int]) -> bool:
    """Does either sequence of offsets determine the other?"""
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


def _distinct(group: list[Move]) -> list[Move]:
    first: dict[int, int] = {}
    for i, o in enumerate(group[0].offsets):
        first.setdefault(o, i)
    return [replace(m, offsets=tuple(m.offsets[i] for i in first.values())) for m in group]


Part = tuple[slice, ...]


@lru_cache(maxsize=1024)
def _plan(
    shape: torch.Size, leads: int, moves: tuple[Move, ...]
) -> tuple[tuple[int, ...], bool, list[tuple[Part, Part]]]:
    """The result's shape, whether one tap is x itself, and what the other taps read and write."""
    after = list(shape)
    for m in moves:
        after[leads + m.dim] = m.size
    taps = list(range(len(moves[0].offsets)))
    still = [t for t in taps if all(m.offsets[t] == 0 and m.stride == 1 for m in moves)]
    copied = bool(still) and tuple(after) == tuple(shape)
    if copied:
        taps.remove(still[0])
    parts = []
    for tap in taps:
        read, write = [slice(None)] * len(shape), [slice(None)] * len(shape)
        for m in moves:
            d = leads + m.dim
            read[d], write[d] = _slices(m, tap, shape[d])
        if all(s.start is None or s.start < s.stop for s in (*read, *write)):
            parts.append((tuple(read), tuple(write)))
    return tuple(after), copied, parts


def _box(work: Work, x: Tensor, leads: int, moves: tuple[Move, ...]) -> Tensor:
    steps = _steps(x.shape, leads, moves) if untracked(x) else None
    if steps is not None:
        return _flat(work, x.contiguous(), *steps)
    shape, copied, parts = _plan(x.shape, leads, moves)
    out = work.empty(torch.Size(shape), x)
    if copied:
        out.copy_(x)
    else:
        out.zero_()
    for read, write in parts:
        out[write].add_(x[read])
    return out


SHORT = 128  # a last dimension below this is moved together with those before it
LONG = 2048  # numbers that are moved in one piece


@lru_cache(maxsize=1024)
def _steps(shape: torch.Size, leads: int, moves: tuple[Move, ...]) -> tuple[int, bool, tuple[Step, ...]] | None:
    """How long a piece is, whether one tap is x itself, and how far the other taps lie in a piece, if they all do.

    Steps over several dimensions as one: what crosses an edge is masked, which is faster than many short rows.
    """
    last = len(shape) - 1
    dims = [leads + m.dim for m in moves]
    if last not in dims or not 1 < shape[last] < SHORT or 0 in shape:
        return None
    if any(m.stride != 1 or m.size != shape[d] for m, d in zip(moves, dims, strict=True)):
        return None
    first = min(dims)
    while first > leads and math.prod(shape[first:]) < LONG:
        first -= 1
    taps = [tuple(-m.offsets[t] if m.back else m.offsets[t] for m in moves) for t in range(len(moves[0].offsets))]
    still = taps.count((0,) * len(moves))
    steps = []
    for tap in taps:
        far = sum(o * math.prod(shape[d + 1 :]) for o, d in zip(tap, dims, strict=True))
        if any(tap) and all(abs(o) < shape[d] for o, d in zip(tap, dims, strict=True)):
            if far == 0:
                return None
            steps.append(Step(far, tuple(shape[first:]), tuple(d - first for d in dims), tap))
    return (math.prod(shape[first:]), still == 1, tuple(steps)) if still <= 1 else None


class Step(NamedTuple):
    """A tap that reads `far` numbers ahead, in a piece of the sizes `shape` of which some `dims` move by `tap`."""

    far: int
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    tap: tuple[int, ...]


@lru_cache(maxsize=64)
def _inside(step: Step, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1 where the tap reads inside, over a piece."""
    out = torch.ones(step.shape, dtype=dtype, device=device)
    for d, o in zip(step.dims, step.tap, strict=True):
        place = torch.arange(step.shape[d], device=device) + o
        valid = ((place >= 0) & (place < step.shape[d])).to(dtype)
        out *= valid.view(-1, *[1] * (len(step.shape) - 1 - d))
    return out.flatten()


def _flat(work: Work, x: Tensor, size: int, still: bool, steps: tuple[Step, ...]) -> Tensor:
    source = x.view(-1, size)
    out = work.empty(x.shape, x).view(-1, size)
    if not (still and steps):
        out.copy_(source) if still else out.zero_()
    for i, step in enumerate(steps):
        near = slice(0, size - step.far) if step.far > 0 else slice(-step.far, size)
        read = slice(step.far, size) if step.far > 0 else slice(0, size + step.far)
        mask = _inside(step, x.dtype, x.device)[near]
        if i or not still:
            out[:, near].addcmul_(source[:, read], mask)
        else:
            torch.addcmul(source[:, near], source[:, read], mask, out=out[:, near])
            rest = slice(size - step.far, size) if step.far > 0 else slice(0, -step.far)
            out[:, rest] = source[:, rest]
    return out.view(x.shape)


def _wrapping(work: Work, x: Tensor, leads: int, moves: tuple[Move, ...]) -> Tensor:
    """The box when some dimension wraps: moved along it tap by tap, and along the others together."""
    around = [m for m in moves if m.wrap]
    total: Tensor | None = None
    for tap in range(len(moves[0].offsets)):
        source = x
        for m in around:
            source = _wrapped(m, tap, source, leads + m.dim)
        rest = tuple(replace(m, offsets=(m.offsets[tap],)) for m in moves if not m.wrap)
        found = _box(work, source, leads, rest) if rest else source
        total = found if total is None else total + found
    assert total is not None
    return total


def _slices(m: Move, tap: int, size: int) -> tuple[slice, slice]:
    """Which inputs are read and which outputs written for one tap."""
    o, k = m.offsets[tap], m.stride
    inner, outer = (m.size, size) if not m.back else (size, m.size)
    first = max(0, -(o // k))
    last = min(inner - 1, (outer - 1 - o) // k)
    near = slice(first, last + 1)
    far = slice(k * first + o, k * last + o + 1, k) if last >= first else slice(0, 0)
    return (far, near) if not m.back else (near, far)


def _wrapped(m: Move, tap: int, x: Tensor, dim: int) -> Tensor:
    """x moved by one tap along a dimension that wraps; adjoint inputs that meet in one output add up."""
    count = x.shape[dim] if m.back else m.size
    read = (m.stride * torch.arange(count, device=x.device) + m.offsets[tap]) % (m.size if m.back else x.shape[dim])
    if not m.back:
        return x.index_select(dim, read)
    shape = list(x.shape)
    shape[dim] = m.size
    return x.new_zeros(shape).index_add(dim, read, x)
