"""Blocks of a store dealt to many GPUs, simulated: CIFAR-10 under a convolutional network, 60,000 images.

    python benchmarks/schedule.py [--quick] [--json]

A worker copies all inputs from the shared file system once, which all do at the same time, then takes block after
block: its pairs times the time of a pair, and a moment for the scheduler and the file. Workers die at random, on
average once in 100 hours each, and are back after two minutes; the block that a worker had is dealt again. Times of a
pair are the estimates of docs/scale.md; nothing is measured here.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import deque
from typing import Any

from netsor.compilers.store.layout import Array, Layout

PAIR = {"bound, all layers fused": 14e-6, "two launches a layer": 78e-6, "plain torch": 610e-6}  # seconds on one H200
INPUTS = 60_000 * 32 * 32 * 3 * 4  # bytes
SHARED = 2e9  # bytes a second that the shared file system gives to all workers together
MOMENT = 0.02  # seconds a block for the scheduler, the checksum and the file
LIFE, BACK = 100 * 3600.0, 120.0  # seconds that a worker lives on average, and until it is back


def simulated(layout: Layout, workers: int, pair: float) -> dict[str, Any]:
    """List scheduling: each block to the next worker that is idle."""
    chance = random.Random(0)
    start = workers * INPUTS / SHARED
    idle = [(start, k) for k in range(workers)]
    heapq.heapify(idle)
    ends = [start + chance.expovariate(1 / LIFE) for _ in range(workers)]
    todo, finished, busy, lost = deque(layout.blocks()), start, 0.0, 0
    while todo:
        now, k = heapq.heappop(idle)
        block = todo.popleft()
        work = layout.pairs(block) * pair + MOMENT
        if now + work > ends[k]:
            todo.append(block)
            lost += 1
            now = max(now, ends[k]) + BACK
            ends[k] = now + chance.expovariate(1 / LIFE)
        else:
            now += work
            busy += work
            finished = max(finished, now)
        heapq.heappush(idle, (now, k))
    blocks = sum(1 for _ in layout.blocks())
    size = blocks * layout.tile**2 * 4
    return {
        "gpus": workers, "blocks": blocks, "gigabytes": round(size / 1e9, 2), "hours": round(finished / 3600, 2),
        "busy": round(busy / finished / workers, 3), "blocks_lost": lost,
        "megabytes_per_second": round(size / 1e6 / (finished - start), 2),
        "files_per_second": round(blocks / (finished - start), 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    n = 6_000 if args.quick else 60_000
    layout = Layout(n, n, 512, True, (Array("ntk", "ntk", "float32", ()),))
    for name, pair in PAIR.items():
        for workers in (1, 8, 64):
            row = {"kernel": name} | simulated(layout, workers, pair)
            print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()))


if __name__ == "__main__":
    main()
