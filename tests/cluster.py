"""Stores and those who fill them: chunks, forked processes, and a Dask cluster of which any process can be killed."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

LONG = 60.0  # seconds after which something is wrong


def forked(body: Callable[[], Any]) -> Any:
    """A process that shares what is imported here."""
    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    return process


def chunks(path: Path) -> dict[str, bytes]:
    """The files of all chunks of a store."""
    return {
        str(f.relative_to(path)): f.read_bytes() for f in path.rglob("c/**/*") if f.name.isdecimal() and f.is_file()
    }


def until(true: Callable[[], bool], what: str) -> None:
    """Wait, with an end."""
    end = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.005)


class Cluster(AbstractContextManager["Cluster"]):
    """A scheduler, its file, and workers of one thread."""

    def __init__(self, folder: Path, workers: int, resources: dict[str, float] | None = None) -> None:
        self.file = folder / "scheduler.json"
        self.resources = resources
        self.scheduler = forked(self._schedule)
        until(self._written, "the scheduler has not begun")
        self.workers = [self.worker() for _ in range(workers)]

    def worker(self) -> Any:
        return forked(self._work)

    def __exit__(self, *failure: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.join()

    def _written(self) -> bool:
        try:
            return bool(json.loads(self.file.read_text()))
        except (OSError, ValueError):
            return False

    def _schedule(self) -> None:
        from distributed import Scheduler

        async def run() -> None:
            async with Scheduler(host="127.0.0.1", port=0, dashboard=False, scheduler_file=str(self.file)) as s:
                await s.finished()

        _quiet()
        asyncio.run(run())

    def _work(self) -> None:
        from distributed import Worker

        async def run() -> None:
            async with Worker(
                scheduler_file=str(self.file), nthreads=1, dashboard=False, resources=self.resources,
                death_timeout=LONG,
            ) as w:  # fmt: skip
                await w.finished()

        _quiet()
        asyncio.run(run())


def _quiet() -> None:
    import logging

    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
