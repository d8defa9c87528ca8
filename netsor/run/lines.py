"""A program run at a small finite width, in numpy: what witnesses are made of.

`generic` values stand for arbitrary arguments (variances, means and given limits are ignored, so that a function's
dependence and parity show); `natural` values follow the program's own distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from netsor import ir
from netsor.errors import InputError
from netsor.facts import covariance_blocks, input_vectors
from netsor.indexing import index_map
from netsor.measure import FAR, written_size
from netsor.run import draws
from netsor.run.arrays import Value
from netsor.run.execute import Run, Scope, canonical
from netsor.run.expressions import Array, NoValue
from netsor.run.order import Loop, Step, steps
from netsor.run.shapes import Sizes
from netsor.run.work import Work

Values = dict[ir.Var, Array]
_LIKE = np.zeros(())


# ---------------------------------------------------------------- inputs


def generic(lines: Sequence[ir.Line], sizes: Sizes, rng: np.random.Generator) -> Values:
    """Inputs in general position: standard normal numbers, of matrices over √cols."""
    found = _drawn(lines, sizes, rng)
    for line in lines:
        if isinstance(line, ir.InputMatrix):
            found[line.out] = found[line.out] / np.sqrt(found[line.out].shape[-1])
    return found


def _drawn(lines: Sequence[ir.Line], sizes: Sizes, rng: np.random.Generator) -> Values:
    found = {line.out: _standard(line, sizes, rng) for line in lines}
    return {v: value for v, value in found.items() if value is not None}


def _standard(line: ir.Line, sizes: Sizes, rng: np.random.Generator) -> Array | None:
    """Standard normal numbers for an input; None for other lines, which are computed."""
    shape = sizes.shape(line.out)
    match line:
        case ir.InputMatrix() | ir.InputVector() | ir.Data():
            return rng.standard_normal(shape)
        case ir.InputScalar():
            return _given(line, sizes) if is_constant(line) else rng.uniform(0.5, 1.5, shape)
        case ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment() | ir.IndexLine() | ir.Reduce() | ir.Softmax():
            return None
        case _:
            assert_never(line)


def is_constant(line: ir.Line) -> bool:
    """An array of numbers over axes: it has its values at every width."""
    return isinstance(line, ir.InputScalar) and line.limit is not None and bool(line.out.dims)


def _given(line: ir.InputScalar, sizes: Sizes) -> Array:
    return np.array(draws.constant(line, sizes, _LIKE, Value.xp))


def natural(
    lines: Sequence[ir.Line], sizes: Sizes, rng: np.random.Generator, data: Mapping[str, Any] | None = None
) -> Values:
    """Inputs drawn as the program says; data and scalars without a limit are given, or in general position."""
    found = _drawn(lines, sizes, rng)
    given = data or {}
    for line in lines:
        if isinstance(line, ir.InputMatrix):
            found[line.out] = draws.factor(line, sizes) * math.sqrt(line.var) * found[line.out]
        elif isinstance(line, ir.InputScalar) and line.limit is not None:
            found[line.out] = _given(line, sizes)
        elif isinstance(line, ir.Data | ir.InputScalar) and line.out.name in given:
            found[line.out] = np.broadcast_to(np.asarray(given[line.out.name], float), sizes.shape(line.out)).copy()

    def normal(v: ir.InputVector, k: int) -> Array:
        return found[v.out].reshape(k, -1)

    beta: Values = {}
    try:
        for block in covariance_blocks(lines):
            beta |= draws.vectors(block, sizes, normal, Value.xp)
    except InputError as error:
        raise NoValue(str(error)) from error
    return found | {v.out: draws.factor(v, sizes) * beta[v.out] for v in input_vectors(lines)}


# ---------------------------------------------------------------- lines


def execute(lines: Sequence[ir.Line], inputs: Mapping[ir.Var, Array], sizes: Sizes) -> Values:
    """All variables of a program, `[*axes, coordinate]`, given its inputs, for one sample."""
    given = {v: Value(x if v.kind == "A" else x[None], _names(v)) for v, x in inputs.items()}
    with np.errstate(all="ignore"):
        values = canonical(Run(Value.xp, sizes, _LIKE).block(steps(lines), Scope(given)))
    return {v: x.data if v.kind == "A" else np.asarray(x.data[0]) for v, x in values.items()}


MOST_NUMBERS = 30_000_000  # held at once by a run of a program


def pay(work: Work, lines: Sequence[ir.Line], sizes: Sizes, times: int = 1) -> None:
    """Take the steps of running a program at these sizes, or end the question."""
    held, taken = _cost(steps(lines), sizes, 1)
    work.take(taken * times if held <= MOST_NUMBERS else FAR)


def _cost(program: Sequence[Step], sizes: Sizes, repeated: int) -> tuple[int, int]:
    """Numbers that are held, and steps; inside loops a line is computed so many times, for a part of its numbers."""
    numbers, taken = 0, 0
    for step in program:
        if isinstance(step, Loop):
            held, more = _cost(step.body, sizes, repeated * sizes.size(step.made[0].size(step.axis)))
        else:
            held = math.prod(sizes.shape(step.out))
            more = repeated * _steps(step, sizes, held // max(1, repeated))
        numbers, taken = numbers + held, taken + more
    return numbers, taken


def _steps(line: ir.Line, sizes: Sizes, held: int) -> int:
    """Nodes of the expression, for one number of each argument and per thousand."""
    match line:
        case ir.MatMul():
            return 4 + held * sizes.dimension(line.matrix.cols) // 100_000
        case ir.Nonlin() | ir.Moment():
            largest = max([held, *(math.prod(sizes.shape(v)) for v in line.args)])
            return _node_steps(written_size(line.expr), largest)
        case ir.IndexLine():
            return _node_steps(2 * index_map(line).taps, held)
        case (
            ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.Reduce()
            | ir.Softmax()
        ):  # fmt: skip
            return _node_steps(2, held)
        case _:
            assert_never(line)


def _node_steps(nodes: int, held: int) -> int:
    return 2 + nodes + nodes * held // 1000


def _names(v: ir.Var) -> tuple[str, ...]:
    return tuple(d.axis.name for d in v.dims)
