"""A program written in Python: arithmetic builds pending expressions, a line is made where the mathematics needs one.

A line is made at a MatMul, a Moment, an axis operation, `let` and `output`; until then `phi(h + b)` is one pending
sympy expression, so it becomes one Nonlin. `Program` is the builder; `Program.lines` is a snapshot tuple.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, assert_never, cast, overload

import sympy as sp

from netsor import ir, markup
from netsor.build import content, hints
from netsor.build.declarations import covariances, dimension, fit_readout, variance
from netsor.build.declarations import fan_in as checked_fan_in
from netsor.build.expressions import Expr, Matrix
from netsor.build.moments import dot, mix, moment, softmax
from netsor.build.quantity import nested, quantity
from netsor.build.scales import scale
from netsor.errors import Location, ProgramError, caller_location
from netsor.facts import axes_named, inputs_of, merge_dims
from netsor.functions import Function
from netsor.names import KERNELS, checked
from netsor.sizes import axis_dim
from netsor.text.readings import Readings

if TYPE_CHECKING:
    import networkx

    from netsor.text.drawing import Drawing


def _error(message: str, code: str, hint: str | None = None, loc: Location | None = None) -> ProgramError:
    return ProgramError(message, code=code, hint=hint, location=loc or caller_location())


class Program:
    """A NETSOR⊤ program under construction.

    `lines`, `outputs`, `gradients` and `returned` are tuples, which passes read. Programs of equal contents are equal.

    >>> p = ns.Program("small")
    >>> n, x = p.width("n"), p.data("x")
    >>> h = p.let("h", p.matrix("W", n, x, var=2) @ x + p.bias("b", n, var=0.1))
    >>> p.output(p.readout("v", n), ns.relu(h))
    >>> p
    <Program small: 7 lines>
    """

    def __init__(self, name: str = "program") -> None:
        self.name = checked(name, "a program", quoted=True)
        self._widths: dict[str, ir.Width] = {}
        self._axes: dict[str, ir.Axis] = {}
        self._lines: list[ir.Line] = []
        self._outputs: list[ir.Output] = []
        self._gradients: list[ir.Gradient] = []
        self._returned: list[ir.Returns] = []
        self._accepted: list[ir.Accepted] = []
        self._names: dict[str, ir.Var] = {}
        self._auto: set[ir.Var] = set()
        self._symbols: dict[ir.Var, sp.Symbol] = {}
        self._vars: dict[sp.Symbol, ir.Var] = {}
        self._functions: dict[str, Function] = {}
        self._pending: dict[sp.Expr, ir.Var] = {}  # the line of a pending expression, so that it is made once
        self._counter = 0

    # ------------------------------------------------------------ what passes read

    @property
    def widths(self) -> tuple[ir.Width, ...]:
        return tuple(self._widths.values())

    @property
    def axes(self) -> tuple[ir.Axis, ...]:
        return tuple(self._axes.values())

    @property
    def lines(self) -> tuple[ir.Line, ...]:
        return tuple(self._lines)

    @property
    def line_count(self) -> int:
        """The number of lines."""
        return len(self._lines)

    @property
    def outputs(self) -> tuple[ir.Output, ...]:
        return tuple(self._outputs)

    @property
    def gradients(self) -> tuple[ir.Gradient, ...]:
        return tuple(self._gradients)

    @property
    def returned(self) -> tuple[ir.Returns, ...]:
        return tuple(self._returned)

    @property
    def accepted(self) -> tuple[ir.Accepted, ...]:
        return tuple(self._accepted)

    @property
    def functions(self) -> Mapping[str, Function]:
        """The user's own functions, by name."""
        return dict(self._functions)

    def __getitem__(self, name: str) -> Expr | Any:
        """The expression (or matrix) of a named variable."""
        if name not in self._names:
            raise KeyError(f"program {self.name} has no variable {name!r}; it has {', '.join(self._names)}")
        return self.handle(self._names[name])

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._lines)

    def __str__(self) -> str:
        from netsor.text import listing

        return listing(self)

    def __repr__(self) -> str:
        return f"<Program {self.name}: {len(self._lines)} lines>"

    def draw(self) -> Drawing:
        """The graph of the lines, as SVG (`.svg`, `.save(path)`)."""
        from netsor.text.drawing import draw

        return draw(self)

    def _repr_markdown_(self) -> str:
        return markup.fenced(str(self))

    def _repr_latex_(self) -> str:
        return markup.verbatim(str(self))

    def _repr_html_(self) -> str:
        return markup.html(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and content.content(self) == content.content(other)

    __hash__ = object.__hash__

    # ------------------------------------------------------------ dimensions

    def width(self, name: str, ratio: ir.Number = 1) -> ir.Width:
        """A dimension that goes to infinity, `ratio` times the reference width."""
        ratio = quantity(f"the ratio of width {name}", ratio)
        known = self._widths.get(checked(name, "a width"))
        if known is not None and known.ratio != ratio:
            raise _error(f"width {name} is already declared with ratio {known.ratio}", "NT104")
        if not ratio > 0:
            raise _error(f"the ratio of width {name} must be positive, got {ratio}", "NT109")
        self._widths[name] = ir.Width(name, ratio)
        return self._widths[name]

    def axis(self, name: str, size: int | None = None) -> ir.Axis:
        """A finite index; without a size it is taken from the data."""
        known = self._axes.get(checked(name, "an axis"))
        if known is not None:
            if size is not None and known.size != size:
                raise _error(f"axis {name} is already declared with size {known.size}", "NT107")
            return known
        self._axes[name] = ir.Axis(name, size)
        return self._axes[name]

    def fresh_axis(self, stem: str, size: int | None) -> ir.Axis:
        """A new axis called `stem`, numbered when the name is taken."""
        name, k = stem, 2
        while name in self._axes:
            name, k = f"{stem}{k}", k + 1
        return self.axis(name, size)

    def as_axis(self, axis: hints.AxisLike) -> ir.Axis:
        if isinstance(axis, ir.Axis):
            return self._axes.setdefault(checked(axis.name, "an axis"), axis)
        return self.axis(axis)

    def dims_of(self, axes: Iterable[hints.DimLike] | hints.AxisLike) -> tuple[ir.Dim, ...]:
        if isinstance(axes, str | ir.Axis):
            axes = (axes,)
        return tuple(a if isinstance(a, ir.Dim) else axis_dim(self.as_axis(a)) for a in axes)

    # ------------------------------------------------------------ inputs

    @overload
    def matrix(
        self, name: str, rows: hints.Dimension, cols: hints.Dimension, var: ir.ScaleLike = 1.0,
        multiplier: ir.ScaleLike = 1.0, axes: Iterable[hints.DimLike] = (), trainable: bool = True,
        fan_in: hints.FanIn = "cols",
    ) -> Matrix: ...  # fmt: skip
    @overload
    def matrix(
        self, name: str, rows: hints.Dimension, cols: hints.Blocked[hints.T], var: ir.ScaleLike = 1.0,
        multiplier: ir.ScaleLike = 1.0, axes: Iterable[hints.DimLike] = (), trainable: bool = True,
        fan_in: hints.FanIn = "cols",
    ) -> hints.T: ...  # fmt: skip
    def matrix(
        self, name: str, rows: hints.Dimension, cols: Any, var: ir.ScaleLike = 1.0,
        multiplier: ir.ScaleLike = 1.0, axes: Iterable[hints.DimLike] = (), trainable: bool = True,
        fan_in: hints.FanIn = "cols",
    ) -> Any:  # fmt: skip
        """W = multiplier · ω / √cols, entries ω ~ N(0, var); rows and cols are widths or things that have one.

        `var` and `multiplier` may be names or sympy symbols: `kernel(x, params={name: …})` gives their values.
        """
        if hasattr(cols, "__netsor_matrix__"):  # a concatenation: a row of independent blocks
            more: hints.Matrices = {"multiplier": multiplier, "axes": axes, "trainable": trainable, "fan_in": fan_in}
            return cols.__netsor_matrix__(name, rows, var, **more)
        var, multiplier = variance(name, var), scale(f"the multiplier of {name}", multiplier)
        fan_in = checked_fan_in(name, fan_in)
        out = self.new_var(name, "A", dimension(rows), dimension(cols), self.dims_of(axes))
        self._add(ir.InputMatrix(out, var, multiplier, trainable, fan_in, caller_location()))
        return Matrix(self, out)

    def vector(
        self, name: str, width: hints.Dimension, mean: ir.Number = 0.0, var: ir.ScaleLike = 1.0,
        multiplier: ir.ScaleLike = 1.0, cov: hints.ByVariable[ir.Number] | None = None,
        axes: Iterable[hints.DimLike] = (), axis_cov: hints.AxisCov | None = None,
        trainable: bool = False, readout: bool = False,
    ) -> Expr:  # fmt: skip
        """A G-var with i.i.d. coordinates multiplier · β, β ~ N(mean, var), and covariances of β with other vectors."""
        var, multiplier = variance(name, var), scale(f"the multiplier of {name}", multiplier)
        mean, dims = quantity(f"the mean of {name}", mean), self.dims_of(axes)
        pairs = tuple((self.var_of(v), quantity(f"a covariance of {name}", c)) for v, c in (cov or {}).items())
        out = self.new_var(name, "G", dimension(width), None, dims)
        line = ir.InputVector(
            out,
            mean,
            var,
            multiplier,
            trainable,
            readout,
            pairs,
            covariances(dims, axis_cov, self.as_axis),
            caller_location(),
        )
        self._add(line)
        return self.handle(out)

    def bias(
        self, name: str, width: hints.Dimension, mean: ir.Number = 0.0, var: ir.ScaleLike = 1.0,
        **more: Unpack[hints.Vectors],
    ) -> Expr:  # fmt: skip
        """A trainable vector."""
        more.setdefault("trainable", True)
        return self.vector(name, width, mean, var, **more)

    def readout(
        self, name: str, width: hints.Dimension, mean: ir.Number = 0.0, var: ir.ScaleLike = 1.0,
        **more: Unpack[hints.Vectors],
    ) -> Expr:  # fmt: skip
        """A trainable vector that is marked as a readout."""
        more.setdefault("trainable", True)
        return self.vector(name, width, mean, var, readout=True, **more)

    def scalar(
        self, name: str, limit: hints.ArrayLike | None = None, axes: Iterable[hints.DimLike] = (),
        per_sample: bool = False,
    ) -> Expr:  # fmt: skip
        """A C-var that converges to `limit` (a number or an array over its axes), or is given with each sample."""
        if limit is not None:
            limit = nested(f"the limit of {name}", limit)
        out = self.new_var(name, "C", None, None, self.dims_of(axes))
        self._add(ir.InputScalar(out, limit, per_sample, caller_location()))
        return self.handle(out)

    def data(self, name: str, axes: Iterable[hints.DimLike] = ()) -> Expr:
        """A network input ξ, given as `[sample, *axes, feature]`."""
        out = self.new_var(name, "X", ir.Feature(name), None, self.dims_of(axes))
        self._add(ir.Data(out, caller_location()))
        return self.handle(out)

    def constant(
        self, array: hints.ArrayLike | Literal["position"], axes: Sequence[hints.DimLike], name: str | None = None
    ) -> Expr:
        """A C-var with the given values over `axes` (an array that does not depend on the sample)."""
        dims = tuple(a if isinstance(a, ir.Dim) else self.dims_of((a,))[0] for a in axes)
        out = self.new_var(name, "C", None, None, dims)
        limit = array if isinstance(array, str) and array == "position" else nested("a constant", array)
        self._add(ir.InputScalar(out, limit, False, caller_location()))
        return self.handle(out)

    # ------------------------------------------------------------ making lines

    def new_var(
        self, name: str | None, kind: ir.Kind, rows: ir.Dimension | None = None, cols: ir.Dimension | None = None,
        dims: tuple[ir.Dim, ...] = (),
    ) -> ir.Var:  # fmt: skip
        """A fresh variable; without a name it is numbered `_1`, `_2`, …"""
        automatic = name is None
        if name is None:
            self._counter += 1
            while f"_{self._counter}" in self._names:
                self._counter += 1
            name = f"_{self._counter}"
        elif checked(name, "a variable") in self._names:
            raise _error(f"the name {name!r} is already taken", "NT104", "every variable has its own name")
        var = ir.Var(name, kind, rows, cols, dims)
        self._names[name] = var
        if automatic:
            self._auto.add(var)
        symbol = sp.Symbol(f"v{len(self._symbols):06d}", real=True)
        self._symbols[var] = symbol
        self._vars[symbol] = var
        return var

    def add(self, line: ir.Line) -> Expr:
        """Append a line (made by the language or a pass); returns the handle of its variable."""
        self._add(line)
        return self.handle(line.out)

    def _add(self, line: ir.Line) -> None:
        from netsor.checker.typing.lines import line_diagnostics

        for d in line_diagnostics(line):
            if d.code in ("NT101", "NT106", "NT107"):
                where = self.origins(inputs_of(line), d.location)
                d = dataclasses.replace(d, hint="; ".join(filter(None, (d.hint, where))))
            raise ProgramError(Readings(self).diagnostic(d))
        self._lines.append(line)

    def origins(self, variables: Iterable[ir.Var], at: Location | None) -> str:
        """`h is from line 3, u from model.py:7`: where variables that do not fit together were made."""
        found = {line.out: line.loc for line in self._lines}
        places = [(v, found.get(v)) for v in dict.fromkeys(variables)]
        texts = [f"{v.name} is from {_place(loc, at)}" for v, loc in places if loc is not None]
        return ", ".join(texts)

    def handle(self, var: ir.Var) -> Expr | Any:
        if var.kind == "A":
            return Matrix(self, var)
        return Expr(self, self._symbols[var])

    def symbol_of(self, var: ir.Var) -> sp.Symbol:
        return self._symbols[var]

    def var_of_symbol(self, symbol: sp.Symbol) -> ir.Var:
        return self._vars[symbol]

    def var_of(self, value: hints.Variable, name: str | None = None) -> ir.Var:
        """The variable of an expression; a pending expression becomes a line."""
        if isinstance(value, ir.Var):
            return value
        if isinstance(value, Matrix):
            return value.var
        if isinstance(value, str):
            return self._names[value]
        if not isinstance(value, Expr):
            raise _error(f"expected a variable of the program, got {value!r}", "NT108")
        if value.program is not self:
            raise _error("the expression belongs to another program", "NT108")
        if isinstance(value.sym, sp.Symbol):
            return self._vars[value.sym]
        if name is None and value.sym in self._pending:
            return self._pending[value.sym]
        return self._materialise(value.sym, name)

    def _materialise(self, sym: sp.Expr, name: str | None) -> ir.Var:
        var = self._pending[sym] = self._coordinatewise_line(sym, name)
        return var

    def _coordinatewise_line(self, sym: sp.Expr, name: str | None) -> ir.Var:
        args, params = self.split(sym)
        if not args and not params:
            hint = "add it to a vector, or use p.vector(var=0, mean=…)"
            raise _error(f"the constant {sym} has no width", "NT109", hint)
        expr = self.positional(sym, args, params)
        dims = merge_dims(args + params)
        if not args:
            out = self.new_var(name, "C", None, None, dims)
            self._add(ir.Moment(out, expr, (), params, caller_location()))
            return out
        kinds = {a.kind for a in args}
        kind: ir.Kind = "X" if kinds == {"X"} else "H"
        rows = next((a.rows for a in args if a.rows is not None), None)
        out = self.new_var(name, kind, rows, None, dims)
        self._add(ir.Nonlin(out, expr, args, params, caller_location()))
        return out

    def split(self, sym: sp.Expr) -> tuple[tuple[ir.Var, ...], tuple[ir.Var, ...]]:
        """The vectors and the scalars of a pending expression, in program order."""
        variables = [self._vars[s] for s in sorted(sym.free_symbols, key=lambda s: s.name)]
        return tuple(v for v in variables if v.kind != "C"), tuple(v for v in variables if v.kind == "C")

    def positional(self, sym: sp.Expr, args: Sequence[ir.Var], params: Sequence[ir.Var]) -> sp.Expr:
        """A pending expression in the symbols of a line's arguments."""
        table = {self._symbols[v]: ir.arg(i) for i, v in enumerate(args)}
        table |= {self._symbols[v]: ir.param(i) for i, v in enumerate(params)}
        return sym.xreplace(table)

    def pending(self, line: ir.Nonlin | ir.Moment) -> sp.Expr:
        """A line's expression in the program's own symbols."""
        table = {ir.arg(i): self._symbols[v] for i, v in enumerate(line.args)}
        table |= {ir.param(i): self._symbols[v] for i, v in enumerate(line.params)}
        return cast(sp.Expr, line.expr.xreplace(table))

    def register(self, function: Function) -> None:
        """Remember a user's function, so that listings can define it."""
        if function.user:
            known = self._functions.setdefault(function.name, function)
            if known is not function:
                raise _error(f"two different functions are called {function.name}", "NT104")

    # ------------------------------------------------------------ statements

    @overload
    def let(self, name: str, value: Expr) -> Expr: ...
    @overload
    def let(self, name: str, value: Matrix) -> Matrix: ...
    def let(self, name: str, value: Expr | Matrix) -> Expr | Matrix:
        """Name a line. A pending expression becomes one line; an unnamed line gets the name."""
        if isinstance(value, Matrix):
            return self.handle(self._rename_auto(value.var, name))
        if not isinstance(value, Expr):
            raise _error(f"let names an expression of the program, got {value!r}", "NT108")
        if isinstance(value.sym, sp.Symbol):
            var = self._vars[value.sym]
            if var in self._auto:
                return self.handle(self._rename_auto(var, name))
            return self.handle(self._materialise(value.sym, name))
        return self.handle(self.var_of(value, name))

    def _rename_auto(self, var: ir.Var, name: str) -> ir.Var:
        if var not in self._auto:
            raise _error(f"{var.name} already has a name", "NT104")
        if checked(name, "a variable") in self._names:
            raise _error(f"the name {name!r} is already taken", "NT104", "every variable has its own name")
        del self._names[var.name]
        object.__setattr__(var, "name", name)  # the builder alone names a line once; afterwards it never changes
        self._names[name] = var
        self._auto.discard(var)
        return var

    def output(self, v: hints.Variable, x: hints.Variable, scale: ir.Number = 1.0, name: str = "f") -> None:
        """f = scale · v·x/√n; with axes P of v, scale/√(|P| n) Σ_s v_s·x_s. Outputs of one name add up."""
        readout, vector = self.var_of(v), self.var_of(x)
        read = Readings(self).of
        loc = caller_location()
        if readout.kind != "G" or vector.kind not in "GH":
            raise _error(
                f"an output is a readout vector times a vector, got {read(readout.name)} and {read(vector.name)}",
                "NT108",
                loc=loc,
            )
        if readout.rows != vector.rows:
            raise _error(
                f"width mismatch: the readout {read(readout.name)} has width {describe(readout.rows)},"
                f" {read(vector.name)} has width {describe(vector.rows)}", "NT101",
                Readings(self).prose(self.origins((readout, vector), loc)), loc=loc,
            )  # fmt: skip
        fit_readout(readout, vector, self._lines)
        scale = quantity("the scale of an output", scale)
        self._outputs.append(
            ir.Output(checked(name, "an output", quoted=True), readout, vector, scale, len(self._lines), loc)
        )

    def gradient(self, of: hints.Variable, is_: hints.Variable) -> None:
        """Say that a line is the gradient √n_out ∂f/∂of of a MatMul output or bias."""
        self._gradients.append(ir.Gradient(self.var_of(of), self.var_of(is_), caller_location()))

    def returns(self, name: str, value: hints.Variable) -> None:
        """Make a scalar's limit a result of the compiled kernel."""
        var = self.var_of(value)
        if checked(name, "a result", quoted=True) in KERNELS:
            raise _error(f"{name} is the name of a kernel", "NT104", "a returned scalar has a name of its own")
        if var.kind != "C":
            raise _error(f"only scalars are returned, {var} is a vector", "NT108", "take ns.moment of it")
        self._returned.append(ir.Returns(name, var, caller_location()))

    def accept(self, code: str, because: str) -> None:
        """Findings of a code (NT2xx to NT5xx) are shown as accepted, with the reason, and do not count."""
        from netsor.checker.codes.table import unacceptable

        why = unacceptable(code, because)
        if why is not None:
            raise _error(why, "NT113")
        self._accepted.append(ir.Accepted(code, because.strip(), caller_location()))

    def backward(self) -> Program:
        """Add the backward pass of the outputs; returns self."""
        from netsor.passes.backward import add_backward

        add_backward(self)
        return self

    # ------------------------------------------------------------ recurrence

    @overload
    def scan(
        self, axis: hints.AxisLike, init: hints.State, step: Callable[[Expr], Expr], reverse: bool = False
    ) -> Expr: ...
    @overload
    def scan(
        self,
        axis: hints.AxisLike,
        init: tuple[hints.State, ...],
        step: Callable[..., Sequence[Expr]],
        reverse: bool = False,
    ) -> tuple[Expr, ...]: ...
    def scan(
        self, axis: hints.AxisLike, init: hints.State | tuple[hints.State, ...],
        step: Callable[..., Expr | Sequence[Expr]], reverse: bool = False,
    ) -> Expr | tuple[Expr, ...]:  # fmt: skip
        """The family s with s[t] = step(s[t−1]) over `axis`, s before the first element being `init`.

        `init` is 0 (the zero vector), a vector, or a tuple of these; `step` takes and returns as many families.
        `reverse=True` runs from the last element to the first.
        """
        from netsor.build.scan import scan

        return scan(self, self.as_axis(axis), init, step, reverse)

    # ------------------------------------------------------------ passes and views

    def unroll(self, sizes: Mapping[str, int] | None = None) -> Program:
        """The plain straight-line program that the families are shorthand for, at the given axis sizes."""
        from netsor.passes.unroll import unroll

        return unroll(self, sizes or {})

    def graph(self) -> networkx.DiGraph:
        """A networkx DiGraph: nodes are variables, an edge runs from an argument to the line's variable."""
        from netsor.text.graph import graph

        return graph(self)

    def copy(self) -> Program:
        """A new builder with the same lines."""
        twin = Program(self.name)
        for key, value in vars(self).items():
            setattr(twin, key, value.copy() if isinstance(value, dict | list | set) else value)
        return twin

    def restore(self, saved: Program) -> None:
        """Become a copy made earlier."""
        vars(self).update(vars(saved))

    @classmethod
    def from_parts(
        cls, name: str, widths: Iterable[ir.Width], lines: Iterable[ir.Line], outputs: Iterable[ir.Output] = (),
        gradients: Iterable[ir.Gradient] = (), returned: Iterable[ir.Returns] = (),
        functions: Mapping[str, Function] | None = None, accepted: Iterable[ir.Accepted] = (),
    ) -> Program:  # fmt: skip
        """A program from its lines, unchecked but for its names: `ns.check` says what is wrong with it."""
        p = cls(name)
        p._widths = {checked(w.name, "a width"): w for w in widths}
        p._functions, p._accepted = dict(functions or {}), list(accepted)
        for line in lines:
            p.adopt(line)
        p._outputs, p._gradients, p._returned = list(outputs), list(gradients), list(returned)
        for name in (*(o.name for o in p._outputs), *(r.name for r in p._returned)):
            checked(name, "a result", quoted=True)
        return p

    def adopt(self, line: ir.Line) -> None:
        """Append a line with its variable, unchecked."""
        out = line.out
        for axis in (*out.axes, *axes_named(line)):
            self._axes.setdefault(checked(axis.name, "an axis"), axis)
        self._names[checked(out.name, "a variable")] = out
        symbol = sp.Symbol(f"v{len(self._symbols):06d}", real=True)
        self._symbols[out], self._vars[symbol] = symbol, out
        self._lines.append(line)

    def state(self, statement: ir.Output | ir.Gradient | ir.Returns) -> None:
        """Append a statement, unchecked."""
        match statement:
            case ir.Output():
                self._outputs.append(statement)
            case ir.Gradient():
                self._gradients.append(statement)
            case ir.Returns():
                self._returned.append(statement)
            case _:
                assert_never(statement)

    def is_unnamed(self, var: ir.Var) -> bool:
        """Has a variable a number for a name, which `let` may replace?"""
        return var in self._auto

    def locate(self, start: int, loc: Location | None) -> None:
        """Say that the lines from `start` on stand at another place in the user's file."""
        self._lines[start:] = [dataclasses.replace(line, loc=loc) for line in self._lines[start:]]

    def replace_line(self, old: ir.Line, of: ir.Var) -> None:
        """Give a shift another argument, in place: a scan binds it late."""
        assert isinstance(old, ir.Shift)
        self._lines[self._lines.index(old)] = dataclasses.replace(old, of=of)


# ---------------------------------------------------------------- helpers


def _place(loc: Location, at: Location | None) -> str:
    return f"line {loc.line}" if at is not None and loc.file == at.file else f"{Path(loc.file).name}:{loc.line}"


def describe(dimension: ir.Dimension | None) -> str:
    return "none" if dimension is None else dimension.name


__all__ = ["Expr", "Matrix", "Program", "dot", "mix", "moment", "softmax"]
