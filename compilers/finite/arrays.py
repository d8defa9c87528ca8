"""The random arrays of a program: matrices ω and vectors β, with the covariances its lines state.

Arrays are drawn one by one from (seed, name, shape), so a run does not depend on the order of the lines and widths are
independent of each other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import torch

from netsor import facts, ir
from netsor.compilers.finite.values import Binding, Value, axis_names
from netsor.errors import InputError
from netsor.run import draws

Arrays = dict[str, torch.Tensor]


def sample(
    p: ir.ProgramLike, binding: Binding, seed: int, dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
) -> Arrays:  # fmt: skip
    """ω `[*axes, row, column]` of every matrix and β `[*axes, coordinate]` of every vector, by name."""
    arrays: Arrays = {}
    for line in p.lines:
        if isinstance(line, ir.InputMatrix):
            shape = (*binding.shape(line.out), binding.dimension(line.out.rows), binding.dimension(line.out.cols))
            drawn = _normal(shape, seed, line.out.name, dtype, device)
            arrays[line.out.name] = drawn.mul_(math.sqrt(line.var))  # in place: the largest arrays there are

    def normal(line: ir.InputVector, k: int) -> torch.Tensor:
        return _normal((k, binding.dimension(line.out.rows)), seed, line.out.name, dtype, device)

    for block in facts.covariance_blocks(p.lines):
        arrays |= {v.name: array for v, array in draws.vectors(block, binding, normal, Value.xp).items()}
    return arrays


def memory(p: ir.ProgramLike, binding: Binding, itemsize: int) -> int:
    """Bytes of all matrices."""
    return sum(
        itemsize * math.prod(binding.shape(v)) * binding.dimension(v.rows) * binding.dimension(v.cols)
        for v in (line.out for line in p.lines if isinstance(line, ir.InputMatrix))
    )


def values(p: ir.ProgramLike, binding: Binding, arrays: Mapping[str, torch.Tensor]) -> dict[ir.Var, Value]:
    """W = multiplier · ω / √fan_in and g = multiplier · β; data-sized axes take the leading elements."""
    result: dict[ir.Var, Value] = {}
    for line in p.lines:
        if isinstance(line, ir.InputMatrix | ir.InputVector):
            array = _leading(line.out, _given(line.out, arrays), binding)
            array = array if isinstance(line, ir.InputMatrix) else array.unsqueeze(0)
            result[line.out] = Value(draws.factor(line, binding) * array, axis_names(line.out))
    return result


def _given(var: ir.Var, arrays: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if var.name not in arrays:
        raise InputError(f"no array is given for {var}", code="NT604")
    return arrays[var.name]


def _leading(var: ir.Var, array: torch.Tensor, binding: Binding) -> torch.Tensor:
    last = (var.rows, var.cols) if var.kind == "A" else (var.rows,)
    dimensions = tuple(binding.dimension(d) for d in last)
    shape = binding.shape(var)
    if array.ndim != len(shape) + len(dimensions) or tuple(array.shape[len(shape) :]) != dimensions:
        raise InputError(
            f"the array of {var} has shape {list(array.shape)}, expected {[*shape, *dimensions]}", code="NT602"
        )
    for i, size in enumerate(shape):
        array = array.narrow(i, 0, size)
    return array


def _normal(shape: Sequence[int], seed: int, name: str, dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
    key = hashlib.sha256(f"{seed}/{name}/{tuple(shape)}".encode()).digest()[:8]
    generator = torch.Generator(device=device).manual_seed(int.from_bytes(key, "little") >> 1)
    return torch.randn(*shape, generator=generator, dtype=dtype, device=device)
