"""The variable that a line makes, as far as its arguments determine it: kind, dimensions, axes and sizes.

Listings write a variable's type and sizes only where they differ from what this file says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from netsor import ir
from netsor.facts import axis_dim, merge_dims
from netsor.windows import strided


def inferred(line: ir.Line) -> ir.Var | None:
    """A variable like the one that the line makes; None for inputs, whose declaration says everything."""
    match line:
        case ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data():
            return None
        case ir.Trsp():
            return ir.Var("", "A", line.of.cols, line.of.rows, line.of.dims)
        case ir.MatMul():
            return ir.Var("", "G", line.matrix.rows, None, merge_dims((line.vector, line.matrix)))
        case ir.Nonlin():
            return _coordinatewise(line)
        case ir.Moment():
            return ir.Var("", "C", None, None, merge_dims((*line.args, *line.params)))
        case ir.Softmax():
            return ir.Var("", "C", None, None, merge_dims((line.of,) if line.mask is None else (line.of, line.mask)))
        case ir.Window() | ir.Unwindow() | ir.At() | ir.Place() | ir.Shift() | ir.Rename() | ir.Reduce():
            return _like(line.of, _index_form(line))
        case _:
            assert_never(line)


def _coordinatewise(line: ir.Nonlin) -> ir.Var:
    kind: ir.Kind = "X" if line.args and all(a.kind == "X" for a in line.args) else "H"
    rows = next((a.rows for a in line.args if a.rows is not None), None)
    return ir.Var("", kind, rows, None, merge_dims((*line.args, *line.params)))


def _like(of: ir.Var, dims: tuple[ir.Dim, ...]) -> ir.Var:
    return ir.Var("", of.kind if of.kind in ("C", "X") else "H", of.rows, None, dims)


def _index_form(line: ir.IndexForm | ir.Reduce) -> tuple[ir.Dim, ...]:
    dims = line.of.dims
    match line:
        case ir.Window():
            table = dict(zip(line.axes, line.stride, strict=True))
            kept = tuple(ir.Dim(d.axis, strided(d.size, 0, table.get(d.axis, 1))) for d in dims)
            return (*kept, ir.Dim(line.tap, len(line.offsets)))
        case ir.Unwindow():
            return tuple(axis_dim(d.axis) if d.axis in line.axes else d for d in dims if d.axis != line.tap)
        case ir.At() | ir.Reduce():
            return tuple(d for d in dims if d.axis != line.axis)
        case ir.Place():
            return (*dims, axis_dim(line.axis))
        case ir.Shift():
            return dims
        case ir.Rename():
            return renamed(dims, dict(line.axes))
        case _:
            assert_never(line)


def renamed(dims: tuple[ir.Dim, ...], table: Mapping[ir.Axis, ir.Axis]) -> tuple[ir.Dim, ...]:
    """The dims with axes renamed; sizes stay."""
    return tuple(ir.Dim(table.get(d.axis, d.axis), d.size) for d in dims)
