"""A network at finite width: a program, its arrays and a group of samples, run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from netsor import ir
from netsor.compilers.finite import arrays as random_arrays
from netsor.compilers.finite.inputs import Group, bind, check_device
from netsor.compilers.finite.values import Binding, Value, Values, axis_names
from netsor.errors import InputError
from netsor.run.execute import Run, Scope, canonical
from netsor.run.order import Step, steps


@dataclass(frozen=True)
class Result:
    """Values of all variables and the outputs `[sample, *output axes]` by name."""

    values: Values
    outputs: dict[str, torch.Tensor]


class Network:
    """A program whose arrays are drawn (or given) for a width; `run` computes its lines on a group of samples."""

    def __init__(self, p: ir.ProgramLike, order: Sequence[Step], group: Group, width: int) -> None:
        self.program = p
        self.order = order
        self.group = group
        self.binding: Binding = group.binding(p, width)
        self.samples = len(group.samples)

    def run(self, arrays: Mapping[str, torch.Tensor], added: Mapping[ir.Var, Value] | None = None) -> Result:
        """The lines with the given ω and β; tensors in `added` are added to their variables."""
        given: Values = dict(self.group.values) | random_arrays.values(self.program, self.binding, arrays)
        added = added or {}
        for var, extra in added.items():
            if var in given:
                base = Value(given[var].aligned(axis_names(var)), axis_names(var))
                given[var] = Value(base.data + extra.data, base.axes)
        like = next(iter(arrays.values()), torch.zeros((), dtype=torch.float64))
        inside = {v: e for v, e in added.items() if v not in given}
        values = canonical(Run(Value.xp, self.binding, like, inside).block(self.order, Scope(given)))
        return Result(values, self.outputs(values))

    def outputs(self, values: Values) -> dict[str, torch.Tensor]:
        """f = scale/√(|P| n) Σ_s v_s·x_s; outputs of one name add up."""
        total: dict[str, torch.Tensor] = {}
        for output in self.program.outputs:
            axes = [*output_axes(self.program, output.name), *axis_names(output.readout)]
            v, x = (values[u].aligned(axes) for u in (output.readout, output.vector))
            f = self.scale(output) * (v * x).sum(-1)
            for _ in output.readout.dims:
                f = f.sum(-1)
            f = f.expand(self.samples, *f.shape[1:])
            total[output.name] = total[output.name] + f if output.name in total else f
        return total

    def scale(self, output: ir.Output) -> float:
        """scale/√(|P| n)"""
        positions = math.prod(self.binding.shape(output.readout))
        return float(output.scale) / math.sqrt(positions * self.binding.dimension(output.readout.rows))

    @cached_property
    def width_out(self) -> int:
        """The width of the first output's readout, which scales all gradients."""
        return self.binding.dimension(self.program.outputs[0].readout.rows)


def output_axes(p: ir.ProgramLike, name: str) -> tuple[str, ...]:
    """Axes that the vectors of an output carry and their readouts do not."""
    found: dict[str, None] = {}
    for output in p.outputs:
        if output.name == name:
            found |= dict.fromkeys(a for a in axis_names(output.vector) if a not in axis_names(output.readout))
    return tuple(found)


def run(
    p: ir.ProgramLike, x: Any = None, width: int = 256, seed: int = 0, *, arrays: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None, dtype: torch.dtype = torch.float64, device: str = "cpu",
) -> dict[ir.Var, torch.Tensor]:  # fmt: skip
    """The value of every variable at a width: vectors `[sample, *axes, coordinate]`, scalars `[sample, *axes]`.

    The sample dimension is 1 where a value does not depend on the data. `arrays` gives ω `[*axes, row, column]` of
    matrices and β `[*axes, coordinate]` of vectors by name, before multipliers and fan-in; the others are drawn.
    """
    check_device(device)
    groups = bind(p, x, sizes, dtype, device)
    if len(groups) > 1:
        raise InputError("run takes samples of one size; call it once per size", code="NT602")
    network = Network(p, steps(p.lines), groups[0], width)
    drawn = random_arrays.sample(p, network.binding, seed, dtype, device)
    given = {name: torch.as_tensor(a).to(device, dtype) for name, a in (arrays or {}).items()}
    return {v: value.data for v, value in network.run(drawn | given).values.items()}
