"""Matrices applied to vectors, data and each other's results: linear, matmul, embedding."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import sympy as sp

from netsor import ir
from netsor.build.expressions import Expr, Matrix
from netsor.compilers.lift.layout import marked
from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.rules.dimensions.parts import part, taken
from netsor.compilers.lift.rules.dimensions.shapes import mixed
from netsor.compilers.lift.rules.elementwise import combined, times
from netsor.compilers.lift.rules.products import values_product
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import (
    Atom,
    Constant,
    Data,
    Dim,
    Dims,
    Outputs,
    Parameter,
    Placed,
    Term,
    Value,
    axis_atom,
    grouped,
    product,
    renamed,
)


def placed(
    L: Lifter, w: Parameter, rows: int, cols: Dim | Expr, features: int | None = None, taps: ir.Axis | None = None,
    lookup: bool = False, padding: int | None = None, apart: int = 0,
) -> tuple[Placed, Matrix]:  # fmt: skip
    """The matrix of a parameter whose dimension `rows` is free: made once, transposed when it is read the other way."""
    L.arrays.law(w.name, L.step.node, padding)
    if w.name in L.readouts or w.name in L.vectors:
        raise shared_readout(L, w.name)
    known = L.matrices.get(w.name)
    if known is None:
        known = L.matrices[w.name] = _made(L, w, rows, cols, features, taps, lookup, padding, apart)
    width = L.wide(_one_wide(L, cols)) if isinstance(cols, tuple) else cols.rows
    turned = known.matrix if known.row_dim == rows else known.matrix.T
    theirs = known.cols if known.row_dim == rows else known.rows
    if isinstance(cols, tuple) and theirs:
        _same_parts(L, cols, theirs)
    if turned.var.cols != width or (isinstance(cols, tuple) and [a.size for a in cols] != [a.size for a in theirs]):
        raise L.no_rule(
            f"the parameter {w.name} is applied to different things (another input, other axes)",
            "one parameter is one matrix: apply it to inputs of one kind, concatenated along a finite axis if need be",
        )
    return known, turned


def _same_parts(L: Lifter, mine: Dim, theirs: Dim) -> None:
    """A width that one use takes in parts is in parts for all."""
    for one, other in ((mine, theirs), (theirs, mine)):
        if len(one) == 1 and len(other) > 1:
            raise L.split(one[0], [a.size for a in other])


def shared_readout(L: Lifter, name: str) -> Exception:
    return L.refuse(
        "NT819", f"{name} is the output layer and is used elsewhere",
        "the readout is independent of the network that it reads (Simple GIA Check): give the output its own parameter",
    )  # fmt: skip


def _one_wide(L: Lifter, atoms: Dim) -> Atom:
    wide = [a for a in atoms if a.kind == "wide"]
    if len(wide) != 1:
        raise L.refuse(
            "NT812", "a matrix is applied to a dimension of finite size",
            "a finite layer between wide ones keeps its random values: give it the width",
        )  # fmt: skip
    return wide[0]


def _made(
    L: Lifter,
    w: Parameter,
    rows: int,
    cols: Dim | Expr,
    features: int | None,
    taps: ir.Axis | None,
    lookup: bool,
    padding: int | None,
    apart: int,
) -> Placed:
    """Declare the matrix: axes of its rows (heads, gates), of the columns (positions) and taps are axes of a family.

    The first `apart` axes of the columns are not summed.
    """
    found = L.rows_of(w.name, rows, w.sizes[rows])
    width = L.wide(_one_wide(L, found))
    columns: Dim = cols if isinstance(cols, tuple) else ()
    summed = [ir.Dim(a.axis, a.size[0]) for a in columns if a.axis]
    summed += [ir.Dim(taps, taps.size)] if taps is not None and taps.size is not None else []
    axes = [*summed, *(ir.Dim(a.axis, a.size[0]) for a in found if a.axis)]
    count = math.prod(cast(int, dim.size) for dim in summed[apart:])
    source = L.wide(_one_wide(L, cols)) if isinstance(cols, tuple) else cols
    W, power = L.arrays.matrix(
        w.name, L.label(w.name), width, source, features, axes, count, lookup, L.step.node, padding
    )  # fmt: skip
    seen = marked(columns, "cols") if columns else (Atom("cols", w.sizes[1 - rows]),)
    dims = (marked(found, "rows"), seen) if rows == 0 else (seen, marked(found, "rows"))
    extra: Dims = ((axis_atom(taps),),) if taps is not None else ()
    L.lay(W, w.name, (*dims, *extra))
    return Placed(W, power, rows, found, columns, taps)


def applied_to(
    L: Lifter, w: Parameter, x: Any, dim: int, rows: int, taps: ir.Axis | None = None, summed: bool = True
) -> Value:  # fmt: skip
    """Σ over dimension `dim` of x (and the taps): the result has the rows in its place."""
    if isinstance(x, Data):
        return _to_data(L, w, x, dim, rows)
    v = L.value(x)
    place = dim % len(v.dims)
    if any(a.kind == "sample" for a in v.dims[place]):
        raise mixed(L)
    _one_wide(L, v.dims[place])
    entry, M = placed(L, w, rows, v.dims[place], taps=taps)
    inner, outer = (entry.cols, entry.rows) if entry.row_dim == rows else (entry.rows, entry.cols)
    table = {a.axis: b.axis for a, b in zip(v.dims[place], inner, strict=True) if a.axis and b.axis}
    table |= {taps: entry.taps} if taps is not None and entry.taps is not None else {}
    here = {a.axis for a in outer if a.axis}
    table |= {
        a.axis: L.program.fresh_axis(a.axis.name, a.size[0])
        for a in v.atoms
        if a.axis in here and a.axis not in table and a.axis
    }
    v = renamed(v, table)
    expr = _product(L, M, v)
    result = tuple(replace(a, rows=a.rows | {(w.name, rows)}) for a in outer)
    for axis in (a.axis for a in v.dims[place] if a.axis):
        expr = expr.sum(axis)
    if taps is not None and summed:
        expr = expr.sum(entry.taps or taps)
    dims = tuple(result if i == place else d for i, d in enumerate(v.dims))
    return Value(dims, expr, v.power + entry.power)


def _product(L: Lifter, M: Matrix, v: Value) -> Any:
    if not isinstance(v.expr, Expr):
        if v.expr == 0:
            return Expr(L.program, sp.Integer(0))
        raise L.no_rule("a matrix is applied to a constant vector", "start from a parameter: a vector of the width")
    return M @ v.expr


def _to_data(L: Lifter, w: Parameter, x: Data, dim: int, rows: int) -> Value:
    place = dim % len(x.sizes)
    if w.sizes[rows][0] == w.sizes[rows][1]:
        raise L.refuse(
            "NT812",
            f"{w.name} maps data to a finite dimension",
            "the first layer has the width; fixed maps are constants",
        )
    data, dims = L.data.features(x, place, w.name, L.step.node)
    entry, M = placed(L, w, rows, data, x.sizes[place][0])
    new = tuple(entry.rows if i == place else d for i, d in enumerate(dims))
    return Value(new, M @ data, entry.power)


def read_out(L: Lifter, w: Parameter, x: Any, dim: int, rows: int) -> Outputs:
    """The output Σ V x over a width (and positions): V's other dimension indexes i.i.d. outputs."""
    if isinstance(x, Data):
        raise L.refuse("NT812", f"{w.name} maps data to a finite dimension", "the first layer has the width")
    v = L.value(x)
    place = dim % len(v.dims)
    if w.name in L.matrices or w.name in L.vectors:
        raise shared_readout(L, w.name)
    wide = _one_wide(L, v.dims[place])
    if w.name not in L.readouts:
        axes = tuple(a.axis for a in v.dims[place] if a.axis)
        count = product([a for a in v.dims[place] if a.axis])[0]
        L.readouts[w.name] = L.arrays.readout(w.name, L.label(w.name), L.wide(wide), axes, count, L.step.node)
        L.lay(L.readouts[w.name][0], w.name, (marked(v.dims[place], "rows"),), rows)
    readout, power = L.readouts[w.name]
    if not isinstance(v.expr, Expr):
        raise L.no_rule("the readout of a constant")
    out: Dim = (Atom("out", w.sizes[rows]),)
    dims = tuple(out if i == place else d for i, d in enumerate(v.dims))
    return Outputs(dims, (Term(w.name, readout, v.expr, sp.Integer(1), v.power + power),))


