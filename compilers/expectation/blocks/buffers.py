"""Memory that tensors leave behind, for the tensors that come after them.

The memory of a large tensor that is dropped is used again while it is still in cache; a fresh one from the system
costs more than the operation that writes it.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

SMALL = 1 << 13  # numbers below which the system's memory is as good
SPARE = 1 << 26  # bytes above which arrays without readers are not kept for later
KINDS = (torch.float32, torch.float64)


class Buffers:
    """Arrays by shape; one that no tensor reads any more is given out again."""

    def __init__(self, spare: int = SPARE) -> None:
        self._held: dict[Any, list[np.ndarray]] = {}
        self._bytes = 0
        self.spare = spare

    def empty(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
        """As `torch.empty`. Every tensor on the memory counts as a reader, also a view of it."""
        if dtype not in KINDS or device.type != "cpu" or math.prod(shape) < SMALL:
            return torch.empty(shape, dtype=dtype, device=device)
        held = self._held.setdefault((shape, dtype), [])
        for array in held:
            if sys.getrefcount(array) == UNREAD:
                break
        else:
            if self._bytes > self.spare:
                self.forget()
            array = torch.empty(shape, dtype=dtype).numpy()
            self._bytes += array.nbytes
            held.append(array)
        return torch.from_numpy(array)

    def forget(self) -> None:
        """Drop the arrays that no tensor reads."""
        for held in self._held.values():
            held[:] = [array for array in held if sys.getrefcount(array) != UNREAD]
        self._bytes = sum(array.nbytes for held in self._held.values() for array in held)


def _unread() -> int:
    """References to an array that stands in a list, seen from a loop over the list."""
    for array in [np.empty(1)]:
        return sys.getrefcount(array)
    raise AssertionError


UNREAD = _unread()
