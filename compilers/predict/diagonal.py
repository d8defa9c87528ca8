"""Kernels of every input with itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.budget.progress import NOTHING, Progress
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.results import KernelResult, fields
from netsor.compilers.predict.samples import batches, count

BLOCK = 32  # inputs of one call: the kernel's own diagonal is exact in it, and few pairs are computed in vain


def diagonals(kernel: Callable[[Any], KernelResult], x: Any, single: Collection[str]) -> KernelResult:
    """The diagonals of the kernel's calls on batches of a few inputs; `single` are the results without pairs."""
    parts: list[KernelResult] = []
    with Progress("diagonal", count(x), "samples", kept=NOTHING) as shown:
        for part in batches(x, BLOCK):
            parts.append(kernel(part))
            shown.done(count(part))

    def joined(key: Key, values: list[Tensor]) -> Tensor:
        return torch.cat(values if key.name in single and not key.is_term else [_diagonal(v) for v in values])

    each = [r.by_key() for r in parts]
    kernels = {key: joined(key, [r[key] for r in each]) for key in each[0]}
    errors = [r.error for r in parts if r.error is not None]
    return replace(parts[0], **fields(kernels), error=max(errors) if errors else None)


def _diagonal(value: Tensor) -> Tensor:
    """`[n, *axes, *axes′]` from `[n, n, *axes, *axes′]`."""
    return value.diagonal(dim1=0, dim2=1).movedim(-1, 0)
