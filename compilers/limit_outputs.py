"""The straight-line program of a program with families, and the elements of its outputs with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from netsor import ir
from netsor.compilers.finite.inputs import Group
from netsor.compilers.finite.network import output_axes
from netsor.compilers.finite.tangent import copied_axes
from netsor.compilers.finite.values import Value
from netsor.compilers.limit_polynomial import NotPolynomial
from netsor.errors import UnsupportedError
from netsor.unroll import Unrolled

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

    def __init__(self, p: Any, found: Unrolled | None) -> None:
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


def unrolled(p: Any, groups: Sequence[Group]) -> Unrolled:
    """The straight-line program of a program with families, for samples of one size."""
    if len(groups) > 1:
        raise NotPolynomial("samples of different sizes are sampled")
    try:
        return Unrolled(p, groups[0].sizes)
    except UnsupportedError as error:
        raise NotPolynomial(str(error)) from None


def elements(found: Unrolled, group: Group) -> Group:
    """The inputs of the straight-line program."""
    given = found.inputs({v.name: value.data for v, value in group.values.items()})
    values = {line.out: Value(given[line.out.name]) for line in found.program.lines if line.out.name in given}
    return Group(group.samples, values, {}, group.features)
