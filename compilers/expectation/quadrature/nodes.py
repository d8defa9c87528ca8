"""Gauss–Legendre nodes and weights, each made once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, np.dtype[np.float64]]


@lru_cache(maxsize=32)
def legendre(count: int) -> tuple[Array, Array]:
    """On [−1, 1]."""
    x, w = np.polynomial.legendre.leggauss(count)
    x.flags.writeable = w.flags.writeable = False  # everybody's
    return x, w


@lru_cache(maxsize=32)
def on_device(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """On [−1, 1], as tensors."""
    x, w = legendre(count)
    return torch.tensor(x, device=device), torch.tensor(w, device=device)


@lru_cache(maxsize=32)
def on_unit(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """On [0, 1], as tensors."""
    x, w = legendre(count)
    return torch.tensor(0.5 * (x + 1), device=device), torch.tensor(0.5 * w, device=device)
