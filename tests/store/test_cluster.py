"""Stores filled by a Dask cluster: whatever dies, the store holds what is done, and the same call ends it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cluster import Cluster, chunks, forked, until

import netsor as ns
from netsor import programs
from netsor.cli.app import main
from netsor.compilers.derive.outputs import Key
from netsor.compilers.native import compiler
from netsor.compilers.store import cluster as engine
from netsor.compilers.store.files import Store
from netsor.compilers.store.task import Hands

pytest.importorskip("zarr")
distributed = pytest.importorskip("distributed")
X = np.random.default_rng(0).normal(size=(60, 5))
TILE = 4  # 120 blocks of X


def kernel() -> ns.Kernel:
    return ns.compile(programs.mlp(2))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, 1) as found:
        yield found


def fill(cluster: Cluster, path: Path, get: Any = ("nngp", "ntk"), x: Any = X) -> None:
    with engine.connected(str(cluster.file)) as client:
        kernel().gram(x, store=path, tile=TILE, get=get, engine="dask", client=client)


def begun(path: Path, count: int = 10) -> Callable[[], bool]:
    return lambda: path.exists() and len(list(path.rglob("c/*/*"))) > count


def caught(call: Callable[[], object], log: Path) -> Any:
    """A process that writes down which error a call ended with."""

    def body() -> None:
        try:
            call()
        except Exception as error:
            log.write_text(f"{type(error).__name__} {error}")

    return forked(body)


# ---------------------------------------------------------------- what dies


def test_kills(running: Cluster, whole: Path, tmp_path: Path) -> None:
    """A worker, the client and the scheduler, at random moments: at the end every chunk is that of one process."""
    path, log, chance = tmp_path / "k.zarr", tmp_path / "error", random.Random(0)

    def killed(victim: Callable[[Any], Any]) -> Any:
        before = len(chunks(path)) if path.exists() else 0
        caller = caught(lambda: fill(running, path), log)
        until(begun(path, before + chance.randrange(1, 30)), "no block")
        victim(caller).kill()
        return caller

    caller = killed(lambda caller: caller)
    caller.join()
    assert not log.exists()
    assert 0 < len(Store(path).missing()) < 120

    def worker(caller: Any) -> Any:
        running.workers.append(running.worker())
        return running.workers[0]

    before = len(Store(path).missing())
    (path / "ntk/c/0/0").unlink()
    caller = killed(worker)
    caller.join(60)
    assert caller.exitcode == 0 and not log.exists() and before
    assert chunks(path) == chunks(whole)

    for file in sorted(path.rglob("ntk/c/*/*"))[::2]:
        file.unlink()
    caller = killed(lambda caller: running.scheduler)
    caller.join(60)
    text = log.read_text()
    assert "NT641 the scheduler that hands out blocks of" in text and "blocks that are complete are kept" in text
    assert len(Store(path).missing()) > 0 and not list((path / "state").glob("*.inputs"))
    kernel().gram(X, store=path, tile=TILE)
    assert chunks(path) == chunks(whole)


def test_two_workers_and_the_command(
    running: Cluster, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    running.workers.append(running.worker())
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    command = ["kernel", "mlp", "--set", "depth=2", "--x", "X.npy", "-o", "k.zarr", "--engine", "dask"]
    assert main([*command, "--scheduler", "scheduler.json", "--memory", "60kB"]) == 0
    assert capfd.readouterr().out.splitlines() == ["nngp [60, 60]", "ntk [60, 60]"]
    tile = Store(Path("k.zarr")).layout.tile
    kernel().gram(X, store="one.zarr", tile=tile)
    assert tile < 60 and chunks(Path("k.zarr")) == chunks(Path("one.zarr"))
    assert not list(Path("k.zarr/state").glob("*.inputs"))
    for options in (["--engine", "dask"], ["--scheduler", "scheduler.json"]):
        assert main([*command[:-2], *options, "--resume"]) == 2
        assert "go together" in capfd.readouterr().err
    assert main([*command, "--resume", "--scheduler", "other.json"]) == 2
    assert "NT641 there is no file other.json" in capfd.readouterr().err
    Path("other.json").write_text("{}")
    assert main([*command, "--resume", "--scheduler", "other.json"]) == 2
    assert "does not answer" in capfd.readouterr().err


# ---------------------------------------------------------------- a worker, called as the cluster calls it


class Answer:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.key, self.status, self.value = str(id(self)), "finished", None
        try:
            self.value = call()
        except Exception as error:
            self.status, self.value = "error", error

    def result(self) -> Any:
        return self.value

    exception = result

    def add_done_callback(self, call: Callable[[Any], None]) -> None:
        call(self)


class Client:
    """Runs what is submitted at once."""

    asynchronous = False

    def __init__(self, *resources: dict[str, float]) -> None:
        self.asked: list[Any] = []
        self.workers = {str(i): {"nthreads": 1, "resources": r} for i, r in enumerate(resources)}

    def scheduler_info(self, n_workers: int) -> Any:
        return {"workers": self.workers}

    def submit(self, call: Any, *args: Any, resources: Any, key: str, pure: bool) -> Answer:
        self.asked.append(resources)
        return Answer(lambda: call(*args))

    def cancel(self, futures: Any, force: bool) -> None:
        pass


def local(path: Path, client: Any, **options: Any) -> Any:
    return kernel().gram(X, store=path, tile=TILE, engine="dask", client=client, **options)


def test_a_worker_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(1, 100))
    monkeypatch.setattr(engine, "versions", lambda: {"netsor": f"0.{next(numbers)}"})
    with pytest.raises(ns.InputError, match=r"NT641 on a worker: other versions .*netsor is 0\.1 there and 0\.2 here"):
        local(tmp_path / "k.zarr", Client({}))


def test_a_worker_that_sees_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "computed", lambda *args: None)
    with pytest.raises(ns.InputError, match=r"NT641 a worker wrote a block of .*k\.zarr, and it is not here"):
        local(tmp_path / "k.zarr", Client({}))


def test_a_worker_that_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise ModuleNotFoundError("No module named 'netsor'")

    monkeypatch.setattr(engine, "computed", broken)
    with pytest.raises(ns.InputError, match=r"NT641 a block of .* failed on its worker: ModuleNotFoundError"):
        local(tmp_path / "k.zarr", Client({}))


@pytest.mark.skipif(compiler.current() is None, reason="there is no C compiler")
def test_a_worker_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch, which rounds otherwise, does not take the place of the native blocks of the others."""
    plain = engine.computed

    def there(*args: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setenv("CC", "no-such-compiler")
            return plain(*args)

    monkeypatch.setattr(engine, "computed", there)
    with pytest.raises(
        ns.UnsupportedError, match=r"NT702 on a worker: backend=\"native\" needs a C compiler: 'no-such"
    ):
        local(tmp_path / "k.zarr", Client({}))


def test_a_store_that_was_replaced_meanwhile(whole: Path, tmp_path: Path) -> None:
    """A block that was begun for one call is not written to the store of another."""
    path = tmp_path / "k.zarr"
    local(path, Client({}))
    old = Store(path)
    kernel().gram(X + 1, store=path, tile=TILE, force=True)
    before = chunks(path)
    with pytest.raises(ns.InputError, match=r"NT641 .*k\.zarr was removed or replaced while"):
        old.write((0, 0), {Key("nngp"): X[:4, :4], Key("ntk"): X[:4, :4]}, ("closed form", None))
    assert chunks(path) == before != chunks(whole)


def test_gpus_are_asked_for_where_workers_say_that_they_have_some() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    for workers, device, wanted in (
        ([{}], cuda, None), ([{}, {"GPU": 1.0}], cuda, {"GPU": 1}), ([{"GPU": 1.0}], cpu, None),
    ):  # fmt: skip
        assert engine.resources(Client(*workers), device) == wanted


class Late(Client):
    """Has no worker until a warning says so."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Callable[[Any], None], Answer]] = []

    def submit(self, call: Any, *args: Any, resources: Any, key: str, pure: bool) -> Answer:
        answer = super().submit(call, *args, resources=resources, key=key, pure=pure)
        if not self.workers:
            setattr(answer, "add_done_callback", lambda told: self.held.append((told, answer)))  # noqa: B010
        return answer

    def come(self) -> None:
        self.workers["0"] = {"nthreads": 1, "resources": {}}
        for told, answer in self.held:
            told(answer)


def test_a_cluster_without_workers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOOK", 0.01)
    client, said = Late(), list[str]()

    def warned(text: str, *rest: Any, **options: Any) -> None:
        said.append(text)
        client.come()

    monkeypatch.setattr(warnings, "warn", warned)
    assert local(tmp_path / "k.zarr", client).missing == []
    assert said == [f"the cluster has no worker: {tmp_path / 'k.zarr'} waits for one"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("local", 0, None), "processes is a positive whole number, got 0"),
        (("ray", 1, None), "engine is 'local' or 'dask', got 'ray'"),
        (("dask", 1, None), "engine='dask' and client= go together"),
        (("local", 1, Client()), "engine='dask' and client= go together"),
        (("dask", 2, Client()), "the workers of a cluster are its processes"),
        (("dask", 1, "tcp://127.0.0.1:8786"), "client is a dask.distributed.Client .*, got str"),
    ],
)
def test_hands(options: tuple[Any, Any, Any], message: str) -> None:
    chosen, processes, client = options
    with pytest.raises(ns.InputError, match=f"NT640 {message}"):
        Hands.of(processes, chosen, client)
