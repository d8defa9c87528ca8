"""Handles of the DSL: pending expressions of vectors and scalars, and matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import sympy as sp

from netsor import ir
from netsor.build import hints
from netsor.build.windows import resolve
from netsor.errors import ProgramError, caller_location
from netsor.facts import merge_dims, transposes
from netsor.functions import Function, constant, exact, proposed
from netsor.text.readings import Readings
from netsor.types import inferred

if TYPE_CHECKING:
    from netsor.build.program import Program


def _error(message: str, code: str, hint: str | None = None) -> ProgramError:
    return ProgramError(message, code=code, hint=hint, location=caller_location())


class Expr:
    """A pending expression: vectors of one width (or data, or scalars only), combined coordinatewise.

    >>> p = ns.programs.mlp()
    >>> ns.tanh(p["x1"] + 2 * p["x2"])
    tanh(x1 + 2*x2)
    """

    __slots__ = ("program", "sym")
    __array_ufunc__ = None  # numpy scalars leave arithmetic to us

    def __init__(self, program: Program, sym: sp.Expr) -> None:
        self.program = program
        self.sym = sym

    # ------------------------------------------------------------ what it is

    @property
    def var(self) -> ir.Var:
        """The variable; a pending expression becomes a line."""
        return self.program.var_of(self)

    @property
    def rows(self) -> ir.Dimension | None:
        """The width (or data dimension); None for scalars."""
        args, _ = self.program.split(self.sym)
        return next((a.rows for a in args if a.rows is not None), None)

    @property
    def axes(self) -> tuple[ir.Axis, ...]:
        args, params = self.program.split(self.sym)
        return tuple(d.axis for d in merge_dims(args + params))

    @property
    def dims(self) -> tuple[ir.Dim, ...]:
        """The axes with this variable's own sizes; `axes=x.dims` makes a family of the same shape."""
        return self.var.dims

    @property
    def name(self) -> str:
        return self.var.name

    def __repr__(self) -> str:
        names = {s: sp.Symbol(self.program.var_of_symbol(s).name) for s in self.sym.free_symbols}
        return Readings(self.program).within(str(self.sym.xreplace(names)))

    __hash__ = object.__hash__

    # ------------------------------------------------------------ arithmetic

    def __netsor_apply__(self, function: Function, args: Sequence[Any]) -> Expr:
        """φ(args) as a pending expression."""
        first, *rest = [a for a in args if isinstance(a, Expr)]
        for other in rest:
            first.fits(other)
        first.program.register(function)
        return Expr(first.program, function.sym(*(a.sym if isinstance(a, Expr) else exact(a) for a in args)))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "f")
        instead = proposed(function)
        raise _error(
            f"torch's {name} takes tensors: an expression of a program is none", "NT108",
            f"write ns.{instead}(x)" if instead else "ns.function(name, lambda x: …) makes a function of an expression",
        )  # fmt: skip

    def _combine(self, other: object, op: Callable[[Any, Any], Any]) -> Expr:
        if isinstance(other, Matrix):
            raise _error(f"a vector is not multiplied by the matrix {other.var} coordinatewise", "NT102", "write W @ x")
        if isinstance(other, Expr):
            if other.program is not self.program:
                raise _error("the expressions belong to different programs", "NT108")
            self.fits(other)
            return Expr(self.program, op(self.sym, other.sym))
        return Expr(self.program, op(self.sym, constant(other, "a constant beside a vector")))

    def fits(self, other: Expr) -> None:
        """ProgramError unless both have one width."""
        mine, theirs = self.rows, other.rows
        if mine is not None and theirs is not None and mine != theirs:
            p = self.program
            vectors = [next(v for v in p.split(x.sym)[0] if v.rows is not None) for x in (self, other)]
            where = Readings(p).prose(p.origins(vectors, caller_location()))
            raise _error(
                f"width mismatch: {self!r} has width {mine.name}, {other!r} has width {theirs.name}", "NT101",
                "vectors of different widths never meet in one coordinatewise function; use a matrix between them;"
                f" {where}",
            )  # fmt: skip

    def __add__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: a + b)

    def __radd__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: b + a)

    def __sub__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: a - b)

    def __rsub__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: b - a)

    def __mul__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: a * b)

    def __rmul__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: b * a)

    def __truediv__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: a / b)

    def __rtruediv__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: b / a)

    def __pow__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: a**b)

    def __rpow__(self, other: hints.Operand) -> Expr:
        return self._combine(other, lambda a, b: b**a)

    def __neg__(self) -> Expr:
        return Expr(self.program, -self.sym)

    def __pos__(self) -> Expr:
        return self

    def __matmul__(self, other: hints.Operand) -> Expr:
        raise _error(
            "a vector is not applied to a vector: the left side of @ is a matrix", "NT102",
            "ns.dot(x, y) is the moment of the product; x * y is coordinatewise",
        )  # fmt: skip

    def __bool__(self) -> bool:
        raise _error("an expression has no truth value: a program has no branches", "NT108")

    def sqrt(self) -> Expr:
        return Expr(self.program, sp.sqrt(self.sym))

    # ------------------------------------------------------------ axes

    def has_axis(self, axis: hints.AxisLike) -> ir.Axis:
        found = self.program.as_axis(axis)
        if found not in self.var.axes:
            names = ", ".join(a.name for a in self.var.axes) or "none"
            raise _error(f"{self.var} has no axis {found.name} (its axes: {names})", "NT107")
        return found

    def sum(self, axis: hints.Axes, *more: hints.AxisLike) -> Expr:
        """The sum over one axis or several."""
        return self._reduced((axis, *more), "sum")

    def mean(self, axis: hints.Axes, *more: hints.AxisLike) -> Expr:
        """The mean over one axis or several."""
        return self._reduced((axis, *more), "mean")

    def max(self, axis: hints.Axes, *more: hints.AxisLike) -> Expr:
        """The coordinatewise maximum over one axis or several."""
        return self._reduced((axis, *more), "max")

    def _reduced(self, axes: tuple[Any, ...], op: Literal["sum", "mean", "max"]) -> Expr:
        out = self
        for axis in axes:
            out = out._reduced(tuple(axis), op) if isinstance(axis, tuple | list) else out._reduce(axis, op)
        return out

    def _reduce(self, axis: hints.AxisLike, op: Literal["sum", "mean", "max"]) -> Expr:
        found = self.has_axis(axis)
        return self.indexed(lambda out, of: ir.Reduce(out, of, found, op))

    def indexed(
        self, make: Callable[[ir.Var, ir.Var], ir.IndexForm | ir.Reduce], sizes: Mapping[ir.Axis, ir.Size] | None = None
    ) -> Expr:
        """A line make(out, of) of this vector: the form decides the axes, and their sizes where none are stated."""
        of, stated = self.var, sizes or {}
        like = inferred(make(of, of)) or of
        dims = tuple(ir.Dim(d.axis, stated.get(d.axis, d.size)) for d in like.dims)
        out = self.program.new_var(None, like.kind, like.rows, None, dims)
        return self.program.add(replace(make(out, of), loc=caller_location()))

    def at(self, axis: hints.AxisLike, index: int) -> Expr:
        """The element at `index`; −1 is each sample's own last."""
        found = self.has_axis(axis)
        return self.indexed(lambda out, of: ir.At(out, of, found, int(index)))

    def place(self, axis: hints.AxisLike, index: int, size: ir.Size | None = None) -> Expr:
        """The family that is this vector at `index` and the zero vector elsewhere."""
        (dim,) = self.program.dims_of((axis,))
        if dim.axis in self.var.axes:
            raise _error(f"{self.var} already has the axis {dim.axis.name}", "NT107")
        sizes = {dim.axis: dim.size if size is None else size}
        return self.indexed(lambda out, of: ir.Place(out, of, dim.axis, int(index)), sizes)

    def shift(self, axis: hints.AxisLike, by: int = 1) -> Expr:
        """y[t] = x[t − by], the zero vector outside."""
        found = self.has_axis(axis)
        return self.indexed(lambda out, of: ir.Shift(out, of, found, by))

    def rename(self, axes: hints.ByAxis[str] | hints.ByAxis[ir.Axis] | hints.ByAxis[hints.AxisLike]) -> Expr:
        """The same family with axes renamed."""
        table = {self.has_axis(a): self._renamed(a, b) for a, b in axes.items()}
        if len({table.get(a, a) for a in self.var.axes}) < len(self.var.axes):
            raise _error("two axes of one variable would have the same name", "NT107")
        return self.indexed(lambda out, of: ir.Rename(out, of, tuple(table.items())))

    def _renamed(self, old: hints.AxisLike, new: hints.AxisLike) -> ir.Axis:
        if isinstance(new, str) and new not in {a.name for a in self.program.axes}:
            size = self.var.size(self.has_axis(old))
            return self.program.axis(new, size if isinstance(size, int) else None)
        return self.program.as_axis(new)

    def window(
        self, axes: hints.Axes, size: hints.PerAxis | None = None, offsets: hints.Offsets | None = None,
        stride: hints.PerAxis = 1, padding: hints.Padding = "same", dilation: hints.PerAxis = 1,
        name: str = "k", outside: Literal["zero", "drop"] = "zero",
    ) -> Expr:  # fmt: skip
        """Neighbourhoods x[stride·s + dilation·κ]: adds one axis of offsets, called `name` (numbered when taken).

        `padding` is "same" (as torch pads), "same_jax", "valid", "circular" or a number; see `netsor.build.windows`.
        """
        names = (axes,) if isinstance(axes, str | ir.Axis) else tuple(axes)
        found = tuple(self.has_axis(a) for a in names)
        read = tuple(d for a in found for d in self.var.dims if d.axis == a)
        plan = resolve(read, size, offsets, stride, padding, dilation, caller_location())
        tap = self.program.fresh_axis(name, len(plan.offsets))
        mode: Literal["zero", "wrap", "drop"] = "wrap" if plan.wrap else outside
        return self.indexed(
            lambda out, of: ir.Window(out, of, found, tap, plan.offsets, plan.stride, mode),
            dict(zip(found, plan.sizes, strict=True)),
        )


