"""A program as text, one printed line per line of the program (`netsor.text` says the syntax)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

import sympy as sp

from netsor import ir
from netsor.dsl import axis_dim, inputs_of
from netsor.functions import Function, Head, builtin_names
from netsor.infer import inferred
from netsor.printing import Writer, builtin_text, normal, number

FORMS = frozenset({
    "moment", "dot", "sum", "mean", "max", "min", "softmax", "place", "unwindow", "sqrt", "log", "floor", "ceiling",
    "tan", "sinh", "cosh", "asin", "acos", "atan",
})  # fmt: skip
"""Names of functions and forms of the text beside those of `netsor.functions`."""

_KIND_DEFAULTS = {"G": False, "A": True}


def listing(p: ir.ProgramLike) -> str:
    """The program's text, ended by a newline."""
    return "\n".join(Listing(p).rows()) + "\n"


def name_text(name: str) -> str:
    """A name as a listing writes it: in backquotes when it is not an identifier, or is pi."""
    return name if name.isidentifier() and name != "pi" else "`" + plain(name) + "`"


def plain(name: str) -> str:
    """The name without what a backquoted name cannot hold."""
    return re.sub("[`\r\n]", "_", name)


def label(name: str) -> str:
    """The name of a program or an output: in quotes when it is not an identifier."""
    return name if name.isidentifier() else json.dumps(name, ensure_ascii=False)


