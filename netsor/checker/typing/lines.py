"""Types and dimensions of one line (Definition A.1; NT1xx).

Checks: matrices are applied to vectors of their column dimension; coordinatewise functions take vectors of one width,
or data of one input; scalars and vectors are not confused; transposes are of matrices between widths; axes exist and
sizes agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from netsor import ir
from netsor.errors import Diagnostic
from netsor.sizes import fold


def line_diagnostics(line: ir.Line) -> Iterator[Diagnostic]:
    """All type errors of a line."""
    match line:
        case ir.InputMatrix():
            yield from _input_matrix(line)
        case ir.InputVector() | ir.InputScalar() | ir.Data():
            pass
        case ir.Trsp():
            yield from _trsp(line)
        case ir.MatMul():
            yield from _matmul(line)
        case ir.Nonlin() | ir.Moment():
            yield from _coordinatewise(line)
        case ir.IndexLine() | ir.Reduce():
            if line.of.kind == "A":
                yield _error(line, "NT102", f"{line.of} is a matrix: index forms are of vectors and scalars")
        case ir.Softmax():
            if line.of.kind != "C":
                yield _error(line, "NT108", f"softmax is of scalars, {line.of} is a vector")
        case _:
            assert_never(line)


def _error(line: ir.Line, code: str, message: str, hint: str | None = None) -> Diagnostic:
    return Diagnostic(code, "error", message, line.out.name, clause="Definition A.1", location=line.loc, hint=hint)


def _name(dimension: ir.Dimension | None) -> str:
    if dimension is None:
        return "none"
    return f"width {dimension.name}" if isinstance(dimension, ir.Width) else f"the features of {dimension.name}"


def _input_matrix(line: ir.InputMatrix) -> Iterator[Diagnostic]:
    if line.fan_in != "cols" and isinstance(line.out.cols, ir.Width):
        yield _error(
            line, "NT109",
            f"fan_in={line.fan_in} of {line.out} needs data columns: with a width the limit does not exist",
            'use fan_in="cols"',
        )  # fmt: skip


def _trsp(line: ir.Trsp) -> Iterator[Diagnostic]:
    if line.of.kind != "A":
        yield _error(line, "NT102", f"{line.of} is not a matrix: only matrices are transposed")
    elif isinstance(line.of.cols, ir.Feature) or isinstance(line.of.rows, ir.Feature):
        yield _error(
            line, "NT105",
            f"{line.of} is an embedding matrix (columns: {_name(line.of.cols)}): its transpose is no line",
            "gradients with respect to the data are not part of a program",
        )  # fmt: skip


def _matmul(line: ir.MatMul) -> Iterator[Diagnostic]:
    matrix, vector = line.matrix, line.vector
    if matrix.kind != "A":
        yield _error(line, "NT102", f"{matrix} is not a matrix: the left side of @ is a matrix")
    elif vector.kind in ("A", "C"):
        yield _error(line, "NT102", f"{vector} is not a vector: a matrix is applied to a vector")
    elif vector.rows is not None and vector.rows != matrix.cols:
        yield _error(
            line, "NT101",
            f"width mismatch: {matrix} has columns of {_name(matrix.cols)}, {vector} has {_name(vector.rows)}",
            f"make {matrix} with columns of {_name(vector.rows)}, or apply it to a vector of {_name(matrix.cols)}",
        )  # fmt: skip


def _coordinatewise(line: ir.Nonlin | ir.Moment) -> Iterator[Diagnostic]:
    for v in line.args:
        if v.kind not in ("G", "H", "X"):
            yield _error(line, "NT102", f"{v} is not a vector")
    for c in line.params:
        if c.kind != "C":
            yield _error(line, "NT108", f"{c} is not a scalar")
    known = [v for v in line.args if v.rows is not None and v.kind != "A"]
    for v in known[1:]:
        if v.rows != known[0].rows:
            yield _error(
                line, "NT101" if {v.kind, known[0].kind} <= {"G", "H"} else "NT106",
                f"width mismatch: {known[0]} has {_name(known[0].rows)}, {v} has {_name(v.rows)}",
                "vectors of different widths never meet in one coordinatewise function; use a matrix between them",
            )  # fmt: skip
            break
    yield from _sizes(line)


def _sizes(line: ir.Nonlin | ir.Moment) -> Iterator[Diagnostic]:
    seen: dict[ir.Axis, tuple[ir.Size, ir.Var]] = {}
    for v in (*line.args, *line.params):
        for d in v.dims:
            if d.size is None:  # a scan's state whose size is not known yet
                continue
            size, first = seen.setdefault(d.axis, (d.size, v))
            if size != d.size and _root(size) == _root(d.size):
                yield _error(
                    line, "NT107", f"sizes differ along axis {d.axis.name}: {first} has {size_text(size)}, {v} has"
                    f" {size_text(d.size)}", "after a stride or a pool an axis is smaller: window both alike",
                )  # fmt: skip


def _root(size: ir.Size) -> str | None:
    """The data axis that decides a size; sizes of different axes may turn out equal."""
    while isinstance(size, ir.Strided):
        size = size.of
    return size.axis if isinstance(size, ir.SizeOf) else None


def size_text(size: ir.Size) -> str:
    """A size as people write it."""
    return fold(size, str, "|{}|".format, _strided)


def _strided(of: str, minus: int, stride: int) -> str:
    return f"ceil(({of}{f' - {minus}' if minus else ''})/{stride})"