class Matrix:
    """A matrix of a program: `W @ x`, `W.T`.

    >>> p = ns.programs.mlp()
    >>> p["W2"].T @ p["x2"]
    W2.T @ x2
    """

    __slots__ = ("program", "var")
    __array_ufunc__ = None

    def __init__(self, program: Program, var: ir.Var) -> None:
        self.program = program
        self.var = var

    def __repr__(self) -> str:
        return self.var.name

    @property
    def T(self) -> Matrix:
        """The transpose; (Wᵀ)ᵀ is W, and Wᵀ is made once."""
        known = transposes(self.program.lines).get(self.var)
        if known is not None:
            return Matrix(self.program, known)
        out = self.program.new_var(None, "A", self.var.cols, self.var.rows, self.var.dims)
        self.program.add(ir.Trsp(out, self.var, caller_location()))
        return Matrix(self.program, out)

    def __matmul__(self, x: Expr) -> Expr:
        if isinstance(x, Matrix):
            raise _error(
                f"{self.var} @ {x.var}: a matrix is applied to a vector, matrices are not multiplied", "NT102",
                "apply them one after the other: W @ (V @ x)",
            )  # fmt: skip
        vector = self.program.var_of(x)
        out = self.program.new_var(None, "G", self.var.rows, None, merge_dims((vector, self.var)))
        return self.program.add(ir.MatMul(out, self.var, vector, caller_location()))

    def _refuse(self, _: object) -> Expr:
        raise _error(f"the matrix {self.var} takes part in no arithmetic", "NT102", "apply it to a vector: W @ x")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
