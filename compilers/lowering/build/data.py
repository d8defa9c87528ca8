"""Functions of network inputs → statements on the arrays `[n, *axes, feature]`; index forms are views and gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from netsor import ir
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.nodes import unsupported
from netsor.compilers.lowering.build.reads import FEATURE
from netsor.compilers.lowering.build.scope import NOTHING, Scope
from netsor.compilers.lowering.plan import arrays as do
from netsor.compilers.lowering.plan.operands import Array, Layout, Mark, Operand
from netsor.compilers.lowering.plan.operations import Apply
from netsor.compilers.lowering.plan.order import Store
from netsor.indexing import IndexMap, index_map

LINE = frozenset((Copy.OWN,))


class DataArrays:
    """The statements that make the arrays of coordinatewise functions of data."""

    def __init__(self, program: ir.ProgramLike, scope: Scope) -> None:
        self.line = {x.out: x for x in program.lines}
        self.scope = scope
        self.done: set[ir.Var] = set()

    def need(self, var: ir.Var) -> Array:
        """The array of a variable, made when it is first needed."""
        if var not in self.done and not isinstance(self.line[var], ir.Data):
            self.done.add(var)
            self.scope.code.stem = var.name
            found = self._made(self.line[var])
            self.scope.code.stem = var.name
            self.scope.code.add(Store(var.name, found))
        return self._array(var, True)

    @staticmethod
    def _array(var: ir.Var, features: bool) -> Array:
        return Array(var.name, Copy.OWN, _layout(var.axes, var, features))

    def _made(self, line: ir.Line) -> Operand:
        match line:
            case ir.Nonlin():
                return self._nonlin(line)
            case ir.IndexLine():
                return self._moved(line)
            case ir.Reduce():
                return self._make(do.Reduce, line.out, self.need(line.of), line.op, self._dim(line.of, line.axis))
            case (
                ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul()
                | ir.Moment() | ir.Softmax()
            ):  # fmt: skip
                raise unsupported(f"the data line {line.out.name}")
            case _:
                assert_never(line)

    def _make(self, kind: Any, var: ir.Var, *fields: Any) -> Operand:
        self.scope.code.stem = var.name
        return self.scope.code.make(kind, _layout(var.axes, var, True), *fields)

    @staticmethod
    def _dim(var: ir.Var, axis: ir.Axis) -> int:
        return 1 + var.axes.index(axis)

    def _nonlin(self, line: ir.Nonlin) -> Operand:
        args = [self._arranged(self.need(v), v, v.axes, line.out.axes, True) for v in line.args]
        params = [self._parameter(v, line.out.axes) for v in line.params]
        table = (*(ir.arg(i) for i in range(len(args))), *(ir.param(i) for i in range(len(params))))
        return self._make(Apply, line.out, line.expr, (*args, *params), table)

    def _parameter(self, var: ir.Var, axes: Sequence[ir.Axis]) -> Operand:
        line = self.line[var]
        if not isinstance(line, ir.InputScalar):
            raise unsupported(f"the scalar {var.name} in a function of data")
        if line.per_sample:
            return self._arranged(self._array(var, False), var, var.axes, axes, False)
        if not isinstance(line.limit, tuple):
            return float(line.limit)
        base = self.scope.code.make(do.Numbers, Layout(0, (None,) * len(var.axes), NOTHING), line.limit, stem=var.name)
        return self._arranged(base, var, var.axes, axes, False)

    def _moved(self, line: ir.IndexForm) -> Operand:
        """Elements gathered; families by other axes are the same arrays."""
        m = index_map(line)
        if m.transposed or m.outside == "drop":
            raise unsupported(f"the data line {line.out.name}")
        if m.is_renaming:
            return self.need(line.of)
        return self._element(line, m) if m.fixed else self._gathered(line, m)

    def _element(self, line: ir.IndexForm, m: IndexMap) -> Operand:
        positions = {r.axis: r.offsets[0] for r in m.fixed}
        marks = (Mark.KEEP, *(positions.get(a, Mark.KEEP) for a in line.of.axes))
        last = max(i for i, mark in enumerate(marks) if mark is not Mark.KEEP)
        return self._make(do.Slice, line.out, self.need(line.of), marks[: last + 1])

    def _gathered(self, line: ir.IndexForm, m: IndexMap) -> Operand:
        """[n, positions, taps, feature] by gathering along every axis that is read, at one tap where there is none."""
        axes = [r.axis for r in m.reads]
        moving = [r.at for r in m.reads if r.at is not None]
        rest = [a for a in line.of.axes if a not in axes]
        dims = tuple(self._dim(line.of, a) for a in axes)
        sizes = tuple(self.scope.size(line.out.size(a), Copy.OWN) for a in moving)
        offsets = tuple(zip(*(r.offsets for r in m.reads), strict=True))
        stride = tuple(r.stride for r in m.reads)
        of = self.need(line.of)
        have = [*moving, *([] if m.tap is None else [m.tap]), *rest]
        self.scope.code.stem = line.out.name
        axes_have = _layout(have, line.out, True)
        at_tap = axes_have
        if m.tap is None:
            before, after = axes_have.axes[: len(moving)], axes_have.axes[len(moving) :]
            at_tap = axes_have._replace(axes=(*before, None, *after))
        found: Operand = self.scope.code.make(do.Windows, at_tap, of, dims, offsets, stride, sizes, m.outside == "wrap")
        if m.tap is None:
            marks = (*[Mark.KEEP] * (1 + len(moving)), 0)
            found = self.scope.code.make(do.Slice, axes_have, found, marks, stem=line.out.name)
        return self._arranged(found, line.out, have, line.out.axes, True)

    def _arranged(
        self, base: Operand, var: ir.Var, have: Sequence[ir.Axis], want: Sequence[ir.Axis], features: bool
    ) -> Operand:
        """A view with the axes in the wanted order, of size 1 where missing, and a feature dimension at the end."""
        leads = 0 if self._is_constant(base) else 1
        kept = [a for a in want if a in have]
        order = [*range(leads), *(leads + have.index(a) for a in kept), *([leads + len(have)] if features else [])]
        stem = self.scope.stem(base)
        if order != list(range(len(order))):
            layout = _layout(kept, var, features)._replace(leads=leads)
            base = self.scope.code.make(do.Permute, layout, base, tuple(order), stem=stem)
        marks = [Mark.KEEP] * leads + [Mark.KEEP if a in have else Mark.NEW for a in want]
        marks.append(Mark.KEEP if features else Mark.NEW)
        if all(m is Mark.KEEP for m in marks):
            return base
        axes = tuple(_sym(a, var) if a in have else None for a in want)
        layout = Layout(leads, (*axes, FEATURE if features else None), LINE if leads else NOTHING)
        return self.scope.code.make(do.Slice, layout, base, tuple(marks), stem=stem)

    def _is_constant(self, base: Operand) -> bool:
        layout = self.scope.layout(base)
        return layout is not None and layout.leads == 0


def _layout(axes: Sequence[ir.Axis], var: ir.Var, features: bool) -> Layout:
    return Layout(1, (*(_sym(a, var) for a in axes), *((FEATURE,) if features else ())), LINE)


def _sym(axis: ir.Axis, var: ir.Var) -> Sym:
    return Sym(0, var.size(axis), Copy.OWN, axis.name)
