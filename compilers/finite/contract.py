"""Sums of products over coordinates, without the arrays of the products."""

from __future__ import annotations

import torch
from torch import Tensor

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def products(x: Tensor, y: Tensor) -> Tensor:
    """Σ_α x_α y_α of `[…, α]`, the other dimensions broadcast."""
    ndim = x.ndim - 1
    parts = [named(t, ndim) for t in (x, y)]
    shape = torch.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    out = "".join(LETTERS[d] for d in range(ndim) if shape[d] != 1)
    terms = ",".join(f"{names}Z" for _, names in parts)
    return torch.einsum(f"{terms}->{out}", *(t for t, _ in parts)).reshape(shape)


def named(t: Tensor, ndim: int) -> tuple[Tensor, str]:
    """Without the dimensions of size 1 among the first ones, and the letters of the others."""
    kept = [d for d in range(ndim) if t.shape[d] != 1]
    return t.reshape([t.shape[d] for d in kept] + list(t.shape[ndim:])), "".join(LETTERS[d] for d in kept)
