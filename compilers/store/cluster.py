"""Blocks computed by the workers of a Dask cluster, which see the folder of the store.

The scheduler is told which blocks to run and trusted in nothing: whether a block is there is read from the store. A
task maps the rows of its inputs from files in the store and writes its chunk itself; only its number travels.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch

from netsor.compilers.store.files import INPUTS, Store, writing
from netsor.compilers.store.identity import difference, versions
from netsor.compilers.store.layout import STATE, Block
from netsor.compilers.store.processes import Failure, failure_of, raised
from netsor.compilers.store.task import Client, Task
from netsor.compilers.store.workers import Order
from netsor.errors import InputError, NetsorWarning

LOOK = 1.0  # seconds between two looks at the workers
PATIENCE = 10  # looks without a worker before that is said
AHEAD = 2  # blocks that are handed out for each thread of the workers
KEPT = "blocks that are complete are kept; the same call goes on with the others"


@contextmanager
def connected(file: str) -> Generator[Any]:
    """A client of the scheduler that wrote the file; the logs of a connection that ends are left to our message."""
    try:
        import distributed
    except ImportError:
        raise InputError(
            "--engine dask needs distributed, which is not installed", code="NT640", hint='pip install "netsor[dist]"'
        ) from None
    if not Path(file).is_file():
        raise InputError(
            f"there is no file {file}", code="NT641", hint=f"dask scheduler --scheduler-file {file} writes it"
        )
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    make: Any = distributed.Client
    try:
        client = make(scheduler_file=file, timeout=10)
    except Exception as problem:  # of the network, or of the file
        raise InputError(
            f"the scheduler of {file} does not answer: {type(problem).__name__}", code="NT641",
            hint="the file is that of a scheduler that runs",
        ) from None  # fmt: skip
    try:
        yield client
    finally:
        with suppress(Exception):  # a scheduler that is gone
            client.close(timeout=2)


def clustered(
    task: Task, store: Store, client: Client, todo: list[Block], ready: Callable[[], None]
) -> Generator[Block]:
    """The blocks as they are done by the workers of a client."""
    folder = store.path.resolve() / STATE / f"{uuid.uuid4().hex}{INPUTS}"
    try:
        with writing(folder):
            folder.mkdir()
            order = pickle.dumps(Order.written(task, store.path.resolve(), folder))
        dealer = Dealer(client, (versions(), store.hash, order), store, resources(client, task.one.device))
        for number, block in enumerate(dealer.dealt(todo)):
            if number == 0:
                ready()  # the first block waits for a worker, and for what its program needs
            yield block
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def resources(client: Client, device: torch.device) -> dict[str, int] | None:
    """One GPU for a task, where workers say how many they have."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return {"GPU": 1} if device.type == "cuda" and any("GPU" in w["resources"] for w in workers) else None


@dataclass
class Dealer:
    """Hands out blocks, few at a time, so that a scheduler holds little and its loss costs little."""

    client: Client
    order: tuple[dict[str, str], str, bytes]
    store: Store
    resources: dict[str, int] | None
    running: dict[str, tuple[Any, Block]] = field(default_factory=dict)
    done: SimpleQueue[Any] = field(default_factory=SimpleQueue)
    threads: int = 1
    idle: int = 0

    def dealt(self, todo: list[Block]) -> Iterator[Block]:
        waiting = deque(todo)
        try:
            self._look()
            while waiting or self.running:
                while waiting and len(self.running) < AHEAD * max(1, self.threads):
                    self._submit(waiting.popleft())
                try:
                    future = self.done.get(timeout=LOOK)
                except Empty:
                    self._look()
                    continue
                yield self._answer(*self.running.pop(future.key))
        finally:
            with suppress(Exception):  # a scheduler that is gone
                self.client.cancel([future for future, _ in self.running.values()], force=True)

    def _submit(self, block: Block) -> None:
        future = self.client.submit(
            computed, *self.order, block, key=f"netsor-{uuid.uuid4().hex}", pure=False, resources=self.resources
        )
        self.running[future.key] = future, block
        future.add_done_callback(self.done.put)

    def _look(self) -> None:
        """How many threads there are; one warning when there have been none for a while."""
        try:
            workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        except Exception:
            raise self._lost() from None
        able = [w for w in workers if self.resources is None or "GPU" in w["resources"]]
        self.threads = sum(w["nthreads"] for w in able)
        self.idle = 0 if able else self.idle + 1
        if self.idle == PATIENCE:
            warnings.warn(
                f"the cluster has no worker{' with a GPU' if self.resources else ''}: {self.store.path} waits for one",
                NetsorWarning, stacklevel=2,
            )  # fmt: skip

    def _answer(self, future: Any, block: Block) -> Block:
        status = future.status
        if status in ("cancelled", "lost"):
            raise self._lost()
        if status == "error":
            problem = future.exception()
            text = f"{type(problem).__name__}: {problem}".partition("\n")[0]
            raise InputError(f"a block of {self.store.path} failed on its worker: {text}", code="NT641", hint=KEPT)
        try:
            failure: Failure = future.result()
        except Exception:  # between the end of the task and its answer
            raise self._lost() from None
        raised(failure, "on a worker: ")
        if not self.store.has(block):
            raise InputError(
                f"a worker wrote a block of {self.store.path}, and it is not here", code="NT641",
                hint="the workers and this process must see the same folder under the same name",
            )  # fmt: skip
        return block

    def _lost(self) -> InputError:
        return InputError(
            f"the scheduler that hands out blocks of {self.store.path} is gone or has dropped them", code="NT641",
            hint=KEPT,
        )  # fmt: skip


# ---------------------------------------------------------------- on a worker

ALONE = threading.Lock()  # blocks of one process are computed one after the other: each by one thread


def computed(known: dict[str, str], hashed: str, order: bytes, block: Block) -> Failure:
    """A block computed and written by a worker; what went wrong."""
    unlike = difference(known, versions())
    if unlike is not None:
        return InputError, InputError(
            f"other versions than the caller's: {unlike}", code="NT641", hint="the same on all machines"
        ).diagnostic
    with ALONE:
        return failure_of(lambda: _write(hashed, order, block))


def _write(hashed: str, order: bytes, block: Block) -> None:
    task, store = _loaded(hashed, order)
    task.write(store, block)


@lru_cache(maxsize=1)
def _loaded(hashed: str, order: bytes) -> tuple[Task, Store]:
    found: Order = pickle.loads(order)
    task, store = found.read()
    store.same(hashed)
    return task, store
