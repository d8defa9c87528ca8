"""What passes ask of a program: what a line reads, matrices and their transposes, the forward part, covariances.

Each fact stands here once. Nothing of the builder and no pass is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, assert_never, cast

import sympy as sp

from netsor import ir
from netsor.indexing import axes_of

T = TypeVar("T", int, float)

# ---------------------------------------------------------------- one line


def inputs_of(line: ir.Line) -> tuple[ir.Var, ...]:
    """The variables that a line reads."""
    match line:
        case ir.MatMul():
            return (line.matrix, line.vector)
        case ir.Nonlin() | ir.Moment():
            return (*line.args, *line.params)
        case ir.Softmax():
            return (line.of,) if line.mask is None else (line.of, line.mask)
        case ir.InputVector():
            return tuple(v for v, _ in line.cov)
        case ir.InputMatrix() | ir.InputScalar() | ir.Data():
            return ()
        case ir.Trsp() | ir.IndexLine() | ir.Reduce():
            return (line.of,)
        case _:
            assert_never(line)


def axes_named(line: ir.Line) -> tuple[ir.Axis, ...]:
    """The axes that a line names itself, beside those of its variables."""
    match line:
        case ir.IndexLine():
            return axes_of(line)
        case ir.Reduce() | ir.Softmax():
            return (line.axis,)
        case ir.InputVector():
            return tuple(a for a, _ in line.axis_cov)
        case ir.InputMatrix() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul() | ir.Nonlin() | ir.Moment():
            return ()
        case _:
            assert_never(line)


class HasDims(Protocol):
    """A variable, or a limit variable."""

    @property
    def dims(self) -> tuple[ir.Dim, ...]: ...


def merge_dims(variables: Iterable[HasDims]) -> tuple[ir.Dim, ...]:
    """The union of the variables' axes in order of appearance; a known size wins over an open one."""
    found: dict[ir.Axis, ir.Size | None] = {}
    for v in variables:
        for d in v.dims:
            if found.get(d.axis) is None:
                found[d.axis] = d.size
    return tuple(ir.Dim(a, cast(ir.Size, s)) for a, s in found.items())


# ---------------------------------------------------------------- inputs


def trained(lines: Iterable[ir.Line]) -> list[ir.InputMatrix | ir.InputVector]:
    """The lines whose arrays are trained."""
    return [x for x in lines if isinstance(x, ir.InputMatrix | ir.InputVector) and x.trainable]


def input_vectors(lines: Iterable[ir.Line]) -> list[ir.InputVector]:
    return [x for x in lines if isinstance(x, ir.InputVector)]


def given(lines: Iterable[ir.Line]) -> list[ir.Data | ir.InputScalar]:
    """What comes with each sample: network inputs, and scalars given per sample."""
    return [x for x in lines if isinstance(x, ir.Data) or (isinstance(x, ir.InputScalar) and x.per_sample)]


def ratio(dimension: ir.Dimension | None) -> ir.Number:
    """A width over the reference width; 1 for the dimension of data and for scalars."""
    return dimension.ratio if isinstance(dimension, ir.Width) else 1


def parameters(lines: Iterable[ir.Line]) -> tuple[str, ...]:
    """The names of the variances' and multipliers' parameters in order of appearance."""
    scales = [s for x in lines if isinstance(x, ir.InputMatrix | ir.InputVector) for s in (x.var, x.multiplier)]
    found = [sorted(map(str, cast(sp.Expr, s).free_symbols)) for s in scales if isinstance(s, sp.Expr)]
    return tuple(dict.fromkeys(name for names in found for name in names))


def fan_in(line: ir.InputMatrix, cols: T) -> T | ir.Number:
    """What ω is divided by the square root of; `cols` is the number of columns."""
    return cols if line.fan_in == "cols" else 1 if line.fan_in is None else line.fan_in


def covariance(a: ir.InputVector, b: ir.InputVector) -> ir.Scale:
    """Cov(β_a, β_b) of coordinates, as the two lines state it: the variance for one line."""
    if a.out is b.out:
        return a.var
    return next((c for one, other in ((a, b), (b, a)) for v, c in one.cov if v is other.out), 0)


def covariance_blocks(lines: Iterable[ir.Line]) -> list[list[ir.InputVector]]:
    """Input vectors in classes connected by nonzero covariance, by first member; each joins what it covaries with."""
    vectors = input_vectors(lines)
    blocks = {line.out: [line] for line in vectors}
    for line in vectors:
        for other, c in line.cov:
            if c != 0 and other in blocks and blocks[other] is not blocks[line.out]:
                joined = blocks[other] + blocks[line.out]
                blocks |= {member.out: joined for member in joined}
    return list({id(block): block for block in blocks.values()}.values())


