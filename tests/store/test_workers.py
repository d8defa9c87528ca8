"""Processes that fill a store with the caller: copies of it, or interpreters of their own; whatever ends is said."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch
from cluster import chunks, forked, until

import netsor as ns
from netsor import programs
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.native import compiler, library
from netsor.compilers.store import processes, workers
from netsor.compilers.store.files import Store

pytest.importorskip("zarr")
X = np.random.default_rng(0).normal(size=(60, 5))
TILE = 8  # 36 blocks of X
copies = pytest.mark.skipif(sys.platform != "linux", reason="copies of processes are made on Linux only")


def kernel(**options: Any) -> ns.Kernel:
    return ns.compile(programs.mlp(2), **options)


def fill(path: Path, **options: Any) -> Any:
    return kernel().gram(X, store=path, tile=TILE, processes=2, **options)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies, whatever threads the tests have."""
    monkeypatch.setattr(workers, "may_fork", lambda: True)


def elsewhere(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object], count: int = 3) -> None:
    """A step that another process than this one takes in the place of its fourth block."""
    here, write, left = os.getpid(), Store.write, [count]

    def written(self: Store, *args: Any) -> None:
        if os.getpid() == here:
            time.sleep(0.005)  # that others have some blocks
        else:
            left[0] -= 1
            if left[0] < 0:
                step()
        write(self, *args)

    monkeypatch.setattr(Store, "write", written)


# ---------------------------------------------------------------- the numbers


