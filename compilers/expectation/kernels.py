"""Expectations over whole covariance matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from netsor.compilers.expectation.engine import E2, E11
from netsor.compilers.expectation.functions import Fn


def E2_pairs(
    pairs: Sequence[tuple[Fn, Fn]],
    k11: Tensor,
    k22: Tensor,
    k12: Tensor,
    m1: Tensor | None = None,
    m2: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """E f(u)g(v) of several pairs (f, g) over the same Gaussian."""
    return tuple(E2(f, g, k11, k22, k12, m1, m2) for f, g in pairs)


def v_transform(f: Fn, K: Tensor, g: Fn | None = None) -> Tensor:
    """The V-transform E f(z)g(z)ᵀ, z ~ N(0, K), K `[..., n, n]` (Definition E.1); g is f if missing."""
    other = f if g is None else g
    k = K.diagonal(dim1=-2, dim2=-1)
    full = E2(f, other, k.unsqueeze(-1), k.unsqueeze(-2), K)
    on_diagonal = torch.eye(K.shape[-1], dtype=torch.bool, device=K.device)
    return torch.where(on_diagonal, torch.diag_embed(E11(f, other, k)), full)
