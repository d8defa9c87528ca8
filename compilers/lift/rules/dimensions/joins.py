"""Operations that join tensors: concatenation, stacking, padding."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from netsor import ir
from netsor.compilers.lift.export import Size
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.dimensions.parts import axes_of, both, nested, padded, replaced, sizes_of, taken
from netsor.compilers.lift.rules.elementwise import combined, is_zero
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Atom, Constant, Dim, Outputs, Value, product


@rule("pad", "constant_pad_nd")
def _pad(L: Lifter, x: Any, pads: Sequence[Any], mode: Any = "constant", value: Any = None) -> Value:
    """Zeros, or values inside, beyond the ends."""
    mode, value = (mode, value) if isinstance(mode, str) else ("constant", mode)
    if mode == "constant" and value:
        raise L.no_rule(f"padding with {value}", "padding with zeros")
    v = L.value(x)
    for i in range(len(pads) // 2):
        before, after = both(pads[2 * i]), both(pads[2 * i + 1])
        place = len(v.dims) - 1 - i
        if before == after == (0, 0):
            continue
        if any(a.kind == "wide" for a in v.dims[place]) and mode == "constant" and min(*before, *after) >= 0:
            zero = replace(v, expr=0)
            parts = [(zero, before), (v, product(v.dims[place])), (zero, after)]
            kept = [(y, s) for y, s in parts if s[0]]
            v = joined(L, [y for y, _ in kept], place, [s for _, s in kept])
            continue
        v = taken(L, v, place, padded(product(v.dims[place])[0], before[0], after[0], mode))
    return v


@rule("cat", "concatenate")
def _cat(L: Lifter, tensors: Sequence[Any], dim: int = 0) -> Value:
    if any(isinstance(x, Outputs) for x in tensors):
        raise L.no_rule("outputs are concatenated", "one readout with more outputs")
    values = [L.value(x) for x in tensors]
    place = dim % len(values[0].dims)
    known = [x if isinstance(x, Constant) else v for x, v in zip(tensors, values, strict=True)]
    return joined(L, values, place, [sizes_of(x)[place] for x in known])


def joined(L: Lifter, values: Sequence[Value], place: int, sizes: Sequence[Size] | None = None) -> Value:
    """Along a dimension: each part placed among zeros, and their sum; widths are blocks of one size."""
    sizes = [product(v.dims[place]) for v in values] if sizes is None else sizes
    unit = _block(L, values, place, sizes)
    counts = [s[0] // unit[0] for s in sizes]
    axis = L.program.fresh_axis("part", sum(counts))
    out, start = replace(values[0], expr=0), 0
    for v, count in zip(values, counts, strict=True):
        if not is_zero(v):
            placed = _placed(L, v, place, axis, start)
            found = placed if is_zero(out) else combined(L, out, placed, operator.add)
            assert isinstance(found, Value)
            out = found
        start += count
    return out


def _block(L: Lifter, values: Sequence[Value], place: int, sizes: Sequence[Size]) -> Size:
    """The width of the blocks that all parts are multiples of; (1, 1) for finite parts."""
    wide = [a for v in values if not is_zero(v) for a in v.dims[place] if a.kind == "wide"]
    if not wide:
        return (1, 1)
    known = [*sizes, *(a.size for a in wide)]
    unit = (math.gcd(*(s[0] for s in known)), math.gcd(*(s[1] for s in known)))
    m, n = L.exported.widths
    if unit[0] * n != unit[1] * m:
        raise L.no_rule("widths and finite dimensions are concatenated", "apply a matrix to each, and add")
    for atom in wide:
        if atom.size != unit:
            raise L.split(atom, [(atom.size[0] // unit[0], atom.size[1] // unit[1]), unit])
    return unit


def _placed(L: Lifter, v: Value, place: int, axis: ir.Axis, start: int) -> Value:
    p, total, atoms = L.program, int(axis.size or 0), v.dims[place]
    tail: Dim = atoms[-1:] if atoms and atoms[-1].kind == "wide" else ()
    heads = atoms[: len(atoms) - len(tail)]
    axes = axes_of(L, heads, "it is concatenated")
    expr, size = as_expr(p, v), product(heads)[0]
    if axes:
        rows = [[int(t == s - start) for t in range(size)] for s in range(total)]
        weights = p.constant(nested(rows, [total, *(a.size[0] for a in heads)]),
                             (axis, *(ir.Dim(x, a.size[0]) for x, a in zip(axes, heads, strict=True))))  # fmt: skip
        expr = weights * expr
        for one in axes:
            expr = expr.sum(one)
    elif expr.rows is None:
        expr = p.constant([int(s == start) for s in range(total)], (axis,)) * expr
    else:
        expr = expr.place(axis, start, total)
    return Value(replaced(v.dims, place, (Atom("axis", (total, total), axis), *tail)), expr, v.power)


@rule("stack")
def _stack(L: Lifter, tensors: Sequence[Any], dim: int = 0) -> Value:
    return stacked(L, [L.value(x) for x in tensors], dim % len(L.step.sizes))


def stacked(L: Lifter, values: Sequence[Value], place: int = 0) -> Value:
    """Along a new dimension."""
    new = [replace(v, dims=(*v.dims[:place], (), *v.dims[place:])) for v in values]
    return new[0] if len(new) == 1 else joined(L, new, place)


__all__ = ["joined", "stacked"]
