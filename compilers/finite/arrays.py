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

Arrays = dict[str, torch.Tensor]


def divisor(line: ir.InputMatrix, binding: Binding) -> float:
    """What ω is divided by the square root of."""
    return float(facts.fan_in(line, binding.dimension(line.out.cols)))


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
    for block in facts.covariance_blocks(p.lines):
        arrays |= _vectors(block, binding, seed, dtype, device)
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
            if isinstance(line, ir.InputMatrix):
                scale = float(line.multiplier) / math.sqrt(divisor(line, binding))
                result[line.out] = Value(scale * array, axis_names(line.out))
            else:
                result[line.out] = Value(float(line.multiplier) * array.unsqueeze(0), axis_names(line.out))
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


# ---------------------------------------------------------------- covariances


def covariance(a: ir.InputVector, b: ir.InputVector, binding: Binding) -> torch.Tensor:
    """Cov(β_a[i], β_b[j]) of the elements of two vectors, `[elements of a, elements of b]`, before multipliers.

    A family has var · Π M over its axes (M = 1 unless `axis_cov`); two vectors covary by their constant where the
    indices of the axes that both carry coincide.
    """
    if a.out is b.out:
        given = {axis.name: m for axis, m in a.axis_cov}
        result = torch.full((1, 1), float(a.var), dtype=torch.float64)
        for dim in a.out.dims:
            result = torch.kron(result, _axis_matrix(a.out, dim, given, binding))
        return result
    constant = facts.covariance(a, b)
    names = (*axis_names(a.out), *(n for n in axis_names(b.out) if n not in axis_names(a.out)))
    left, right = _indices(a.out, names, binding), _indices(b.out, names, binding)
    same = (left[:, None] == right[None]) | (left[:, None] < 0) | (right[None] < 0)
    return float(constant) * same.all(-1).to(torch.float64)


def _axis_matrix(
    var: ir.Var, dim: ir.Dim, given: Mapping[str, tuple[tuple[ir.Number, ...], ...]], binding: Binding
) -> torch.Tensor:
    size = binding.size(dim.size)
    if dim.axis.name not in given:
        return torch.eye(size, dtype=torch.float64)
    m = torch.tensor([[float(c) for c in row] for row in given[dim.axis.name]], dtype=torch.float64)
    if m.shape[0] < size:
        raise InputError(
            f"axis_cov of {var} covers {m.shape[0]} positions of {dim.axis.name}, not {size}", code="NT602"
        )
    return m[:size, :size]


def _indices(var: ir.Var, names: Sequence[str], binding: Binding) -> torch.Tensor:
    """The indices of every element along the named axes, −1 where the variable lacks one: `[element, name]`."""
    shape = binding.shape(var)
    grid = torch.cartesian_prod(*(torch.arange(s) for s in shape)) if shape else torch.zeros(1, 0, dtype=torch.long)
    grid = grid.reshape(math.prod(shape), len(shape))
    own = axis_names(var)
    missing = torch.full((grid.shape[0],), -1)
    return torch.stack([grid[:, own.index(n)] if n in own else missing for n in names] or [missing], dim=1)


def _vectors(
    block: Sequence[ir.InputVector], binding: Binding, seed: int, dtype: torch.dtype, device: str | torch.device
) -> Arrays:
    counts = [math.prod(binding.shape(line.out)) for line in block]
    n = binding.dimension(block[0].out.rows)
    normals = [_normal((k, n), seed, line.out.name, dtype, device) for k, line in zip(counts, block, strict=True)]
    if len(block) == 1 and not block[0].axis_cov:
        drawn = [math.sqrt(block[0].var) * normals[0]]
    else:
        joint = torch.cat([torch.cat([covariance(a, b, binding) for b in block], 1) for a in block], 0)
        mixing = root(joint, [line.out.name for line in block]).to(dtype=dtype, device=device)
        drawn = list((mixing @ torch.cat(normals)).split(counts))
    return {
        line.out.name: (float(line.mean) + z).reshape(*binding.shape(line.out), n)
        for line, z in zip(block, drawn, strict=True)
    }


def root(matrix: torch.Tensor, names: Sequence[str]) -> torch.Tensor:
    """The symmetric square root of a covariance; refuses an indefinite matrix."""
    eigenvalues, vectors = torch.linalg.eigh(matrix)
    if eigenvalues[0] < -1e-10 * max(1.0, float(eigenvalues[-1])):
        raise InputError(
            f"the covariances of {', '.join(names)} are not those of any vectors: the matrix has the negative"
            f" eigenvalue {float(eigenvalues[0]):.3g}", code="NT112",
        )  # fmt: skip
    return vectors * eigenvalues.clamp(min=0).sqrt() @ vectors.T
