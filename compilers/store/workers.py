"""The blocks of a store by this process and others beside it, each of which writes what it has computed."""

from __future__ import annotations

import pickle
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

import numpy as np
import torch

from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.store.files import Store, writing
from netsor.compilers.store.processes import Ended, Failure, Process, failure_of, forked, may_fork, raised, spawned
from netsor.compilers.store.task import Task
from netsor.errors import InputError

Done = SimpleQueue[Any]  # what is done, or an exception


@dataclass(frozen=True)
class Kept:
    """A batch in files that processes share."""

    empty: Inputs
    files: dict[str, str]
    device: torch.device

    @staticmethod
    def written(data: Inputs, folder: Path, side: str, device: torch.device | None = None) -> Kept:
        files: dict[str, str] = {}
        for i, (name, tensor) in enumerate(data.arrays.items()):
            files[name] = str(folder / f"{side}-{i}.npy")
            np.save(files[name], tensor.numpy(force=True))
        empty = data.having({k: v[:0].cpu().clone() for k, v in data.arrays.items()})
        return Kept(empty, files, data.device if device is None else device)

    def read(self) -> Inputs:
        arrays = {k: torch.from_numpy(np.load(file, mmap_mode="c")) for k, file in self.files.items()}
        return self.empty.having({k: v.to(self.device) for k, v in arrays.items()})


@dataclass(frozen=True)
class Order:
    """A task without its inputs, which are in files."""

    bare: Task
    one: Kept
    two: Kept | None
    path: Path

    @staticmethod
    def written(task: Task, path: Path, folder: Path, device: torch.device | None = None) -> Order:
        one = Kept.written(task.one, folder, "x1", device)
        two = None if task.two is None else Kept.written(task.two, folder, "x2", device)
        return Order(task.having(one.empty, None if two is None else two.empty), one, two, path)

    def read(self) -> tuple[Task, Store]:
        return self.bare.having(self.one.read(), None if self.two is None else self.two.read()), Store(self.path)


# ---------------------------------------------------------------- the caller


def dealt(
    task: Task, store: Store, count: int, todo: Sequence[Any], ready: Callable[[], None] = lambda: None
) -> Generator[Any]:
    """Blocks, or what else the task writes, as they are done by this process and `count - 1` others."""
    count = min(count, len(todo))
    waiting, done, left = deque(todo), Done(), len(todo)
    with _others(task, store, count - 1) as others, _served(others, waiting, done):
        ready()
        while left:
            own = _next(waiting)
            if own is not None:
                task.write(store, own)
                done.put(own)
            while True:  # one, and what else there is
                yield _checked(done.get(), store.path)
                left -= 1
                if done.empty():
                    break


def _next(waiting: deque[Any]) -> Any:
    """None when there is nothing more to do."""
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _checked(found: Any, path: Path) -> Any:
    if isinstance(found, Ended):
        raise InputError(
            f"a process that computes blocks of {path} ended {found.process.how()}", code="NT641",
            hint="blocks that are complete are kept; the same call goes on with the others",
        )  # fmt: skip
    if isinstance(found, Exception):
        raise found
    return found


@contextmanager
def _served(others: list[Process], waiting: deque[Any], done: Done) -> Generator[None]:
    """Inside, each process is given the next block when it is idle. At the end all are ended."""
    threads = [Thread(target=_serve, args=(process, waiting, done), daemon=True) for process in others]
    try:
        for thread in threads:
            thread.start()
        yield
    finally:
        for process in others:
            process.end()
        for thread in threads:
            thread.join()


def _serve(process: Process, waiting: deque[Any], done: Done) -> None:
    try:
        raised(process.answer())  # it has begun
        while (block := _next(waiting)) is not None:
            process.send(block)
            raised(process.answer())
            done.put(block)
    except Exception as error:
        done.put(error)


# ---------------------------------------------------------------- the others


@contextmanager
def _others(task: Task, store: Store, count: int) -> Generator[list[Process]]:
    """So many processes that have begun: copies of this one where that is safe."""
    with ExitStack() as held:
        if count < 1:
            starts = []
        elif may_fork():
            life = partial(_compute, task, store, None)
            starts = [partial(forked, life)] * count
        else:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="netsor-")))
            with writing(folder):
                order = Order.written(task, store.path.resolve(), folder, task.kernel.device)
            starts = [partial(spawned, partial(_begin, number, order)) for number in range(1, count + 1)]
        yield [held.enter_context(_ended(start)) for start in starts]


@contextmanager
def _ended(start: Callable[[], Process]) -> Generator[Process]:
    """A process that has begun, and ends afterwards."""
    try:
        process = start()
    except OSError as problem:
        raise InputError(f"no other process can be started: {problem.strerror}", code="NT641") from None
    try:
        yield process
    finally:
        process.end()
        process.close()


def _begin(number: int, order: Order, orders: IO[bytes], answers: IO[bytes]) -> None:
    """The life of an interpreter of its own, the one with this number."""
    device = order.one.device
    if device.type == "cuda" and device.index is None:
        torch.cuda.set_device(number % torch.cuda.device_count())
    task, store = order.read()
    _compute(task, store, failure_of(lambda: task.layout(1)), orders, answers)  # derives and compiles


def _compute(task: Task, store: Store, failure: Failure, orders: IO[bytes], answers: IO[bytes]) -> None:
    """Say that it has begun, then compute and write blocks as they are given."""
    torch.set_num_threads(1)
    while True:
        pickle.dump(failure, answers)
        answers.flush()
        failure = failure_of(partial(task.write, store, pickle.load(orders)))
