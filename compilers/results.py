"""What a compiled kernel returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass
class KernelResult:
    """Kernels `[N1, N2, *output axes, *output axes′]`; None where they were not asked for.

    `terms` is the NTK by trained array; `vectors` second moments of named vectors and limits of returned scalars;
    `method` how the numbers were obtained and `error` their bound (None when only closed forms were used).
    """

    nngp: Tensor | None = None
    ntk: Tensor | None = None
    terms: dict[str, Tensor] | None = None
    vectors: dict[str, Tensor] = field(default_factory=dict)
    method: str = "exact"
    error: Any = None
