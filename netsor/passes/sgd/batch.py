"""A program on given samples: the batch is an axis, and nothing comes with the data any more.

Data ξ[s, …, k] are scalars over the axes sample and feature, and so are functions of data. With u_k = U e_k the columns
of an embedding matrix, U ξ = Σ_k ξ_k u_k: a family of input vectors of variance multiplier² · var/fan_in. When there
are more features than vectors ξ, these are written in an orthonormal basis of their span: the columns of U in any
orthonormal basis are i.i.d. alike, so no law changes, and neither do steps of gradient descent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, assert_never

import numpy as np
import sympy as sp

from netsor import ir
from netsor.build.program import Program
from netsor.build.quantity import nested
from netsor.errors import InputError, UnsupportedError
from netsor.facts import closure, fan_in, inputs_of
from netsor.functions import exact
from netsor.indexing import size_at
from netsor.passes.sgd.relabel import relabelled
from netsor.run.inputs import by_name

Array = np.ndarray[Any, Any]


class Batched:
    """`program`, its variables by those of p, the axis `sample`.

    `squares` are multiplier²/fan_in of the embedding matrices' columns, which their updates are multiplied by.
    """

    def __init__(self, p: Program, x: Any, frozen: frozenset[str] = frozenset()) -> None:
        self.source = p
        self.frozen = frozen
        self.given = given(p, x)
        self.count = len(next(iter(self.given.values())))
        self.sizes = axis_sizes(p, self.given)
        self.program = q = Program.from_parts(p.name, p.widths, (), functions=p.functions)
        self.axes = {a: q.axis(a.name, self.sizes.get(a.name)) for a in p.axes}
        self.sample = q.fresh_axis("sample", self.count)
        self.dependent = dependents(p.lines, self.given)
        self.squares: dict[ir.Var, sp.Expr] = {}
        self.columns: dict[ir.Dimension, int] = {}
        self.features = self._features()
        self.embeddings = {x.out for x in p.lines if isinstance(x, ir.MatMul) and x.vector.kind == "X"}
        self.vars: dict[ir.Var, ir.Var] = {}
        for line in p.lines:
            self.vars[line.out] = self._var(line.out)
        for line in p.lines:
            self._line(line)

    def _features(self) -> dict[ir.Dimension, ir.Axis]:
        """An axis for every network input, of its features or of a basis of the vectors given."""
        found: dict[ir.Dimension, ir.Axis] = {}
        for v, array in list(self.given.items()):
            if v.kind == "X" and v.rows is not None:
                self.columns[v.rows] = array.shape[-1]
                if _only_linear(self.source):
                    self.given[v] = in_span(array)
                found[v.rows] = self.program.fresh_axis(f"{v.name}_feature", self.given[v].shape[-1])
        return found

    # ------------------------------------------------------------ variables

    def _dims(self, v: ir.Var) -> tuple[ir.Dim, ...]:
        own = tuple(ir.Dim(self.axes[d.axis], size_at(d.size, self.sizes)) for d in v.dims)
        batch = (ir.Dim(self.sample, self.count),) if v in self.dependent else ()
        return (*batch, *own, *self._feature(v.rows if v.kind == "X" else v.cols))

    def _feature(self, of: ir.Dimension | None) -> tuple[ir.Dim, ...]:
        axis = None if of is None else self.features.get(of)
        return () if axis is None or axis.size is None else (ir.Dim(axis, axis.size),)

    def _var(self, v: ir.Var) -> ir.Var:
        dims, name = self._dims(v), None if self.source.is_unnamed(v) else v.name
        if v.kind == "X":
            return self.program.new_var(name, "C", None, None, dims)
        if isinstance(v.cols, ir.Feature):
            return self.program.new_var(name, "G", v.rows, None, dims)
        kind: ir.Kind = "H" if v in self.embeddings else v.kind
        return self.program.new_var(name, kind, v.rows, v.cols, dims)

    # ------------------------------------------------------------ lines

    def _line(self, line: ir.Line) -> None:
        match line:
            case ir.Data():
                self._constant(line)
            case ir.InputScalar() if line.out in self.given:
                self._constant(line)
            case ir.InputMatrix() if isinstance(line.out.cols, ir.Feature):
                self._columns_of(line)
            case ir.InputMatrix() | ir.InputVector():
                trained = line.trainable and line.out.name not in self.frozen
                self.program.add(self._copy(replace(line, trainable=trained)))
            case ir.MatMul() if line.vector.kind == "X":
                self._embedding(line)
            case ir.Nonlin() if line.out.kind == "X":
                self._of_data(line)
            case (
                ir.InputScalar() | ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment() | ir.IndexLine() | ir.Reduce()
                | ir.Softmax()
            ):  # fmt: skip
                self.program.add(self._copy(line))
            case _:
                assert_never(line)

    def _copy(self, line: ir.Line) -> ir.Line:
        return relabelled(line, self.vars.__getitem__, lambda a: self.axes.get(a, a))

    def _constant(self, line: ir.Data | ir.InputScalar) -> None:
        values = nested(line.out.name, self.given[line.out])
        self.program.add(ir.InputScalar(self.vars[line.out], values, False, line.loc))

    def _columns_of(self, line: ir.InputMatrix) -> None:
        cols = self.columns[line.out.cols] if line.out.cols is not None else 1
        self.squares[self.vars[line.out]] = square = exact(line.multiplier) ** 2 / exact(fan_in(line, cols))
        trained = line.trainable and line.out.name not in self.frozen
        var = number(square * exact(line.var))
        self.program.add(ir.InputVector(self.vars[line.out], 0, var, 1, trained, loc=line.loc))

    def _embedding(self, line: ir.MatMul) -> None:
        p, out = self.program, self.vars[line.out]
        product = (p.handle(self.vars[line.matrix]) * p.handle(self.vars[line.vector])).var
        p.add(ir.Reduce(out, product, self.features[line.vector.rows], "sum", line.loc))  # type: ignore[index]

    def _of_data(self, line: ir.Nonlin) -> None:
        """A function of data, of scalars now."""
        table = {ir.arg(i): ir.param(len(line.params) + i) for i in range(len(line.args))}
        params = tuple(self.vars[v] for v in (*line.params, *line.args))
        self.program.add(ir.Moment(self.vars[line.out], line.expr.xreplace(table), (), params, line.loc))


# ---------------------------------------------------------------- arrays


def number(value: sp.Expr) -> ir.Number:
    """An exact number for a line: an int or a Fraction, a float where it is irrational."""
    if isinstance(value, sp.Rational):
        return int(value.p) if value.q == 1 else Fraction(int(value.p), int(value.q))
    return float(value)


def given(p: Program, x: Any) -> dict[ir.Var, Array]:
    """The arrays `[sample, *axes, feature]` of everything that comes with the data."""
    lines = [
        line.out for line in p.lines
        if isinstance(line, ir.Data) or (isinstance(line, ir.InputScalar) and (line.per_sample or line.limit is None))
    ]  # fmt: skip
    named = by_name([v.name for v in lines], x)
    arrays = {v: array(v.name, named[v.name], len(v.dims) + 1 + (v.kind == "X")) for v in lines}
    counts = {v.name: len(a) for v, a in arrays.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        text = ", ".join(f"{name} has {n}" for name, n in counts.items())
        raise InputError(f"training takes inputs of equally many samples, at least one: {text or 'none'}", code="NT602")
    return arrays


def array(name: str, value: Any, ndim: int) -> Array:
    """A finite array of floats of this rank."""
    if ragged(value):
        raise UnsupportedError(
            f"the samples of {name} have different sizes; training takes samples of one size", code="NT634",
            hint="pad them to one size, with a mask as a second input where the program is to know it",
        )  # fmt: skip
    try:
        if np.iscomplexobj(value):
            raise ValueError("its numbers are complex")
        found: Array = np.asarray(value, dtype=float)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} is not an array of numbers: {error}", code="NT601") from None
    if found.ndim != ndim:
        raise InputError(f"{name} has shape {list(found.shape)} where {ndim} dimensions are expected", code="NT601")
    if not np.isfinite(found).all():
        sample = int(np.argwhere(~np.isfinite(found))[0][0])
        raise InputError(f"sample {sample} of {name} is not finite", code="NT603")
    return found


def ragged(value: Any) -> bool:
    """Is it a list of arrays of different shapes?"""
    if not isinstance(value, list | tuple):
        return False
    try:
        return len({np.shape(v) for v in value}) > 1
    except ValueError:  # a sample that is no array itself
        return False


def axis_sizes(p: Program, arrays: Mapping[ir.Var, Array]) -> dict[str, int]:
    """The sizes of the axes that the arrays decide, and of all others that are known."""
    sizes = {a.name: a.size for a in p.axes if a.size is not None}
    for v, values in arrays.items():
        for d, size in zip(v.dims, values.shape[1:], strict=False):
            if sizes.setdefault(d.axis.name, size) != size:
                raise InputError(
                    f"the axis {d.axis.name} of {v} has size {size}, expected {sizes[d.axis.name]}", code="NT602"
                )
    return sizes


def in_span(x: Array) -> Array:
    """Vectors `[…, feature]` by their coordinates in an orthonormal basis, where there are fewer of them."""
    rows = x.reshape(-1, x.shape[-1])
    if rows.shape[1] <= rows.shape[0]:
        return x
    return np.linalg.qr(rows.T)[1].T.reshape(*x.shape[:-1], -1)


def _only_linear(p: Program) -> bool:
    """Is nothing done to data but what is linear and the same for every feature?"""
    applied = [x for x in p.lines if isinstance(x, ir.Nonlin) and x.out.kind == "X"]
    largest = [x for x in p.lines if isinstance(x, ir.Reduce) and x.op == "max" and x.of.kind == "X"]
    return not applied and not largest


def joined(p: Program, inputs: Any, tests: Any) -> tuple[Any, int]:
    """The training samples and then the test samples, and how many of the first there are."""
    first = given(p, inputs)
    count = len(next(iter(first.values())))
    second = first if tests is None else given(p, tests)
    for v, values in first.items():
        if values.shape[1:] != second[v].shape[1:]:
            raise InputError(
                f"{v} has shape {list(values.shape[1:])} in training samples and {list(second[v].shape[1:])} in test"
                " samples", code="NT602",
            )  # fmt: skip
    if tests is None:
        return {v.name: values for v, values in first.items()}, count
    return {v.name: np.concatenate([values, second[v]]) for v, values in first.items()}, count


def dependents(lines: Iterable[ir.Line], start: Iterable[ir.Var]) -> set[ir.Var]:
    """The given variables and all that are computed from them, through scans too."""
    readers: dict[ir.Var, list[ir.Var]] = {}
    for line in lines:
        for v in inputs_of(line):
            readers.setdefault(v, []).append(line.out)
    return closure(start, lambda v: readers.get(v, ()))