def contract(L: Lifter, w: Parameter, x: Any, dim: int, cols: int) -> Any:
    """w's dimension `cols` (its own number) against dimension `dim` of x."""
    if len(w.sizes) != 2:
        raise L.no_rule(f"the parameter {w.name} has {len(w.sizes)} dimensions", "matrices have two")
    if isinstance(x, Parameter):
        x = L.value(x) if len(x.sizes) == 1 else _matrices(L, w, x)
    if isinstance(x, Outputs):
        raise L.refuse(
            "NT812", f"{w.name} is applied to the output of a readout",
            "a finite layer between wide ones keeps its random values: give it the width",
        )  # fmt: skip
    if w.cut is not None:
        return _part_of(L, w, x, dim, cols)
    rows = 1 - cols
    growing = w.sizes[rows][0] != w.sizes[rows][1]
    return applied_to(L, w, x, dim, rows) if growing else read_out(L, w, x, dim, rows)


def _part_of(L: Lifter, w: Parameter, x: Any, dim: int, cols: int) -> Value:
    """Some rows of a matrix: a part of what all of it gives."""
    assert w.cut is not None
    own, start, size = w.cut
    y = contract(L, replace(w, cut=None), x, dim, cols)
    if own == cols or not isinstance(y, Value):
        raise L.no_rule(f"a part of the columns of {w.name}, or of a readout", "a parameter for each part")
    return part(L, y, dim % len(y.dims), start, size)


