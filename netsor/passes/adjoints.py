"""Adjoints of lines: what the gradient of a line's variable adds to the gradients of its arguments.

With dy = √n_out ∂f/∂y for vectors and dc = (∂f/∂c)/√n_out for scalars (one scale for the whole program):

    y = W z            dz += Wᵀ dy
    y = φ(x; c)        dx += ∂φ/∂x ⊙ dy                       dc += (n_y/n_out) moment(∂φ/∂c ⊙ dy)
    m = moment(φ(x;c)) dx += (n_out/n_x) dm ∂φ/∂x              dc += dm moment(∂φ/∂c)
    softmax, a = s(c)  dc += a ⊙ (da − Σ a ⊙ da)
    window ↔ unwindow, at ↔ place, shift by t ↔ shift by −t, rename ↔ its inverse,
    sum ↔ broadcast, mean ↔ broadcast / size, y = max x: dx += dy ⊙ m / Σ m, m = 1 − sign(y − x)²

Lines that broadcast (W z, φ, moment, softmax) sum over the axes that y has and the argument lacks. A gradient may lack
axes that its variable has: it is then constant along them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import assert_never, cast

import sympy as sp

from netsor import facts, functions, indexing, ir
from netsor.build import constants
from netsor.build.constants import free_name
from netsor.build.expressions import Expr, Matrix
from netsor.build.program import Program, moment
from netsor.errors import TooLargeError, UnsupportedError
from netsor.indexing import index_map
from netsor.measure import MOST_NODES, derivative_size
from netsor.passes.differentiation import differentiated

Contribution = tuple[ir.Var, Expr]


class Adjoints:
    """The adjoint rules of one program; keeps the constants that they share (sizes, transposes)."""

    def __init__(self, p: Program, n_out: ir.Width) -> None:
        self.p = p
        self.n_out = n_out
        self.made = {line.out: line for line in p.lines}
        self._transposes: dict[ir.Var, Matrix] = {v: Matrix(p, t) for v, t in facts.transposes(p.lines).items()}
        self._ones: dict[ir.Dim, Expr] = {}
        self._sizes: dict[ir.Dim, Expr] = {}
        self._unit: dict[ir.Dimension, Expr] = {}

    # ------------------------------------------------------------ constants

    def ratio(self, width: ir.Dimension | None) -> sp.Expr:
        """n_out / width."""
        return functions.exact(self.n_out.ratio) / functions.exact(facts.ratio(width))

    def one(self, dim: ir.Dim) -> Expr:
        """The scalar 1 as a family over one axis."""
        if dim not in self._ones:
            self._ones[dim] = constants.one(self.p, dim)
        return self._ones[dim]

    def size(self, dim: ir.Dim) -> Expr | int:
        """The size of an axis: a number, or Σ 1 over the axis when the data decides."""
        if isinstance(dim.size, int):
            return dim.size
        if dim not in self._sizes:
            self._sizes[dim] = constants.size(self.p, dim)
        return self._sizes[dim]

    def unit(self, width: ir.Dimension) -> Expr:
        """The vector of ones."""
        if width not in self._unit:
            self._unit[width] = self.p.vector(free_name(self.p, f"one_{width.name}"), width, mean=1, var=0)
        return self._unit[width]

    def transpose(self, matrix: ir.Var) -> Matrix:
        if matrix not in self._transposes:
            wt = self.p.let(free_name(self.p, f"{matrix.name}t"), Matrix(self.p, matrix).T)
            self._transposes |= {matrix: wt, wt.var: Matrix(self.p, matrix)}
        return self._transposes[matrix]

    # ------------------------------------------------------------ axes

    def along(self, g: Expr, *dims: ir.Dim) -> Expr:
        """g with the given axes: constant along those that it lacked."""
        for dim in dims:
            if dim.axis not in g.axes:
                g = g * self.one(dim)
        return g

    def collapse(self, g: Expr, y: ir.Var, x: ir.Var) -> Expr:
        """Σ over the axes that y has and x lacks."""
        for dim in y.dims:
            if dim.axis not in x.axes:
                g = g.sum(dim.axis) if dim.axis in g.axes else g * self.size(dim)
        return g

    # ------------------------------------------------------------ rules

    def of(self, line: ir.Line, dy: Expr) -> Iterable[Contribution]:
        """Contributions to the gradients of the line's arguments."""
        match line:
            case ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data() | ir.Trsp():
                return ()  # no arguments to differentiate
            case ir.MatMul():
                return self._matmul(line, dy)
            case ir.Nonlin():
                return self._nonlin(line, dy)
            case ir.Moment():
                return self._moment(line, dy)
            case ir.Softmax():
                return [(line.of, self._softmax(line, dy))]
            case ir.Reduce():
                return [(line.of, self._reduce(line, dy))]
            case ir.IndexLine():
                return [(line.of, self._index_form(line, dy))]
            case _:
                assert_never(line)

    def _matmul(self, line: ir.MatMul, dy: Expr) -> Iterator[Contribution]:
        if line.vector.kind != "X":
            yield line.vector, self.collapse(self.transpose(line.matrix) @ dy, line.out, line.vector)

    def _softmax(self, line: ir.Softmax, dy: Expr) -> Expr:
        a = self.p.handle(line.out)
        weighted = a * dy
        mean = weighted.sum(line.axis) if line.axis in weighted.axes else weighted
        return self.collapse(a * (dy - mean), line.out, line.of)

    def _nonlin(self, line: ir.Nonlin, dy: Expr) -> Iterator[Contribution]:
        for i, x in enumerate(line.args):
            yield x, self.collapse(self._partial(line, ir.arg(i)) * dy, line.out, x)
        for j, c in enumerate(line.params):
            slope = self._partial(line, ir.param(j)) * dy / self.ratio(line.out.rows)
            if slope.sym != 0:
                yield c, self.collapse(moment(slope), line.out, c)

    def _moment(self, line: ir.Moment, dm: Expr) -> Iterator[Contribution]:
        for i, x in enumerate(line.args):
            slope = self._partial(line, ir.arg(i)) * self.ratio(x.rows)
            yield x, self.collapse(slope * dm, line.out, x)
        for j, c in enumerate(line.params):
            slope = self._partial(line, ir.param(j))
            average = slope if slope.rows is None else moment(slope)
            yield c, self.collapse(average * dm, line.out, c)

    def _partial(self, line: ir.Nonlin | ir.Moment, symbol: sp.Symbol) -> Expr:
        """∂φ/∂symbol of a line's function, in the program's variables."""
        slope = derivative(line.expr, symbol)
        return Expr(self.p, self.p.pending(_with(line, slope)))

    def _reduce(self, line: ir.Reduce, dy: Expr) -> Expr:
        dim = next(d for d in line.of.dims if d.axis == line.axis)
        match line.op:
            case "sum":
                return dy
            case "mean":
                return dy / self.size(dim)
            case "max":
                x, y = self.p.handle(self._whole(line.of)), self.p.handle(line.out)
                largest = 1 - functions.sign(y - x) ** 2
                count = 1 + functions.relu(largest.sum(line.axis) - 1)  # at least 1, as the checker can see
                return dy * largest / count

    def _whole(self, x: ir.Var) -> ir.Var:
        """x; a window that drops positions is taken with zero vectors there (its adjoint ignores them)."""
        line = self.made[x]
        if isinstance(line, ir.Window) and line.outside == "drop":
            return self.p.add(dataclasses.replace(line, out=self._like(x, x.dims), outside="zero", loc=None)).var
        return x

    # ------------------------------------------------------------ index forms

    def _index_form(self, line: ir.IndexForm, dy: Expr) -> Expr:
        """Lᵀ dy; where dy is constant along all axes that L renames or places on, so is the gradient."""
        m = index_map(line)
        meets = [r.axis if m.transposed else r.at for r in m.reads]
        if m.outside != "never":
            dy = self.along(dy, *(d for d in line.out.dims if d.axis in meets or d.axis == m.tap))
        elif None not in meets and not any(a in dy.axes for a in meets):
            return dy
        source = dy.var
        dims = indexing.dims(indexing.adjoint(line, line.of, source))
        out = self._like(source, tuple(_resized(d, line.of) for d in dims))
        return self.p.add(indexing.adjoint(line, out, source))

    def _like(self, x: ir.Var, dims: tuple[ir.Dim, ...]) -> ir.Var:
        return self.p.new_var(None, "C" if x.kind == "C" else "H", x.rows, None, dims)


