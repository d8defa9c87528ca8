"""Arrays of the user matched to a program's inputs: groups of samples of equal size, or one clear error (NT6xx).

A program's inputs are its data `[sample, *axes, feature]` and its per-sample scalars `[sample, *axes]`; one input
comes as an array, several as a dict by name, samples of different sizes as a list of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from netsor import ir
from netsor.compilers.evaluate.arrays import as_tensor, check_layout
from netsor.compilers.evaluate.calls import is_inside
from netsor.compilers.finite.values import Binding, Value, axis_names
from netsor.errors import InputError
from netsor.run import inputs


@dataclass(frozen=True)
class Group:
    """Samples whose axes have the same sizes: their places in the batch, their values and sizes."""

    samples: tuple[int, ...]
    values: Mapping[ir.Var, Value]
    sizes: Mapping[str, int]
    features: Mapping[ir.Dimension, int]

    def binding(self, p: ir.ProgramLike, width: int) -> Binding:
        """Sizes and dimensions at a reference width; the others are ratio × width, rounded."""
        widths: dict[ir.Dimension, int] = {w: max(1, round(float(w.ratio) * width)) for w in p.widths}
        return Binding(self.sizes, widths | dict(self.features))


def input_lines(p: ir.ProgramLike) -> list[ir.Data | ir.InputScalar]:
    """The lines whose values come with the data."""
    return [
        line
        for line in p.lines
        if isinstance(line, ir.Data) or (isinstance(line, ir.InputScalar) and (line.per_sample or line.limit is None))
    ]


def bind(
    p: ir.ProgramLike, x: Any, sizes: Mapping[str, int] | None = None, dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
) -> list[Group]:  # fmt: skip
    """The inputs as groups of samples of equal size."""
    if is_inside(x):
        raise InputError(
            "limits and simulations are not differentiated or mapped by torch.func", code="NT601",
            hint="compiled kernels are: ns.compile(p)",
        )  # fmt: skip
    lines = input_lines(p)
    named = inputs.by_name([line.out.name for line in lines], x)
    samples = {line.out: _samples(line.out, named[line.out.name], dtype, device) for line in lines}
    total = inputs.samples({v.name: len(s) for v, s in samples.items()})
    groups: dict[Any, list[int]] = {}
    for i in range(total):
        groups.setdefault(tuple(tuple(s[i].shape) for s in samples.values()), []).append(i)
    return [_group(p, samples, tuple(places), sizes or {}) for places in groups.values()]


def check_device(device: str | torch.device) -> None:
    """InputError when torch has no such device."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the device {device} cannot be used: {reason}", code="NT609") from None


def _samples(var: ir.Var, value: Any, dtype: torch.dtype, device: str | torch.device) -> list[torch.Tensor]:
    """One tensor per sample, checked for rank and numbers."""
    shape = ", ".join([*axis_names(var), *(["feature"] if var.kind == "X" else [])])
    rank = len(var.dims) + (var.kind == "X")
    whole = _tensor(var, value, dtype, device)
    tensors = list(whole) if whole is not None and whole.ndim > 0 else [_one(var, v, dtype, device) for v in value]
    for i, t in enumerate(tensors):
        if t.ndim != rank:
            raise InputError(
                f"{var} takes arrays [sample{', ' + shape if shape else ''}], and sample {i} has {t.ndim} dimension(s)"
                f" {list(t.shape)} where {rank} are expected", code="NT601",
            )  # fmt: skip
        if not torch.isfinite(t).all():
            what = "NaN" if torch.isnan(t).any() else "an infinite number"
            raise InputError(f"sample {i} of {var} contains {what}", code="NT603")
        if i == 0 or t.shape != tensors[i - 1].shape:
            _check_layout(var, t)
    return tensors


def _check_layout(var: ir.Var, sample: torch.Tensor) -> None:
    if var.kind == "X":
        check_layout(var.name, [a.name for a in var.axes], (1, *sample.shape))


def _tensor(var: ir.Var, value: Any, dtype: torch.dtype, device: str | torch.device) -> torch.Tensor | None:
    """The whole batch as one tensor; None when the samples have different shapes."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return as_tensor(var.name, value).to(device=device, dtype=dtype)
    shapes = {tuple(np.shape(v.cpu() if isinstance(v, torch.Tensor) else v)) for v in value}
    if len(shapes) > 1:
        return None
    return torch.stack([_one(var, v, dtype, device) for v in value]) if value else torch.zeros(0, dtype=dtype)


def _one(var: ir.Var, value: Any, dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
    return as_tensor(f"a sample of {var}", value).to(device, dtype)


def _group(
    p: ir.ProgramLike, samples: Mapping[ir.Var, list[torch.Tensor]], places: tuple[int, ...], sizes: Mapping[str, int]
) -> Group:
    bound: dict[str, int] = dict(sizes)
    values, features = {}, {}
    for var, tensors in samples.items():
        stacked = torch.stack([tensors[i] for i in places])
        for dim, size in zip(var.dims, stacked.shape[1:], strict=False):
            _bind_size(bound, var, dim, size, places[0])
        if var.rows is not None:
            features[var.rows] = stacked.shape[-1]
        values[var] = Value(stacked, axis_names(var))
    for line in p.lines:
        for dim in line.out.dims:
            if isinstance(dim.axis.size, int):
                bound.setdefault(dim.axis.name, dim.axis.size)
    return Group(places, values, bound, features)


def _bind_size(bound: dict[str, int], var: ir.Var, dim: ir.Dim, size: int, sample: int) -> None:
    expected = bound.get(dim.axis.name) if dim.axis.size is None else dim.axis.size
    if expected is not None and expected != size:
        raise InputError(
            f"the axis {dim.axis.name} of {var} has size {size} in sample {sample}, expected {expected}", code="NT602"
        )
    bound[dim.axis.name] = size
