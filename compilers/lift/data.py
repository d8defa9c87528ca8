"""The program's data arrays: one for each tensor of data that is read, or one for all that a parameter reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netsor import ir
from netsor.build.expressions import Expr
from netsor.build.program import Program
from netsor.compilers.lift.export import SAMPLES, Exported, Size, Step
from netsor.compilers.lift.findings import refused
from netsor.compilers.lift.values import SAMPLE, Atom, Data, Dim, Dims, Input

Groups = Mapping[str, tuple[Step, ...]]


class Together(Exception):
    """A parameter reads several tensors of data: they are one array of the program."""

    def __init__(self, parameter: str, steps: tuple[Step, ...]) -> None:
        self.parameter, self.steps = parameter, steps


def factors(p: Program, size: Size, stem: str, node: Any) -> Dim:
    """A dimension of data or a constant: the sample, a finite axis, or both."""
    if size == (1, 1):
        return ()
    if size[0] == size[1]:
        return (Atom("axis", size, p.fresh_axis(stem, size[0])),)
    count, rest = divmod(size[0], SAMPLES[0])
    if rest == 0 and size[1] == count * SAMPLES[1]:
        return (SAMPLE, *factors(p, (count, count), stem, node))
    raise refused(
        "NT822", f"a tensor that no parameter enters has a dimension of sizes {size[0]} and {size[1]} at the two"
        " widths",
        "inputs and constants have finite dimensions; a vector of the width is a parameter", node,
    )  # fmt: skip


def free_name(p: Program, stem: str) -> str:
    """The stem, numbered when the name is taken."""
    name, k = stem, 2
    while name in p:
        name, k = f"{stem}{k}", k + 1
    return name


def _stem(rank: int, i: int) -> str:
    """The name of an axis: rows and columns of images, tokens of sequences."""
    return ("sample", "channel", "row", "col")[i] if rank == 4 else "token"


@dataclass
class DataArrays:
    """`groups` says which tensors of data one parameter reads; `specs` are the arrays that the program has."""

    program: Program
    exported: Exported
    groups: Groups
    specs: dict[str, Input] = field(default_factory=dict)
    _dims: dict[Step, Dims] = field(default_factory=dict)
    _arrays: dict[Any, Expr] = field(default_factory=dict)
    _read: dict[str, Step] = field(default_factory=dict)

    def dims(self, x: Data, node: Any) -> Dims:
        """The dimensions of a data tensor, the same axes wherever it is used."""
        if x.step not in self._dims:
            rank = len(x.sizes)
            self._dims[x.step] = tuple(factors(self.program, s, _stem(rank, i), node) for i, s in enumerate(x.sizes))
        dims = self._dims[x.step]
        if sum(a.kind == "sample" for d in dims for a in d) != 1:
            raise refused(
                "NT815", "a tensor of data has no dimension of samples", "samples are the first dimension", node
            )
        return dims

    def scalars(self, x: Data, node: Any) -> tuple[Dims, Expr]:
        """Data as C-vars given with each sample."""
        dims = self.dims(x, node)
        key = (x.step, x.function)
        if key not in self._arrays:
            name = free_name(self.program, x.step.node.name)
            axes = tuple(a.axis for d in dims for a in d if a.axis)
            self._arrays[key] = self.program.scalar(name, axes=axes, per_sample=True)
            self.specs[name] = Input((x.step,), dims, None, function=x.function)
        return dims, self._arrays[key]

    def features(
        self, x: Data, dim: int, parameter: str, node: Any, classes: int | None = None, padding: int | None = None
    ) -> tuple[Expr, Dims]:  # fmt: skip
        """Data with one dimension as features (or token ids as one-hot features), and its other dimensions."""
        steps = self.groups.get(parameter, (x.step,))
        if x.step not in steps or self._read.setdefault(parameter, steps[0]) not in steps:
            raise Together(parameter, self._siblings(parameter, x, node))
        first = steps[0]
        dims = self.dims(Data(first), node)
        key = (steps, dim if classes is None else f"classes {classes} but {padding}")
        if key not in self._arrays:
            others = [d for i, d in enumerate(dims) if i != dim or classes is not None]
            axes: list[ir.Axis] = [a.axis for d in others for a in d if a.axis]
            if len(steps) > 1:
                axes.insert(0, self.program.fresh_axis("use", len(steps)))
            name = free_name(self.program, first.node.name)
            self._arrays[key] = self.program.data(name, axes=axes)
            self.specs[name] = Input(steps, dims, dim, classes, padding)
        array = self._arrays[key]
        return (array if len(steps) == 1 else array.at(array.dims[0].axis, steps.index(x.step))), dims

    def _siblings(self, parameter: str, x: Data, node: Any) -> tuple[Step, ...]:
        """All tensors of data that enter an operation together with the parameter."""
        known = self.groups.get(parameter, (self._read[parameter],) if parameter in self._read else ())
        if any(s.sizes != x.sizes for s in known):
            raise refused(
                "NT803", f"the parameter {parameter} is applied to tensors of data of different shapes",
                "one shape, as steps of a sequence have", node,
            )  # fmt: skip
        nodes = {n for n, name in self.exported.parameters.items() if name == parameter}
        used = {n for s in self.exported.steps if nodes & set(s.node.all_input_nodes) for n in s.node.all_input_nodes}
        others = [
            s for s in self.exported.steps
            if s.kind == "data" and s.node in used and s.sizes == x.sizes and s is not x.step and s not in known
        ]  # fmt: skip
        return (*known, x.step, *others)


__all__ = ["DataArrays", "Groups", "Together", "factors", "free_name"]
