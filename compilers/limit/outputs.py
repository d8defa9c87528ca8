"""The straight-line program of a program with families, and the elements of its outputs with their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, assert_never

from netsor import ir
from netsor.build.program import Program
from netsor.checker.independence.clauses import independent
from netsor.compilers.finite.inputs import Group
from netsor.compilers.finite.network import output_axes
from netsor.compilers.finite.tangent import copied_axes
from netsor.compilers.finite.values import Value
from netsor.compilers.limit.polynomial import NotPolynomial
from netsor.errors import UnsupportedError
from netsor.facts import covariance, inputs_of, trained
from netsor.passes.unroll import Unrolled
from netsor.run.flow import uses
from netsor.signs.collapse import Collapse

Place = tuple[int, ...]  # an index of the output axes


@dataclass(frozen=True)
class Read:
    """An output's use of a readout: scale · v·x/√(positions · n); `vector` is a variable or a constant."""

    scale: ir.Number
    positions: int
    readout: ir.Var
    vector: Any


class Outputs:
    """The elements of a program's first output, one per place on the output axes, and their gradients."""

    def __init__(self, p: Program, found: Unrolled | None) -> None:
        self.source = p
        self.unrolled = found
        self.axes = output_axes(p, p.outputs[0].name) if p.outputs else ()
        self.used = [o for o in p.outputs if o.name == p.outputs[0].name]
        sizes = {} if found is None else {d.axis.name: found.size(d.size) for o in self.used for d in o.vector.dims}
        self.shape = tuple(sizes[a] for a in self.axes)
        self.places: list[Place] = list(product(*(range(n) for n in self.shape)))
        self.stated: set[ir.Var] = {y for g in p.gradients for y, _ in self._elements(g.of) if isinstance(y, ir.Var)}
        self.read = cache(self._read)
        self.gradients = cache(self._gradients)

    @property
    def rows(self) -> ir.Dimension | None:
        """The width that scales all gradients."""
        readout: ir.Var = self.source.outputs[0].readout
        return readout.rows

    def _read(self, place: Place) -> list[Read]:
        at = dict(zip(self.axes, place, strict=True))
        found: list[Read] = []
        for o in self.used:
            parts = self._elements(o.readout)
            found += [Read(o.scale, len(parts), v, self._get(o.vector, at | index)) for v, index in parts]
        return found

    def _gradients(self, place: Place) -> dict[ir.Var, Any]:
        """dy of the element at this place, by y."""
        stated = {g.of: g.is_ for g in self.source.gradients}
        at = dict(zip(copied_axes(self.source, stated), place, strict=True))
        return {y: self._get(dy, at | index) for of, dy in stated.items() for y, index in self._elements(of)}

    def _elements(self, u: ir.Var) -> list[tuple[Any, dict[str, int]]]:
        if self.unrolled is None:
            return [(u, {})]
        return [(self.unrolled.get(u, index), index) for index in self.unrolled.indices(u)]

    def _get(self, u: ir.Var, index: dict[str, int]) -> Any:
        return u if self.unrolled is None else self.unrolled.get(u, index)


def unrolled(p: Program, groups: Sequence[Group], most: int) -> Unrolled:
    """The straight-line program of a program with families, for samples of one size, of so many lines at most."""
    if len(groups) > 1:
        raise NotPolynomial("samples of different sizes are sampled")
    try:
        return Unrolled(p, groups[0].sizes, most=most)
    except UnsupportedError as error:
        raise NotPolynomial(str(error)) from None


def elements(found: Unrolled, group: Group) -> Group:
    """The inputs of the straight-line program."""
    given = found.inputs({v.name: value.data for v, value in group.values.items()})
    values = {line.out: Value(given[line.out.name]) for line in found.program.lines if line.out.name in given}
    return Group(group.samples, values, {}, group.features)


# ---------------------------------------------------------------- which kernels there are


def no_nngp(p: ir.ProgramLike) -> str | None:
    """Why lim Cov f is not known to exist, or None.

    E (v·x)²/n → Var v · E (Z^x)² when v has mean zero and Z^x is independent of Z^v: x may read v through a matrix.
    Where Z^x depends on Z^v, their product may have a mean, and then E f² grows like n.
    """
    if not p.outputs:
        return "the program has no output"
    outputs = [o for o in p.outputs if o.name == p.outputs[0].name]
    vectors = {line.out: line for line in p.lines if isinstance(line, ir.InputVector)}
    for v in (o.readout for o in outputs):
        if v not in vectors:
            return f"the readout {v} is not an input vector"
        if vectors[v].mean != 0 and vectors[v].multiplier != 0:
            return f"the readout {v} has mean {vectors[v].mean}: E f² grows with the width"
    return _reads_readouts(p, outputs, list(vectors.values()))


def _reads_readouts(p: ir.ProgramLike, outputs: Sequence[ir.Output], vectors: Sequence[ir.InputVector]) -> str | None:
    """Why the outputs' vectors may depend on a readout or on what is correlated with one, or None."""
    lines = p.lines[: max(o.at for o in outputs)]
    readouts = dict.fromkeys(o.readout for o in outputs)
    linked = {b.out: a.out for a in vectors if a.out in readouts for b in vectors
              if b is not a and covariance(a, b) != 0}  # fmt: skip
    chosen = {v: 1 << i for i, v in enumerate({**linked, **readouts})}
    depends, collapse = _limits_depend(lines, chosen), Collapse(lines)
    for o in outputs:
        for v, bit in chosen.items():
            if depends[o.vector] & bit and not independent(collapse, o.vector, depends, bit):
                what = f"the readout {v}" if v in readouts else f"{v}, which is correlated with the readout {linked[v]}"
                return f"Z^{o.vector} depends on {what}: E f² may grow with the width"
    return None


def _limits_depend(lines: Sequence[ir.Line], blocks: Mapping[ir.Var, int]) -> dict[ir.Var, int]:
    """The input vectors (bits) that each Z may depend on: coordinatewise, and by Ż^{Wx} on Z^y for uses Wᵀy."""
    found: dict[ir.Var, int] = {}
    known = {u.line.out: u for u in uses(lines)}
    arguments: dict[tuple[ir.Var, bool], list[ir.Var]] = {}
    for u in known.values():
        arguments.setdefault((u.matrix, u.transposed), []).append(u.line.vector)

    def read(line: ir.Line) -> Sequence[ir.Var]:
        match line:
            case ir.MatMul():
                use = known.get(line.out)
                return [] if use is None else arguments.get((use.matrix, not use.transposed), [])
            case ir.InputVector() | ir.InputMatrix() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.Moment():
                return []  # scalars converge to constants
            case ir.Nonlin() | ir.IndexLine() | ir.Reduce() | ir.Softmax():
                return [] if line.out.kind == "C" else inputs_of(line)
            case _:
                assert_never(line)

    def update(line: ir.Line) -> bool:
        value = blocks.get(line.out, 0)
        for v in read(line):
            value |= found.get(v, 0)
        changed = found.get(line.out, -1) != value
        found[line.out] = value
        return changed

    while any([update(line) for line in lines]):
        pass
    return found


def no_ntk(p: ir.ProgramLike) -> str | None:
    """Why there is no NTK, or None. Its terms are moments of the program's vectors, which converge."""
    if not p.outputs:
        return "the program has no output"
    if not trained(p.lines):
        return "nothing is trained"
    return None
