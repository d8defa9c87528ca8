"""Kernels in stores: a chunk is the call on its inputs, whatever was interrupted; nothing wrong is ever read."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from budget.test_memory import NETWORKS, inputs
from cluster import chunks, forked
from hypothesis import given, settings
from hypothesis import strategies as st

import netsor as ns
from netsor import programs
from netsor.cli.app import main
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.assembled import mirrored
from netsor.compilers.store import StoredGram
from netsor.compilers.store.files import Store, rounded_up
from netsor.compilers.store.identity import difference
from netsor.compilers.store.layout import Layout, folders

zarr = pytest.importorskip("zarr")
X = np.random.default_rng(0).normal(size=(60, 5))
TILE = 8  # 36 blocks of X


def kernel(**options: Any) -> ns.Kernel:
    return ns.compile(programs.mlp(2), **options)


def filled(k: ns.Kernel, *x: Any, **options: Any) -> StoredGram:
    found = k.gram(*x, **options)
    assert isinstance(found, StoredGram)
    return found


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "k.zarr"))


# ---------------------------------------------------------------- the numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["mlp", "mlp tanh", "rnn", "cnn", "transformer", "batchnorm_mlp", "gcn"])
def test_every_block_is_the_call(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Several inputs, output axes (a batch is one sample), functions by series: as in one call."""
    make, shape = NETWORKS[name]
    x, k = inputs(shape, dtype), ns.compile(make())
    found, wanted = k.gram(x, store=tmp_path / "k.zarr", tile=3), k(x)
    assert found.method == wanted.method
    assert [n for n, _ in found.items()] == [n for n, _ in wanted.items()]
    folders = {a.name: a.path for a in Store(tmp_path / "k.zarr").layout.arrays}
    for (key, a), (_, b) in zip(found.items(), wanted.items(), strict=True):
        read = torch.from_numpy(np.asarray(a))
        assert (a.shape, read.dtype) == (tuple(b.shape), dtype)
        torch.testing.assert_close(read, b, rtol=1e-12 if dtype == torch.float64 else 2e-6, atol=0)
        tile = min(3, len(b))
        assert zarr.open_group(tmp_path / "k.zarr", mode="r")[folders[key]].chunks == (tile, tile, *b.shape[2:])
        assert torch.equal(read, mirrored(read))


def test_two_batches_terms_and_vectors(tmp_path: Path) -> None:
    k, get = kernel(), ("nngp", "terms", "h1")
    found = k.gram(X, X[:21] + 1, store=tmp_path / "k.zarr", tile=TILE, get=get)
    wanted = k(X, X[:21] + 1, get=get)
    assert dict(found.items()).keys() == dict(wanted.items()).keys() >= {"nngp", "h1", "terms.W1"}
    for name, value in wanted.items():
        np.testing.assert_allclose(np.asarray(dict(found.items())[name]), value, rtol=1e-12)
    assert len(chunks(tmp_path / "k.zarr")) == 8 * 3 * len(found.items())


def test_only_the_blocks_above_the_diagonal_are_there(whole: Path) -> None:
    names = {f for f in chunks(whole) if f.startswith("ntk")}
    assert names == {f"ntk/c/{i}/{j}" for i in range(8) for j in range(i, 8)}
    array = zarr.open_group(whole, mode="r")["ntk"]
    assert array.chunks == (TILE, TILE) and np.isnan(array.fill_value)
    assert np.isnan(array[8:16, 0:8]).all()


def test_pairs_of_two_blocks_that_nearly_coincide_are_repaired(tmp_path: Path) -> None:
    """K(x, x′) of equal inputs is K(x, x), which needs no angle, to the rounding of one float32."""
    x = torch.from_numpy(X).float()
    x[50] = x[3]
    found = kernel().gram(x, store=tmp_path / "k.zarr", tile=TILE)
    for name, value in kernel()(x.double()).items():
        read = np.asarray(dict(found.items())[name])
        assert read.dtype == np.float32
        np.testing.assert_allclose(read[3, 50], value[3, 3], rtol=2**-23)
        np.testing.assert_allclose(read[3, 50], read[3, 3], rtol=2**-23)


