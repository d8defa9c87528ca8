"""One line of a program, computed: each rule of netsor.ir on values with named axes, in numpy or in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, assert_never

from netsor import ir
from netsor.errors import InputError
from netsor.indexing import IndexMap, Outside, Read, index_map
from netsor.run.values import Arrays, Sized, Value

A = TypeVar("A", bound=Any)
V = TypeVar("V", bound=Value[Any])
Lookup = Callable[[ir.Var], V]
Computed = ir.Trsp | ir.MatMul | ir.Nonlin | ir.Moment | ir.IndexForm | ir.Reduce | ir.Softmax
PRODUCT = ir.arg(0) * ir.arg(1)


def evaluate(line: Computed, read: Lookup[V], axes: Sequence[str], sizes: Sized, xp: Arrays[A, V]) -> V:
    """The value of a line whose result carries `axes` (inside a loop: the variable's axes but the loop's)."""
    match line:
        case ir.Trsp():
            return _trsp(read(line.of), xp)
        case ir.MatMul():
            return matmul(read(line.matrix), read(line.vector), axes, xp)
        case ir.Nonlin() | ir.Moment():
            return _coordinatewise(line, read, axes, xp)
        case ir.Softmax():
            mask = None if line.mask is None else read(line.mask).aligned(axes)
            return xp.value(xp.softmax(read(line.of).aligned(axes), mask, 1 + axes.index(line.axis.name)), tuple(axes))
        case ir.IndexLine():
            return _moved(line, read(line.of), sizes, xp)
        case ir.Reduce():
            return _reduce(line, read(line.of), xp)
        case _:
            assert_never(line)


def _trsp(matrix: V, xp: Arrays[A, V]) -> V:
    return xp.value(xp.movedim(matrix.data, -1, -2), matrix.axes)


def matmul(matrix: V, vector: V, axes: Sequence[str], xp: Arrays[A, V]) -> V:
    """y[…] = W[κ] x[…], one product for all samples and axes that W lacks: `[κ, sample·others, row]`."""
    own, rest = matrix.axes, [a for a in axes if a not in matrix.axes]
    x = vector.aligned([*own, *rest])
    samples, others, n = x.shape[0], x.shape[1 + len(own) : -1], x.shape[-1]
    x = xp.movedim(x, 0, len(own))
    families = matrix.data.shape[: len(own)]
    flat = xp.expand(x, (*families, *x.shape[len(own) :])).reshape(*families, -1, n)
    product = flat @ xp.movedim(matrix.data, -1, -2)
    y = xp.movedim(product.reshape(*families, samples, *others, -1), len(own), 0)
    return xp.value(y, (*own, *rest))


def _coordinatewise(line: ir.Nonlin | ir.Moment, read: Lookup[V], axes: Sequence[str], xp: Arrays[A, V]) -> V:
    symbols = tuple(ir.arg(i) for i in range(len(line.args))) + tuple(ir.param(j) for j in range(len(line.params)))
    vectors = [read(v).aligned(axes) for v in line.args]
    scalars = [read(c).aligned(axes) for c in line.params]
    if isinstance(line, ir.Moment) and line.expr == PRODUCT:
        return xp.value(xp.inner(*vectors) / vectors[0].shape[-1], tuple(axes))
    if vectors:
        scalars = [c[..., None] for c in scalars]
    result = xp.function(line.expr, symbols)(*vectors, *scalars)
    if isinstance(line, ir.Moment) and vectors:
        result = xp.reduce(result, -1, "mean")
    return xp.value(result, tuple(axes))


def _reduce(line: ir.Reduce, of: V, xp: Arrays[A, V]) -> V:
    rest = tuple(a for a in of.axes if a != line.axis.name)
    return xp.value(xp.reduce(of.data, of.dim(line.axis.name), line.op), rest)


# ---------------------------------------------------------------- index forms


def _moved(line: ir.IndexForm, of: V, sizes: Sized, xp: Arrays[A, V]) -> V:
    """Elements gathered; scattered and added where the map is transposed."""
    m = index_map(line)
    if m.transposed:
        return _scattered(line, m, of, sizes, xp)
    if m.tap is None:
        return _gathered(line, m, of, 0, sizes, xp)
    taps = [_gathered(line, m, of, k, sizes, xp) for k in range(m.taps)]
    where = 1 + len(of.axes)
    return xp.value(xp.stack([t.data for t in taps], where), (*taps[0].axes, m.tap.name))


def _gathered(line: ir.IndexForm, m: IndexMap, of: V, tap: int, sizes: Sized, xp: Arrays[A, V]) -> V:
    """What a tap reads: a view along strides, copied where something stands outside."""
    part, axes = of.data, list(of.axes)
    for r, dim in [(r, of.dim(r.axis.name)) for r in m.reads]:
        if r.at is None:
            return of.select(r.axis.name, _fixed(line, r, part.shape[dim]))
        axes[dim - 1] = r.at.name
        if m.outside != "never":
            part = _strided(part, dim, r.stride, r.offsets[tap], sizes.size(line.out.size(r.at)), m.outside, xp)
    return xp.value(part, tuple(axes))


def _strided(x: A, dim: int, stride: int, start: int, count: int, outside: Outside, xp: Arrays[A, Any]) -> A:
    """x at stride·s + start for s < count along a dimension."""
    size = x.shape[dim]
    if outside == "wrap":
        return xp.take(x, dim, xp.positions(x, start, stride, count) % size)
    first, last = _inside(start, stride, count, size)
    inner: A = x[_along(dim, stride * first + start, last - first, stride)]
    if last - first == count:
        return inner
    number = float("-inf") if outside == "drop" else 0.0
    lead, tail = x.shape[:dim], x.shape[dim + 1 :]
    if 2 * (last - first) < count:  # the larger part is written at once
        whole = xp.filled(x, (*lead, count, *tail), number)
        whole[_along(dim, first, last - first)] = inner
        return whole
    ends = [xp.filled(x, (*lead, k, *tail), number) for k in (first, count - last) if k]
    return xp.join([inner, *ends] if first == 0 else [ends[0], inner, *ends[1:]], dim)


def _scattered(line: ir.IndexForm, m: IndexMap, of: V, sizes: Sized, xp: Arrays[A, V]) -> V:
    total: V | None = None
    for k in range(m.taps):
        tap = of if m.tap is None else of.select(m.tap.name, k)
        part, axes = tap.data, list(tap.axes)
        for r in m.reads:
            size = sizes.size(line.out.size(r.axis))
            if r.at is None:
                whole = xp.filled(part, (part.shape[0], size, *part.shape[1:]), 0.0)
                whole[:, _fixed(line, r, size)] = part
                part, axes = whole, [r.axis.name, *axes]
                continue
            dim = 1 + axes.index(r.at.name)
            axes[dim - 1] = r.axis.name
            part = _spread(part, dim, r.stride, r.offsets[k], size, m.outside, xp)
        total = xp.value(part if total is None else total.data + part, tuple(axes))
    assert total is not None  # a map has a tap
    return total


def _spread(x: A, dim: int, stride: int, start: int, size: int, outside: Outside, xp: Arrays[A, Any]) -> A:
    """The adjoint of `_strided`: zero but at stride·s + start."""
    count = x.shape[dim]
    if outside == "wrap":  # positions may meet
        return xp.add_at(x, dim, xp.positions(x, start, stride, count) % size, size)
    first, last = _inside(start, stride, count, size)
    whole = xp.filled(x, (*x.shape[:dim], size, *x.shape[dim + 1 :]), 0.0)
    whole[_along(dim, stride * first + start, last - first, stride)] = x[_along(dim, first, last - first)]
    return whole


def _inside(start: int, stride: int, count: int, size: int) -> tuple[int, int]:
    """The first s < count with 0 ≤ stride·s + start < size, and the one behind the last."""
    first = min(max(0, -(start // stride)), count)
    return first, max(min(count, (size - 1 - start) // stride + 1), first)


def _along(dim: int, begin: int, count: int, stride: int = 1) -> tuple[slice, ...]:
    """The index of `count` positions along a dimension."""
    begin = max(0, begin) if count else 0
    return (slice(None),) * dim + (slice(begin, begin + stride * count, stride),)


def _fixed(line: ir.IndexForm, read: Read, size: int) -> int:
    """Where a position without `at` lies."""
    (index,) = read.offsets
    if not -size <= index < size:
        verb = "writes" if index_map(line).transposed else "reads"
        raise InputError(
            f"{line.out} {verb} index {index} of the axis {read.axis}, which has size {size}", code="NT602",
            location=line.loc,
        )  # fmt: skip
    return index % size
