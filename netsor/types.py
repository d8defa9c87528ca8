"""The variable that a line makes, as far as its arguments determine it: kind, dimensions, axes and sizes.

Listings write a variable's type and sizes only where they differ from what this file says.
"""

from __future__ import annotations

from typing import assert_never

from netsor import ir
from netsor.facts import merge_dims
from netsor.indexing import dims


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
        case ir.IndexLine():
            return _like(line.of, dims(line))
        case ir.Reduce():
            return _like(line.of, tuple(d for d in line.of.dims if d.axis != line.axis))
        case _:
            assert_never(line)


def _coordinatewise(line: ir.Nonlin) -> ir.Var:
    kind: ir.Kind = "X" if line.args and all(a.kind == "X" for a in line.args) else "H"
    rows = next((a.rows for a in line.args if a.rows is not None), None)
    return ir.Var("", kind, rows, None, merge_dims((*line.args, *line.params)))


def _like(of: ir.Var, dims: tuple[ir.Dim, ...]) -> ir.Var:
    return ir.Var("", of.kind if of.kind in ("C", "X") else "H", of.rows, None, dims)
