"""A program at finite width, one line after the other, in torch float64: too simple to be wrong.

A family is a tensor [*axes, n] (scalars [*axes], matrices [*axes, rows, cols]), axes in the variable's order. Lines
that read a later line (scans) are evaluated again until nothing changes. A zero `probe` is added to every G-var, so
that autograd's gradient at the probe is the total derivative with respect to that variable.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from math import sqrt
from typing import Any, assert_never

import sympy as sp
import torch
from torch import Tensor

from netsor import ir
from netsor.dsl import Program
from netsor.functions import exact, write_out

TORCH = {
    "Heaviside": lambda x, at_zero: torch.heaviside(tensor(x).detach(), tensor(at_zero)),
    "sign": lambda x: torch.sign(x),
    "Abs": lambda x: torch.abs(x),
    "Max": lambda *a: torch.stack(torch.broadcast_tensors(*map(tensor, a))).amax(0),
    "Min": lambda *a: torch.stack(torch.broadcast_tensors(*map(tensor, a))).amin(0),
    "floor": lambda x: torch.floor(tensor(x)),
    "pi": torch.pi,
} | {name: (lambda f: lambda x: f(tensor(x)))(getattr(torch, name)) for name in (
    "sqrt", "exp", "log", "tanh", "erf", "sin", "cos", "tan", "cosh", "sinh",
)}  # fmt: skip


def tensor(x: Any) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


@cache
def compiled(expr: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Any:
    return sp.lambdify(symbols, write_out(expr), modules=[TORCH])


class Interpreter:
    """Values of all variables of p: `data` per data input and per-sample scalar, `sizes` per data axis."""

    def __init__(self, p: Program, data: Mapping[str, Any], n: int = 32, seed: int = 0) -> None:
        self.p = p
        self.data = {k: tensor(v) for k, v in data.items()}
        self.n = n
        self.seed = seed
        self.sizes: dict[str, int] = {}
        for line in p.lines:
            if line.out.name in self.data:
                for d, size in zip(line.out.dims, self.data[line.out.name].shape, strict=False):
                    self.sizes[d.axis.name] = size
        self.arrays = {line.out.name: self._sample(line) for line in p.lines if line.out.kind in "AG"}
        self.probes = {
            line.out.name: torch.zeros(self.shape(line.out), dtype=torch.float64, requires_grad=True)
            for line in p.lines if line.out.kind == "G"
        }  # fmt: skip
        self.values: dict[ir.Var, Tensor] = {}
        self._run()

    # ------------------------------------------------------------ shapes

    def dimension(self, d: ir.Dimension | None) -> int:
        if isinstance(d, ir.Feature):
            return self.data[d.name].shape[-1]
        assert isinstance(d, ir.Width)
        size = exact(d.ratio) * self.n
        assert size == int(size), "choose n so that every width is whole"
        return int(size)

    def size(self, s: ir.Size) -> int:
        match s:
            case int():
                return s
            case ir.SizeOf():
                return self.sizes[s.axis]
            case ir.Strided():
                return -((s.minus - self.size(s.of)) // s.stride)

    def shape(self, v: ir.Var) -> tuple[int, ...]:
        axes = tuple(self.size(d.size) for d in v.dims)
        if v.kind == "C":
            return axes
        rows = (*axes, self.dimension(v.rows))
        return (*rows, self.dimension(v.cols)) if v.kind == "A" else rows

    # ------------------------------------------------------------ arrays

    def _sample(self, line: ir.Line) -> Tensor:
        generator = torch.Generator().manual_seed(hash_name(line.out.name) + self.seed)
        z = torch.randn(self.shape(line.out), dtype=torch.float64, generator=generator)
        if isinstance(line, ir.InputMatrix):
            fan_in = self.dimension(line.out.cols) if line.fan_in == "cols" else line.fan_in or 1
            return z * float(line.multiplier) * sqrt(float(line.var) / float(fan_in))
        if isinstance(line, ir.InputVector):
            return float(line.multiplier) * (float(line.mean) + sqrt(float(line.var)) * z)
        return z

    # ------------------------------------------------------------ evaluation

    def _run(self) -> None:
        late = {x.of for x in self.p.lines if isinstance(x, ir.Shift)}
        self.values = {v: torch.zeros(self.shape(v), dtype=torch.float64) for v in late}
        while True:
            before = {v: self.values[v] for v in late}
            for line in self.p.lines:
                out = self.line(line)
                self.values[line.out] = out.expand(self.shape(line.out)) if line.out.kind != "A" else out
            if all(torch.equal(before[v], self.values[v]) for v in late):
                return

    def aligned(self, v: ir.Var, axes: Sequence[ir.Axis], tail: int) -> Tensor:
        """The value with one (perhaps broadcast) dimension per axis, then its own; scalars get `tail` ones."""
        value = self.values[v]
        own = list(v.axes)
        missing = [a for a in own if a not in axes]
        assert not missing, f"{v} has {missing}"
        rest = list(range(len(own), value.dim()))
        value = value.permute([own.index(a) for a in axes if a in own] + rest)
        for i, a in enumerate(axes):
            if a not in own:
                value = value.unsqueeze(i)
        return value.reshape((*value.shape, *[1] * (tail - len(rest))))

    def line(self, line: ir.Line) -> Tensor:
        out = line.out
        match line:
            case ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data():
                return self.input(line)
            case ir.Trsp():
                return self.values[line.of].transpose(-1, -2)
            case ir.MatMul():
                w, x = self.aligned(line.matrix, out.axes, 2), self.aligned(line.vector, out.axes, 1)
                return (w @ x.unsqueeze(-1)).squeeze(-1) + self.probes[out.name]
            case ir.Nonlin() | ir.Moment():
                value = self.apply(line)
                return value.mean(-1) if line.args and isinstance(line, ir.Moment) else value
            case ir.Softmax():
                weight = torch.exp(self.aligned(line.of, out.axes, 0))
                if line.mask is not None:
                    weight = weight * self.aligned(line.mask, out.axes, 0)
                return weight / weight.sum(out.axes.index(line.axis), keepdim=True)
            case ir.Reduce():
                axis = line.of.axes.index(line.axis)
                x = self.values[line.of]
                return x.amax(axis) if line.op == "max" else x.sum(axis) if line.op == "sum" else x.mean(axis)
            case ir.Window() | ir.Unwindow() | ir.At() | ir.Place() | ir.Shift() | ir.Rename():
                return self.index(line)
            case _:
                assert_never(line)

    def input(self, line: ir.InputMatrix | ir.InputVector | ir.InputScalar | ir.Data) -> Tensor:
        name = line.out.name
        if name in self.data:
            return self.data[name]
        if not isinstance(line, ir.InputScalar):
            return self.arrays[name] + self.probes.get(name, 0)
        if line.limit == "position":
            return torch.arange(*self.shape(line.out), dtype=torch.float64)
        return tensor(line.limit if isinstance(line.limit, tuple) else float(line.limit))

    def apply(self, line: ir.Nonlin | ir.Moment) -> Tensor:
        tail = 1 if line.args else 0
        symbols = [ir.arg(i) for i in range(len(line.args))] + [ir.param(i) for i in range(len(line.params))]
        values = [self.aligned(v, line.out.axes, tail) for v in (*line.args, *line.params)]
        value = tensor(compiled(line.expr, tuple(symbols))(*values))
        shape = [self.size(d.size) for d in line.out.dims]
        return value.expand(*shape, self.dimension(line.args[0].rows)) if line.args else value

    # ------------------------------------------------------------ index forms

    def index(self, line: ir.IndexForm) -> Tensor:
        out, of = line.out, line.of
        x = self.values[of]
        match line:
            case ir.Rename():
                return x
            case ir.At():
                return x.select(of.axes.index(line.axis), line.index)
            case ir.Place():
                axis = out.axes.index(line.axis)
                zero = torch.zeros_like(x)
                size = self.size(out.dims[axis].size)
                return torch.stack([x if t == line.index % size else zero for t in range(size)], axis)
            case ir.Shift():
                axis = of.axes.index(line.axis)
                rows = x.unbind(axis)
                zero = torch.zeros_like(rows[0])
                size = len(rows)
                moved = [rows[t - line.by] if 0 <= t - line.by < size else zero for t in range(size)]
                return torch.stack(moved, axis)
            case ir.Window():
                return self.window(line, x)
            case ir.Unwindow():
                return self.unwindow(line, x)
            case _:
                assert_never(line)

    def positions(self, line: ir.Window | ir.Unwindow, small: ir.Var, large: ir.Var) -> Any:
        """All (s, κ, position read), with None for a position outside."""
        sizes = [self.size(small.size(a)) for a in line.axes]
        full = [self.size(large.size(a)) for a in line.axes]
        for s in itertools.product(*map(range, sizes)):
            for k, offset in enumerate(line.offsets):
                where = [st * i + o for st, i, o in zip(line.stride, s, offset, strict=True)]
                if line.outside == "wrap":
                    where = [w % f for w, f in zip(where, full, strict=True)]
                inside = all(0 <= w < f for w, f in zip(where, full, strict=True))
                yield s, k, tuple(where) if inside else None

    def window(self, line: ir.Window, x: Tensor) -> Tensor:
        out, of = line.out, line.of
        front = x.movedim([of.axes.index(a) for a in line.axes], list(range(len(line.axes))))
        empty = torch.full_like(front[(0,) * len(line.axes)], float("-inf") if line.outside == "drop" else 0.0)
        cells = [empty if w is None else front[w] for _, _, w in self.positions(line, out, of)]
        sizes = [self.size(out.size(a)) for a in line.axes]
        value = torch.stack(cells).reshape(*sizes, len(line.offsets), *empty.shape)
        places = [out.axes.index(a) for a in (*line.axes, line.tap)]
        return value.movedim(list(range(len(places))), places)

    def unwindow(self, line: ir.Unwindow, x: Tensor) -> Tensor:
        out, of = line.out, line.of
        front = x.movedim([of.axes.index(a) for a in (*line.axes, line.tap)], list(range(len(line.axes) + 1)))
        sizes = [self.size(out.size(a)) for a in line.axes]
        value = front.new_zeros(*sizes, *front.shape[len(line.axes) + 1 :])
        for s, k, w in self.positions(line, of, out):
            if w is not None:
                value[w] += front[(*s, k)]
        return value.movedim(list(range(len(line.axes))), [out.axes.index(a) for a in line.axes])

    # ------------------------------------------------------------ outputs

    def output(self, name: str | None = None) -> Tensor:
        """f [*output axes] of one name."""
        name = name or self.p.outputs[0].name
        total: Tensor | float = 0.0
        for o in self.p.outputs:
            if o.name == name:
                axes = (*(a for a in o.vector.axes if a not in o.readout.axes), *o.readout.axes)
                v, x = self.aligned(o.readout, axes, 1), self.aligned(o.vector, axes, 1)
                count = len(o.readout.axes)
                positions = torch.tensor(self.shape(o.readout)[:count], dtype=torch.float64).prod()
                f = (v * x).sum(-1) / torch.sqrt(positions * self.dimension(o.vector.rows)) * float(o.scale)
                total = total + (f.sum(tuple(range(f.dim() - count, f.dim()))) if count else f)
        return tensor(total)


def hash_name(name: str) -> int:
    return sum(ord(c) * pow(31, i, 2**31) for i, c in enumerate(name)) % 2**31