def sorted_blocks(lines: Iterable[ir.Line]) -> list[list[ir.InputVector]]:
    """The same classes, their members in program order."""
    vectors = input_vectors(lines)
    place = {line.out: i for i, line in enumerate(vectors)}
    return [sorted(block, key=lambda line: place[line.out]) for block in covariance_blocks(vectors)]


# ---------------------------------------------------------------- matrices


@dataclass(frozen=True)
class Use:
    """A line y = W z, or y = Wᵀ z, and its place in the program."""

    index: int
    line: ir.MatMul
    source: ir.InputMatrix
    transposed: bool

    @property
    def matrix(self) -> ir.Var:
        return self.source.out


def matrices(lines: Iterable[ir.Line]) -> dict[ir.Var, tuple[ir.InputMatrix, bool]]:
    """Each A-var as (input matrix, transposed?); (Wᵀ)ᵀ is W."""
    found: dict[ir.Var, tuple[ir.InputMatrix, bool]] = {}
    for line in lines:
        if isinstance(line, ir.InputMatrix):
            found[line.out] = line, False
        if isinstance(line, ir.Trsp) and line.of in found:
            matrix, transposed = found[line.of]
            found[line.out] = matrix, not transposed
    return found


def transposes(lines: Iterable[ir.Line]) -> dict[ir.Var, ir.Var]:
    """The transpose of each A-var that has one, the first made where there are several."""
    found: dict[ir.Var, ir.Var] = {}
    for line in lines:
        if isinstance(line, ir.Trsp):
            found.setdefault(line.of, line.out)
            found.setdefault(line.out, line.of)
    return found


def uses(lines: Sequence[ir.Line]) -> Iterator[Use]:
    """The MatMuls in program order."""
    known = matrices(lines)
    for i, line in enumerate(lines):
        if isinstance(line, ir.MatMul) and line.matrix in known:
            yield Use(i, line, *known[line.matrix])


def trained_uses(lines: Sequence[ir.Line]) -> dict[ir.InputMatrix, list[Use]]:
    """The lines that apply each trained matrix."""
    found = {line: list[Use]() for line in lines if isinstance(line, ir.InputMatrix) and line.trainable}
    for use in uses(lines):
        if use.source in found:
            found[use.source].append(use)
    return found


# ---------------------------------------------------------------- forward and backward


def closure(start: Iterable[ir.Var], edges: Callable[[ir.Var], Iterable[ir.Var]]) -> set[ir.Var]:
    """All variables to which edges lead from the given ones, these included."""
    found: set[ir.Var] = set()
    stack = list(start)
    while stack:
        v = stack.pop()
        if v not in found:
            found.add(v)
            stack.extend(edges(v))
    return found


def ancestors(lines: Iterable[ir.Line], start: Iterable[ir.Var]) -> set[ir.Var]:
    """The given variables and all that they are computed from."""
    made = {line.out: line for line in lines}
    return closure(start, lambda v: inputs_of(made[v]))


def forward(p: ir.ProgramLike) -> set[ir.Var]:
    """The outputs' vectors and all that they are computed from."""
    return ancestors(p.lines, (o.vector for o in p.outputs))


def reached(p: ir.ProgramLike) -> set[ir.Var]:
    """The variables that an output depends on, its readouts too; backward lines are not among them."""
    return ancestors(p.lines, (v for o in p.outputs for v in (o.readout, o.vector)))


def backward(p: ir.ProgramLike) -> set[ir.Var]:
    """Variables of the backward pass: gradients, what only they read, and whatever is computed from a gradient."""
    first = forward(p)
    return {x.out for x in p.lines if x.out not in first}


# ---------------------------------------------------------------- names


def lookup(p: ir.ProgramLike, name: str) -> ir.Var | None:
    """A returned scalar, a line, or `d<name>`, the gradient of a variable whose own line has another name."""
    named = {f"d{g.of.name}": g.is_ for g in p.gradients}
    named |= {line.out.name: line.out for line in p.lines}
    named |= {r.name: r.value for r in p.returned}
    return named.get(name)


def known(p: ir.ProgramLike) -> str:
    """The names of vectors and scalars, for messages."""
    names = [line.out.name for line in p.lines if line.out.kind in "GHC"]
    return ", ".join(dict.fromkeys([*names, *(r.name for r in p.returned), *(f"d{g.of.name}" for g in p.gradients)]))
