"""Kernels of all pairs on disk, block by block: `kernel.gram(…, store=PATH)` and `ns.open_gram`."""

from __future__ import annotations

from netsor.compilers.store.cluster import connected
from netsor.compilers.store.fill import gram
from netsor.compilers.store.lazy import StoredGram, StoredKernel, open_gram
from netsor.compilers.store.task import Hands, Task, refuse, refuse_sampled

__all__ = ["Hands", "StoredGram", "StoredKernel", "Task", "connected", "gram", "open_gram", "refuse", "refuse_sampled"]
