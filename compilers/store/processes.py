"""Processes beside this one: orders go to them by one pipe, answers come back by another. Each ends with its parent.

A fork has what its parent holds and begins at once. Where it may not be made, a process is an interpreter of its own,
which runs nothing of the caller's script.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import replace
from typing import IO, Any, NoReturn, Protocol

import torch

from netsor.errors import Diagnostic, NetsorError

QUIET = ("tqdm_monitor", "netsor_", "zarr_io")  # names of threads that wait and hold nothing; zarr makes its own anew
POOLED = "concurrent.futures.thread", "_worker"  # where a thread of a pool waits for work
START = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from netsor.compilers.store.processes import main
main()
"""

Life = Callable[[IO[bytes], IO[bytes]], None]  # reads orders until there are none, and answers each


Failure = tuple[type[Exception], Any] | None  # an error as it travels: its class and what it says


def failure_of(step: Callable[[], object]) -> Failure:
    """What went wrong in a step, as it travels."""
    try:
        step()
    except NetsorError as error:
        return type(error), error.diagnostic
    except Exception as error:
        return RuntimeError, f"{type(error).__name__}: {error}"
    return None


def raised(failure: Failure, where: str = "") -> None:
    """Raise here what went wrong elsewhere."""
    if failure is None:
        return
    kind, said = failure
    raise kind(replace(said, message=where + said.message) if isinstance(said, Diagnostic) else where + said)


class Ended(Exception):
    """A process was there no more when it was needed."""

    def __init__(self, process: Process) -> None:
        self.process = process


class Child(Protocol):
    """What is asked of a `subprocess.Popen`."""

    def kill(self) -> None: ...
    def wait(self) -> int: ...


class Fork:
    """A child of this process as a `Child`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status


class Process:
    """A child, and our ends of its pipes. Orders and answers may pass in any thread, the rest is for the parent's."""

    def __init__(self, child: Child, orders: IO[bytes], answers: IO[bytes]) -> None:
        self.child, self._orders, self._answers = child, orders, answers

    def send(self, order: Any) -> None:
        try:
            pickle.dump(order, self._orders)
            self._orders.flush()
        except OSError:
            raise Ended(self) from None

    def answer(self) -> Any:
        try:
            return pickle.load(self._answers)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise Ended(self) from None

    def how(self) -> str:
        """How it has ended."""
        status = self.child.wait()
        return f"by signal {-status}" if status < 0 else f"with status {status}"

    def end(self) -> None:
        self.child.kill()
        self.child.wait()

    def close(self) -> None:
        """Once no thread sends or waits for an answer."""
        for pipe in (self._orders, self._answers):
            with suppress(OSError):  # what was not sent goes nowhere
                pipe.close()


# ---------------------------------------------------------------- forks


def may_fork() -> bool:
    """Is what this process holds of use in a copy of it?

    Locks that another thread holds would stay locked there, and drivers of GPUs know no copies.
    """
    if sys.platform != "linux" or torch.cuda.is_available():
        return False
    return all(t is threading.current_thread() or _waits(t) for t in threading.enumerate())


def _waits(thread: threading.Thread) -> bool:
    """Does it hold nothing: one of `QUIET`, or one of a pool that has no work?"""
    frame = sys._current_frames().get(thread.ident or 0)
    idle = frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) == POOLED
    return idle or thread.name.startswith(QUIET)


def forked(life: Life) -> Process:
    """A copy of this process that leads a life and ends."""
    (orders, order), (answers, answer) = os.pipe(), os.pipe()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # what is not written yet is written once
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which would unwind the copy's stack
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which `may_fork` has looked at
            pid = os.fork()
        if pid == 0:
            _lead(life, orders, answer)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(orders)
    os.close(answer)
    return Process(Fork(pid), os.fdopen(order, "wb"), os.fdopen(answers, "rb"))


def _lead(life: Life, orders: int, answer: int) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        gc.freeze()  # what the parent holds is neither copied for its marks nor finalised here
        _let_go({0, 1, 2, orders, answer})
        life(os.fdopen(orders, "rb"), os.fdopen(answer, "wb"))
        status = 0
    except (EOFError, BrokenPipeError):  # the parent has ended
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _let_go(kept: Set[int]) -> None:
    """Of the parent's files, of its lock and of the pipes of other children, whose numbers stay taken."""
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            os.dup2(null, int(name))


# ---------------------------------------------------------------- interpreters


def spawned(life: Life) -> Process:
    """An interpreter of its own that leads a life, which is pickled, and ends."""
    child = subprocess.Popen([sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    found = Process(child, child.stdin, child.stdout)
    with suppress(Ended):  # is found when an answer is waited for
        found.send(sys.path)
        found.send(life)
    return found


def main() -> None:
    """What such an interpreter does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no answer
    lives: list[Life] = []
    failure = failure_of(lambda: lives.append(pickle.load(sys.stdin.buffer)))
    with suppress(EOFError, BrokenPipeError):  # the parent has ended
        if failure is None:
            lives[0](sys.stdin.buffer, answers)
        pickle.dump(failure, answers)
        answers.flush()
    os._exit(0)
