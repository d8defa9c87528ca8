"""What the expectations of one call share: geometry of the last pair, coefficients of each input, entries to redo.

A block of a Gram matrix is evaluated inside `scratch()`. Outside of it every expectation stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks.buffers import Buffers

Key = tuple[Any, ...]
Pick = Callable[[Tensor, int], Tensor]


class Scratch:
    """What one call shares.

    `near` marks the pairs `[n, m]` of a float32 block that are too close to |ρ| = 1 for float32; with `tangents` the
    expectations of derivatives are asked for after those of the functions.
    """

    def __init__(self) -> None:
        self.near: Tensor | None = None
        self.watching = False
        self.tangents = False
        self.buffers = Buffers()
        self._last: tuple[tuple[float, float], list[Tensor], dict[str, Any]] | None = None
        self._kept: dict[Key, tuple[Tensor, Any]] = {}
        self._origins: dict[Key, tuple[Tensor, Tensor, Pick]] = {}

    def geometry(self, tensors: list[Tensor], noise: tuple[float, float]) -> dict[str, Any]:
        """A dict that lives until the geometry of other tensors is asked for."""
        last = self._last
        if last is None or last[0] != noise or not all(map(alike, tensors, last[1])):
            last = (noise, tensors, {})  # the tensors stay alive, so that no other has their address
            self._last = last
        return last[2]

    def keep(self, tensor: Tensor, name: Key, make: Callable[[], Any]) -> Any:
        """A quantity of the elements of a tensor, made once."""
        key = (*place(tensor), *name)
        if key not in self._kept:
            self._kept[key] = (tensor, make())
        return self._kept[key][1]

    def picked(self, tensor: Tensor, source: Tensor, pick: Pick) -> None:
        """`tensor` holds elements of `source`; `pick(v, front)` takes them of a v with `front` more dimensions."""
        self._origins[place(tensor)] = (tensor, source, pick)

    def origin(self, tensor: Tensor) -> tuple[Tensor, Pick] | None:
        """Where the elements of a tensor have been picked from, if they have."""
        found = self._origins.get(place(tensor))
        return None if found is None else found[1:]

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


def empty(shape: torch.Size, like: Tensor) -> Tensor:
    """As `like.new_empty(shape)`, in memory that another tensor of the block has left where there is some."""
    own = _current.get()
    if own is None:
        return like.new_empty(shape)
    return own.buffers.empty(shape, like.dtype, like.device)


def product(x: Tensor, y: Tensor) -> Tensor:
    """x·y, a tensor of its own."""
    if not isinstance(x, Tensor) or not covers(x, y):
        return x * y
    return torch.mul(x, y, out=empty(x.shape, x))


def covers(x: Tensor, y: Tensor) -> bool:
    """Does y broadcast to the shape of x?"""
    extra = x.dim() - y.dim()
    return extra >= 0 and all(n in (1, m) for n, m in zip(y.shape, x.shape[extra:], strict=True))


@contextmanager
def scratch() -> Generator[Scratch, None, None]:
    """Expectations inside the block share what they compute."""
    own = Scratch()
    token = _current.set(own)
    try:
        yield own
    finally:
        _current.reset(token)


def alike(x: Tensor, y: Tensor) -> bool:
    """The same memory seen with the same shape."""
    return x is y or (x.shape == y.shape and same_memory(x, y))


def place(x: Tensor) -> Key:
    """What tells the memory of a tensor, and how it is seen, from any other's."""
    return x.data_ptr(), x.dtype, x.shape, x.stride()


def _layout(x: Tensor) -> list[tuple[int, int]]:
    """Sizes and strides of the dimensions that matter: those of more than one element."""
    return [(size, step) for step, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def same_memory(x: Tensor, y: Tensor) -> bool:
    """The same elements in the same order, whatever dimensions of one element are between."""
    return x.data_ptr() == y.data_ptr() and _layout(x) == _layout(y)


def _whole(x: Tensor) -> Tensor:
    """All inputs of which x is a view of some, where it is one."""
    base = x._base
    return x if base is None or base.dtype != x.dtype or not base.is_contiguous() else base


def _part(values: Tensor, every: Tensor, x: Tensor) -> Tensor:
    """Of `values` of the elements of `every`, behind any dimensions in front, those of its view x."""
    if x is every:
        return values
    front = values.shape[: values.dim() - every.dim()]
    steps = values.stride()[: len(front)]
    start = values.storage_offset() + x.storage_offset() - every.storage_offset()
    return values.as_strided((*front, *x.shape), (*steps, *x.stride()), start)


def of_elements(x: Tensor, name: Key, make: Callable[[Tensor], tuple[list[Tensor], Any]]) -> tuple[list[Tensor], Any]:
    """Functions of the elements of x, `[*front, *x.shape]` each, and what `make` notes beside them.

    Made once for all that x is a part of.
    """
    own = _current.get()
    if own is None:
        return make(x)
    every = _whole(x)
    origin = own.origin(every)

    def values() -> tuple[list[Tensor], Any]:
        if origin is None:
            found, notes = make(every)
        else:
            source, pick = origin
            wide, notes = of_elements(source, name, make)
            found = [pick(t, t.dim() - source.dim()) for t in wide]
        return [t.contiguous() for t in found], notes

    found, notes = own.keep(every, name, values)
    return [_part(t, every, x) for t in found], notes


def source(x: Tensor) -> Tensor:
    """The tensor of all inputs that the elements of x come from."""
    own = _current.get()
    every = _whole(x)
    origin = None if own is None else own.origin(every)
    return every if origin is None else source(origin[0])


def same_inputs(x: Tensor, y: Tensor) -> bool:
    """Are `[n, 1, ...]` and `[1, n, ...]` the same inputs?"""
    return x.data_ptr() == y.data_ptr() and alike(x.transpose(0, 1), y)


def untracked(*tensors: Tensor) -> bool:
    """Does no gradient flow through these?"""
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
