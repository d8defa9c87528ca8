"""Kernels of all pairs on disk, block by block: `kernel.gram(…, store=PATH)` and `ns.open_gram`."""

from __future__ import annotations

from netsor.compilers.store.cluster import connected
from netsor.compilers.store.draws import Draws
from netsor.compilers.store.fill import gram
from netsor.compilers.store.lazy import StoredGram, StoredKernel, open_gram
from netsor.compilers.store.sampled import SampledTask
from netsor.compilers.store.task import Client, Hands, Task, chosen_tile, refuse, refuse_cluster

__all__ = [
    "Client", "Draws", "Hands", "SampledTask", "StoredGram", "StoredKernel", "Task", "chosen_tile", "connected", "gram",
    "open_gram", "refuse", "refuse_cluster",
]  # fmt: skip
