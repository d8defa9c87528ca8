"""Sampled kernels in stores: one set of draws for all inputs, so that the blocks are those of the single call."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cluster import chunks, forked, until

import netsor as ns
from netsor import programs
from netsor.cli.app import main
from netsor.compilers.store import draws, sampled, workers
from netsor.compilers.store.files import Store

pytest.importorskip("zarr")
X = np.random.default_rng(0).normal(size=(5, 2, 3))  # sequences of two steps
FEW = 4096
copies = pytest.mark.skipif(sys.platform != "linux", reason="copies of processes are made on Linux only")


def gru(**options: Any) -> ns.Kernel:
    given: dict[str, Any] = {"samples": FEW, **options}
    return ns.compile(programs.gru(), **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "k.zarr"
    gru().gram(X, store=path, tile=2, get="nngp")
    return path


# ---------------------------------------------------------------- the numbers


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("options", [{"samples": FEW}, {"samples": None, "tol": 0.03}])
def test_blocks_are_the_single_call(options: dict[str, Any], second: bool, tmp_path: Path) -> None:
    """Of GRU, for a number of draws and for a tolerance, which all pairs decide together."""
    y = X[:3] + 1 if second else None
    get = ("nngp", "ntk") if options["samples"] and not second else ("nngp",)
    found = gru(**options).gram(X, y, store=tmp_path / "k.zarr", tile=2, get=get)
    wanted = gru(**options).gram(X, y, get=get)
    assert found.method == wanted.method == "sampled" and wanted.error is not None and found.error is not None
    assert wanted.error <= found.error <= 1.1 * wanted.error + 1e-12  # rounded up to two digits
    assert [n for n, _ in found.items()] == [n for n, _ in wanted.items()]
    for (_, a), (_, b) in zip(found.items(), wanted.items(), strict=True):
        np.testing.assert_allclose(np.asarray(a), b.numpy(), rtol=1e-12)
        if not second:
            np.testing.assert_array_equal(np.asarray(a), np.asarray(a).T)
            assert np.linalg.eigvalsh(np.asarray(a)).min() > 0


def batchnorm() -> Any:
    return programs.batchnorm_mlp(1, "tanh", eps=0.1)


def test_output_axes_and_float32(tmp_path: Path) -> None:
    """A batch is one sample."""
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(3, 2, 3))).float()
    k = ns.compile(batchnorm(), samples=FEW)
    found, wanted = k.gram(x, store=tmp_path / "k.zarr", tile=2, get="nngp"), k(x, get="nngp").nngp
    assert "sampled" in found.method and found.nngp.dtype == np.float32 and wanted.dtype == torch.float32
    np.testing.assert_allclose(np.asarray(found.nngp), wanted.numpy(), rtol=1e-6)


def test_exact_kernels_stay_exact(tmp_path: Path) -> None:
    """Of several kernels only those without a rule are sampled."""
    k, get = gru(), ("nngp", "_2")
    found, wanted = k.gram(X, store=tmp_path / "k.zarr", tile=2, get=get), k(X, get=get)
    assert found.method == wanted.method == "closed form+sampled"
    for name in get:
        np.testing.assert_allclose(np.asarray(found[name]), wanted[name].numpy(), rtol=1e-12)


# ---------------------------------------------------------------- interruptions


def begun(path: Path, process: Any) -> bool:
    return path.exists() or not process.is_alive()


def test_kills_at_random(whole: Path, tmp_path: Path) -> None:
    path, chance = tmp_path / "k.zarr", random.Random(0)
    kills = 0
    for _ in range(5):
        process = forked(lambda: gru().gram(X, store=path, tile=2, get="nngp"))
        until(partial(begun, path, process), "the store is not begun")
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert gru().gram(X, store=path, tile=2, get="nngp").missing == []  # type: ignore[attr-defined]
    assert kills and chunks(path) == chunks(whole)
    assert not list((path / "state/draws").glob("*/")) and not list(path.rglob("*.partial"))


def test_scrambles_that_are_kept_are_not_drawn_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after five of sixteen; then eleven are drawn. A chunk that is removed is computed again, as it was."""
    path, drawn = tmp_path / "k.zarr", [0]
    write = draws.Draws.write

    def counted(self: Any, part: Any, count: int, number: int, values: Any) -> None:
        drawn[0] += part[0] == "pairs"
        if drawn[0] > 5 * 6:
            raise KeyboardInterrupt
        write(self, part, count, number, values)

    monkeypatch.setattr(draws.Draws, "write", counted)
    message = rf"^the draws of 6 scrambles are kept in {path}/state/draws; the same call goes on"
    with pytest.raises(KeyboardInterrupt, match=message):
        gru().gram(X, store=path, tile=2, get="nngp")
    drawn[0] = -10_000
    gru().gram(X, store=path, tile=2, get="nngp")
    assert drawn[0] + 10_000 == 11 * 6 and chunks(path) == chunks(whole)
    file = path / "nngp/c/0/1"
    right = file.read_bytes()
    file.unlink()
    drawn[0] = -10_000
    gru().gram(X, store=path, tile=2, get="nngp")
    assert drawn[0] + 10_000 == 16 and file.read_bytes() == right


