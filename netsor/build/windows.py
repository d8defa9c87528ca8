"""Which positions a window reads: offsets, strides and sizes from size, padding and dilation.

Position read by tap κ of output s is stride·s + dilation·κ. `same`: s = 0 … ⌈P/stride⌉−1, taps outside dropped;
`same_jax`: as many, taps at stride·s + dilation·κ − ⌊max((⌈P/stride⌉−1)·stride + dilation·(k−1) + 1 − P, 0) / 2⌋;
`valid`: all taps inside; `circular`: s as in `same`, positions modulo P; an integer p: taps at
stride·s + dilation·κ − p.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from netsor import ir
from netsor.errors import Location, ProgramError
from netsor.sizes import strided

NAMED = ("same", "same_jax", "valid", "circular")


@dataclass(frozen=True)
class Windowing:
    """Offsets per tap, stride and output size per axis; `wrap` takes positions modulo the size."""

    offsets: tuple[tuple[int, ...], ...]
    stride: tuple[int, ...]
    sizes: tuple[ir.Size, ...]
    wrap: bool


def resolve(
    dims: Sequence[ir.Dim], size: Any, offsets: Any, stride: Any, padding: Any, dilation: Any, loc: Location | None
) -> Windowing:  # fmt: skip
    """The windowing of the given axes; errors name the argument."""
    rank = len(dims)
    strides, dilations = _per_axis(stride, rank, "stride", loc), _per_axis(dilation, rank, "dilation", loc)
    if any(s < 1 for s in (*strides, *dilations)):
        _bad("stride and dilation are at least 1", loc)
    padding = _padding(padding, loc)
    if (size is None) == (offsets is None):
        _bad("a window has either size= or offsets=", loc)
    if offsets is None:
        sizes = _per_axis(size, rank, "size", loc)
        if any(k < 1 for k in sizes):
            _bad("a window has at least one tap", loc)
        axes = zip(dims, sizes, strides, dilations, strict=True)
        taps = tuple(itertools.product(*(_spread(d, k, s, e, padding, loc) for d, k, s, e in axes)))
    else:
        taps = _explicit(offsets, dilations, padding, loc)
    return _placed(dims, taps, strides, padding, loc)


def _placed(
    dims: Sequence[ir.Dim], taps: tuple[tuple[int, ...], ...], strides: tuple[int, ...], padding: str | int,
    loc: Location | None,
) -> Windowing:  # fmt: skip
    """Sizes of the result; `valid` counts from the first position whose taps are all inside."""
    columns = list(zip(*taps, strict=True))
    low, span = [min(c) for c in columns], [max(c) - min(c) for c in columns]
    minus = [0] * len(dims)
    if padding == "valid":
        taps = tuple(tuple(x - least for x, least in zip(t, low, strict=True)) for t in taps)
        minus = span
    elif isinstance(padding, int):
        minus = [s - 2 * padding for s in span]
    out = tuple(strided(d.size, m, s) for d, m, s in zip(dims, minus, strides, strict=True))
    for d, o, s in zip(dims, out, span, strict=True):
        if isinstance(o, int) and o < 1:
            _bad(
                f"the window does not fit: it spans {s + 1} positions, and the axis {d.axis.name} has {d.size}"
                f" (padding {padding!r})", loc, "take a smaller window, or padding='same'",
            )  # fmt: skip
    return Windowing(taps, strides, out, padding == "circular")


def _padding(padding: Any, loc: Location | None) -> str | int:
    if padding in NAMED:
        return padding  # type: ignore[no-any-return]
    whole = _whole(padding)
    if whole is None or whole < 0:
        if isinstance(padding, str) and padding.upper() == "SAME":
            _bad(f"padding is {padding!r}", loc, "write 'same' (as torch pads) or 'same_jax' (as JAX and TensorFlow)")
        _bad(f"padding is {', '.join(map(repr, NAMED))} or a number ≥ 0, got {padding!r}", loc)
    return whole


def _spread(dim: ir.Dim, k: int, stride: int, dilation: int, padding: str | int, loc: Location | None) -> list[int]:
    """The offsets of k taps along an axis."""
    match padding:
        case "same" | "circular":
            start = -((k - 1) // 2) * dilation
        case "same_jax":
            start = -_before(dim, dilation * (k - 1) + 1, stride, loc)
        case int():
            start = -padding
        case _:
            start = 0
    return [start + dilation * i for i in range(k)]


def _before(dim: ir.Dim, span: int, stride: int, loc: Location | None) -> int:
    """How many positions JAX's SAME adds before the first: for a size from the data, where all sizes have the same."""

    def of(size: int) -> int:
        return max((-(-size // stride) - 1) * stride + span - size, 0) // 2

    if isinstance(dim.size, int):
        return of(dim.size)
    known = {of(stride * (span + 1) + r) for r in range(stride)}  # it depends on the size modulo the stride
    if len(known) > 1:
        name = dim.axis.name
        _bad(
            f"padding='same_jax' at stride {stride} depends on the size of axis {name}, which comes with the data",
            loc, f"declare the size: p.axis({name!r}, 32); or give padding='same', or a number",
        )  # fmt: skip
    return known.pop()


def _explicit(
    offsets: Any, dilation: Sequence[int], padding: str | int, loc: Location | None
) -> tuple[tuple[int, ...], ...]:
    if padding not in ("same", "valid", "circular"):
        _bad("explicit offsets go with padding 'same', 'valid' or 'circular'", loc)
    rank = len(dilation)
    taps = [(o,) if _whole(o) is not None else tuple(o) for o in offsets]
    whole = all(_whole(x) is not None for t in taps for x in t)
    if not taps or not whole or any(len(t) != rank for t in taps) or len(set(taps)) < len(taps):
        _bad(f"offsets are distinct tuples of {rank} integers", loc)
    return tuple(tuple(int(x) * d for x, d in zip(t, dilation, strict=True)) for t in taps)


def _per_axis(value: Any, rank: int, what: str, loc: Location | None) -> tuple[int, ...]:
    one = _whole(value)
    values = (one,) * rank if one is not None else tuple(map(_whole, value)) if _listed(value) else (None,)
    if None in values:
        _bad(f"{what} is a whole number, or one for each axis, got {value!r}", loc)
    if len(values) != rank:
        _bad(f"{what} has {len(values)} entries for {rank} axes", loc)
    return tuple(v for v in values if v is not None)


def _listed(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, str)


def _whole(value: Any) -> int | None:
    """Python's and numpy's integers."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def _bad(message: str, loc: Location | None, hint: str | None = None) -> NoReturn:
    raise ProgramError(message, code="NT107", location=loc, hint=hint)