class Listing:
    """The rows of one program's listing."""

    def __init__(self, p: ir.ProgramLike) -> None:
        self.p = p
        self.order = {line.out: i for i, line in enumerate(p.lines)}
        self.widths = {w.name for w in p.widths}
        self.functions = FunctionNames(p)

    def rows(self) -> Iterator[str]:
        yield f"program {label(self.p.name)}"
        if self.p.widths:
            yield "width " + ", ".join(self._widths())
        axes = dict.fromkeys(a for line in self.p.lines for a in axes_of(line))
        if axes:
            yield "axis " + ", ".join(f"{name_text(a.name)}{'' if a.size is None else f' = {a.size}'}" for a in axes)
        yield from self.functions.rows()
        outputs = sorted(self.p.outputs, key=lambda o: o.at)
        for i, line in enumerate(self.p.lines):
            yield from (self._output(o) for o in outputs if o.at == i)
            yield self.line(line)
            if isinstance(line, ir.InputVector):
                for other, c in line.cov:
                    yield f"cov({name_text(other.name)}, {name_text(line.out.name)}) = {number(c)}"
        yield from (self._output(o) for o in outputs if o.at >= len(self.p.lines))
        for g in self.p.gradients:
            yield f"gradient {name_text(g.of.name)} = {name_text(g.is_.name)}"
        for r in self.p.returned:
            yield f"returns {label(r.name)} = {name_text(r.value.name)}"

    def _widths(self) -> Iterator[str]:
        reference = next((w for w in self.p.widths if w.ratio == 1), None)
        seen = False
        for w in self.p.widths:
            seen = seen or w is reference
            if w.ratio == 1:
                yield name_text(w.name)
            else:
                of = f" {name_text(reference.name)}" if reference is not None and seen else ""
                yield f"{name_text(w.name)} = {number(w.ratio)}{of}"

    def _output(self, o: ir.Output) -> str:
        name = "" if o.name == "f" else f"{label(o.name)} = "
        scale = "" if o.scale == 1 else f" scale {number(o.scale)}"
        return f"output {name}{name_text(o.readout.name)} . {name_text(o.vector.name)}{scale}"

    # ------------------------------------------------------------ lines

    def line(self, line: ir.Line) -> str:
        """One line of the program."""
        match line:
            case ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data():
                return self._input(line)
            case _:
                over = self._over(line)
                return f"{self._left(line)} := {self._right(line)}{over}"

    def _input(self, line: ir.InputMatrix | ir.InputVector | ir.InputScalar | ir.Data) -> str:
        left = self._indexed(line.out, tuple(axis_dim(d.axis) for d in line.out.dims))
        if isinstance(line, ir.Data):
            named = isinstance(line.out.rows, ir.Feature) and line.out.rows.name == line.out.name
            return f"data {left}" + ("" if named else f" : {self._type(line.out)}")
        attributes = [text for text in _attributes(line) if text]
        return " ".join([f"{left} : {self._type(line.out)}", *attributes])

    def _left(self, line: ir.Line) -> str:
        """The variable with its axes; its type and sizes where the right side does not determine them."""
        out, guess = line.out, inferred(line)
        assert guess is not None
        if isinstance(line, ir.Shift) and self.order[line.of] >= self.order[out]:
            guess = ir.Var("", "H", None, None, tuple(axis_dim(d.axis) for d in out.dims))
        left = self._indexed(out, guess.dims)
        if not out.dims and guess.dims:
            left += "[]"
        same = (out.kind, out.rows, out.cols) == (guess.kind, guess.rows, guess.cols)
        return left if same and set(out.axes) == set(guess.axes) else f"{left} : {self._type(out)}"

    def _indexed(self, v: ir.Var, expected: tuple[ir.Dim, ...]) -> str:
        sizes = {d.axis: d.size for d in expected}
        items = []
        for d in v.dims:
            known = d.axis in sizes and sizes[d.axis] == d.size
            items.append(name_text(d.axis.name) + ("" if known else f": {size_text(d.size)}"))
        return name_text(v.name) + (f"[{', '.join(items)}]" if items else "")

    def _type(self, v: ir.Var) -> str:
        if v.kind == "C":
            return "C"
        dimensions = [self._dimension(d) for d in (v.rows, v.cols) if d is not None]
        return f"{v.kind}({', '.join(dimensions)})"

    def _dimension(self, d: ir.Dimension) -> str:
        clash = isinstance(d, ir.Feature) and d.name in self.widths
        return f"data {name_text(d.name)}" if clash else name_text(d.name)

    def _right(self, line: ir.Line) -> str:
        match line:
            case ir.Nonlin() | ir.Moment():
                return self._expression(line)
            case ir.Trsp():
                return f"{ref(line.of)}.T"
            case ir.MatMul():
                return f"{ref(line.matrix)} @ {ref(line.vector)}"
            case ir.Reduce():
                return f"{line.op}[{name_text(line.axis.name)}]({ref(line.of)})"
            case ir.Softmax():
                of = ref(line.of) if line.mask is None else f"{ref(line.of)}, {ref(line.mask)}"
                return f"softmax[{name_text(line.axis.name)}]({of})"
            case ir.Window() | ir.Unwindow() | ir.At() | ir.Place() | ir.Shift() | ir.Rename():
                return _index_form(line)
            case ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data():
                raise AssertionError(line)
            case _:
                assert_never(line)

    def _expression(self, line: ir.Nonlin | ir.Moment) -> str:
        symbols = [(self.order[v], ir.arg(i), v) for i, v in enumerate(line.args)]
        symbols += [(self.order[v], ir.param(j), v) for j, v in enumerate(line.params)]
        names = {s: ref(v) for _, s, v in sorted(symbols, key=lambda t: t[0])}
        text = Writer(names, self.functions.text).text(normal(line.expr))
        return f"moment({text})" if isinstance(line, ir.Moment) and line.args else text

    def _over(self, line: ir.Line) -> str:
        """The arguments that the expression does not mention."""
        if not isinstance(line, ir.Nonlin | ir.Moment):
            return ""
        free = normal(line.expr).free_symbols
        unused = [v for i, v in enumerate(line.args) if ir.arg(i) not in free]
        unused += [v for j, v in enumerate(line.params) if ir.param(j) not in free]
        return " over " + ", ".join(ref(v) for v in sorted(unused, key=self.order.__getitem__)) if unused else ""


