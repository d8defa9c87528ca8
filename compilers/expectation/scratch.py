"""What the expectations of one call share: geometry of the last pair, coefficients of each input, entries to redo.

A block of a Gram matrix is evaluated inside `scratch()`. Outside of it every expectation stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

Key = tuple[Any, ...]


class Scratch:
    """`near` marks the pairs `[n, m]` of a float32 block that are too close to |ρ| = 1 for float32."""

    def __init__(self) -> None:
        self.near: Tensor | None = None
        self.watching = False
        self._last: tuple[Key, list[Tensor], dict[str, Any]] | None = None
        self._kept: dict[Key, tuple[Tensor, Any]] = {}

    def geometry(self, tensors: list[Tensor], *rest: float) -> dict[str, Any]:
        """A dict that lives until the geometry of other tensors is asked for."""
        key = (*map(identity, tensors), *rest)
        if self._last is None or self._last[0] != key:
            self._last = (key, tensors, {})  # the tensors stay alive, so that no other has their address
        return self._last[2]

    def keep(self, tensor: Tensor, name: Key, make: Callable[[], Any]) -> Any:
        """A quantity of one input's tensor, made once."""
        key = (identity(tensor), *name)
        if key not in self._kept:
            self._kept[key] = (tensor, make())
        return self._kept[key][1]

    def mark(self, mask: Tensor) -> None:
        """Pairs of inputs in which some entry of the mask is set."""
        mask = mask.flatten(2).any(2) if mask.dim() > 2 else mask
        self.near = mask if self.near is None else self.near | mask

    def release(self) -> None:
        """Forget the last geometry and the marks; the coefficients of the inputs stay."""
        self._last, self.near = None, None


_current: ContextVar[Scratch | None] = ContextVar("netsor_scratch", default=None)


def current() -> Scratch | None:
    return _current.get()


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Expectations inside the block share what they compute."""
    own = Scratch()
    token = _current.set(own)
    try:
        yield own
    finally:
        _current.reset(token)


def identity(t: Tensor) -> Key:
    """The same memory seen with the same shape, up to dimensions of size 1; writing in place makes another."""
    dims = tuple((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n != 1)
    return (t.data_ptr(), dims, t.dtype, t.device, 0 if t.is_inference() else t._version)


def untracked(*tensors: Tensor) -> bool:
    """Does no gradient flow through these?"""
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
