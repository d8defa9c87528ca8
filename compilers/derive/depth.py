"""Python's recursion limit, raised for the length of a derivation and put back."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def deep_recursion(limit: int = 200_000) -> Generator[None, None, None]:
    """Programs of hundreds of layers recurse deeper than Python's default allows."""
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(max(old, limit))
    try:
        yield
    finally:
        sys.setrecursionlimit(old)
