"""E F(u₀, …) of several jointly Gaussian variables by quadrature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def joint(
    f: Callable[..., Any], cov: Sequence[Any], means: Sequence[Any], kinked: Sequence[int] = (), *params: Any
) -> Tensor:
    raise NotImplementedError
