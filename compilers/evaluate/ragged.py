"""Batches of samples of different size: grouped by size, each pair of groups one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.budget.plan import Limits
from netsor.compilers.budget.progress import NOTHING, Progress
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.arrays import as_tensor
from netsor.compilers.evaluate.assembled import mirrored
from netsor.compilers.evaluate.results import KernelResult, fields
from netsor.errors import InputError
from netsor.run.inputs import samples

Call = Callable[[Any, Any, Limits], KernelResult]


def is_ragged(x: Any) -> bool:
    """A list of arrays whose shapes differ (one input), or a dict with such lists."""
    if isinstance(x, Mapping):
        return any(is_ragged(v) for v in x.values())
    if not isinstance(x, list | tuple) or not x or isinstance(x[0], int | float):
        return False
    return len({_shape(v) for v in x}) > 1


def _shape(v: Any) -> tuple[int, ...]:
    if hasattr(v, "shape"):
        return tuple(v.shape)
    return (len(v), *_shape(v[0])) if isinstance(v, list | tuple) and v else ()


def _samples(x: Any) -> list[dict[str, Tensor]]:
    """One dict per sample."""
    if not isinstance(x, Mapping):
        return [{"": as_tensor("x", v)} for v in x]
    columns = {k: [as_tensor(k, v) for v in column] for k, column in x.items()}
    count = samples({k: len(c) for k, c in columns.items()})
    return [{k: c[i] for k, c in columns.items()} for i in range(count)]


def _groups(x: Any) -> list[tuple[list[int], Any]]:
    """Samples of equal shape: their places and their batch."""
    each = _samples(x)
    found: dict[Any, list[int]] = {}
    for i, s in enumerate(each):
        found.setdefault(tuple((k, tuple(v.shape)) for k, v in s.items()), []).append(i)
    out = []
    for places in found.values():
        batch = {k: torch.stack([each[i][k] for i in places]) for k in each[places[0]]}
        out.append((places, batch[""] if list(batch) == [""] else batch))
    return out


def call(kernel: Call, x1: Any, x2: Any, name: str = "", limits: Limits | None = None) -> KernelResult:
    """The whole kernel, from one call per pair of groups, within the limits of all."""
    limits = limits or Limits()
    left = _groups(x1)
    right = left if x2 is None else _groups(x2)
    shape = sum(len(p) for p, _ in left), sum(len(p) for p, _ in right)
    pairs = shape[0] * (shape[0] + 1) // 2 if x2 is None else shape[0] * shape[1]
    out: dict[Key, Tensor] = {}
    methods: list[KernelResult] = []
    with Progress(name, pairs, "pairs", limits.progress, kept=NOTHING) as progress:
        for i, (rows, a) in enumerate(left):
            for j, (cols, b) in enumerate(right):
                if x2 is None and j < i:
                    continue
                result = kernel(a, None if x2 is None and i == j else b, _left(limits, out, progress))
                methods.append(result)
                for key, value in result.by_key().items():
                    _put(out, key, value, rows, cols, shape)
                    if x2 is None and i != j:
                        _put(out, key, mirrored(value), cols, rows, shape)
    return _collect(out, methods)


def _left(limits: Limits, out: dict[Key, Tensor], progress: Progress) -> Limits:
    """What the whole kernels leave of a budget."""
    held = sum(2 * v.numel() * v.element_size() for v in out.values())
    return replace(limits, memory=None if limits.memory is None else limits.memory - held, shown=progress)


def _put(
    out: dict[Key, Tensor], key: Key, value: Tensor, rows: list[int], cols: list[int], shape: tuple[int, int]
) -> None:
    if value.dim() > 2:
        raise InputError(
            f"{key} has output axes whose sizes differ between samples", code="NT602",
            hint="call once per size",
        )  # fmt: skip
    if key not in out:
        out[key] = value.new_zeros(shape)
    index = torch.tensor(rows, device=value.device)[:, None], torch.tensor(cols, device=value.device)[None, :]
    out[key] = out[key].index_put(index, value)


def _collect(out: dict[Key, Tensor], parts: list[KernelResult]) -> KernelResult:
    errors = [p.error for p in parts if p.error is not None]
    methods = sorted({m for p in parts for m in p.method.split("+")})
    return KernelResult(
        **fields(out), method="+".join(methods), error=max(errors) if errors else None,
        assumed=any(p.assumed for p in parts),
    )  # fmt: skip
