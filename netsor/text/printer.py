"""A program as text, one printed line per line of the program (`netsor.text` says the syntax)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never, cast

import sympy as sp

from netsor import facts, ir
from netsor.facts import axes_named, inputs_of
from netsor.sizes import axis_dim
from netsor.text.expressions import Writer, normal, number
from netsor.text.names import FunctionNames, array_text
from netsor.text.notation import index_form, label, name_text, ref, size_text
from netsor.types import inferred


def listing(p: ir.ProgramLike) -> str:
    """The program's text, ended by a newline."""
    return "\n".join(Listing(p).rows()) + "\n"


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
        parameters = facts.parameters(self.p.lines)
        if parameters:
            yield "parameter " + ", ".join(map(name_text, parameters))
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
        for a in self.p.accepted:
            yield f"accept {a.code} because {a.because}"

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
            case ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment() | ir.IndexLine() | ir.Reduce() | ir.Softmax():
                return f"{self._left(line)} := {self.right(line)}{self._over(line)}"
            case _:
                assert_never(line)

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

    def right(self, line: ir.Line) -> str:
        """What a line computes, without its name."""
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
            case ir.IndexLine():
                return index_form(line)
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


def _attributes(line: ir.InputMatrix | ir.InputVector | ir.InputScalar) -> Iterator[str]:
    if isinstance(line, ir.InputScalar):
        yield "per_sample" if line.per_sample else ""
        yield "" if line.limit is None else f"limit {array_text(line.limit)}"
        return
    if isinstance(line, ir.InputVector):
        yield "" if line.mean == 0 else f"mean {number(line.mean)}"
    yield f"var {_scale(line.var)}"
    yield "" if line.multiplier == 1 else f"multiplier {_scale(line.multiplier)}"
    if isinstance(line, ir.InputMatrix):
        yield "" if line.fan_in == "cols" else f"fan_in {'none' if line.fan_in is None else number(line.fan_in)}"
        yield "" if line.trainable else "frozen"
        return
    for axis, m in line.axis_cov:
        yield f"axis_cov {name_text(axis.name)} = {array_text(m)}"
    yield "readout" if line.readout else ""
    yield ("" if line.readout else "trainable") if line.trainable else ("frozen" if line.readout else "")


def _scale(value: ir.Scale) -> str:
    if not isinstance(value, sp.Expr):
        return number(value)
    names = {s: name_text(s.name) for s in sorted(cast("set[sp.Symbol]", cast(sp.Expr, value).free_symbols), key=str)}
    return Writer(names, str).text(value)


def axes_of(line: ir.Line) -> Iterator[ir.Axis]:
    """The axes that a line mentions."""
    yield from line.out.axes
    for v in inputs_of(line):
        yield from v.axes
    yield from axes_named(line)
