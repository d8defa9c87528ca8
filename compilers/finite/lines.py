"""One line of a program, computed: each rule of netsor.ir as torch on values with named axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import torch

from netsor import ir
from netsor.compilers.finite.contract import products
from netsor.compilers.finite.values import Binding, Value, axis_names
from netsor.compilers.lowering.torch_functions import torch_function
from netsor.errors import InputError
from netsor.indexing import IndexMap, Outside, Read, index_map

Lookup = Callable[[ir.Var], Value]
Computed = ir.Trsp | ir.MatMul | ir.Nonlin | ir.Moment | ir.IndexForm | ir.Reduce | ir.Softmax
PRODUCT = ir.arg(0) * ir.arg(1)


def evaluate(line: Computed, read: Lookup, axes: Sequence[str], binding: Binding) -> Value:
    """The value of a line whose result carries `axes` (inside a loop: the variable's axes but the loop's)."""
    match line:
        case ir.Trsp():
            return _trsp(read(line.of))
        case ir.MatMul():
            return matmul(read(line.matrix), read(line.vector), axes)
        case ir.Nonlin() | ir.Moment():
            return _coordinatewise(line, read, axes)
        case ir.Softmax():
            return _softmax(line, read, axes)
        case ir.IndexLine():
            return _moved(line, read(line.of), binding)
        case ir.Reduce():
            return _reduce(line, read(line.of))
        case _:
            assert_never(line)


def _trsp(matrix: Value) -> Value:
    return Value(matrix.data.transpose(-1, -2), matrix.axes)


def constant(line: ir.InputScalar, binding: Binding, like: dict[str, Any]) -> Value:
    """The given limit of a scalar, over its axes; the limit "position" is the index along its one axis."""
    shape = binding.shape(line.out)
    data = torch.arange(*shape, **like) if line.limit == "position" else torch.tensor(_numbers(line.limit), **like)
    if data.ndim not in (0, len(shape)) or (data.ndim and tuple(data.shape) != shape):
        raise InputError(
            f"the values of {line.out} have shape {list(data.shape)}, its axes have sizes {list(shape)}", code="NT602"
        )
    return Value(data.expand(shape).unsqueeze(0), axis_names(line.out))


def _numbers(limit: Any) -> Any:
    return [_numbers(x) for x in limit] if isinstance(limit, tuple | list) else float(limit)


def matmul(matrix: Value, vector: Value, axes: Sequence[str]) -> Value:
    """y[…] = W[κ] x[…], one product for all samples and axes that W lacks: `[κ, sample·others, row]`."""
    own, rest = matrix.axes, [a for a in axes if a not in matrix.axes]
    x = vector.aligned([*own, *rest])
    samples, others, n = x.shape[0], x.shape[1 + len(own) : -1], x.shape[-1]
    x = x.movedim(0, len(own))
    families = matrix.data.shape[: len(own)]
    flat = x.expand(*families, *x.shape[len(own) :]).reshape(*families, -1, n)
    y = (flat @ matrix.data.transpose(-1, -2)).reshape(*families, samples, *others, -1).movedim(len(own), 0)
    return Value(y, (*own, *rest))


def _coordinatewise(line: ir.Nonlin | ir.Moment, read: Lookup, axes: Sequence[str]) -> Value:
    symbols = tuple(ir.arg(i) for i in range(len(line.args))) + tuple(ir.param(j) for j in range(len(line.params)))
    vectors = [read(v).aligned(axes) for v in line.args]
    scalars = [read(c).aligned(axes) for c in line.params]
    if isinstance(line, ir.Moment) and line.expr == PRODUCT:
        return Value(products(*vectors) / vectors[0].shape[-1], tuple(axes))
    if vectors:
        scalars = [c.unsqueeze(-1) for c in scalars]
    result = torch_function(line.expr, symbols)(*vectors, *scalars)
    if isinstance(line, ir.Moment) and vectors:
        result = result.mean(-1)
    return Value(result, tuple(axes))


# ---------------------------------------------------------------- index forms


def _moved(line: ir.IndexForm, of: Value, binding: Binding) -> Value:
    """Elements gathered; scattered and added where the map is transposed."""
    m = index_map(line)
    if m.transposed:
        return _scattered(line, m, of, binding)
    if m.tap is None:
        return _gathered(line, m, of, 0, binding)
    taps = [_gathered(line, m, of, k, binding) for k in range(m.taps)]
    where = 1 + len(of.axes)
    data = torch.stack([t.data for t in taps], where) if len(taps) > 1 else taps[0].data.unsqueeze(where)
    return Value(data, (*taps[0].axes, m.tap.name))


def _gathered(line: ir.IndexForm, m: IndexMap, of: Value, tap: int, binding: Binding) -> Value:
    """What a tap reads: a view along strides, copied where something stands outside."""
    part, axes = of.data, list(of.axes)
    for r, dim in [(r, of.dim(r.axis.name)) for r in m.reads]:
        if r.at is None:
            return of.select(r.axis.name, _fixed(line, r, part.shape[dim]))
        axes[dim - 1] = r.at.name
        if m.outside != "never":
            part = _strided(part, dim, r.stride, r.offsets[tap], binding.size(line.out.size(r.at)), m.outside)
    return Value(part, tuple(axes))


def _strided(x: torch.Tensor, dim: int, stride: int, start: int, count: int, outside: Outside) -> torch.Tensor:
    """x at stride·s + start for s < count along a dimension."""
    size = x.shape[dim]
    if outside == "wrap":
        return x.index_select(dim, (stride * torch.arange(count, device=x.device) + start) % size)
    first = min(max(0, -(start // stride)), count)  # the first s inside, and the one behind the last
    last = max(min(count, (size - 1 - start) // stride + 1), first)
    begin = max(0, min(stride * first + start, size))
    inner = x[(slice(None),) * dim + (slice(begin, begin + stride * (last - first), stride),)]
    if last - first == count:
        return inner
    shapes = ((*x.shape[:dim], k, *x.shape[dim + 1 :]) for k in (first, count - last))
    before, behind = (x.new_full(shape, -torch.inf if outside == "drop" else 0.0) for shape in shapes)
    return torch.cat([before, inner, behind], dim)


def _scattered(line: ir.IndexForm, m: IndexMap, of: Value, binding: Binding) -> Value:
    total: Value | None = None
    for k in range(m.taps):
        tap = of if m.tap is None else of.select(m.tap.name, k)
        part, axes = tap.data, list(tap.axes)
        for r in m.reads:
            size = binding.size(line.out.size(r.axis))
            if r.at is None:
                part = _strided(part.unsqueeze(1), 1, 1, -_fixed(line, r, size), size, "zero")
                axes = [r.axis.name, *axes]
                continue
            dim = 1 + axes.index(r.at.name)
            axes[dim - 1] = r.axis.name
            position = r.stride * torch.arange(part.shape[dim], device=part.device) + r.offsets[k]
            if m.outside == "wrap":
                position = position % size
            else:
                inside = (position >= 0) & (position < size)
                part, position = part.index_select(dim, inside.nonzero()[:, 0]), position[inside]
            shape = [*part.shape[:dim], size, *part.shape[dim + 1 :]]
            part = part.new_zeros(shape).index_add(dim, position, part)
        total = Value(part if total is None else total.data + part, tuple(axes))
    assert total is not None  # a map has a tap
    return total


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


# ---------------------------------------------------------------- over axes


def _reduce(line: ir.Reduce, of: Value) -> Value:
    dim = of.dim(line.axis.name)
    rest = tuple(a for a in of.axes if a != line.axis.name)
    match line.op:
        case "sum":
            return Value(of.data.sum(dim), rest)
        case "mean":
            return Value(of.data.mean(dim), rest)
        case "max":
            return Value(of.data.amax(dim), rest)
        case _:
            assert_never(line.op)


def _softmax(line: ir.Softmax, read: Lookup, axes: Sequence[str]) -> Value:
    scores = read(line.of).aligned(axes)
    dim = 1 + list(axes).index(line.axis.name)
    if line.mask is None:
        return Value(torch.softmax(scores, dim), tuple(axes))
    scores, mask = torch.broadcast_tensors(scores, read(line.mask).aligned(axes))
    largest = scores.masked_fill(mask == 0, -torch.inf).amax(dim, keepdim=True)
    weights = mask * torch.exp((scores - largest.detach()).masked_fill(mask == 0, 0.0))
    return Value(weights / weights.sum(dim, keepdim=True), tuple(axes))
