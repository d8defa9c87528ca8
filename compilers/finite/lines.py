"""Lines of a program as torch: the rules of `netsor.run.rules`, given limits, and sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from netsor import ir
from netsor.compilers.finite.contract import LETTERS, named
from netsor.compilers.finite.values import Binding, Value, axis_names
from netsor.errors import InputError


def constant(line: ir.InputScalar, binding: Binding, like: dict[str, Any]) -> Value:
    """The given limit of a scalar, over its axes; the limit "position" is the index along its one axis."""
    shape = binding.shape(line.out)
    data = torch.arange(*shape, **like) if line.limit == "position" else torch.tensor(_numbers(line.limit), **like)
    if data.ndim not in (0, len(shape)) or (data.ndim and tuple(data.shape) != shape):
        raise InputError(
            f"the values of {line.out} have shape {list(data.shape)}, its axes have sizes {list(shape)}", code="NT602"
        )
    return Value(data.expand(shape).unsqueeze(0), axis_names(line.out))


def _numbers(limit: Any) -> Any:
    return [_numbers(x) for x in limit] if isinstance(limit, tuple | list) else float(limit)


def summed(vector: Value, scalars: Sequence[Value], axes: Sequence[str], factor: float = 1.0) -> Value:
    """factor · Σ vector · Π scalars, `[sample, *axes, α]`, over the axes that are not among these."""
    here = list(dict.fromkeys([*axes, *(a for v in (vector, *scalars) for a in v.axes)]))
    data = vector.aligned(here)
    c: Tensor = prod((s.aligned(here) for s in scalars), start=data.new_ones((1,) * (1 + len(here)))) * factor
    parts = named(data, 1 + len(here)), named(c, 1 + len(here))
    shape = torch.broadcast_shapes(data.shape[:-1], c.shape)[: 1 + len(axes)]
    out = "".join(LETTERS[d] for d in range(1 + len(axes)) if shape[d] != 1)
    found = torch.einsum(f"{parts[0][1]}Z,{parts[1][1]}->{out}Z", parts[0][0], parts[1][0])
    return Value(found.reshape(*shape, data.shape[-1]), tuple(axes))
