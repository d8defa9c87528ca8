"""Sums of products over axes and coordinates, without the arrays of the products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from netsor.compilers.finite.values import Value

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def products(x: Tensor, y: Tensor) -> Tensor:
    """Σ_α x_α y_α of `[…, α]`, the other dimensions broadcast."""
    ndim = x.ndim - 1
    parts = [_named(t, ndim) for t in (x, y)]
    shape = torch.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    out = "".join(LETTERS[d] for d in range(ndim) if shape[d] != 1)
    terms = ",".join(f"{names}Z" for _, names in parts)
    return torch.einsum(f"{terms}->{out}", *(t for t, _ in parts)).reshape(shape)


def summed(vector: Value, scalars: Sequence[Value], axes: Sequence[str], factor: float = 1.0) -> Value:
    """factor · Σ vector · Π scalars, `[sample, *axes, α]`, over the axes that are not among these."""
    here = list(dict.fromkeys([*axes, *(a for v in (vector, *scalars) for a in v.axes)]))
    data = vector.aligned(here)
    c: Tensor = prod((s.aligned(here) for s in scalars), start=data.new_ones((1,) * (1 + len(here)))) * factor
    parts = _named(data, 1 + len(here)), _named(c, 1 + len(here))
    shape = torch.broadcast_shapes(data.shape[:-1], c.shape)[: 1 + len(axes)]
    out = "".join(LETTERS[d] for d in range(1 + len(axes)) if shape[d] != 1)
    found = torch.einsum(f"{parts[0][1]}Z,{parts[1][1]}->{out}Z", parts[0][0], parts[1][0])
    return Value(found.reshape(*shape, data.shape[-1]), tuple(axes))


def _named(t: Tensor, ndim: int) -> tuple[Tensor, str]:
    """Without the dimensions of size 1 among the first ones, and the letters of the others."""
    kept = [d for d in range(ndim) if t.shape[d] != 1]
    return t.reshape([t.shape[d] for d in kept] + list(t.shape[ndim:])), "".join(LETTERS[d] for d in kept)
