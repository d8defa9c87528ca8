"""A program run at a small finite width, in numpy: what witnesses are made of.

`generic` values stand for arbitrary arguments (variances, means and given limits are ignored, so that a function's
dependence and parity show); `natural` values follow the program's own distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, assert_never, cast

import numpy as np

from netsor import ir
from netsor.facts import covariance, covariance_blocks, fan_in, input_vectors
from netsor.indexing import index_map
from netsor.measure import FAR, written_size
from netsor.run.arrays import Value
from netsor.run.expressions import Array
from netsor.run.flow import spans
from netsor.run.rules import evaluate
from netsor.run.shapes import Sizes
from netsor.run.work import Work

Values = dict[ir.Var, Array]


# ---------------------------------------------------------------- inputs


def generic(lines: Sequence[ir.Line], sizes: Sizes, rng: np.random.Generator) -> Values:
    """Inputs in general position."""
    found: Values = {}
    for line in lines:
        value = _generic(line, sizes, rng)
        if value is not None:
            found[line.out] = value
    return found


def _generic(line: ir.Line, sizes: Sizes, rng: np.random.Generator) -> Array | None:
    """A value of an input; None of other lines, which are computed."""
    shape = sizes.shape(line.out)
    match line:
        case ir.InputMatrix():
            return cast(Array, rng.standard_normal(shape) / np.sqrt(shape[-1]))
        case ir.InputVector() | ir.Data():
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
    """The limit as an array; "position" is each element's own index."""
    shape = sizes.shape(line.out)
    limit = np.arange(shape[0], dtype=float) if line.limit == "position" else np.asarray(line.limit, dtype=float)
    return np.broadcast_to(limit, shape).copy()


def natural(
    lines: Sequence[ir.Line], sizes: Sizes, rng: np.random.Generator, data: Mapping[str, Any] | None = None
) -> Values:
    """Inputs drawn as the program says; data and scalars without a limit are given, or in general position."""
    found = generic(lines, sizes, rng)
    given = data or {}
    for line in lines:
        if isinstance(line, ir.InputMatrix):
            found[line.out] = found[line.out] * matrix_scale(line, sizes)
        elif isinstance(line, ir.InputScalar) and line.limit is not None:
            found[line.out] = _given(line, sizes)
        elif isinstance(line, ir.Data | ir.InputScalar) and line.out.name in given:
            found[line.out] = np.broadcast_to(np.asarray(given[line.out.name], float), sizes.shape(line.out)).copy()
    _draw_vectors(input_vectors(lines), found)
    return found


def matrix_scale(line: ir.InputMatrix, sizes: Sizes) -> float:
    """The factor from N(0, 1/cols) to the matrix's entries."""
    cols = sizes.dimension(line.out.cols)
    return float(line.multiplier) * float(np.sqrt(float(line.var) * cols / float(fan_in(line, cols))))


def blocks(vectors: Sequence[ir.InputVector]) -> list[list[ir.InputVector]]:
    """Input vectors in classes connected by nonzero covariance, in program order."""
    return [sorted(block, key=vectors.index) for block in covariance_blocks(vectors)]


def covariances(block: Sequence[ir.InputVector]) -> Array:
    """The covariance matrix of a coordinate of some input vectors."""
    return np.array([[float(covariance(a, b)) for b in block] for a in block])


def _draw_vectors(vectors: Sequence[ir.InputVector], found: Values) -> None:
    """Turn standard normal draws into the joint distribution of the input vectors."""
    for block in blocks(vectors):
        if len(block) > 1:
            root = _square_root(covariances(block))
            draws = [found[v.out] for v in block]
            for row, line in zip(root, block, strict=True):
                found[line.out] = sum((r * d for r, d in zip(row, draws, strict=True)), np.zeros(()))
        else:
            found[block[0].out] = found[block[0].out] * np.sqrt(float(block[0].var))
        for line in block:
            found[line.out] = float(line.multiplier) * (float(line.mean) + _over_axes(line, found[line.out]))


def _over_axes(line: ir.InputVector, draws: Array) -> Array:
    for axis, matrix in line.axis_cov:
        root = _square_root(np.asarray(matrix, dtype=float))
        i = line.out.axes.index(axis)
        draws = np.moveaxis(np.tensordot(root, draws, axes=(1, i)), 0, i)
    return draws


def _square_root(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


# ---------------------------------------------------------------- lines


def execute(lines: Sequence[ir.Line], inputs: Mapping[ir.Var, Array], sizes: Sizes) -> Values:
    """All variables of a program, given its inputs."""
    values: Values = dict(inputs)
    with np.errstate(all="ignore"):
        for start, end in spans(lines):
            for line in lines[start:end]:
                if isinstance(line, ir.Shift):
                    values.setdefault(line.of, np.zeros(sizes.shape(line.of)))
            for _ in range(_passes(lines[start:end], sizes)):
                for line in lines[start:end]:
                    if line.out not in inputs:
                        values[line.out] = _line(line, values, sizes)
    return values


def _passes(lines: Sequence[ir.Line], sizes: Sizes) -> int:
    """A scan's lines are right after as many passes as its axis has elements."""
    if len(lines) == 1 and not isinstance(lines[0], ir.Shift):
        return 1
    lengths = [sizes.size(x.of.size(x.axis)) for x in lines if isinstance(x, ir.Shift)]
    return max([1, *lengths]) if len(lines) > 1 else 1


MOST_NUMBERS = 30_000_000  # held at once by a run of a program


def pay(work: Work, lines: Sequence[ir.Line], sizes: Sizes, times: int = 1) -> None:
    """Take the steps of running a program at these sizes, or end the question."""
    numbers, steps = 0, 0
    for start, end in spans(lines):
        passes = _passes(lines[start:end], sizes)
        for line in lines[start:end]:
            held = math.prod(sizes.shape(line.out))
            numbers += held
            steps += passes * _steps(line, sizes, held)
    work.take(steps * times if numbers <= MOST_NUMBERS else FAR)


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


def _line(line: ir.Line, values: Values, sizes: Sizes) -> Array:
    """A line's array `[*axes, n]` by the rules, for one sample."""

    def read(v: ir.Var) -> Value:
        return Value(values[v] if v.kind == "A" else values[v][None], _names(v))

    match line:
        case ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data():
            raise KeyError(line.out)  # an input that is not given
        case (
            ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment() | ir.IndexLine() | ir.Reduce() | ir.Softmax()
        ):  # fmt: skip
            found = evaluate(line, read, _names(line.out), sizes, Value.xp)
        case _:
            assert_never(line)
    if line.out.kind == "A":
        return found.data
    return np.asarray(found.expanded(_names(line.out), sizes.axes(line.out)).data[0])


def _names(v: ir.Var) -> tuple[str, ...]:
    return tuple(d.axis.name for d in v.dims)
