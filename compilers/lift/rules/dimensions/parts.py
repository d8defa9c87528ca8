"""Operations that read parts of dimensions, or join them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from netsor import functions as fn
from netsor import ir
from netsor.build.expressions import Expr
from netsor.compilers.lift.export import Pair, Size
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.dimensions.shapes import tensor, whole_axis
from netsor.compilers.lift.rules.elementwise import applied, is_zero
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Atom, Constant, Dim, Dims, Outputs, Parameter, Value, product

Positions = Sequence[int | None]  # None: zero


def sizes_of(x: Any) -> tuple[Size, ...]:
    return x.sizes if isinstance(x, Constant) else tuple(product(d) for d in x.dims)


def axes_of(L: Lifter, atoms: Dim, what: str) -> tuple[ir.Axis, ...]:
    """The axes of a finite dimension."""
    if len(atoms) < 2:
        axis = whole_axis(L, atoms, what)
        return () if axis is None else (axis,)
    return tuple(axis for a in atoms for axis in (whole_axis(L, (a,), what),) if axis is not None)


def replaced(dims: Dims, place: int, dim: Dim) -> Dims:
    return (*dims[:place], dim, *dims[place + 1 :])


# ---------------------------------------------------------------- positions of a finite dimension


def element(L: Lifter, v: Value, place: int, index: int, what: str = "one index of it is read") -> Value:
    """One position; the dimension is gone."""
    expr = v.expr
    atoms = v.dims[place]
    for axis, size in reversed(list(zip(axes_of(L, atoms, what), [a.size[0] for a in atoms], strict=True))):
        index, here = divmod(index, size)
        expr = expr.at(axis, here) if isinstance(expr, Expr) else expr
    return Value((*v.dims[:place], *v.dims[place + 1 :]), expr, v.power)


def taken(L: Lifter, v: Value, place: int, positions: Positions, what: str = "a part of it is read") -> Value:
    """The positions of a finite dimension, in this order: y[s] = Σ_t [t = positions_s] x[t]."""
    atoms = v.dims[place]
    axes_of(L, atoms, what)
    total = product(atoms)[0]
    if list(positions) == list(range(total)):
        return v
    if len(positions) == 1 and positions[0] is not None:
        one = element(L, v, place, positions[0])
        return replace(one, dims=(*one.dims[:place], (), *one.dims[place:]))
    return mapped(L, v, place, [[int(t == s) for t in range(total)] for s in positions], what)


def mapped(L: Lifter, v: Value, place: int, rows: Sequence[Sequence[Any]], what: str = "its positions mix") -> Value:
    """A linear map of the positions of a finite dimension: y[s] = Σ_t rows[s][t] x[t]."""
    p, size, atoms = L.program, len(rows), v.dims[place]
    axes = axes_of(L, atoms, what)
    if is_zero(v):
        zeros = p.fresh_axis("part", size)
        return replace(v, dims=replaced(v.dims, place, (Atom("axis", (size, size), zeros),)))
    out = p.fresh_axis(axes[0].name if axes else "part", size)
    inner = [ir.Dim(axis, a.size[0]) for axis, a in zip(axes, atoms, strict=True)]
    weights = p.constant(nested(rows, [size, *(a.size[0] for a in atoms)]), (out, *inner))
    expr = weights * as_expr(p, v)
    for axis in axes:
        expr = expr.sum(axis)
    return Value(replaced(v.dims, place, (Atom("axis", (size, size), out),)), expr, v.power)


def nested(rows: Sequence[Sequence[Any]], sizes: Sequence[int]) -> Any:
    flat: list[Any] = [x for row in rows for x in row]
    for size in reversed(sizes[1:]):
        flat = [flat[i : i + size] for i in range(0, len(flat), size)]
    return flat


# ---------------------------------------------------------------- parts of a dimension


def part(L: Lifter, v: Value, place: int, start: Size, size: Size) -> Value:
    """The part [start, start + size) of a dimension, of positions or of blocks of a width."""
    atoms, total = v.dims[place], product(v.dims[place])
    if size == total:
        return v
    if total[0] == total[1]:
        return taken(L, v, place, range(start[0], start[0] + size[0]))
    *axes, wide = atoms
    unit = (math.gcd(start[0], size[0], wide.size[0]), math.gcd(start[1], size[1], wide.size[1]))
    m, n = L.exported.widths
    if wide.kind != "wide" or unit[0] * n != unit[1] * m or size[0] % unit[0] or size[1] % unit[1]:
        whole_axis(L, atoms, "a part of it is read")
    if unit != wide.size:
        raise L.split(wide, [(wide.size[0] // unit[0], wide.size[1] // unit[1]), unit])
    tail: Dim = (wide,)
    while axes and not any(s[0] % product((axes[-1], *tail))[0] for s in (start, size)):
        tail = (axes.pop(), *tail)  # whole blocks keep their own parts
    step = product(tail)[0]
    blocks = Value(replaced(v.dims, place, tuple(axes)), v.expr, v.power)
    found = taken(L, blocks, place, range(start[0] // step, (start[0] + size[0]) // step))
    return replace(found, dims=replaced(found.dims, place, (*found.dims[place], *tail)))


def both(x: Any, default: int = 0) -> Size:
    if isinstance(x, Pair):
        return int(x.values[0]), int(x.values[1])
    number = default if x is None else int(x)
    return number, number


@rule("slice", "narrow")
def _slice(L: Lifter, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if isinstance(x, Parameter) and x.between_widths and step == 1:
        own = x.sizes[x.order[dim] or 0]
        first, second = both(start)
        return x if L.step.sizes[dim] == own else _cut(L, x, dim, (first % own[0], second % own[1]), L.step.sizes[dim])
    v = tensor(L, x)
    place = dim % len(v.dims)
    total, size = product(v.dims[place]), L.step.sizes[place]
    if total == size:
        return v
    if isinstance(v, Outputs):
        if not all(a.kind == "out" for a in v.dims[place]) or step != 1:
            raise L.no_rule("a slice of this tensor")
        return _of_outputs(v, replaced(v.dims, place, (Atom("out", size),)), both(start)[0] % total[0])
    first, second = both(start)
    if step != 1:
        whole_axis(L, v.dims[place], "some of its coordinates are read")
        return taken(L, v, place, list(range(total[0]))[slice(start, end, step)])
    return part(L, v, place, (first % total[0], second % total[1]), size)


def _of_outputs(v: Outputs, dims: Dims, start: int) -> Outputs:
    """The outputs of a readout from `start` on."""
    return Outputs(dims, tuple(replace(t, first=t.first + start) for t in v.terms))


@rule("select")
def _select(L: Lifter, x: Any, dim: int, index: Any) -> Any:
    v = tensor(L, x)
    place = dim % len(v.dims)
    if isinstance(v, Outputs):
        rest = tuple(d for i, d in enumerate(v.dims) if i != place)
        at = int(index) % product(v.dims[place])[0]
        if all(a.kind == "out" for a in v.dims[place]):
            return _of_outputs(v, rest, at)
        axis = whole_axis(L, v.dims[place], "one index of it is read")
        assert axis is not None
        return Outputs(rest, tuple(replace(t, x=None if t.x is None else t.x.at(axis, at)) for t in v.terms))
    whole_axis(L, v.dims[place][:1], "one index of it is read")
    return element(L, v, place, int(index) % product(v.dims[place])[0])


@rule("unbind")
def _unbind(L: Lifter, x: Any, dim: int = 0) -> list[Any]:
    v = L.value(x)
    place = dim % len(v.dims)
    axes_of(L, v.dims[place], "its coordinates are taken apart")
    return [element(L, v, place, i) for i in range(product(v.dims[place])[0])]


@rule("split", "chunk", "split_with_sizes", "tensor_split")
def _split(L: Lifter, x: Any, how: Any = None, dim: int = 0) -> list[Any]:
    if isinstance(x, Parameter) and x.between_widths:
        sizes = [L.step.sizes_of(i)[dim] for i in range(len(L.step.node.meta["val"]))]
        ends = [(0, 0), *itertools.accumulate(sizes, lambda a, b: (a[0] + b[0], a[1] + b[1]))]
        return [_cut(L, x, dim, start, size) for start, size in zip(ends, sizes, strict=False)]
    v = L.value(x)
    place = dim % len(v.dims)
    found, start = [], (0, 0)
    for i in range(len(L.step.node.meta["val"])):
        size = L.step.sizes_of(i)[place]
        found.append(part(L, v, place, start, size))
        start = (start[0] + size[0], start[1] + size[1])
    return found


def _cut(L: Lifter, x: Parameter, dim: int, start: Size, size: Size) -> Parameter:
    """A part of a matrix."""
    own = x.order[dim % len(x.order)]
    if own is None or x.cut is not None:
        raise L.no_rule(f"parts of parts of {x.name}", "a parameter for each part")
    return replace(x, cut=(own, start, size))


@rule("glu")
def _glu(L: Lifter, x: Any, dim: int = -1) -> Value:
    """The first half times the sigmoid of the second."""
    v = L.value(x)
    place = dim % len(v.dims)
    whole = product(v.dims[place])
    half = (whole[0] // 2, whole[1] // 2)
    first, second = part(L, v, place, (0, 0), half), part(L, v, place, half, half)
    a, b, dims = L.aligned(first, applied(L, second, fn.sigmoid))
    return Value(dims, a.expr * b.expr, a.power)


@rule("flip")
def _flip(L: Lifter, x: Any, dims: Sequence[int]) -> Value:
    v = L.value(x)
    for dim in dims:
        place = dim % len(v.dims)
        axes_of(L, v.dims[place], "its order is turned")
        v = taken(L, v, place, list(range(product(v.dims[place])[0]))[::-1])
    return v


@rule("roll")
def _roll(L: Lifter, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not dims:
        raise L.no_rule("a roll of all dimensions as one", "dims=")
    v = L.value(x)
    for by, dim in zip(shifts, dims, strict=True):
        place = dim % len(v.dims)
        axes_of(L, v.dims[place], "its coordinates are moved")
        size = product(v.dims[place])[0]
        v = taken(L, v, place, [(i - by) % size for i in range(size)])
    return v


@rule("index_select")
def _index_select(L: Lifter, x: Any, dim: int, index: Any) -> Value:
    if not isinstance(index, Constant):
        raise L.no_rule("indices that depend on the inputs", "indices that are constants")
    v = L.value(x)
    place = dim % len(v.dims)
    axes_of(L, v.dims[place], "some of its coordinates are read")
    size = product(v.dims[place])[0]
    return taken(L, v, place, [int(i) % size for i in index.values[0]])


@rule("repeat_interleave")
def _repeat_interleave(L: Lifter, x: Any, times: Any, dim: Any = None, *_: Any, **__: Any) -> Value:
    """Each position several times in a row."""
    if not isinstance(times, int) or dim is None:
        raise L.no_rule("repetitions by numbers that are computed, or of a flattened tensor", "a number and dim=")
    v = L.value(x)
    return repeated(L, v, dim % len(v.dims), times)


def repeated(L: Lifter, v: Value, place: int, count: int) -> Value:
    """Each position of a finite dimension `count` times in a row."""
    size = product(v.dims[place])[0]
    return taken(L, v, place, [i // count for i in range(size * count)], "its coordinates are repeated")


def padded(size: int, before: int, after: int, mode: str) -> Positions:
    """What torch reads at positions −before … size + after − 1."""
    inside = range(size)
    where: list[int | None] = []
    for i in range(-before, size + after):
        match mode:
            case "constant":
                where.append(i if i in inside else None)
            case "circular":
                where.append(i % size)
            case "replicate":
                where.append(min(max(i, 0), size - 1))
            case "reflect":
                where.append(-i if i < 0 else 2 * (size - 1) - i if i >= size else i)
            case _:
                raise AssertionError(mode)
    return where


__all__ = [
    "Positions", "axes_of", "both", "mapped", "nested", "padded", "part", "repeated", "replaced", "sizes_of", "taken",
]  # fmt: skip
