"""Large results in large pages where the system has them: a fresh page costs more than what is written on it."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import lru_cache
from typing import Any

from torch import Tensor

LARGE = 1 << 21  # bytes of a large page
ADVICE = 14  # MADV_HUGEPAGE


def large(x: Tensor) -> Tensor:
    """The tensor, whose memory has not been touched yet."""
    size = x.numel() * x.itemsize
    advise = _advise() if x.device.type == "cpu" and size >= 2 * LARGE else None
    if advise is not None:
        start = -(-x.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        advise(start, (x.data_ptr() + size - start) // mmap.PAGESIZE * mmap.PAGESIZE, ADVICE)  # no matter if it fails
    return x


@lru_cache(maxsize=1)
def _advise() -> Any:
    if sys.platform != "linux":
        return None
    try:
        found = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found
