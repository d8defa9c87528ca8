"""A kernel's call inside torch.func and vmap: its tensors in, those of its result out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from netsor.compilers.evaluate import transforms
from netsor.compilers.evaluate.arrays import as_tensor
from netsor.compilers.evaluate.results import KernelResult, fields
from netsor.errors import UnsupportedError

Call = Callable[..., KernelResult]


def is_inside(*inputs: Any) -> bool:
    """Is a tensor of torch.func or vmap among these arrays, or in their dicts and lists?"""
    return any(transforms.inside(*_leaves(x)) for x in inputs)


def _leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, Mapping):
        for v in x.values():
            yield from _leaves(v)
    elif isinstance(x, list | tuple):
        for v in x:
            yield from _leaves(v)
    elif isinstance(x, Tensor):
        yield x


def _with_leaves(x: Any, new: Iterator[Tensor]) -> Any:
    if isinstance(x, Mapping):
        return {k: _with_leaves(v, new) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_with_leaves(v, new) for v in x]
    return next(new) if isinstance(x, Tensor) else x


def call(kernel: Call, *arguments: Any) -> KernelResult:
    """kernel(*arguments) as one operation of torch."""
    first: list[KernelResult] = []

    def plain(*tensors: Tensor) -> tuple[Tensor, ...]:
        new = iter(tensors)
        found = kernel(*(_with_leaves(x, new) for x in arguments))
        first.append(found)
        if "sampled" in found.method and any(t.requires_grad for t in tensors):
            raise UnsupportedError(
                "a sampled kernel has no gradient in its inputs", code="NT702", hint="finite differences with one seed"
            )
        return tuple(found.by_key().values())

    leaves = [as_tensor("an input", x) for part in arguments for x in _leaves(part)]
    values = transforms.transformed(plain, leaves)
    return replace(first[0], **fields(dict(zip(first[0].by_key(), values, strict=True))))