@pytest.mark.parametrize(
    ("options", "fork"),
    [
        ({"samples": FEW}, False),
        pytest.param({"samples": FEW}, True, marks=copies),
        pytest.param({"samples": None, "tol": 0.03}, True, marks=copies),
    ],
)
def test_several_processes_draw(
    options: dict[str, Any], fork: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrambles are independent: who draws one does not matter. Of two kernels, of two batches, for a tolerance."""
    monkeypatch.setattr(workers, "may_fork", lambda: fork)
    call = partial(gru(**options).gram, X, X[:3] + 1, tile=2, get="nngp")
    call(store=tmp_path / "one.zarr")
    write, here, path = draws.Draws.write, os.getpid(), tmp_path / "two.zarr"

    def written(self: Any, *args: Any) -> None:
        if os.getpid() == here:
            until(lambda: len(list((path / "state/draws").glob("*/*"))) > 0, "the other process has not begun")
        write(self, *args)

    monkeypatch.setattr(draws.Draws, "write", written)
    call(store=path, processes=2)
    assert chunks(path) == chunks(tmp_path / "one.zarr")
    assert ns.open_gram(path).error == ns.open_gram(tmp_path / "one.zarr").error


@copies
def test_a_process_that_is_killed_as_it_draws(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write, here = tmp_path / "k.zarr", draws.Draws.write, os.getpid()

    def killed(self: Any, part: Any, count: int, number: int, values: Any) -> None:
        if os.getpid() != here and number > 2:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)  # that the other one has some scrambles
        write(self, part, count, number, values)

    monkeypatch.setattr(workers, "may_fork", lambda: True)
    monkeypatch.setattr(draws.Draws, "write", killed)
    with pytest.raises(ns.InputError, match=r"NT641 a process that computes blocks of .* ended by signal 9"):
        gru().gram(X, store=path, tile=2, get="nngp", processes=2)
    monkeypatch.setattr(draws.Draws, "write", write)
    gru().gram(X, store=path, tile=2, get="nngp", processes=2)
    assert chunks(path) == chunks(whole)


def test_damaged_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.zarr"
    monkeypatch.setattr(sampled.SampledTask, "block", lambda *args: os.kill(os.getpid(), signal.SIGKILL))
    process = forked(lambda: gru().gram(X, store=path, tile=2, get="nngp"))
    process.join()
    monkeypatch.undo()
    file = next((path / "state/draws").glob("*/3/pairs-0-1.npz"))
    data = bytearray(file.read_bytes())
    data[-200 if len(data) > 400 else len(data) // 3] ^= 1
    whole = bytes(data)
    file.write_bytes(whole[:100])
    with pytest.raises(ns.InputError, match=r"NT642 the chunk .*pairs-0-1\.npz is damaged"):
        gru().gram(X, store=path, tile=2, get="nngp")
    file.unlink()
    assert gru().gram(X, store=path, tile=2, get="nngp").missing == []  # type: ignore[attr-defined]


# ---------------------------------------------------------------- what is refused


def test_another_call(whole: Path) -> None:
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: gru(seed=1).gram(X, store=whole, get="nngp"), "seed is 0 there and 1 here"),
        (lambda: gru(samples=9).gram(X, store=whole, get="nngp"), "samples is 4096 there and 9 here"),
        (lambda: gru().gram(X, store=whole, get="nngp", memory="1GB"), "memory is 2000000000 there and 1000000000"),
        (lambda: gru().gram(X + 1, store=whole, get="nngp"), "x1 is another"),
    ]
    for call, message in calls:
        with pytest.raises(ns.InputError, match=f"NT641 .*another call: {message}"):
            call()


def test_no_cluster_draws(tmp_path: Path) -> None:
    client: Any = type("Client", (), {"scheduler_info": None})()
    with pytest.raises(ns.UnsupportedError, match=r"NT702 gru is sampled .*which the processes of one machine make"):
        gru().gram(X, store=tmp_path / "k.zarr", engine="dask", client=client)
    assert not (tmp_path / "k.zarr").exists()


def test_draws_that_exceed_the_memory(tmp_path: Path) -> None:
    with pytest.raises(ns.InputError, match=r"NT606 .* more than memory="):
        gru().gram(X, store=tmp_path / "k.zarr", memory="100kB", get="nngp")


def test_expectations_that_are_sampled_pair_by_pair(tmp_path: Path) -> None:
    """Their matrix need not be positive semidefinite, and blocks are not the single call."""
    p = ns.Program("p")
    n, x = p.width("n"), p.data("x")
    a, b, c = (p.matrix(w, n, x) @ x for w in "UVW")
    p.output(p.readout("v", n), ns.tanh(a * b * c + a))
    k = ns.compile(p, samples=FEW)
    assert k(X[:, 0], get="nngp").method == "sampled"
    with pytest.raises(ns.UnsupportedError, match=r"NT702 p has no store: .* sampled, for each pair and block anew"):
        k.gram(X[:, 0], store=tmp_path / "k.zarr", get="nngp")
    assert not (tmp_path / "k.zarr").exists()


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["netsor.compilers.sampler.estimate"], "TOLERANCE", 0.05)
    np.save("X.npy", X)
    command = ["kernel", "gru", "--x", "X.npy", "-o", "K.zarr", "--get", "nngp"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "nngp [5, 5]" in shown.out and "method sampled, error" in shown.out
    assert main([*command, "--resume"]) == 0
    assert Store(Path("K.zarr")).missing() == []
