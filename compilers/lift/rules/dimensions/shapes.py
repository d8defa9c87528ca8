"""Operations that move dimensions and leave entries alone."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

from netsor import ir
from netsor.compilers.lift.data import factors
from netsor.compilers.lift.export import Size
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Atom, Constant, Data, Dim, Dims, Outputs, Parameter, Value, grouped, product


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
    """The sizes of the parts that an atom is taken apart into: ends of dimensions that fall inside it."""
    before = product(atoms[: list(atoms).index(atom)])
    ends = [before, *(product_of(sizes[: i + 1]) for i in range(len(sizes)))]
    inside = [e for e in dict.fromkeys(ends) if before[0] <= e[0] <= before[0] * atom.size[0]]
    return [(b[0] // a[0], b[1] // a[1]) for a, b in itertools.pairwise(inside)]


def product_of(sizes: Sequence[Size]) -> Size:
    return math.prod(s[0] for s in sizes), math.prod(s[1] for s in sizes)


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
    return len(x.order) if isinstance(x, Parameter) else len(x.sizes) if isinstance(x, Constant | Data) else len(x.dims)


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
        if L.grows(size):
            raise L.no_rule("a scalar is copied along a width", "let it broadcast: x / x.norm(dim=-1, keepdim=True)")
        dims[i] = factors(L.program, size, "copy", L.step.node)
        for axis in (a.axis for a in dims[i] if a.axis):
            expr = as_expr(L.program, Value((), expr)) * L.program.constant([1] * int(axis.size or 1), (axis,))
    return Value(tuple(dims), expr, v.power)


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


__all__ = ["mixed", "permuted", "rank", "tensor", "whole_axis", "with_dims"]
