"""The random arrays of a program: matrices ω and vectors β with the covariances its lines state, and given numbers.

Whoever runs a program says where standard normal numbers come from; what is made of them is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from netsor import facts, ir
from netsor.errors import InputError
from netsor.run.expressions import Array
from netsor.run.values import Arrays, Sized

A = TypeVar("A", bound=Any)


def factor(line: ir.InputMatrix | ir.InputVector, sizes: Sized) -> float:
    """What β and ω are multiplied by: multiplier, over √fan_in for matrices."""
    if isinstance(line, ir.InputVector):
        return float(line.multiplier)
    return float(line.multiplier) / math.sqrt(divisor(line, sizes))


def divisor(line: ir.InputMatrix, sizes: Sized) -> float:
    """What ω is divided by the square root of."""
    return float(facts.fan_in(line, sizes.dimension(line.out.cols)))


def vectors(
    block: Sequence[ir.InputVector], sizes: Sized, normal: Callable[[ir.InputVector, int], A], xp: Arrays[A, Any]
) -> dict[ir.Var, A]:
    """β `[*axes, coordinate]` of vectors that covary, from standard normals `[element, coordinate]` for each."""
    counts = [math.prod(axes(line.out, sizes)) for line in block]
    normals = [normal(line, k) for line, k in zip(block, counts, strict=True)]
    if len(block) == 1 and not block[0].axis_cov:
        drawn: list[A] = [normals[0] * math.sqrt(block[0].var)]
    else:
        mixed = xp.cast(root(block, sizes, xp), normals[0]) @ xp.join(normals, 0)
        ends = np.cumsum(counts)
        drawn = [mixed[end - k : end] for end, k in zip(ends, counts, strict=True)]
    return {
        line.out: (z + float(line.mean)).reshape(*axes(line.out, sizes), z.shape[-1])
        for line, z in zip(block, drawn, strict=True)
    }


def axes(var: ir.Var, sizes: Sized) -> tuple[int, ...]:
    """The sizes of a variable's axes."""
    return tuple(sizes.size(d.size) for d in var.dims)


def constant(line: ir.InputScalar, sizes: Sized, like: A, xp: Arrays[A, Any]) -> A:
    """The given limit of a scalar, `[*axes]`; the limit "position" is the index along its one axis."""
    shape = axes(line.out, sizes)
    data = xp.numbers(list(range(*shape)) if line.limit == "position" else _floats(line.limit), like)
    if data.ndim not in (0, len(shape)) or (data.ndim and tuple(data.shape) != shape):
        raise InputError(
            f"the values of {line.out} have shape {list(data.shape)}, its axes have sizes {list(shape)}", code="NT602"
        )
    return xp.expand(data, shape)


def _floats(limit: Any) -> Any:
    return [_floats(x) for x in limit] if isinstance(limit, tuple | list) else float(limit)


# ---------------------------------------------------------------- covariances


def root(block: Sequence[ir.InputVector], sizes: Sized, xp: Arrays[A, Any]) -> A:
    """R with R Rᵀ the covariance of all elements of a block; refuses an indefinite one."""
    result, smallest, largest = xp.root(joint(block, sizes))
    if smallest < -1e-10 * max(1.0, largest):
        raise InputError(
            f"the covariances of {', '.join(line.out.name for line in block)} are not those of any vectors: the matrix"
            f" has the negative eigenvalue {smallest:.3g}", code="NT112",
        )  # fmt: skip
    return result


def joint(block: Sequence[ir.InputVector], sizes: Sized) -> Array:
    """The covariances of all elements of some vectors."""
    return np.block([[covariance(a, b, sizes) for b in block] for a in block])


def covariance(a: ir.InputVector, b: ir.InputVector, sizes: Sized) -> Array:
    """Cov(β_a[i], β_b[j]) of the elements of two vectors, `[elements of a, elements of b]`, before multipliers.

    A family has var · Π M over its axes (M = 1 unless `axis_cov`); two vectors covary by their constant where the
    indices of the axes that both carry coincide.
    """
    if a.out is b.out:
        given = {axis.name: m for axis, m in a.axis_cov}
        result: Array = np.full((1, 1), float(a.var))
        for dim in a.out.dims:
            result = np.asarray(np.kron(result, _axis_matrix(a.out, dim, given, sizes)), dtype=np.float64)
        return result
    names = tuple(dict.fromkeys(d.axis.name for d in (*a.out.dims, *b.out.dims)))
    left, right = _indices(a.out, names, sizes), _indices(b.out, names, sizes)
    same = (left[:, None] == right[None]) | (left[:, None] < 0) | (right[None] < 0)
    found: Array = same.all(-1) * float(facts.covariance(a, b))
    return found


def _axis_matrix(var: ir.Var, dim: ir.Dim, given: Mapping[str, Any], sizes: Sized) -> Array:
    size = sizes.size(dim.size)
    if dim.axis.name not in given:
        return np.eye(size)
    m = np.array([[float(c) for c in row] for row in given[dim.axis.name]])
    if m.shape[0] < size:
        raise InputError(
            f"axis_cov of {var} covers {m.shape[0]} positions of {dim.axis.name}, not {size}", code="NT602"
        )
    return m[:size, :size]


def _indices(var: ir.Var, names: Sequence[str], sizes: Sized) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The indices of every element along the named axes, −1 where the variable lacks one: `[element, name]`."""
    shape, own = axes(var, sizes), [d.axis.name for d in var.dims]
    grid = np.indices(shape).reshape(len(shape), math.prod(shape))
    found = np.full((math.prod(shape), len(names)), -1)
    for i, name in enumerate(own):
        found[:, names.index(name)] = grid[i]
    return found