@pytest.mark.parametrize(
    ("fork", "second"),
    [pytest.param(True, False, marks=copies), pytest.param(True, True, marks=copies), (False, True)],
)
def test_processes_write_what_one_writes(
    fork: bool, second: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both kinds of processes, each of which computes some blocks; several inputs."""
    monkeypatch.setattr(workers, "may_fork", lambda: fork)
    x, y = ({"a": X[i:], "b": X[i:, :2] + 1} for i in (0, 20))
    path, k, write, here = tmp_path / "two.zarr", ns.compile(two_inputs()), Store.write, os.getpid()
    k.gram(x, y if second else None, store=tmp_path / "one.zarr", tile=20)

    def written(self: Store, *args: Any) -> None:
        if os.getpid() == here:
            until(lambda: bool(chunks(path)), "the other process has not begun")
        write(self, *args)

    monkeypatch.setattr(Store, "write", written)
    k.gram(x, y if second else None, store=path, tile=20, processes=2)
    assert chunks(path) == chunks(tmp_path / "one.zarr")


def two_inputs() -> ns.Program:
    p = ns.Program("p")
    n, a, b = p.width("n"), p.data("a"), p.data("b")
    h = p.matrix("W", n, a) @ a + p.matrix("V", n, b) @ b
    p.output(p.readout("v", n), ns.tanh(h))
    return p


@copies
def test_copies_after_products_and_gradients_by_several_threads(
    copied: None, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What libraries keep of their threads does not hold up a copy."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x = torch.randn(600, 600, requires_grad=True)
        (x @ x).exp().sum().backward()
        np.linalg.svd(np.ones((300, 300)))
        fill(tmp_path / "k.zarr")
    finally:
        torch.set_num_threads(before)
    assert chunks(tmp_path / "k.zarr") == chunks(whole)


@copies
@pytest.mark.skipif(compiler.current() is None, reason="there is no C compiler")
def test_copies_have_threads_of_their_own_kernel(copied: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ALONE", 16)
    k = kernel(backend="native", threads=2)
    k(X)
    k.gram(X, store=tmp_path / "two.zarr", tile=20, processes=2)
    kernel(backend="native").gram(X, store=tmp_path / "one.zarr", tile=20)
    assert chunks(tmp_path / "one.zarr") == chunks(tmp_path / "two.zarr")


def test_where_copies_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not beside other threads, whose locks would stay locked; not with GPUs."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])
    assert processes.may_fork()
    other = threading.Thread(name="tqdm_monitor")
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread(), other])
    assert processes.may_fork()
    other.name = "Thread-1"
    assert not processes.may_fork()
    other.name = "netsor_0"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not processes.may_fork()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not processes.may_fork()


def test_when_pools_keep_from_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that work do, those that wait for work do not."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    begun, end = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(begun.set)
        pool.submit(end.wait)
        begun.wait()
        (worker,) = pool._threads
        monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread(), worker])
        until(lambda: not processes.may_fork(), "the pool does not begin")
        end.set()
        until(processes.may_fork, "the pool has not ended its work")


def test_inputs_are_where_their_arrays_are() -> None:
    """Constants that were made on one device are made anew on another."""
    one = Inputs({"x": ("data", ())}, {"x": torch.ones(3, 2)})
    constant = one.constant((1.0, 2.0))
    two = one.having({"x": torch.ones(3, 2, device="meta")})
    assert two.device.type == two.constant((1.0, 2.0)).device.type == "meta"
    assert one.device.type == "cpu" and one.constant((1.0, 2.0)) is constant


# ---------------------------------------------------------------- ends


@copies
def test_a_process_that_is_killed(copied: None, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.zarr"
    elsewhere(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(ns.InputError, match=r"NT641 a process that computes .*k\.zarr ended by signal 9") as e:
        fill(path)
    assert "blocks that are complete are kept" in str(e.value)
    monkeypatch.undo()
    assert 0 < len(Store(path).missing()) < 33
    fill(path)
    assert chunks(path) == chunks(whole)


@copies
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (ns.InputError("too bad", code="NT642"), r"NT642 too bad"),
        (MemoryError("no room"), r"MemoryError: no room"),
    ],
)
def test_a_process_that_fails(
    problem: Exception, message: str, copied: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise problem

    elsewhere(monkeypatch, fail)
    with pytest.raises((ns.InputError, RuntimeError), match=message):
        fill(tmp_path / "k.zarr")


@copies
def test_no_more_processes(tmp_path: Path, copied: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", none)
    with pytest.raises(ns.InputError, match=r"NT641 no other process can be started: Resource temporarily"):
        fill(tmp_path / "k.zarr")


@copies
def test_a_copy_ends_with_its_parent_and_holds_nothing_of_it(tmp_path: Path) -> None:
    """Neither the lock of a store, nor the pipes of a process that came before it."""
    note = tmp_path / "pids"

    def waiting(orders: IO[bytes], answers: IO[bytes]) -> None:
        with note.open("a") as file:
            file.write(f"{os.getpid()}\n")
        orders.read(1)

    def parent() -> None:
        with (tmp_path / "file").open("w") as file:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            first = processes.forked(waiting)
            processes.forked(waiting)
            until(lambda: note.exists() and len(note.read_text().split()) == 2, "they have not begun")
            (tmp_path / "ready").touch()
            time.sleep(60)
            first.end()

    process = forked(parent)
    until((tmp_path / "ready").exists, "the parent has not begun")
    os.kill(process.pid, signal.SIGSTOP)  # it holds the lock
    pids = list(map(int, note.read_text().split()))
    for pid in pids:
        files = [os.path.realpath(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
        assert str(tmp_path / "file") not in files
    process.kill()
    process.join()
    until(lambda: not any(map(is_there, pids)), "they have not ended")


def is_there(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@copies
@pytest.mark.parametrize("where", ["here", "there"])
def test_an_interrupt(
    where: str, copied: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C reaches all processes of a terminal: the caller says one line, the others nothing."""
    path, parent = tmp_path / "k.zarr", os.getpid()

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)  # which is ignored there
        os.kill(parent, signal.SIGINT)

    elsewhere(monkeypatch, interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may ignore it
    with pytest.raises(KeyboardInterrupt, match=r"^\d+ of 36 blocks are in .*k\.zarr; the same call goes on with the"):
        fill(path)
    signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == ""
    assert 0 < len(Store(path).missing()) < 36
