"""Recurrent layers and cells: torch's RNN, GRU and LSTM as scans over time with one matrix per gate."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from netsor import functions as fn
from netsor import ir
from netsor.build.expressions import Expr
from netsor.compilers.lift.lifter import Lifter, Restart
from netsor.compilers.lift.rules.contract import contract, placed, with_bias
from netsor.compilers.lift.rules.dimensions.joins import joined, stacked
from netsor.compilers.lift.rules.dimensions.shapes import rank
from netsor.compilers.lift.rules.elementwise import applied, combined, is_zero
from netsor.compilers.lift.rules.randomness import dropped
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Data, Dim, Parameter, Value

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}


@rule("rnn_tanh", "rnn_relu", "gru", "lstm")
def _layers(
    L: Lifter, x: Any, start: Any, parameters: Sequence[Any], biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> list[Any]:  # fmt: skip
    """All layers and directions: the states at every time, and the last state (and cell) of each."""
    if L.step.node.target._overloadname == "data":
        raise L.no_rule("packed sequences", "padded sequences, and a mask or a mean over the steps that count")
    if dropout and train and layers > 1:
        raise dropped(L)
    directions, kind = 1 + bidirectional, L.step.name
    per = len(parameters) // (layers * directions)
    starts = list(start) if kind == "lstm" else [start]
    time = 1 if batch_first else 0
    ends: list[list[Value]] = []
    for layer in range(layers):
        states: list[Value] = []
        for direction in range(directions):
            j = layer * directions + direction
            cell = Cell(L, kind, parameters[j * per : (j + 1) * per])
            found = _scanned(L, cell, x, time, [_element(L, s, j) for s in starts], bool(direction))
            states.append(found[0])
            ends.append([_last(s, time, bool(direction)) for s in found] if _reads(L, 1) or _reads(L, 2) else [])
        x = states[0] if directions == 1 else joined(L, states, 2)
    last = [stacked(L, list(column)) if column else None for column in zip(*ends, strict=True)]
    return [x, *last]


def _reads(L: Lifter, i: int) -> bool:
    return any(user.args[1] == i for user in L.step.node.users)


def _element(L: Lifter, start: Any, j: int) -> Value:
    """The initial state of a layer and direction."""
    v = L.value(start)
    axis = v.dims[0][0].axis if v.dims[0] else None
    return Value(v.dims[1:], v.expr if axis is None else v.expr.at(axis, j), v.power)


class Cell:
    """The affine maps of a cell: U x + b and W h + b′, gate by gate; states of an LSTM may be P (o tanh c)."""

    def __init__(self, L: Lifter, kind: str, parameters: Sequence[Any]) -> None:
        self.L, self.kind, self.gates = L, kind, GATES[kind]
        self.u, self.w = parameters[:2]
        biases = parameters[2:4] if len(parameters) > 3 and parameters[2] is not None else (None, None)
        self.b: Any = biases[0]
        self.c: Any = biases[1]
        self.p: Any = parameters[-1] if len(parameters) in (3, 5) else None
        if kind != "rnn_relu":
            L.arrays.smooth.add(self.u.name)
        self._take_apart([p for p in (self.u, self.w, self.b, self.c) if p is not None])

    def _take_apart(self, parameters: Sequence[Any]) -> None:
        """The rows of each parameter are gates times a width."""
        L, k, splits = self.L, self.gates, {}
        if self.p is not None and (self.p.sizes[0][0] == self.p.sizes[0][1] or not self.p.whole):
            raise L.refuse(
                "NT812", f"{self.p.name} maps the states to a finite dimension",
                "a finite layer between wide ones keeps its random values: a proj_size that grows with the width",
            )  # fmt: skip
        for p in parameters:
            if not isinstance(p, Parameter) or not p.whole:
                raise L.no_rule("weights that are computed", "parameters as they are")
            m, n = p.sizes[0]
            if k > 1 and (p.name, 0) not in L.facts.splits:
                splits[p.name, 0] = ((k, k), (m // k, n // k))
        if splits:
            raise Restart(replace(L.facts, splits={**L.facts.splits, **splits}))

    def declare(self, width: Dim) -> Dim:
        """The arrays of the state, before a scan traces its step; the width of the state."""
        state = width
        if self.p is not None:
            state = placed(self.L, self.p, 0, width)[0].rows
        placed(self.L, self.w, 0, state)
        if self.c is not None:
            self.L.value(self.c)
        return state

    def of_input(self, x: Any) -> list[Value]:
        return self._affine(self.u, x, self.b)

    def of_state(self, h: Value) -> list[Value]:
        if is_zero(h):
            width: Dim = self.L.rows_of(self.w.name, 0, self.w.sizes[0])
            zero = Value((*h.dims[:-1], width), 0)
            return self._by_gate(zero if self.c is None else combined(self.L, zero, self.c, operator.add))
        return self._affine(self.w, h, self.c)

    def _affine(self, w: Parameter, x: Any, b: Any) -> list[Value]:
        y = contract(self.L, w, x, rank(x) - 1, 1)
        return self._by_gate(y if b is None else with_bias(self.L, y, b))

    def _by_gate(self, y: Value) -> list[Value]:
        if self.gates == 1:
            return [y]
        gate, *rest = y.dims[-1]
        assert gate.axis is not None
        dims = (*y.dims[:-1], tuple(rest))
        return [Value(dims, _at(y.expr, gate.axis, i), y.power) for i in range(self.gates)]

    def __call__(self, inputs: Sequence[Value], states: Sequence[Value]) -> list[Value]:
        """The next state (and cell), as torch defines them."""
        L, h = self.L, states[0]
        recurrent = self.of_state(h)
        if self.kind == "gru":
            r, z = (_gate(L, fn.sigmoid, _add(L, inputs[i], recurrent[i])) for i in (0, 1))
            new = _gate(L, fn.tanh, _add(L, inputs[2], _mul(L, r, recurrent[2])))
            return [_add(L, _mul(L, _gate(L, lambda e: 1 - e, z), new), _mul(L, z, h))]
        sums = [_add(L, a, b) for a, b in zip(inputs, recurrent, strict=True)]
        if self.kind == "lstm":
            i, f, o = (_gate(L, fn.sigmoid, sums[j]) for j in (0, 1, 3))
            c = _add(L, _mul(L, f, states[1]), _mul(L, i, _gate(L, fn.tanh, sums[2])))
            new = _mul(L, o, _gate(L, fn.tanh, c))
            return [new if self.p is None else contract(L, self.p, new, -1, 1), c]
        return [applied(L, sums[0], fn.relu if self.kind == "rnn_relu" else fn.tanh)]


def _at(expr: Any, axis: ir.Axis, i: int) -> Any:
    return expr.at(axis, i) if isinstance(expr, Expr) else expr


def _gate(L: Lifter, f: Callable[[Any], Any], x: Value) -> Value:
    return applied(L, x, f)


def _add(L: Lifter, a: Value, b: Value) -> Value:
    found = combined(L, a, b, operator.add)
    assert isinstance(found, Value)
    return found


def _mul(L: Lifter, a: Value, b: Value) -> Value:
    x, y, dims = L.aligned(a, b)
    return Value(dims, x.expr * y.expr)


# ---------------------------------------------------------------- time


def _scanned(L: Lifter, cell: Cell, x: Any, place: int, starts: Sequence[Value], reverse: bool) -> list[Value]:
    """The families of states over time."""
    _time(L, (L.data.dims(x, L.step.node) if isinstance(x, Data) else L.value(x).dims)[place])
    inputs = cell.of_input(x)
    axis = _time(L, inputs[0].dims[place])
    for s in starts:
        if s.power != 0:
            raise L.refuse("NT811", f"an initial state of the order n^{s.power}", "an initial state of order 1")
    dims = inputs[0].dims
    shapes = [(*dims[:-1], cell.declare(dims[-1])), dims][: len(starts)]  # of a state, and of an LSTM's cell

    def step(*previous: Expr) -> tuple[Expr, ...]:
        found = cell(inputs, [Value(d, e) for d, e in zip(shapes, previous, strict=True)])
        return tuple(s.expr for s in found)

    init = tuple(0 if is_zero(s) else s.expr for s in starts)
    states = L.program.scan(axis, init, step, reverse=reverse)
    return [Value(d, s) for d, s in zip(shapes, states, strict=True)]


def _time(L: Lifter, dim: Dim) -> ir.Axis:
    if any(a.kind == "sample" for a in dim):
        raise L.refuse(
            "NT815", "the recurrence runs over the samples, the first dimension of the inputs",
            "batch_first=True, or transpose the first two dimensions before the layer",
        )  # fmt: skip
    if len(dim) != 1 or dim[0].axis is None:
        raise L.no_rule("a recurrence of one step, or over several axes", "a time axis with two steps or more")
    return dim[0].axis


def _last(s: Value, place: int, reverse: bool) -> Value:
    (time,) = s.dims[place]
    assert time.axis is not None
    rest = (*s.dims[:place], *s.dims[place + 1 :])
    return Value(rest, s.expr.at(time.axis, 0 if reverse else time.size[0] - 1))


@rule("rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell")
def _cell(L: Lifter, x: Any, start: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> Any:
    """One step."""
    kind = L.step.name.removesuffix("_cell")
    cell = Cell(L, kind, [w, u, b, c])
    states = [L.value(s) for s in (start if kind == "lstm" else [start])]
    found = cell(cell.of_input(x), states)
    return found if kind == "lstm" else found[0]
