"""Which positions a window reads: offsets, strides and sizes from size, padding and dilation.

Position read by tap κ of output s is stride·s + dilation·κ. `same`: s = 0 … ⌈P/stride⌉−1, taps outside dropped;
`valid`: all taps inside; `circular`: s as in `same`, positions modulo P; an integer p: taps at
stride·s + dilation·κ − p.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netsor import ir
from netsor.errors import Location, ProgramError


@dataclass(frozen=True)
class Windowing:
    """Offsets per tap, stride and output size per axis; `wrap` takes positions modulo the size."""

    offsets: tuple[tuple[int, ...], ...]
    stride: tuple[int, ...]
    sizes: tuple[ir.Size, ...]
    wrap: bool


def strided(size: ir.Size, minus: int, stride: int) -> ir.Size:
    """⌈(size − minus) / stride⌉."""
    if isinstance(size, int):
        return -((minus - size) // stride)
    return size if minus == 0 and stride == 1 else ir.Strided(size, minus, stride)


def resolve(
    sizes: Sequence[ir.Size], size: Any, offsets: Any, stride: Any, padding: str | int, dilation: Any,
    loc: Location | None,
) -> Windowing:  # fmt: skip
    """The windowing of the given axes; errors name the argument."""
    rank = len(sizes)
    strides, dilations = _per_axis(stride, rank, "stride", loc), _per_axis(dilation, rank, "dilation", loc)
    if any(s < 1 for s in (*strides, *dilations)):
        raise _bad("stride and dilation are at least 1", loc)
    if padding not in ("same", "valid", "circular") and not (isinstance(padding, int) and padding >= 0):
        raise _bad(f"padding is 'same', 'valid', 'circular' or a number ≥ 0, got {padding!r}", loc)
    taps = _taps(size, offsets, rank, padding, dilations, loc)
    low = [min(t[i] for t in taps) for i in range(rank)]
    span = [max(t[i] for t in taps) - low[i] for i in range(rank)]
    if padding == "valid":
        taps = tuple(tuple(t[i] - low[i] for i in range(rank)) for t in taps)
        minus = span
    elif isinstance(padding, int):
        taps = tuple(tuple(x - padding for x in t) for t in taps)
        minus = [s - 2 * padding for s in span]
    else:
        minus = [0] * rank
    out = tuple(strided(p, m, s) for p, m, s in zip(sizes, minus, strides, strict=True))
    for s, o in zip(sizes, out, strict=True):
        if isinstance(o, int) and o < 1:
            raise _bad(f"the window does not fit: an axis of size {s} leaves no position", loc)
    return Windowing(taps, strides, out, padding == "circular")


def _taps(
    size: Any, offsets: Any, rank: int, padding: str | int, dilation: Sequence[int], loc: Location | None
) -> tuple[tuple[int, ...], ...]:
    if (size is None) == (offsets is None):
        raise _bad("a window has either size= or offsets=", loc)
    if offsets is None:
        ranges = []
        for k in _per_axis(size, rank, "size", loc):
            if k < 1:
                raise _bad("a window has at least one tap", loc)
            start = -((k - 1) // 2) if padding in ("same", "circular") else 0
            ranges.append(range(start, start + k))
        taps = list(itertools.product(*ranges))
    else:
        if isinstance(padding, int):
            raise _bad("explicit offsets go with padding 'same', 'valid' or 'circular'", loc)
        taps = [(o,) if isinstance(o, int) else tuple(o) for o in offsets]
        if not taps or any(len(t) != rank for t in taps) or len(set(taps)) < len(taps):
            raise _bad(f"offsets are distinct tuples of {rank} integers", loc)
    return tuple(tuple(int(x) * d for x, d in zip(t, dilation, strict=True)) for t in taps)


def _per_axis(value: Any, rank: int, what: str, loc: Location | None) -> tuple[int, ...]:
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(values) != rank:
        raise _bad(f"{what} has {len(values)} entries for {rank} axes", loc)
    return values


def _bad(message: str, loc: Location | None) -> ProgramError:
    return ProgramError(message, code="NT107", location=loc)
