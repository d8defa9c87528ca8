"""Operations that move dimensions and leave entries alone."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

from netsor import ir
from netsor.compilers.lift.export import Size
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.elementwise import combined
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Atom, Constant, Dim, Dims, Outputs, Parameter, Value, grouped, product


def with_dims(L: Lifter, x: Any, dims: Dims) -> Any:
    return dataclasses.replace(x, dims=dims) if isinstance(x, Outputs) else dataclasses.replace(L.value(x), dims=dims)


def tensor(L: Lifter, x: Any) -> Value | Outputs:
    return x if isinstance(x, Outputs) else L.value(x)


@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten", "_reshape_copy")
def _view(L: Lifter, x: Any, *_: Any, **__: Any) -> Any:
    if isinstance(x, Parameter):
        return _view_parameter(L, x)
    v = tensor(L, x)
    atoms = [a for d in v.dims for a in d]
    found = grouped(atoms, L.step.sizes)
    if isinstance(found, Atom):
        raise L.split(found, _parts(atoms, found, L.step.sizes))
    return with_dims(L, v, found)


def _parts(atoms: Sequence[Atom], atom: Atom, sizes: Sequence[Size]) -> list[Size]:
    """The consecutive sizes that an atom is taken apart into."""
    before = product(atoms[: list(atoms).index(atom)])
    total = (1, 1)
    found: list[Size] = []
    for size in sizes:
        if size != (1, 1) and total[0] >= before[0]:
            found.append(size)
        total = (total[0] * size[0], total[1] * size[1])
        if total[0] >= before[0] * atom.size[0]:
            break
    return found


def _view_parameter(L: Lifter, x: Parameter) -> Parameter:
    """Dimensions of size 1 come and go; others stay."""
    left = [i for i in x.order if i is not None and x.sizes[i] != (1, 1)]
    order: list[int | None] = []
    for size in L.step.sizes:
        if size == (1, 1):
            order.append(None)
        elif left and x.sizes[left[0]] == size:
            order.append(left.pop(0))
        else:
            raise L.no_rule(f"the parameter {x.name} is reshaped", "declare it with the shape in which it is used")
    return dataclasses.replace(x, order=tuple(order))


def permuted(L: Lifter, x: Any, order: Sequence[int]) -> Any:
    if isinstance(x, Parameter):
        return dataclasses.replace(x, order=tuple(x.order[i] for i in order))
    v = tensor(L, x)
    return with_dims(L, v, tuple(v.dims[i] for i in order))


def rank(x: Any) -> int:
    return len(x.order) if isinstance(x, Parameter) else len(x.sizes) if isinstance(x, Constant) else len(x.dims)


@rule("permute")
def _permute(L: Lifter, x: Any, order: Sequence[int]) -> Any:
    return permuted(L, x, [i % len(order) for i in order])


@rule("transpose", "swapaxes")
def _transpose(L: Lifter, x: Any, a: int, b: int) -> Any:
    order = list(range(len(L.step.sizes)))
    order[a], order[b] = order[b], order[a]
    return permuted(L, x, order)


@rule("t", "numpy_T", "mT", "matrix_H")
def _t(L: Lifter, x: Any) -> Any:
    return permuted(L, x, list(range(len(L.step.sizes)))[::-1])


@rule("unsqueeze")
def _unsqueeze(L: Lifter, x: Any, dim: int) -> Any:
    if isinstance(x, Parameter):
        return _view_parameter(L, x)
    v = tensor(L, x)
    dims = list(v.dims)
    dims.insert(dim % (len(dims) + 1), ())
    return with_dims(L, v, tuple(dims))


@rule("squeeze")
def _squeeze(L: Lifter, x: Any, dim: Any = None) -> Any:
    if isinstance(x, Parameter):
        return _view_parameter(L, x)
    v = tensor(L, x)
    count = len(v.dims)
    asked = range(count) if dim is None else [d % count for d in (dim if isinstance(dim, list) else [dim])]
    gone = [i for i in asked if all(a.size == (1, 1) for a in v.dims[i])]
    return with_dims(L, v, tuple(d for i, d in enumerate(v.dims) if i not in gone))


@rule("expand", "expand_as")
def _expand(L: Lifter, x: Any, *_: Any, **__: Any) -> Any:
    """Dimensions of size 1 repeated: along new axes on which the value is constant."""
    v = L.value(x)
    sizes = L.step.sizes
    empty: Dim = ()
    dims = list((empty,) * (len(sizes) - len(v.dims)) + v.dims)
    expr: Any = v.expr
    for i, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
        if dim or size == (1, 1):
            continue
        dims[i] = L.factors(size, "copy")
        for axis in (a.axis for a in dims[i] if a.axis):
            expr = as_expr(L.program, Value((), expr)) * L.program.constant([1] * int(axis.size or 1), (axis,))
    return Value(tuple(dims), expr, v.power)


@rule("select")
def _select(L: Lifter, x: Any, dim: int, index: Any) -> Any:
    if isinstance(x, Outputs):
        return with_dims(L, x, tuple(d for i, d in enumerate(x.dims) if i != dim % len(x.dims)))
    v = L.value(x)
    dims = tuple(d for i, d in enumerate(v.dims) if i != dim % len(v.dims))
    atoms = v.dims[dim]
    axis = whole_axis(L, atoms, "one index of it is read")
    if axis is None:
        return Value(dims, v.expr, v.power)
    return Value(dims, as_expr(L.program, v).at(axis, int(index) % atoms[0].size[0]), v.power)


def whole_axis(L: Lifter, atoms: Dim, what: str) -> ir.Axis | None:
    """The axis of a dimension; None for one of size 1."""
    if any(a.kind == "wide" for a in atoms):
        raise L.refuse(
            "NT814", f"{what}: single coordinates of a width are random at every width",
            "read a width through a matrix or a mean over all of it",
        )  # fmt: skip
    if any(a.kind == "sample" for a in atoms):
        raise mixed(L)
    if len(atoms) > 1:
        raise L.no_rule("a dimension that is a product of axes")
    return atoms[0].axis if atoms else None


def mixed(L: Lifter) -> Exception:
    """The finding that samples meet."""
    return L.refuse(
        "NT815", f"{L.step.name} mixes the samples of the batch: an output depends on the other inputs",
        "a kernel is of two inputs: module.eval() for batch normalisation, or make the set of inputs an axis of"
        " one sample",
    )  # fmt: skip


@rule("slice")
def _slice(L: Lifter, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    v = tensor(L, x)
    atoms = v.dims[dim]
    if product(atoms) == L.step.sizes[dim % len(v.dims)]:
        return v
    if isinstance(v, Outputs) and all(a.kind == "out" for a in atoms):
        return with_dims(L, v, _resized(v.dims, dim, L.step.sizes[dim % len(v.dims)]))
    axis = whole_axis(L, atoms, "a part of it is read")
    if isinstance(v, Outputs) or axis is None:
        raise L.no_rule("a slice of this tensor")
    size = atoms[0].size[0]
    return taken(L, v, dim, list(range(size))[slice(start, end, step)])


def _resized(dims: Dims, dim: int, size: Size) -> Dims:
    place = dim % len(dims)
    return tuple((Atom("out", size),) if i == place else d for i, d in enumerate(dims))


def taken(L: Lifter, v: Value, dim: int, positions: Sequence[int]) -> Value:
    """The positions of a finite axis, in this order: y[s] = Σ_t [t = positions_s] x[t]."""
    place = dim % len(v.dims)
    (atom,) = v.dims[place]
    assert atom.axis is not None
    p, size = L.program, len(positions)
    out = p.fresh_axis(atom.axis.name, size)
    inner = ir.Dim(atom.axis, atom.size[0])
    rows = [[int(t == s) for t in range(atom.size[0])] for s in positions]
    expr = (p.constant(rows, (out, inner)) * as_expr(p, v)).sum(atom.axis)
    dims = tuple((Atom("axis", (size, size), out),) if i == place else d for i, d in enumerate(v.dims))
    return Value(dims, expr, v.power)


@rule("flip")
def _flip(L: Lifter, x: Any, dims: Sequence[int]) -> Value:
    v = L.value(x)
    for dim in dims:
        if whole_axis(L, v.dims[dim], "its order is turned") is not None:
            v = taken(L, v, dim, list(range(v.dims[dim][0].size[0]))[::-1])
    return v


@rule("split", "chunk", "split_with_sizes", "unbind")
def _split(L: Lifter, x: Any, how: Any = None, dim: int = 0) -> list[Any]:
    """Parts of a width are an axis of the matrix that made it; parts of an axis are read by position."""
    if L.step.name == "unbind":
        dim = how or 0
        v = L.value(x)
        atoms = v.dims[dim]
        axis = whole_axis(L, atoms, "its coordinates are taken apart")
        rest = tuple(d for i, d in enumerate(v.dims) if i != dim % len(v.dims))
        return (
            [Value(rest, as_expr(L.program, v).at(axis, i), v.power) for i in range(atoms[0].size[0])] if axis else [v]
        )
    v, parts = L.value(x), len(L.step.node.meta["val"])
    sizes = [L.step.sizes_of(i)[dim] for i in range(parts)]
    place, atoms = dim % len(v.dims), v.dims[dim]
    if len(atoms) == 1 and atoms[0].kind == "axis":
        ends = [sum(s[0] for s in sizes[: i + 1]) for i in range(parts)]
        return [taken(L, v, dim, list(range(e - s[0], e))) for e, s in zip(ends, sizes, strict=True)]
    if len(set(sizes)) > 1:
        raise L.no_rule("a width in parts of different sizes", "parts of one size")
    if len(atoms) == 1 and atoms[0].kind == "wide":
        raise L.split(atoms[0], [(parts, parts), sizes[0]])
    if not atoms or atoms[0].axis is None or atoms[0].size[0] != parts:
        raise L.no_rule("this dimension is taken apart")
    dims = tuple(d[1:] if i == place else d for i, d in enumerate(v.dims))
    expr, axis = as_expr(L.program, v), atoms[0].axis
    return [Value(dims, expr.at(axis, i), v.power) for i in range(parts)]


@rule("cat", "stack")
def _cat(L: Lifter, tensors: Sequence[Any], dim: int = 0) -> Value:
    """Along a finite axis: each part placed among zeros, and their sum."""
    values = [L.value(x) for x in tensors]
    if L.step.name == "stack":
        place = dim % (len(values[0].dims) + 1)
        values = [dataclasses.replace(v, dims=(*v.dims[:place], (), *v.dims[place:])) for v in values]
    place = dim % len(values[0].dims)
    total = L.step.sizes[place]
    if total[0] != total[1]:
        raise L.no_rule(
            "vectors of widths are concatenated", "concatenate along a finite axis, or apply a matrix to each"
        )
    axis = L.program.fresh_axis("part", total[0])
    start, out = 0, Value((), 0)
    for v in values:
        one = whole_axis(L, v.dims[place], "it is concatenated")
        size = 1 if one is None else v.dims[place][0].size[0]
        part = _placed(L, v, place, axis, one, start, size)
        out = part if start == 0 else _sum(L, out, part)
        start += size
    return out


def _placed(L: Lifter, v: Value, place: int, axis: ir.Axis, one: ir.Axis | None, start: int, size: int) -> Value:
    p, total = L.program, int(axis.size or 0)
    expr = as_expr(p, v)
    rows = [[int(t == s - start) for t in range(size)] for s in range(total)]
    if one is None:
        expr = p.constant([r[0] if start <= s < start + 1 else 0 for s, r in enumerate(rows)], (axis,)) * expr
    else:
        expr = (p.constant(rows, (axis, ir.Dim(one, size))) * expr).sum(one)
    dims = tuple((Atom("axis", (total, total), axis),) if i == place else d for i, d in enumerate(v.dims))
    return Value(dims, expr, v.power)


def _sum(L: Lifter, a: Value, b: Value) -> Value:
    found = combined(L, a, b, operator.add)
    assert isinstance(found, Value)
    return found


__all__ = ["mixed", "permuted", "taken", "whole_axis"]
