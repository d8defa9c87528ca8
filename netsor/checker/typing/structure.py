"""Names, order and scans of a whole program (Definition A.1; NT103, NT104, NT111, NT112).

Checks: every variable is defined once, before it is read, except by the shift of a scan; on a scan's cycle the state is
read through a shift in one direction and lines that keep the scan's axis; outputs, gradients and returned scalars are
of variables of the program; covariances of input vectors are stated once and form a positive semidefinite matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

import numpy as np

from netsor import ir
from netsor.errors import Diagnostic, Location
from netsor.facts import input_vectors, inputs_of, sorted_blocks
from netsor.indexing import Read, index_map
from netsor.run.draws import joint
from netsor.run.flow import spans
from netsor.sizes import number

CLAUSE = "Definition A.1"
MOST_SCAN = 5_000_000  # lines of a scan times its states


def structure_diagnostics(p: ir.ProgramLike) -> Iterator[tuple[int, Diagnostic]]:
    """(line index, finding) of everything that is about more than one line."""
    lines = p.lines
    yield from _names(lines)
    yield from _order(lines)
    yield from _statements(p)
    for start, end in spans(lines):
        if end - start > 1:
            yield from _scan(lines, start, end)
    yield from _covariances(lines)


def _error(index: int, line: ir.Line, code: str, message: str, hint: str | None = None) -> tuple[int, Diagnostic]:
    return index, Diagnostic(code, "error", message, line.out.name, index, CLAUSE, line.loc, hint)


def _names(lines: Sequence[ir.Line]) -> Iterator[tuple[int, Diagnostic]]:
    seen: dict[str, int] = {}
    for i, line in enumerate(lines):
        first = seen.setdefault(line.out.name, i)
        if first != i:
            where = lines[first].loc
            made = f" at {where}" if where else f" by line {first + 1}"
            text = f"{line.out} is defined twice, first{made}"
            yield _error(i, line, "NT104", text, "every variable has its own name")


def _order(lines: Sequence[ir.Line]) -> Iterator[tuple[int, Diagnostic]]:
    place = {line.out: i for i, line in enumerate(lines)}
    for i, line in enumerate(lines):
        for v in inputs_of(line):
            at = place.get(v)
            if at is None:
                yield _error(i, line, "NT103", f"{v} is not defined", "define it on an earlier line")
            elif at >= i and not isinstance(line, ir.Shift | ir.InputVector):
                yield _error(
                    i, line, "NT103", f"{v} is used before it is defined (line {at + 1})",
                    "only the shift of a scan reads a later line; move the definition up",
                )  # fmt: skip


def _statements(p: ir.ProgramLike) -> Iterator[tuple[int, Diagnostic]]:
    known = {line.out for line in p.lines}
    stated: list[tuple[ir.Var, Location | None]] = []
    for o in p.outputs:
        stated += [(o.readout, o.loc), (o.vector, o.loc)]
    for g in p.gradients:
        stated += [(g.of, g.loc), (g.is_, g.loc)]
    stated += [(r.value, r.loc) for r in p.returned]
    for v, loc in stated:
        if v not in known:
            yield -1, Diagnostic("NT103", "error", f"{v} is not defined", v.name, None, CLAUSE, loc)
    yield from _shapes(p, known)


def _shapes(p: ir.ProgramLike, known: set[ir.Var]) -> Iterator[tuple[int, Diagnostic]]:
    for o in p.outputs:
        if {o.readout, o.vector} <= known and o.readout.rows != o.vector.rows:
            text = f"width mismatch: the readout {o.readout} and {o.vector} have different widths"
            yield -1, Diagnostic("NT101", "error", text, o.vector.name, None, CLAUSE, o.loc)
    for g in p.gradients:
        if {g.of, g.is_} <= known and (g.of.rows != g.is_.rows or g.of.kind == "A" or g.is_.kind == "A"):
            text = f"the gradient of {g.of} is a vector of its width, {g.is_} is not"
            yield -1, Diagnostic("NT110", "error", text, g.is_.name, None, CLAUSE, g.loc)


# ---------------------------------------------------------------- scans


def _scan(lines: Sequence[ir.Line], start: int, end: int) -> Iterator[tuple[int, Diagnostic]]:
    place = {line.out: i for i, line in enumerate(lines)}
    shifts = [(i, x) for i, x in enumerate(lines[start:end], start) if isinstance(x, ir.Shift)]
    states = [(i, x) for i, x in shifts if place.get(x.of, -1) >= i]
    if len(states) * (end - start) > MOST_SCAN:
        text = f"a scan of {end - start} lines with {len(states)} states is too large to be checked"
        yield _error(states[0][0], states[0][1], "NT005", text, "make several scans of it")
        return
    reads = {i: frozenset(inputs_of(lines[i])) for i in range(start, end)}
    for i, shift in states:
        yield from _cycle(lines, reads, i, shift)


def _cycle(
    lines: Sequence[ir.Line], reads: Mapping[int, frozenset[ir.Var]], at: int, shift: ir.Shift
) -> Iterator[tuple[int, Diagnostic]]:
    if shift.by == 0:
        hint = "a scan's state is read at t − 1 (or t + 1): shift by a nonzero number"
        yield _error(at, shift, "NT111", f"{shift.of} is defined by itself without a shift", hint)
    for i in sorted(_on_cycle(lines, reads, shift)):
        problem = _breaks(lines[i], shift)
        if problem:
            yield _error(
                i, lines[i], "NT111", f"{lines[i].out} {problem}, inside the scan over {shift.axis.name}",
                f"inside a scan the state is read at one step of {shift.axis.name}; take sums, windows and elements of"
                " the finished family, after the scan",
            )  # fmt: skip


def _on_cycle(lines: Sequence[ir.Line], reads: Mapping[int, frozenset[ir.Var]], shift: ir.Shift) -> set[int]:
    """Lines that read the shifted state and that the state reads."""
    forward = {shift.out}
    after = set()
    for i in reads:
        if reads[i] & forward and lines[i] is not shift:
            forward.add(lines[i].out)
            after.add(i)
    needed, before = {shift.of}, set[int]()
    for i in reversed(list(reads)):
        if lines[i].out in needed:
            before.add(i)
            needed |= reads[i]
    return after & before


def _breaks(line: ir.Line, shift: ir.Shift) -> str | None:
    """Why a line may not be on the cycle of a scan, or None."""
    name = shift.axis.name
    match line:
        case ir.IndexLine():
            return next(filter(None, (_leaves(line, r, shift) for r in index_map(line).reads)), None)
        case ir.Reduce() | ir.Softmax():
            return f"reads all of {line.of} over {name}" if line.axis == shift.axis else None
        case (
            ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul() | ir.Nonlin()
            | ir.Moment()
        ):  # fmt: skip
            return None
        case _:
            assert_never(line)


def _leaves(line: ir.IndexForm, read: Read, shift: ir.Shift) -> str | None:
    """Why a line that reads along the scan's axis needs other steps than those before its own, or None."""
    m, name = index_map(line), shift.axis.name
    if shift.axis not in (read.axis, read.at):
        return None
    if read.at is None:
        return f"reads {line.of} at a fixed step of {name}"
    if m.tap is not None or read.stride != 1:
        return f"reads a window of {line.of} over {name}"
    if read.axis != read.at:
        return f"renames the axis {name} of {line.of}"
    (ahead,) = read.offsets
    back = (-ahead if m.transposed else ahead) * shift.by > 0
    return f"shifts {line.of} the other way along {name}" if back else None