# ---------------------------------------------------------------- pieces


def ref(v: ir.Var) -> str:
    """A variable with the indices of all its axes."""
    return indexed(v, [name_text(a.name) for a in v.axes])


def indexed(v: ir.Var, items: Sequence[str]) -> str:
    return name_text(v.name) + (f"[{', '.join(items)}]" if items else "")


def _index_form(line: ir.Window | ir.Unwindow | ir.At | ir.Place | ir.Shift | ir.Rename) -> str:
    match line:
        case ir.Window():
            positions = dict(zip(line.axes, _positions(line), strict=True))
            items = [positions.get(a, name_text(a.name)) for a in line.of.axes]
            return f"{indexed(line.of, items)}{_where(line)}"
        case ir.Unwindow():
            axes = [a for a in line.of.axes if a in line.axes]
            positions = dict(zip(line.axes, _positions(line), strict=True))
            return f"unwindow[{', '.join(positions[a] for a in axes)}]({ref(line.of)}){_where(line)}"
        case ir.Place():
            return f"place[{name_text(line.axis.name)} = {line.index}]({ref(line.of)})"
        case ir.At():
            change = {line.axis: str(line.index)}
        case ir.Shift():
            change = {line.axis: f"{name_text(line.axis.name)} {'-' if line.by >= 0 else '+'} {abs(line.by)}"}
        case ir.Rename():
            change = {old: name_text(new.name) for old, new in line.axes}
        case _:
            assert_never(line)
    shape = line.out if isinstance(line, ir.Shift) else line.of  # a scan's shift reads a later variable
    return indexed(line.of, [change.get(a, name_text(a.name)) for a in shape.axes])


def _positions(line: ir.Window | ir.Unwindow) -> Iterator[str]:
    for axis, stride in zip(line.axes, line.stride, strict=True):
        yield f"{'' if stride == 1 else f'{stride} '}{name_text(axis.name)} + {name_text(line.tap.name)}"


def _where(line: ir.Window | ir.Unwindow) -> str:
    order = [line.axes.index(a) for a in line.of.axes if a in line.axes]
    offsets = [tuple(o[i] for i in order) for o in line.offsets]
    mode = "" if line.outside == "zero" else f" {line.outside}"
    return f" where {name_text(line.tap.name)} in {taps_text(offsets)}{mode}"


def taps_text(offsets: Sequence[tuple[int, ...]]) -> str:
    """Ranges when the offsets are their product in order (`-1..1, -2..2 by 2`), else the set."""
    columns = [list(dict.fromkeys(o[i] for o in offsets)) for i in range(len(offsets[0]))]
    regular = all(len({b - a for a, b in itertools.pairwise(c)}) <= 1 and c == sorted(c) for c in columns)
    if regular and list(itertools.product(*columns)) == list(offsets):
        return ", ".join(_range(c) for c in columns)
    items = [str(o[0]) if len(o) == 1 else f"({', '.join(map(str, o))})" for o in offsets]
    return f"{{{', '.join(items)}}}"


def _range(values: list[int]) -> str:
    by = values[1] - values[0] if len(values) > 1 else 1
    return f"{values[0]}..{values[-1]}" + ("" if by == 1 else f" by {by}")


def size_text(size: ir.Size) -> str:
    """`|s|`, or ⌈(size − minus)/stride⌉ as `(|s| - 2)/2`."""
    match size:
        case ir.SizeOf():
            return f"|{name_text(size.axis)}|"
        case ir.Strided():
            of = f"({size_text(size.of)})" if isinstance(size.of, ir.Strided) else size_text(size.of)
            text = f"{of} - {size.minus}" if size.minus else of
            if size.stride == 1:
                return text
            return f"({text})/{size.stride}" if size.minus else f"{text}/{size.stride}"
        case _:
            return str(size)


