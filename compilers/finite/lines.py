"""Sums of products of vectors and scalars, as one contraction."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from netsor.compilers.finite.contract import LETTERS, named
from netsor.compilers.finite.values import Value


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
