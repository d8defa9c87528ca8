"""Where the entries of a module's parameters stand in the program's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from netsor import ir
from netsor.compilers.lift.laws import Power
from netsor.compilers.lift.values import Atom, Dim


@dataclass(frozen=True)
class Layout:
    """ω[*axes, …] = scale(n) · W: `dims` are the factors of each dimension of W, the last one of all taps together.

    `output` is the dimension of a readout's outputs, of which the program has the one at `first`; a bias of the outputs
    is spread over the coordinates of the vector 1.
    """

    var: ir.Var
    parameter: str
    dims: tuple[Dim, ...]
    scale: Power
    output: int | None = None
    first: int = 0

    def read(self, parameter: torch.Tensor, n: int, width: int) -> torch.Tensor:
        """ω from a parameter of the module of reference width n; `width` is the one at which `dims` were seen."""
        w = parameter.detach()
        w = w if self.output is None else w.select(self.output, self.first)
        if not self.dims:
            return w.flatten()[self.first : self.first + 1] * self.scale.at(n) * w.new_ones(_size(self.var.rows, n))
        if w.ndim > len(self.dims):
            w = w.flatten(len(self.dims) - 1)
        atoms: list[Atom] = [a for d in self.dims for a in d]
        sizes = [a.size[0] if a.size[0] == a.size[1] else a.size[0] * n // width for a in atoms]
        names: list[ir.Axis | str | None] = [a.axis if a.kind == "axis" else a.kind for a in atoms]
        order: list[ir.Axis | str] = [*self.var.axes, *("rows", "cols")[: 2 if self.var.kind == "A" else 1]]
        return w.reshape(sizes).permute([names.index(name) for name in order]) * self.scale.at(n)


def _size(width: ir.Dimension | None, n: int) -> int:
    assert isinstance(width, ir.Width)
    return round(float(width.ratio) * n)


def marked(atoms: Sequence[Atom], kind: str) -> Dim:
    """The factors of a dimension; its width is called by what it is in the array: rows, cols."""
    return tuple(a if a.kind == "axis" else Atom(kind, a.size) for a in atoms)


__all__ = ["Layout", "marked"]
