"""Functions of network inputs as torch source: they are evaluated on the arrays `[n, *axes, feature]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from netsor import ir
from netsor.compilers.derive.nodes import unsupported
from netsor.compilers.lowering.functions import array
from netsor.compilers.lowering.identifiers import Numeric
from netsor.compilers.torch_functions import torch_source
from netsor.sizes import fold


class DataArrays:
    """The statements that make the arrays of coordinatewise functions of data; index forms are views and gathers."""

    def __init__(self, program: Any, numeric: Numeric) -> None:
        self.line = {x.out: x for x in program.lines}
        self.numeric = numeric
        self.statements: dict[ir.Var, str] = {}

    def need(self, var: ir.Var) -> None:
        """Make sure that `data[name]` exists for a variable."""
        if var not in self.statements and not isinstance(self.line[var], ir.Data):
            self.statements[var] = f"data.put({var.name!r}, {self._source(self.line[var])})"

    def _name(self, var: ir.Var) -> str:
        self.need(var)
        return f"data[{var.name!r}]"

    def _source(self, line: ir.Line) -> str:
        match line:
            case ir.Nonlin():
                return self._nonlin(line)
            case ir.Rename():
                return self._name(line.of)
            case ir.At():
                return f"{self._name(line.of)}.select({self._dim(line.of, line.axis)}, {line.index})"
            case ir.Reduce():
                op = {"sum": "sum", "mean": "mean", "max": "amax"}[line.op]
                return f"{self._name(line.of)}.{op}({self._dim(line.of, line.axis)})"
            case ir.Window():
                return self._window(line)
            case (
                ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul()
                | ir.Moment() | ir.Unwindow() | ir.Place() | ir.Shift() | ir.Softmax()
            ):  # fmt: skip
                raise unsupported(f"the data line {line.out.name}")
            case _:
                assert_never(line)

    @staticmethod
    def _dim(var: ir.Var, axis: ir.Axis) -> int:
        return 1 + var.axes.index(axis)

    def _nonlin(self, line: ir.Nonlin) -> str:
        table = {ir.arg(i): self._aligned(v, line.out.axes, True) for i, v in enumerate(line.args)}
        table |= {ir.param(i): self._parameter(v, line.out.axes) for i, v in enumerate(line.params)}
        return torch_source(line.expr, table, self.numeric)

    def _parameter(self, var: ir.Var, axes: Sequence[ir.Axis]) -> str:
        line = self.line[var]
        if not isinstance(line, ir.InputScalar):
            raise unsupported(f"the scalar {var.name} in a function of data")
        if line.per_sample:
            return self._aligned(var, axes, False)
        if isinstance(line.limit, tuple):
            return _arranged(f"data.constant({array(line.limit)})", 0, var.axes, axes, False)
        return repr(float(line.limit))

    def _aligned(self, var: ir.Var, axes: Sequence[ir.Axis], features: bool) -> str:
        name = self._name(var) if features else f"data[{var.name!r}]"
        return _arranged(name, 1, var.axes, axes, features)

    def _window(self, line: ir.Window) -> str:
        """[n, positions, taps, feature] by gathering along every axis of the window."""
        if line.outside == "drop":
            raise unsupported(f"the data line {line.out.name}")
        rest = [a for a in line.of.axes if a not in line.axes]
        dims = [self._dim(line.of, a) for a in line.axes]
        sizes = ", ".join(_size(line.out.size(a)) for a in line.axes)
        wrap = line.outside == "wrap"
        text = f"rt.windows({self._name(line.of)}, {dims!r}, {line.offsets!r}, {line.stride!r}, ({sizes},), {wrap})"
        have = [*line.axes, line.tap, *rest]
        return _arranged(text, 1, have, line.out.axes, True)


def _arranged(text: str, lead: int, have: Sequence[ir.Axis], want: Sequence[ir.Axis], features: bool) -> str:
    """A view with the axes in the wanted order, of size 1 where missing, and a feature dimension at the end."""
    kept = [a for a in want if a in have]
    order = [*range(lead), *(lead + have.index(a) for a in kept)]
    if features:
        order.append(lead + len(have))
    if order != list(range(len(order))):
        text = f"{text}.permute({', '.join(map(str, order))})"
    marks = [":"] * lead + [":" if a in have else "None" for a in want] + [":" if features else "None"]
    return text if all(m == ":" for m in marks) else f"{text}[{', '.join(marks)}]"


def _size(size: ir.Size) -> str:
    return fold(size, str, lambda axis: f"data.size[{axis!r}]", "-(({1} - {0}) // {2})".format)