def _attributes(line: ir.InputMatrix | ir.InputVector | ir.InputScalar) -> Iterator[str]:
    if isinstance(line, ir.InputScalar):
        yield "per_sample" if line.per_sample else ""
        yield "" if line.limit is None else f"limit {array_text(line.limit)}"
        return
    if isinstance(line, ir.InputVector):
        yield "" if line.mean == 0 else f"mean {number(line.mean)}"
    yield f"var {number(line.var)}"
    yield "" if line.multiplier == 1 else f"multiplier {number(line.multiplier)}"
    if isinstance(line, ir.InputMatrix):
        yield "" if line.fan_in == "cols" else f"fan_in {'none' if line.fan_in is None else number(line.fan_in)}"
        yield "" if line.trainable else "frozen"
        return
    for axis, m in line.axis_cov:
        yield f"axis_cov {name_text(axis.name)} = {array_text(m)}"
    yield "readout" if line.readout else ""
    yield ("" if line.readout else "trainable") if line.trainable else ("frozen" if line.readout else "")


def array_text(value: Any) -> str:
    """A number, or nested tuples as nested brackets."""
    return f"[{', '.join(map(array_text, value))}]" if isinstance(value, tuple | list) else number(value)


def axes_of(line: ir.Line) -> Iterator[ir.Axis]:
    """The axes that a line mentions."""
    yield from line.out.axes
    for v in inputs_of(line):
        yield from v.axes
    if isinstance(line, ir.Window | ir.Unwindow):
        yield line.tap


# ---------------------------------------------------------------- functions


class FunctionNames:
    """What the functions of a program are called in its listing, and the rows that define the user's own.

    A user's function whose name is a built-in's or another's gets a number.
    """

    def __init__(self, p: ir.ProgramLike) -> None:
        self.names: dict[Function, str] = {}
        self._taken = {*builtin_names(), *FORMS, "exp", "pi"}
        for function in p.functions.values():
            self._define(function)
        for line in p.lines:
            if isinstance(line, ir.Nonlin | ir.Moment):
                self._define_heads(line.expr)

    def _define_heads(self, expr: sp.Expr) -> None:
        for spec in sorted({_root(h.spec) for h in expr.atoms(Head)}, key=lambda f: f.name):
            if spec.user:
                self._define(spec)

    def _define(self, function: Function) -> None:
        if function in self.names:
            return
        if not function.numeric:
            self._define_heads(function.definition(*_dummies(function)))
        stem = plain(function.name)
        name, k = stem, 2
        while name in self._taken:
            name, k = f"{stem}_{k}", k + 1
        self._taken.add(name)
        self.names[function] = name

    def text(self, function: Function) -> str:
        """The name at a call."""
        if function in self.names:
            return name_text(self.names[function])
        if function.origin is not None:
            return self.text(function.origin) + function.name[len(function.origin.name) :]
        return builtin_text(function)

    def rows(self) -> Iterator[str]:
        for function, name in self.names.items():
            yield f"numeric {name_text(name)}" if function.numeric else self._definition(function, name)

    def _definition(self, function: Function, name: str) -> str:
        symbols = _dummies(function)
        body = Writer({s: s.name for s in symbols}, self.text).text(normal(function.definition(*symbols)))
        parts = [f"function {name_text(name)}({', '.join(s.name for s in symbols)}) = {body}", *_facts(function)]
        return " ".join(parts)


def _facts(function: Function) -> Iterable[str]:
    if function.parity:
        yield f"parity {function.parity}"
    if function.growth:
        yield f"growth {name_text(function.growth)}"
    if function.kinks:
        yield f"kinks {array_text(function.kinks)}"


def _root(function: Function) -> Function:
    return function if function.origin is None else _root(function.origin)


def _dummies(function: Function) -> tuple[sp.Symbol, ...]:
    k = function.arity
    names = ("x", "y", "z")[:k] if k <= 3 else tuple(f"x{i + 1}" for i in range(k))
    return tuple(sp.Symbol(n, real=True) for n in names)
