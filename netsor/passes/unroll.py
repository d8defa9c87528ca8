"""The straight-line program that families are shorthand for, at given sizes of the axes.

Every element of a family is one variable: `x[2, 3]` becomes `x_2_3`. Sums and means over an axis become Nonlins, a
maximum a Nonlin with Max, a softmax arithmetic of scalars; windows, at, place, shift and rename disappear, and so does
every zero vector. A matrix or vector without an axis is shared along it. The elements of a data family are data of
one feature dimension.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, assert_never

import sympy as sp

from netsor import ir
from netsor.build.constants import free_name
from netsor.build.expressions import Expr
from netsor.build.program import Program
from netsor.build.scales import multiplied, plain
from netsor.errors import Location, ProgramError, UnsupportedError
from netsor.indexing import Index, axis_covariance, limit_at, size_at, sources

Key = tuple[ir.Var, tuple[int, ...]]


def unroll(p: Program, sizes: Mapping[str, int]) -> Program:
    """The program without axes; `sizes` gives the axes whose size the data would decide."""
    return Unrolled(p, sizes).program


class _NeededError(Exception):
    """An element is read before it is made."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.key = key


class Unrolled:
    """A program unrolled: `program`, and `elements` from (variable, indices) to its variable or number.

    Random arrays that `shared`, the same program at other sizes, has already are its variables. UnsupportedError as
    soon as there are more than `most` lines.
    """

    def __init__(
        self, p: Program, sizes: Mapping[str, int], shared: Unrolled | None = None, most: float = math.inf
    ) -> None:  # fmt: skip
        self.source = p
        self.sizes = {a.name: a.size for a in p.axes if a.size is not None} | dict(sizes)
        self.program = Program.from_parts(p.name, p.widths, (), functions=p.functions, accepted=p.accepted)
        self.lines: dict[ir.Var, ir.Line] = {line.out: line for line in p.lines}
        self.shared: dict[Key, Any] = {} if shared is None else {**shared.shared, **shared.elements}
        self.elements: dict[Key, Any] = {}  # a variable, a number (a constant vector or scalar), None when left out
        self._ones: dict[ir.Dimension, Expr] = {}
        outputs = {o.at: [q for q in p.outputs if q.at == o.at] for o in p.outputs}
        for i, line in enumerate(p.lines):
            self._outputs(outputs.pop(i, []))
            for index in self.indices(line.out):
                self._make((line.out, tuple(index.values())))
            if len(self.program) > most:
                raise UnsupportedError(f"{p.name} has more than {most} lines without axes", code="NT702")
        self._outputs([o for rest in outputs.values() for o in rest])
        self._statements()

    def inputs(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays `[sample, *axes, …]` of the program's inputs as arrays of the elements, by name."""
        return self._split(x, 1)

    def arrays(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Random arrays `[*axes, …]` as arrays of the elements, by name."""
        return self._split(arrays, 0)

    def _split(self, arrays: Mapping[str, Any], before: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for var in self.lines:
            if var.name in arrays:
                for index in self.indices(var):
                    place = (slice(None),) * before + tuple(index.values())
                    element = self.get(var, index)
                    if isinstance(element, ir.Var):
                        found[element.name] = arrays[var.name][place]
        return found

    def size(self, size: ir.Size) -> int:
        return size_at(size, self.sizes)

    def indices(self, var: ir.Var) -> Iterator[dict[str, int]]:
        """The indices of every element, by axis, in the variable's order."""
        names = [d.axis.name for d in var.dims]
        for index in product(*(range(self.size(d.size)) for d in var.dims)):
            yield dict(zip(names, index, strict=True))

    def get(self, var: ir.Var, index: Index) -> Any:
        """The element of a variable; axes that it lacks are ignored."""
        key = (var, tuple(index[a.name] for a in var.axes))
        if key not in self.elements:
            raise _NeededError(key)
        return self.elements[key]

    # ------------------------------------------------------------ making elements

    def _make(self, key: Key) -> None:
        """One element, and before it those that a scan defines later."""
        stack = [key]
        while stack:
            top = stack[-1]
            if top in self.elements:
                stack.pop()
                continue
            var, values = top
            index = dict(zip((a.name for a in var.axes), values, strict=True))
            try:
                self.elements[top] = self._element(self.lines[var], index)
            except _NeededError as needed:
                if needed.key in stack:
                    raise ProgramError(
                        f"{element_name(*needed.key)} depends on itself", code="NT107", location=self.lines[var].loc
                    ) from None
                stack.append(needed.key)

    def _element(self, line: ir.Line, index: dict[str, int]) -> Any:
        name = element_name(line.out, tuple(index.values()))
        match line:
            case ir.InputMatrix() | ir.InputVector():
                return self._array(line, index, name)
            case ir.InputScalar():
                return self._scalar(line, index, name)
            case ir.Data():
                return self._add(dataclasses.replace(line, out=self._new(name, line.out.kind, line.out.rows)))
            case ir.Trsp():
                return self._trsp(line, index, name)
            case ir.MatMul():
                return self._matmul(line, index, name)
            case ir.Nonlin() | ir.Moment():
                return self._function(line, index, name)
            case ir.Reduce():
                return self._reduce(line, index, name)
            case ir.Softmax():
                return self._softmax(line, index, name)
            case ir.IndexLine():
                return self._moved(line, index, name)
            case _:
                assert_never(line)

    def _scalar(self, line: ir.InputScalar, index: Index, name: str) -> Any:
        limit = limit_at(line, tuple(index.values()))
        if line.out.dims and not line.per_sample and limit == 0:
            return sp.Integer(0)
        return self._add(dataclasses.replace(line, out=self._new(name, "C", None), limit=limit))

    def _trsp(self, line: ir.Trsp, index: Index, name: str) -> ir.Var:
        of = self.get(line.of, index)
        return self._add(ir.Trsp(self._new(name, "A", line.out.rows, line.out.cols), of, line.loc))

    def _matmul(self, line: ir.MatMul, index: Index, name: str) -> Any:
        x = self.get(line.vector, index)
        if x == 0:
            return sp.Integer(0)
        matrix, vector = self.get(line.matrix, index), self.vector(x, line.vector)
        return self._add(ir.MatMul(self._new(name, "G", line.out.rows), matrix, vector, line.loc))

    def _function(self, line: ir.Nonlin | ir.Moment, index: Index, name: str) -> Any:
        table = {ir.arg(i): self._sym(self.get(v, index)) for i, v in enumerate(line.args)}
        table |= {ir.param(i): self._sym(self.get(v, index)) for i, v in enumerate(line.params)}
        return self._coordinatewise(line, line.expr.xreplace(table), name)

    def _array(self, line: ir.InputMatrix | ir.InputVector, index: Index, name: str) -> ir.Var:
        if isinstance(line, ir.InputVector):
            var = multiplied(line.var, axis_covariance(line, index, index))
            line = dataclasses.replace(line, var=var, cov=self._cov(line, index), axis_cov=())
        known = self.shared.get((line.out, tuple(index.values())))
        if isinstance(known, ir.Var):
            self.program.adopt(dataclasses.replace(line, out=known))
            return known
        return self._add(dataclasses.replace(line, out=self._new(name, line.out.kind, line.out.rows, line.out.cols)))

    def _cov(self, line: ir.InputVector, index: Index) -> tuple[tuple[ir.Var, ir.Number], ...]:
        """Covariances with the elements made before: of the family itself, and of the vectors that `cov` lists."""
        found: list[tuple[ir.Var, ir.Number]] = []
        for other, c in line.cov:
            for there in self.indices(other):
                if c != 0 and all(index.get(a, i) == i for a, i in there.items()):
                    found.append((self.get(other, there), c))
        if line.axis_cov:
            for there in self.indices(line.out):
                earlier = tuple(there.values()) < tuple(index.values())
                if earlier and (c := multiplied(line.var, axis_covariance(line, index, there))):
                    found.append((self.get(line.out, there), plain(c, f"a covariance of {line.out}", line.loc)))
        return tuple(found)

    def _sym(self, element: Any) -> sp.Expr:
        return self.program.symbol_of(element) if isinstance(element, ir.Var) else element

    def _coordinatewise(self, line: ir.Line, sym: sp.Expr, name: str) -> Any:
        """The element with this value: a number, an element that is already there, or a new line."""
        p, out = self.program, line.out
        if not sym.free_symbols:
            return sym
        args, params = p.split(sym)
        if isinstance(line, ir.Moment) and args:
            made = self._new(name, "C", None)
            return self._add(ir.Moment(made, p.positional(sym, args, params), args, params, line.loc))
        if isinstance(sym, sp.Symbol) and (args or out.kind == "C"):
            return p.var_of_symbol(sym)
        if not args and out.kind != "C":
            sym = sym * self._one(out).sym
            args, params = p.split(sym)
        rule = ir.Nonlin if args else ir.Moment
        made = self._new(name, out.kind, out.rows)
        return self._add(rule(made, p.positional(sym, args, params), args, params, line.loc))

    def _reduce(self, line: ir.Reduce, index: Index, name: str) -> Any:
        count = self.size(line.of.size(line.axis))
        parts = [self.get(line.of, {**index, line.axis.name: i}) for i in range(count)]
        values = [self._sym(x) for x in parts if x is not None]
        if line.op == "max":
            return self._coordinatewise(line, sp.Max(*values), name)
        return self._coordinatewise(line, sp.Add(*values) / (count if line.op == "mean" else 1), name)

    def _softmax(self, line: ir.Softmax, index: Index, name: str) -> Any:
        weights: dict[int, sp.Expr] = {}
        for i in range(self.size(line.out.size(line.axis))):
            there = {**index, line.axis.name: i}
            mask = sp.Integer(1) if line.mask is None else self._sym(self.get(line.mask, there))
            weights[i] = mask * sp.exp(self._sym(self.get(line.of, there)))
        return self._coordinatewise(line, weights[index[line.axis.name]] / sp.Add(*weights.values()), name)

    def _moved(self, line: ir.IndexForm, index: Index, name: str) -> Any:
        places = sources(line, index, self.size)
        if places is None:
            return None
        if len(places) == 1:
            return self.get(line.of, places[0])
        return self._coordinatewise(line, sp.Add(*(self._sym(self.get(line.of, place)) for place in places)), name)

    # ------------------------------------------------------------ lines of the new program

    def _new(self, name: str, kind: ir.Kind, rows: Any, cols: Any = None) -> ir.Var:
        return self.program.new_var(free_name(self.program, name), kind, rows, cols)

    def _add(self, line: ir.Line) -> ir.Var:
        self.program.add(line)
        return line.out

    def _one(self, out: ir.Var) -> Expr:
        rows = out.rows
        if not isinstance(rows, ir.Width):
            raise UnsupportedError(f"{out} is data that is constant in its coordinates", code="NT701")
        if rows not in self._ones:
            name = free_name(self.program, f"one_{rows.name}")
            self._ones[rows] = self.program.vector(name, rows, mean=1, var=0)
        return self._ones[rows]

    def vector(self, element: Any, like: ir.Var, loc: Location | None = None) -> ir.Var:
        """The variable of an element; a constant becomes a vector."""
        if isinstance(element, ir.Var):
            return element
        if not isinstance(like.rows, ir.Width):
            raise UnsupportedError(f"{like} is data that is constant in its coordinates", code="NT701")
        name = free_name(self.program, f"constant_{like.name}")
        mean = int(element) if element.is_Integer else float(element)
        return self._add(ir.InputVector(self._new(name, "G", like.rows), mean, 0, loc=loc))

    def _outputs(self, outputs: list[ir.Output]) -> None:
        for o in outputs:
            free = [d for d in o.vector.dims if d.axis not in o.readout.axes]
            places = list(self.indices(o.readout))
            scale = o.scale if len(places) == 1 else float(o.scale) / math.sqrt(len(places))
            for outer in product(*(range(self.size(d.size)) for d in free)):
                name = "_".join([o.name, *map(str, outer)])
                at = dict(zip((d.axis.name for d in free), outer, strict=True))
                pairs = [(self.get(o.readout, s), self.get(o.vector, at | s)) for s in places]
                for v, x in [(v, x) for v, x in pairs if x != 0] or pairs[:1]:
                    vector = self.vector(x, o.vector)
                    self.program.state(ir.Output(name, v, vector, scale, len(self.program), o.loc))

    def _statements(self) -> None:
        p = self.program
        single = [g for g in self.source.gradients if set(g.is_.axes) <= set(g.of.axes)]  # others: of many outputs
        for g in single:
            for index in self.indices(g.of):
                y, dy = self.get(g.of, index), self.get(g.is_, index)
                if isinstance(y, ir.Var) and dy != 0:
                    p.state(ir.Gradient(y, self.vector(dy, g.is_), g.loc))
        for r in self.source.returned:
            for index in self.indices(r.value):
                c = self.get(r.value, index)
                if isinstance(c, ir.Var):
                    name = "_".join([r.name, *map(str, index.values())])
                    p.state(ir.Returns(name, c, r.loc))


def element_name(var: ir.Var, index: tuple[int, ...]) -> str:
    """`x_2_3` for x[2, 3]."""
    return "_".join([var.name, *map(str, index)])