# ---------------------------------------------------------------- covariances


def _covariances(lines: Sequence[ir.Line]) -> Iterator[tuple[int, Diagnostic]]:
    vectors = input_vectors(lines)
    place = {line.out: i for i, line in enumerate(lines)}
    inputs = {x.out for x in vectors}
    stated: dict[frozenset[ir.Var], float] = {}
    for line in vectors:
        for other, c in line.cov:
            index = place[line.out]
            if other in place and other not in inputs:
                text = f"{other} is not an input vector: {line.out} has no covariance with it"
                yield _error(index, line, "NT112", text)
            elif stated.setdefault(frozenset((line.out, other)), float(c)) != float(c):
                text = f"the covariance of {line.out} and {other} is stated twice, differently"
                yield _error(index, line, "NT112", text)
            elif other in inputs and other.rows != line.out.rows:
                text = f"width mismatch: {line.out} and {other} are correlated but have different widths"
                yield _error(index, line, "NT101", text)
    yield from _indefinite(vectors, place, inputs)


class _Few:
    """Few elements of some vectors: their covariances are a part of all."""

    def __init__(self, block: Sequence[ir.InputVector]) -> None:
        self.most = min([3, *(len(rows) for line in block for _, rows in line.axis_cov)])

    def size(self, size: ir.Size) -> int:
        return min(number(size, lambda _: self.most), self.most)

    def dimension(self, dimension: ir.Dimension | None) -> int:
        return 1


def _indefinite(
    vectors: Sequence[ir.InputVector], place: dict[ir.Var, int], inputs: set[ir.Var]
) -> Iterator[tuple[int, Diagnostic]]:
    if not all(other in inputs for line in vectors for other, _ in line.cov):
        return
    for block in sorted_blocks(vectors) if any(line.cov for line in vectors) else []:
        matrix = joint(block, _Few(block))
        if np.linalg.eigvalsh(matrix).min() < -1e-9 * np.abs(matrix).max():
            names = ", ".join(line.out.name for line in block)
            last = block[-1]
            yield _error(
                place[last.out], last, "NT112", f"the covariances of {names} are not those of any vectors:"
                " the matrix has a negative eigenvalue", "a covariance is at most √(var·var)",
            )  # fmt: skip
    for line in vectors:
        for axis, rows in line.axis_cov:
            matrix = np.asarray(rows, dtype=float)
            square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
            if not square or np.abs(matrix - matrix.T).max() > 1e-12 or np.linalg.eigvalsh(matrix).min() < -1e-9:
                text = f"axis_cov of {line.out} over {axis.name} is not a covariance matrix"
                yield _error(place[line.out], line, "NT112", text, "it is symmetric and positive semidefinite")
