"""Processes that compute blocks and write them. Each ends when its parent does.

They are interpreters of their own that run nothing of the caller's script; a block goes to one by its standard input,
and what came of it back by its standard output.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch

from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.store.files import Store, writing
from netsor.compilers.store.layout import Block
from netsor.compilers.store.task import Task
from netsor.errors import InputError, NetsorError

Failure = tuple[type[Exception], Any] | None  # an error as it travels: its class and what it says
START = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from netsor.compilers.store.workers import main
main()
"""


@dataclass(frozen=True)
class Kept:
    """A batch in files that processes share."""

    empty: Inputs
    files: dict[str, str]
    device: torch.device

    @staticmethod
    def written(data: Inputs, folder: Path, side: str) -> Kept:
        files: dict[str, str] = {}
        for i, (name, tensor) in enumerate(data.arrays.items()):
            files[name] = str(folder / f"{side}-{i}.npy")
            np.save(files[name], tensor.numpy(force=True))
        return Kept(data.having({k: v[:0].cpu().clone() for k, v in data.arrays.items()}), files, data.device)

    def read(self) -> Inputs:
        arrays = {k: torch.from_numpy(np.load(file, mmap_mode="c")) for k, file in self.files.items()}
        return self.empty.having({k: v.to(self.device) for k, v in arrays.items()})


class Worker:
    """One process; `arguments` are those of `work`."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.path: Path = arguments[-1]
        self._send(sys.path)
        self._send(arguments)

    def _send(self, value: Any) -> None:
        assert self.process.stdin is not None
        try:
            pickle.dump(value, self.process.stdin)
            self.process.stdin.flush()
        except OSError:
            raise self._dead() from None

    def compute(self, block: Block) -> Block:
        """Have a block computed and written; what went wrong there is raised here."""
        self._send(block)
        self.answer()
        return block

    def answer(self) -> None:
        assert self.process.stdout is not None
        try:
            failure = pickle.load(self.process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self._dead() from None
        if failure is not None:
            raise failure[0](failure[1])

    def end(self) -> None:
        """A chunk is there wholly or not at all, whenever this is."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # what was not sent goes nowhere
                continue

    def _dead(self) -> InputError:
        status = self.process.wait()
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return InputError(
            f"a process that computes blocks of {self.path} ended {how}", code="NT641",
            hint="blocks that are complete are kept; the same call goes on with the others",
        )  # fmt: skip


def shared(
    task: Task, path: Path, count: int, todo: list[Block], ready: Callable[[], None]
) -> Iterator[Block]:  # fmt: skip
    """The blocks as they are done by `count` processes, which write them to the store at a path."""
    with tempfile.TemporaryDirectory(prefix="netsor-") as folder:
        with writing(Path(folder)):
            one = Kept.written(task.one, Path(folder), "x1")
            two = None if task.two is None else Kept.written(task.two, Path(folder), "x2")
        bare = replace(task, one=one.empty, two=None if two is None else two.empty)
        workers: list[Worker] = []
        try:
            workers += [Worker((number, bare, one, two, path)) for number in range(count)]
            for worker in workers:
                worker.answer()  # it has begun
            ready()
            yield from _dealt(workers, todo)
        finally:
            for worker in workers:
                worker.end()


def _dealt(workers: list[Worker], todo: list[Block]) -> Iterator[Block]:
    """Each block to the next process that is idle."""
    idle: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def computed(block: Block) -> Block:
        worker = idle.get()
        try:
            return worker.compute(block)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(len(workers))
    try:
        for done in as_completed([pool.submit(computed, block) for block in todo]):
            yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def main() -> None:
    """The life of a process: blocks by the standard input until nobody gives any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no reply
    try:
        work(replies, *pickle.load(sys.stdin.buffer))
    except (EOFError, BrokenPipeError):
        os._exit(0)


def work(replies: Any, number: int, task: Task, one: Kept, two: Kept | None, path: Path) -> None:
    """Compute blocks as they are given."""
    torch.set_num_threads(1)
    if one.device.type == "cuda" and one.device.index is None:
        torch.cuda.set_device(number % torch.cuda.device_count())
    whole = replace(task, one=one.read(), two=None if two is None else two.read())
    store = Store(path)
    failure = failure_of(lambda: whole.layout(1))  # derives and compiles
    while True:
        pickle.dump(failure, replies)
        replies.flush()
        block = pickle.load(sys.stdin.buffer)
        failure = failure_of(partial(_write, whole, store, block))


def _write(task: Task, store: Store, block: Block) -> None:
    store.write(block, *task.block(*store.layout.slices(block)))


def failure_of(step: Callable[[], object]) -> Failure:
    """What went wrong in a step, as it travels."""
    try:
        step()
    except NetsorError as error:
        return type(error), error.diagnostic
    except Exception as error:
        return RuntimeError, f"{type(error).__name__}: {error}"
    return None