@pytest.mark.parametrize("make", [lambda: programs.mlp(2, "tanh"), lambda: programs.mlp(1, "elu")])
def test_blocks_do_not_depend_on_those_before_them(
    make: Callable[[], ns.Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.from_numpy(X * np.random.default_rng(1).lognormal(size=(60, 1))).float()
    missing, stores = Store.missing, [tmp_path / "one.zarr", tmp_path / "two.zarr"]
    ns.compile(make()).gram(x, store=stores[0], tile=20)
    monkeypatch.setattr(Store, "missing", lambda self: missing(self)[::-1])
    ns.compile(make()).gram(x, store=stores[1], tile=20)
    assert chunks(stores[0]) == chunks(stores[1])


def test_threads_of_the_caller_change_nothing_and_stay(whole: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        kernel().gram(X, store=tmp_path / "k.zarr", tile=TILE)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert chunks(tmp_path / "k.zarr") == chunks(whole)


# ---------------------------------------------------------------- interruptions


def test_kills_at_random(whole: Path, tmp_path: Path) -> None:
    path, chance = tmp_path / "k.zarr", random.Random(0)
    kills = 0
    for _ in range(10):
        process = forked(lambda: kernel().gram(X, store=path, tile=TILE))
        time.sleep(chance.uniform(0.02, 0.12))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    k = kernel()
    assert filled(kernel(), X, store=path, tile=TILE).missing == []
    assert kills and chunks(path) == chunks(whole)
    k.gram(X, store=path, tile=TILE)
    assert k.calls == 0  # nothing is computed again


def test_a_kill_before_a_chunk_has_its_name(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "k.zarr"
    kernel().gram(X[:1], store=tmp_path / "first.zarr")

    def killed() -> None:
        replace = Path.replace
        left = [20]

        def counted(self: Path, target: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(self, target)

        Path.replace = counted  # type: ignore[method-assign]
        kernel().gram(X, store=path, tile=TILE)

    process = forked(killed)
    process.join()
    assert process.exitcode == -signal.SIGKILL and list(path.rglob("*.partial"))
    missing = ns.open_gram(path).missing
    assert 0 < len(missing) < 36
    kernel().gram(X, store=path, tile=TILE)
    assert not list(path.rglob("*.partial")) and chunks(path) == chunks(whole)


def test_two_processes_and_the_kill_of_their_parent(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "k.zarr"
    process = forked(lambda: kernel().gram(X, store=path, tile=TILE, processes=2))
    for _ in range(3000):
        if process.exitcode is not None or (path.exists() and len(chunks(path)) > 3):
            break
        time.sleep(0.01)
    process.kill()
    process.join()
    kernel().gram(X, store=path, tile=TILE, processes=2)
    assert chunks(path) == chunks(whole)


def test_an_interrupt_says_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, left = Store.write, [5]

    def interrupted(self: Store, *args: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        write(self, *args)

    monkeypatch.setattr(Store, "write", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"^5 of 36 blocks are in .*k\.zarr; the same call goes on"):
        kernel().gram(X, store=tmp_path / "k.zarr", tile=TILE)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: kernel().gram(X + 1, store=p), "x1 is another"),
        (lambda p: kernel().gram(X[:-1], store=p), "samples of x1 is 60 there and 59 here"),
        (lambda p: kernel().gram(X, X + 1, store=p), "samples of x2 is None there and 60 here"),
        (lambda p: ns.compile(programs.mlp(3)).gram(X, store=p), "program is another"),
        (lambda p: kernel().gram(X, store=p, get="ntk"), "get is nngp,ntk there and ntk here"),
        (lambda p: kernel().gram(X, store=p, tile=9), "tile is 8 there and 9 here"),
        (lambda p: kernel(dtype="float32").gram(X, store=p), "dtype is float64 there and float32 here"),
        (lambda p: kernel(seed=1).gram(X, store=p), "seed is 0 there and 1 here"),
        (lambda p: kernel(tol=0.1).gram(X, store=p), "tol is None there and 0.1 here"),
        (lambda p: kernel(samples=9).gram(X, store=p), "samples is None there and 9 here"),
        (lambda p: kernel(assume_gia=True).gram(X, store=p), "assume_gia is False there and True here"),
        (lambda p: kernel(convention="unit").gram(X, store=p), "convention is omega there and unit here"),
    ],
)
def test_another_call(whole: Path, change: Callable[[Path], Any], message: str) -> None:
    with pytest.raises(ns.InputError, match=f"NT641 .* holds the kernels of another call: {message}"):
        change(whole)


def test_another_version(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ns, "__version__", "0.0.7")
    with pytest.raises(ns.InputError, match=r"netsor is 0.1.0 there and 0.0.7 here"):
        kernel().gram(X, store=whole)


def test_the_first_difference() -> None:
    assert difference({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == "b is 2 there and 3 here"
    assert difference({"a": 1, "b": 2}, {"a": 1}) == "b is 2 there and None here"
    assert difference({"a": 1}, {"a": 1}) is None
    assert difference({"a": 1, "fuse": False}, {"a": 1}) is None  # an option that older stores name
    assert difference({"a": 1, "fuse": True}, {"a": 1}) == "fuse is True there and None here"


def test_a_second_writer(copied: Path) -> None:
    (copied / "ntk/c/0/0").unlink()
    ready, go = multiprocessing.Pipe()

    def other() -> None:
        with Store(copied).locked():
            go.send(None)
            go.recv()

    process = forked(other)
    ready.recv()
    try:
        with pytest.raises(ns.InputError, match=r"NT641 another process is writing to"):
            kernel().gram(X, store=copied)
    finally:
        process.kill()
        process.join()
    assert filled(kernel(), X, store=copied).missing == []


def test_a_file_system_that_takes_no_more(whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.zarr"

    def filled() -> None:
        kernel().gram(X[:1], store=tmp_path / "first.zarr")
        resource.setrlimit(resource.RLIMIT_FSIZE, (TILE * TILE * 8, TILE * TILE * 8))  # less than a chunk
        try:
            kernel().gram(X, store=path, tile=TILE)
        except ns.InputError as error:
            print(error)

    process = forked(filled)
    process.join()
    out = capfd.readouterr().out
    assert "NT641" in out and "k.zarr cannot be written: File too large" in out and "are kept" in out
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def mounted(folder: Path, *options: str) -> Generator[Path]:
    """A file system in memory; the test is left out where none may be mounted."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip("nothing may be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remounted(folder: Path, *options: str) -> None:
    subprocess.run(["mount", "-o", ",".join(["remount", *options]), str(folder)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="nothing may be mounted here")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_disk_that_is_full_and_one_that_is_read_only(whole: Path, tmp_path: Path, processes: int) -> None:
    """What is complete stays; the same call ends it once there is room, and no number is another."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    with mounted(tmp_path / "disk", "size=200k") as disk:
        path = disk / "k.zarr"
        with pytest.raises(
            ns.InputError, match=r"NT641 .*k\.zarr cannot be written: No space left on device"
        ) as caught:
            kernel().gram(X, store=path, tile=TILE, processes=processes)
        assert "blocks that are complete are kept" in str(caught.value)
        kept = chunks(path)
        assert 0 < len(kept) < 72 and kept.items() <= chunks(whole).items()
        remounted(disk, "ro", "size=200k")
        for target in (path, disk / "new.zarr"):
            with pytest.raises(ns.InputError, match=r"NT641 .* cannot be written: Read-only file system"):
                kernel().gram(X, store=target, tile=TILE)
        assert np.isfinite(ns.open_gram(path).ntk[0:8, 0:8]).all()  # reading needs no right to write
        remounted(disk, "rw", "size=4m")
        kernel().gram(X, store=path, tile=TILE)
        assert chunks(path) == chunks(whole)


def test_truncated_and_changed_chunks(copied: Path) -> None:
    file = copied / "ntk/c/0/1"
    right = file.read_bytes()
    file.write_bytes(right[:100])
    for call in (lambda: kernel().gram(X, store=copied), lambda: ns.open_gram(copied).ntk[0, 9]):
        with pytest.raises(ns.InputError, match=r"NT642 .*ntk/c/0/1 is damaged: it has 100 bytes and not 516"):
            call()
    file.write_bytes(right[:100] + bytes([right[100] ^ 1]) + right[101:])
    for i, j in ((0, 9), (9, 0)):
        with pytest.raises(ns.InputError, match=r"NT642 .*ntk/c/0/1 is damaged: .*checksum"):
            _ = ns.open_gram(copied).ntk[i, j]
    file.unlink()
    kernel().gram(X, store=copied)
    assert file.read_bytes() == right


def test_blocks_that_are_missing(copied: Path) -> None:
    (copied / "ntk/c/0/1").unlink()
    (copied / "ntk/c/2/7").unlink()
    g = ns.open_gram(copied)
    assert g.missing == [(slice(0, 8), slice(8, 16)), (slice(16, 24), slice(56, 60))]
    assert g.ntk[0:8, 16:24].shape == (8, 8) and np.asarray(g.nngp).shape == (60, 60)
    message = r"NT643 .* is not complete: 2 of 36 blocks are missing: \[0:8, 8:16\], \[16:24, 56:60\]"
    for key in ((9, 0), (slice(0, 9), slice(0, 9)), (slice(None), slice(None))):
        with pytest.raises(ns.InputError, match=message):
            _ = g.ntk[key]


def test_changed_attributes(copied: Path) -> None:
    meta = copied / "zarr.json"
    meta.write_text(meta.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(ns.InputError, match=r"NT641 the attributes of .* were changed"):
        kernel(seed=1).gram(X, store=copied)
    meta.write_text(meta.read_text()[:200])
    with pytest.raises(ns.InputError, match=r"NT641 .* is not a store of kernels"):
        ns.open_gram(copied)


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ns.InputError, match=r"NT641 there is no store"):
        ns.open_gram(tmp_path / "k.zarr")
    (tmp_path / "x.zarr").write_text("text")
    zarr.create_group(tmp_path / "other.zarr")
    for name in ("x.zarr", "other.zarr", "."):
        with pytest.raises(ns.InputError, match=r"NT641 .* is not a store of kernels"):
            kernel().gram(X, store=tmp_path / name)
    with pytest.raises(ns.InputError, match=r"NT641 .*k\.zarr cannot be written: there is no folder"):
        kernel().gram(X, store=tmp_path / "x.zarr" / "k.zarr")
    assert (tmp_path / "x.zarr").read_text() == "text"


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the home, through links, with spaces; and a store is read from wherever the process has gone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder in ("home", "a b", "elsewhere"):
        Path(folder).mkdir()
    Path("link.zarr").symlink_to("a b/k k.zarr")
    calls: list[tuple[str | Path, str]] = [
        ("~/k.zarr", "home/k.zarr"), ("link.zarr", "a b/k k.zarr"), (Path("a b/s.zarr/"), "a b/s.zarr"),
    ]  # fmt: skip
    for said, place in calls:
        for _ in range(2):
            filled(kernel(), X, store=said, tile=20, force=True)
            assert {f.name for f in Path(place).parent.glob("*.zarr*")} <= {"k.zarr", "k k.zarr", "s.zarr"}
        assert Path(place, "zarr.json").is_file() and ns.open_gram(said).missing == []
    assert Path("link.zarr").is_symlink() and not Path("~").exists()
    found = filled(kernel(), X, store="k.zarr", tile=20)
    wanted = np.asarray(found.ntk)
    monkeypatch.chdir("elsewhere")
    np.testing.assert_array_equal(found.ntk, wanted)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).ntk, wanted)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (3, "NT640 a store is the path of a folder, got 3"),
        ("", "NT640 a store is the path of a folder, got ''"),
        ("s3://bucket/k.zarr", "NT640 a store is the path of a folder, got 's3:"),
        ("nowhere/k.zarr", "NT641 nowhere/k.zarr cannot be written: there is no folder nowhere"),
        ("k" * 300, "NT641 k+ cannot be read: File name too long"),
    ],
)
def test_no_paths(path: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ns.InputError, match=message) as said:
        kernel().gram(X, store=path)
    assert "are kept" not in str(said.value) and not list(tmp_path.iterdir())


def test_a_folder_that_is_read_only(copied: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    (copied / "ntk/c/0/1").unlink()
    for folder in (copied / "ntk/c/0", copied / "state", tmp_path):
        folder.chmod(0o555)
    for path in (copied, tmp_path / "new.zarr"):
        with pytest.raises(ns.InputError, match=r"NT641 .* cannot be written: Permission denied"):
            kernel().gram(X, store=path)
    for folder in (copied / "ntk/c/0", copied / "state", tmp_path):
        folder.chmod(0o755)


mapped: Any = torch.func.vmap
ROWS = [np.ones((3, 2)), np.ones((4, 2))]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: ns.compile(programs.rnn()).gram(ROWS, store=p), ns.InputError, "NT640 .*samples of different size"),
        (lambda p: kernel().gram(torch.ones(2, 3, requires_grad=True), store=p), ns.InputError, "NT640 .*gradients"),
        (lambda p: kernel().gram(X, store=p, processes=0), ns.InputError, "NT640 processes is a positive"),
        (lambda p: kernel().gram(X, processes=2), ns.InputError, "NT640 .*write to a store"),
        (lambda p: kernel().gram(X, store=p, memory="10kB"), ns.InputError, "NT606 .*blocks of 1 × 1 pairs need"),
        (lambda p: mapped(lambda x: kernel().gram(x, store=p).ntk)(torch.ones(1, 2, 3)), ns.InputError, "NT640"),
    ],
)  # fmt: skip
def test_calls_without_a_store(
    call: Callable[[Path], Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        call(tmp_path / "k.zarr")
    assert not (tmp_path / "k.zarr").exists()


def test_numeric_functions_and_scalars_have_no_store(tmp_path: Path) -> None:
    p = ns.Program("p")
    n, x = p.width("n"), p.data("x")
    h = p.let("h", p.matrix("W", n, x) @ x)
    p.returns("c", ns.moment(h * h))
    p.output(p.readout("v", n), ns.numeric("wave", torch.sin, derivative=torch.cos)(h))
    with pytest.raises(ns.InputError, match=r"NT640 p has no store: .*numeric functions \(wave\)"):
        ns.compile(p).gram(X, store=tmp_path / "k.zarr", get="nngp")
    q = ns.Program("q")
    n, x = q.width("n"), q.data("x")
    h = q.let("h", q.matrix("W", n, x) @ x)
    q.returns("c", ns.moment(h * h))
    q.output(q.readout("v", n), ns.relu(h))
    with pytest.raises(ns.InputError, match="NT640 q has no store: c: limits of single inputs"):
        ns.compile(q).gram(X, store=tmp_path / "k.zarr", get=("nngp", "c"))


@pytest.mark.parametrize("name", ["filelock", "zarr"])
def test_stores_are_an_extra(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    calls: list[Callable[[], Any]] = [
        lambda: kernel().gram(X, store=tmp_path / "k.zarr"), lambda: ns.open_gram(tmp_path),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ns.InputError, match=rf'NT640 stores need .*{name} is.*\n.*pip install "netsor\[store\]"'):
            call()


# ---------------------------------------------------------------- reading

index = st.one_of(
    st.integers(-60, 59),
    st.slices(60),
    st.lists(st.integers(-60, 59), max_size=5).map(lambda k: np.array(k, dtype=int)),
)


@settings(max_examples=60)
@given(rows=index, cols=index)
def test_indexing_is_that_of_the_array(whole: Path, rows: Any, cols: Any) -> None:
    g, dense = ns.open_gram(whole).ntk, np.asarray(ns.open_gram(whole).ntk)
    np.testing.assert_array_equal(g[rows, cols], dense[rows][..., cols])
    np.testing.assert_array_equal(g[rows], dense[rows])


def test_a_gram_of_one_kernel_is_that_kernel(whole: Path, tmp_path: Path) -> None:
    g = filled(kernel(), X, store=tmp_path / "one.zarr", get="ntk", tile=TILE)
    assert (g.shape, g.dtype, g.ndim, len(g), g.names) == ((60, 60), np.float64, 2, 60, ["ntk"])
    both = ns.open_gram(whole)
    np.testing.assert_array_equal(g[3:20, ...], both["ntk"][3:20])
    np.testing.assert_array_equal(np.asarray(g, dtype=np.float32), both.to(torch.float32).ntk)
    np.testing.assert_array_equal(np.asarray(g), both.loaded().ntk)
    pytest.importorskip("matplotlib")
    assert both.plot("ntk") is not None
    np.testing.assert_array_equal(both.ntk.diagonal(), np.asarray(g).diagonal())
    with pytest.raises(ns.InputError, match="holds the kernels nngp, ntk"):
        _ = both[0, 0]
    with pytest.raises(ns.InputError, match="no kernel 'h7'"):
        _ = both["h7"]
    again = pickle.loads(pickle.dumps(both))
    np.testing.assert_array_equal(again.ntk[3], both.ntk[3])
    assert "ntk [60, 60]" in repr(both) and "float64" in str(both.table())


def test_output_axes_are_indexed_after_the_inputs(tmp_path: Path) -> None:
    x = inputs((5, 3, 4), torch.float64)
    k = ns.compile(programs.batchnorm_mlp(1, eps=0.1))
    g, dense = filled(k, x, store=tmp_path / "k.zarr", get="nngp", tile=2), k(x, get="nngp").nngp.numpy()
    assert g.shape == (5, 5, 3, 3)
    np.testing.assert_allclose(g[4, 1], dense[4, 1], rtol=1e-12)
    np.testing.assert_allclose(g[1:4, 0, 2], dense[1:4, 0, 2], rtol=1e-12)
    np.testing.assert_allclose(g[..., 0], dense[..., 0], rtol=1e-12)
    with pytest.raises(IndexError):
        _ = g[0, 0, 0, 0, 0]


# ---------------------------------------------------------------- the format


def test_a_store_is_what_zarr_reads(whole: Path) -> None:
    for name, value in ns.open_gram(whole).items():
        upper = np.triu(np.ones((60, 60), dtype=bool))
        np.testing.assert_array_equal(zarr.open_group(whole, mode="r")[name][:][upper], np.asarray(value)[upper])


def test_a_store_of_another_format(copied: Path) -> None:
    meta = copied / "zarr.json"
    meta.write_text(meta.read_text().replace('"format": 1', '"format": 2'))
    calls: list[Callable[[], Any]] = [lambda: ns.open_gram(copied), lambda: kernel().gram(X, store=copied)]
    for call in calls:
        with pytest.raises(ns.InputError, match=r"NT641 .* is a store of format 2, and this version .* reads format 1"):
            call()


# ---------------------------------------------------------------- layouts


@given(n=st.integers(0, 40), m=st.integers(0, 40), tile=st.integers(1, 17), symmetric=st.booleans())
def test_blocks_hold_every_pair_once(n: int, m: int, tile: int, symmetric: bool) -> None:
    layout = Layout(n, n if symmetric else m, tile, symmetric, ())
    seen = np.zeros((layout.n, layout.m), dtype=int)
    for block in layout.blocks():
        seen[layout.slices(block)] += 1
    assert (np.triu(seen) == np.triu(np.ones_like(seen)) if symmetric else seen == 1).all()
    assert sum(map(layout.pairs, layout.blocks())) == (n * (n + 1) // 2 if symmetric else n * m)
    assert Layout.from_dict(layout.as_dict()) == layout


def test_folders_are_plain_and_apart() -> None:
    terms = [Key("W1", is_term=True), Key("w1", is_term=True)]
    names = ["../x", "state", "h²", "a b", "__h", "NNGP", "x" * 200, ".h", "con."]
    assert folders([Key("nngp"), *terms, *map(Key, names)]) == [
        "nngp",
        "terms.W1",
        *(f"kernel-{i}" for i in range(2, 12)),
    ]


@pytest.mark.parametrize(
    ("error", "shown"), [(0.0, 0.0), (1e-9, 1e-9), (1.01e-9, 1.1e-9), (9.96e-3, 1e-2), (1.24e3, 1.3e3)]
)
def test_errors_are_rounded_up(error: float, shown: float) -> None:
    assert float(f"{rounded_up(error):.1e}") == pytest.approx(shown, rel=1e-12)


def test_the_error_of_a_store_bounds_those_of_its_blocks(tmp_path: Path) -> None:
    k = ns.compile(programs.mlp(1, "tanh"))
    found = k.gram(X[:9], store=tmp_path / "k.zarr", tile=4)
    blocks = [k(X[:4]), k(X[4:8]), k(X[8:9]), k(X[:4], X[4:8]), k(X[:4], X[8:9]), k(X[4:8], X[8:9])]
    errors = [b.error for b in blocks if b.error is not None]
    assert found.error is not None and max(errors) <= found.error <= 1.2 * max(errors)


# ---------------------------------------------------------------- the command line


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    command = ["kernel", "mlp", "--x", "X.npy", "-o", "K.zarr"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == ["nngp [60, 60]", "ntk [60, 60]"]
    np.testing.assert_allclose(np.asarray(ns.open_gram("K.zarr").ntk), ns.compile(programs.mlp())(X).ntk, rtol=1e-12)
    before = chunks(Path("K.zarr"))
    assert main(command) == 2
    assert "K.zarr exists already" in capsys.readouterr().err
    assert main([*command, "--resume"]) == main([*command[:-1], "K.zarr/", "--resume"]) == 0
    assert chunks(Path("K.zarr")) == before
    assert main([*command, "--resume", "--get", "ntk"]) == 2
    assert "get is nngp,ntk there and ntk here" in capsys.readouterr().err
    assert main([*command, "--force", "--get", "ntk"]) == 0
    assert ns.open_gram("K.zarr").names == ["ntk"]
    assert main([*command, "--force", "--memory", "10kB"]) == 2  # refused, and the old store is there
    assert "NT606" in capsys.readouterr().err
    assert ns.open_gram("K.zarr").names == ["ntk"] and not ns.open_gram("K.zarr").missing
    assert sorted(f.name for f in tmp_path.iterdir()) == ["K.zarr", "X.npy"]
    for options in (["--processes", "2"], ["--resume"]):
        assert main(["kernel", "mlp", "--x", "X.npy", "-o", "K.npz", *options]) == 2
        assert "need a store" in capsys.readouterr().err


def test_interrupted_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted(self: Store, *args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    monkeypatch.setattr(Store, "write", interrupted)
    assert main(["kernel", "mlp", "--x", "X.npy", "-o", "K.zarr"]) == 130
    assert capsys.readouterr().err == (
        "netsor: interrupted; 0 of 1 blocks are in K.zarr; the same call goes on with the others\n"
    )


def test_a_script_of_two_processes_runs_once(tmp_path: Path) -> None:
    """Without a guard: the processes run nothing of the script that calls them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, netsor as ns\nfrom netsor import programs\nprint('begun')\n"
        "g = ns.compile(programs.mlp(1)).gram(np.eye(9), store='k.zarr', tile=3, processes=2)\nprint(g.ntk.shape)\n"
    )
    root = str(Path(ns.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=os.environ | {"PYTHONPATH": root}, capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split("\n")) == (0, ["begun", "(9, 9)", ""]), done.stderr