def _matrices(L: Lifter, a: Parameter, b: Parameter) -> Any:
    raise L.refuse(
        "NT824", f"the matrices {a.name} and {b.name} are multiplied",
        "a program applies matrices to vectors: apply them one after the other, W(Vx)",
    )  # fmt: skip


@rule("linear")
def _linear(L: Lifter, x: Any, w: Any, b: Any = None) -> Any:
    if not isinstance(w, Parameter):
        raise L.no_rule("a matrix that is computed", "matrices are parameters as they are")
    cols = w.order[1]
    assert cols is not None
    y = contract(L, w, x, -1, cols)
    return y if b is None else with_bias(L, y, b)


def with_bias(L: Lifter, y: Any, b: Any) -> Any:
    if isinstance(y, Outputs) and isinstance(b, Parameter):
        return Outputs(y.dims, (*y.terms, Term(b.name, None, None, sp.Integer(1))))
    return combined(L, y, b, lambda s, t: s + t)


@rule("matmul", "mm", "bmm", "mv", "dot")
def _matmul(L: Lifter, a: Any, b: Any) -> Any:
    if isinstance(b, Parameter) and len(b.sizes) == 2:
        if isinstance(a, Parameter) and len(a.sizes) == 2:
            return _matrices(L, a, b)
        assert b.order[0] is not None
        return contract(L, b, a, -1, b.order[0])
    if isinstance(a, Parameter) and len(a.sizes) == 2:
        assert a.order[1] is not None
        y = contract(L, a, b, -2 if _rank(b) > 1 else -1, a.order[1])
        return y
    return values_product(L, L.value(a), L.value(b))


def _rank(x: Any) -> int:
    return len(x.order) if isinstance(x, Parameter) else len(x.sizes) if isinstance(x, Data | Constant) else len(x.dims)


@rule("addmm", "baddbmm")
def _addmm(L: Lifter, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    y = _matmul(L, a, b)
    y = y if alpha == 1 else times(L, y, alpha)
    if beta != 1:
        c = times(L, c, beta)
    return with_bias(L, y, c)


@rule("embedding")
def _embedding(L: Lifter, w: Any, ids: Any, padding: int = -1, *_: Any, **__: Any) -> Value:
    """Rows of a table: one-hot data, without division by the number of rows; padding is the zero vector."""
    if isinstance(w, Parameter) and isinstance(ids, Constant) and padding < 0:
        return _positions(L, w, ids)
    if not isinstance(w, Parameter) or w.cut is not None or not isinstance(ids, Data):
        raise L.no_rule(
            "a table or indices that are computed from parameters", "tables are parameters, indices are data"
        )
    zero = padding if padding >= 0 else None
    data, dims = L.data.features(ids, -1, w.name, L.step.node, w.sizes[0][0], zero)
    entry, M = placed(L, w, 1, data, w.sizes[0][0], lookup=True, padding=zero)
    return Value((*dims, entry.rows), M @ data, entry.power)


def _positions(L: Lifter, w: Parameter, ids: Constant) -> Value:
    """Rows of a table at fixed positions: a family of vectors."""
    v, flat = L.value(w), [int(i) for i in ids.values[0].flatten()]
    found = taken(L, v, 0, flat)
    sizes = [*ids.sizes, (1, 1)]
    dims = grouped(found.dims[0], ids.sizes)
    if isinstance(dims, Atom):
        raise L.no_rule(f"a table read at positions of the shape {[s[0] for s in sizes]}", "positions in one dimension")
    return replace(found, dims=(*dims, *found.dims[1:]))


__all__ = ["applied_to", "contract", "placed", "read_out", "with_bias"]