def _resized(dim: ir.Dim, like: ir.Var) -> ir.Dim:
    """The axis at the size that another variable has along it."""
    return ir.Dim(dim.axis, next((d.size for d in like.dims if d.axis == dim.axis), dim.size))


def _with(line: ir.Nonlin | ir.Moment, expr: sp.Expr) -> ir.Nonlin:
    return ir.Nonlin(line.out, expr, line.args, line.params)


@lru_cache(maxsize=1 << 14)
def derivative(expr: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """∂expr/∂symbol almost everywhere, in the functions of the language (kinks give a step or a sign)."""
    if derivative_size(expr) > MOST_NODES:
        raise TooLargeError("the derivative of a line is too large to be written")
    slope = differentiated(expr, symbol)
    slope = slope.replace(sp.Heaviside, lambda x, *_: functions.step.head(x))
    slope = slope.replace(sp.sign, lambda x: functions.sign.head(x))
    return cast(sp.Expr, slope.replace(sp.Derivative, lambda *_: sp.Integer(0)))  # floor and ceiling


def refuse_data(line: ir.Line, active: set[ir.Var]) -> None:
    """Scalars that depend on trained arrays and multiply data have a gradient that is no line."""
    if isinstance(line, ir.MatMul) and line.vector.kind == "X" and line.vector in active:
        raise UnsupportedError(
            f"the gradient of the scalars in {line.vector} passes through the data", code="NT702",
            variable=line.out.name, location=line.loc,
            hint="apply the matrix to the data first, then multiply the embedding by the scalar",
        )  # fmt: skip
