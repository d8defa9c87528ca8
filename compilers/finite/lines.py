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

Lookup = Callable[[ir.Var], Value]
Computed = ir.Trsp | ir.MatMul | ir.Nonlin | ir.Moment | ir.IndexForm | ir.Reduce | ir.Softmax
Windowing = ir.Window | ir.Unwindow
PRODUCT = ir.arg(0) * ir.arg(1)


def evaluate(line: Computed, read: Lookup, axes: Sequence[str], binding: Binding) -> Value:  # noqa: C901
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
        case ir.Window():
            return _window(line, read(line.of), binding)
        case ir.Unwindow():
            return _unwindow(line, read(line.of), binding)
        case ir.At():
            return _at(line, read(line.of))
        case ir.Place():
            return _place(line, read(line.of), binding)
        case ir.Shift():
            return _shift(line, read(line.of))
        case ir.Rename():
            return _rename(line, read(line.of))
        case ir.Reduce():
            return _reduce(line, read(line.of))
        case _:
            assert_never(line)


def _trsp(matrix: Value) -> Value:
    return Value(matrix.data.transpose(-1, -2), matrix.axes)


def _rename(line: ir.Rename, of: Value) -> Value:
    table = {a.name: b.name for a, b in line.axes}
    return Value(of.data, tuple(table.get(a, a) for a in of.axes))


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


# ---------------------------------------------------------------- windows


def _positions(line: Windowing, binding: Binding) -> list[tuple[str, int, int]]:
    """(axis, positions of the neighbourhoods' centres, positions that are read) for each axis of a window."""
    outer, inner = (line.out, line.of) if isinstance(line, ir.Window) else (line.of, line.out)
    return [(a.name, binding.size(outer.size(a)), binding.size(inner.size(a))) for a in line.axes]


def _taken(
    start: int, stride: int, count: int, size: int, wrap: bool, device: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions stride·s + start for s < count, modulo the size or clamped, and which of them are inside."""
    position = stride * torch.arange(count, device=device) + start
    inside = (position >= 0) & (position < size) | torch.tensor(wrap, device=device)
    return position % size, inside


def _window(line: ir.Window, of: Value, binding: Binding) -> Value:
    if len(line.offsets) == 1 and line.stride == (1,) and line.outside == "zero":
        return _moved(line, of, binding)
    taps = []
    for offsets in line.offsets:
        part, mask = of.data, torch.ones((), dtype=torch.bool, device=of.data.device)
        for (axis, count, size), start, stride in zip(_positions(line, binding), offsets, line.stride, strict=True):
            position, inside = _taken(start, stride, count, size, line.outside == "wrap", of.data.device)
            dim = of.dim(axis)
            part = part.index_select(dim, position)
            mask = mask & inside.reshape(-1, *(1,) * (part.ndim - dim - 1))
        taps.append(part.masked_fill(~mask, -torch.inf if line.outside == "drop" else 0.0))
    where = 1 + len(of.axes)
    return Value(torch.stack(taps, where), (*of.axes, line.tap.name))


def _moved(line: ir.Window, of: Value, binding: Binding) -> Value:
    """One tap along one axis: a part of it, zeros on both sides."""
    ((axis, count, size),) = _positions(line, binding)
    ((start,),) = line.offsets
    dim, first, last = of.dim(axis), max(0, start), min(size, start + count)
    part = of.data.narrow(dim, min(first, size), max(0, last - first))
    if part.shape[dim] < count:
        before = min(count, first - start)
        beside = [(*part.shape[:dim], k, *part.shape[dim + 1 :]) for k in (before, count - before - part.shape[dim])]
        part = torch.cat([part.new_zeros(beside[0]), part, part.new_zeros(beside[1])], dim)
    where = 1 + len(of.axes)
    return Value(part.unsqueeze(where), (*of.axes, line.tap.name))


def _unwindow(line: ir.Unwindow, of: Value, binding: Binding) -> Value:
    total: torch.Tensor | None = None
    for k, offsets in enumerate(line.offsets):
        tap = of.select(line.tap.name, k)
        part = tap.data
        for (axis, count, size), start, stride in zip(_positions(line, binding), offsets, line.stride, strict=True):
            position, inside = _taken(start, stride, count, size, line.outside == "wrap", part.device)
            dim = tap.dim(axis)
            shape = [*part.shape[:dim], size, *part.shape[dim + 1 :]]
            read = part.index_select(dim, inside.nonzero()[:, 0])
            part = part.new_zeros(shape).index_add(dim, position[inside], read)
        total = part if total is None else total + part
    assert total is not None  # a window has a tap
    return Value(total, tuple(a for a in of.axes if a != line.tap.name))


# ---------------------------------------------------------------- other index forms


def _at(line: ir.At, of: Value) -> Value:
    size = of.data.shape[of.dim(line.axis.name)]
    if not -size <= line.index < size:
        raise InputError(
            f"{line.out} reads index {line.index} of the axis {line.axis.name}, which has size {size}", code="NT602",
            location=line.loc,
        )  # fmt: skip
    return of.select(line.axis.name, line.index)


def _place(line: ir.Place, of: Value, binding: Binding) -> Value:
    size = binding.size(line.out.size(line.axis))
    index = line.index + size if line.index < 0 else line.index
    if not 0 <= index < size:
        raise InputError(
            f"{line.out} writes index {line.index} of the axis {line.axis.name}, which has size {size}", code="NT602",
            location=line.loc,
        )  # fmt: skip
    zero = torch.zeros_like(of.data)
    stacked = torch.stack([of.data if t == index else zero for t in range(size)], 1)
    return Value(stacked, (line.axis.name, *of.axes))


def _shift(line: ir.Shift, of: Value) -> Value:
    dim = of.dim(line.axis.name)
    size = of.data.shape[dim]
    kept = max(0, size - abs(line.by))
    zero = torch.zeros_like(of.data.narrow(dim, 0, size - kept))
    part = of.data.narrow(dim, 0 if line.by > 0 else size - kept, kept)
    return Value(torch.cat([zero, part] if line.by > 0 else [part, zero], dim), of.axes)


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
