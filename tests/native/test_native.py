"""`backend="native"`: a C function agrees with torch, says what it does not cover, and is compiled once."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor.compilers.native import choice, compiler
from netsor.compilers.native.blocks import Native
from netsor.programs import batchnorm_mlp, mlp, resnet, rnn

if compiler.current() is None:
    pytest.skip("no C compiler works here ($CC, cc, gcc, clang)", allow_module_level=True)

DTYPES = (torch.float32, torch.float64)
BOUND = {torch.float32: 1e-5, torch.float64: 1e-12}  # relative to the largest entry


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the tests' own."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="module")
def inputs() -> torch.Tensor:
    """Rows with a duplicate, a near-duplicate, an opposite one, a row of zeros, and rows of other sizes."""
    x = torch.as_tensor(np.random.default_rng(3).standard_normal((140, 5)))
    x[7], x[8], x[9], x[10] = x[3], x[3] + 1e-6 * x[4], -x[3], 0
    x[11], x[12] = 1e3 * x[2], 1e-3 * x[1]
    return x


def agree(
    p: Any, x: torch.Tensor, two: torch.Tensor | None = None, get: Any = ("nngp", "ntk"), params: Any = None
) -> None:
    """Native in both dtypes against torch in float64."""
    want = ns.compile(p, backend="torch")(x, two, get=get, params=params)
    for dtype in DTYPES:
        other = None if two is None else two.to(dtype)
        got = ns.compile(p, backend="native")(x.to(dtype), other, get=get, params=params)
        for name, exact in want.items():
            value = dict(got.items())[name]
            assert value.dtype == dtype and value.shape == exact.shape
            scale = (exact.diagonal() if two is None else exact).abs().max()
            assert float((value - exact).abs().max() / scale) <= BOUND[dtype], (name, dtype)
            if two is None:
                assert torch.equal(value, value.T)


PHIS = ["relu", "abs", "leaky_relu", "erf", "gelu", "tanh", "sigmoid", "silu", "softplus", "sin", "cos", "identity"]


@pytest.mark.parametrize("phi", PHIS)
def test_functions(inputs: torch.Tensor, phi: str) -> None:
    """ρ = ±1, zero rows, repeated rows and rows of other sizes, in the symmetric and in a rectangular call."""
    smooth = phi in ("tanh", "sigmoid", "silu", "softplus", "sin", "cos")
    x = inputs[:40].clone()
    x[11] *= 1e-2 if smooth else 1.0
    agree(mlp(depth=3, phi=phi, var_b=0.0 if phi == "abs" else 0.3), x)
    agree(mlp(depth=2, phi=phi), x, x.flip(0)[:9].clone())


def test_functions_with_kinks_by_series(inputs: torch.Tensor) -> None:
    agree(mlp(1, phi="elu"), inputs[13:60])
    agree(mlp(1, phi=ns.function("bent", lambda z: ns.relu(z) * ns.tanh(z))), inputs[13:40], inputs[40:60])


@pytest.mark.parametrize("phi", ["step", "sign", "exp"])
def test_functions_without_tangents(inputs: torch.Tensor, phi: str) -> None:
    agree(mlp(depth=1 if phi == "exp" else 2, phi=phi, var_w=0.5), inputs[:11], get=("nngp",))


def gated() -> ns.Program:
    """Sums of a function and of its product with another: expectations of one variable beside those of two."""
    p = ns.Program("gated")
    n = p.width("n")
    x = p.data("x")
    h = p.let("h", ns.relu(p.matrix("A", n, x) @ x))
    u, w = p.let("u", p.matrix("B", n, n) @ h), p.let("w", p.matrix("C", n, n) @ h + p.bias("c", n, var=0.1))
    p.output(p.readout("v", n), p.let("z", ns.relu(u) + ns.erf(u) * ns.gaussian(w)))
    return p


@pytest.mark.parametrize(
    "p",
    [
        gated(),
        resnet(4),
        resnet(3, phi="erf", var_b=0.2, kind="pre"),
        resnet(2, phi="tanh"),
        mlp(3, tied=True),
        resnet(0),
        mlp(2, ("relu", "erf")),
    ],
    ids=lambda p: p.name,
)
def test_programs(inputs: torch.Tensor, p: Any) -> None:
    agree(p, inputs[:11])
    agree(p, inputs[13:], inputs[:3])
    agree(p, inputs[:1])
    agree(p, inputs[20:21], inputs[4:5])


def test_terms(inputs: torch.Tensor) -> None:
    agree(mlp(2, phi="erf", var_b=0.1), inputs[:11], get=("nngp", "ntk", "terms"))
    agree(mlp(2), inputs[:11], inputs[5:9], get="terms")


def test_parameters(inputs: torch.Tensor) -> None:
    """The values of a call are numbers of the C function, which is compiled once for all of them."""
    p = mlp(3, "erf", "s", "b", "v")
    assert ns.compile(p, backend="native").backend == "native"
    for s in (0.3, 1.7):
        agree(p, inputs[:20], params={"s": s, "b": 0.2, "v": 0.6})
    agree(mlp(2, "tanh", "s"), inputs[13:30], inputs[:3], params={"s": 0.9})
    kernel = ns.compile(p, backend="native")
    values = {k: torch.tensor(0.5, dtype=torch.float64, requires_grad=True) for k in ("s", "b", "v")}
    kernel(inputs[:3], params=values).ntk.sum().backward()  # gradients are torch's
    assert all(v.grad is not None for v in values.values())


def test_bands_and_near_pairs(inputs: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """More near pairs than a list holds, bands of a budget, widths that no panel divides."""
    from netsor.compilers.native import blocks

    monkeypatch.setattr(blocks, "AT_LEAST", 8)
    x = (inputs[:1] + 1e-3 * inputs).float().double()  # all nearly parallel, and the same numbers in both dtypes
    agree(mlp(3, var_b=0.1), x)
    agree(mlp(3), x[:37], x[20:])
    agree(mlp(2, "erf"), x)
    kernel, plain = (ns.compile(mlp(3, "erf"), backend=b) for b in ("native", "torch"))
    for n, d in ((1, 1), (5, 129), (97, 3), (99, 300)):
        y = torch.as_tensor(np.random.default_rng(n).standard_normal((n, d)))
        assert torch.allclose(kernel(y).ntk, plain(y).ntk, rtol=1e-12)
        least = plain.cost(n, memory=10**9, sizes={"feature": d}).peak
        assert torch.allclose(kernel.gram(y, memory=least).ntk, plain(y).ntk, rtol=1e-12)
        assert torch.allclose(kernel(y.T.contiguous().T, y[:3]).ntk, plain(y, y[:3]).ntk, rtol=1e-12)


def test_a_series_serves_inputs_that_are_not_near_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of one input twice, which the series does not give, are not held against it."""
    x = torch.as_tensor(np.random.default_rng(5).standard_normal((70, 200)))
    taken: list[bool] = []
    call = Native.band

    def counted(self: Any, *args: Any) -> Any:
        found = call(self, *args)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(Native, "band", counted)
    agree(mlp(3, "tanh", var_w=2, var_b=1), x)
    assert taken == [True, True]


def test_threads(inputs: torch.Tensor) -> None:
    one, four = (ns.compile(mlp(2), backend="native", threads=k)(inputs.repeat(4, 1) + 1) for k in (1, 4))
    assert torch.equal(one.ntk, four.ntk)
    with pytest.raises(ns.InputError, match="NT605 threads"):
        ns.compile(mlp(1), threads=0)


def test_two_inputs() -> None:
    """A product of two branches, each with data of its own."""
    p = ns.Program("two")
    n = p.width("n")
    x, y = p.data("x"), p.data("y")
    h = p.let("h", ns.relu(p.matrix("A", n, x) @ x) + ns.erf(p.matrix("B", n, y) @ y))
    p.output(p.readout("v", n), p.let("z", ns.tanh(p.matrix("C", n, n) @ h)))
    rng = np.random.default_rng(0)
    given = {"x": torch.as_tensor(rng.standard_normal((9, 3))), "y": torch.as_tensor(rng.standard_normal((9, 4)))}
    want, got = (ns.compile(p, backend=b)(given) for b in ("torch", "native"))
    assert torch.allclose(got.ntk, want.ntk, rtol=1e-12) and torch.allclose(got.nngp, want.nngp, rtol=1e-12)


def test_blocks(inputs: torch.Tensor) -> None:
    """Tiles of any size and threads give the same numbers."""
    p = mlp(2, phi="erf")
    kernel = ns.compile(p, backend="native")
    whole = kernel(inputs).ntk
    for tile in (1, 7, 64, 140):
        assert torch.allclose(kernel.gram(inputs, tile=tile).ntk, whole, rtol=1e-13, atol=1e-14)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(kernel(inputs).ntk, whole)
    finally:
        torch.set_num_threads(threads)


# ---------------------------------------------------------------- which backend


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (batchnorm_mlp(), "float64"), (mlp(1, phi="relu", var_b=1.0), None), (rnn("tanh"), None),
        (mlp(2, phi=ns.function("bent", lambda z: ns.relu(z) * ns.tanh(z))), None),
    ],
    ids=lambda x: getattr(x, "name", ""),
)  # fmt: skip
def test_what_is_not_covered_is_named(p: Any, words: str | None) -> None:
    assert ns.compile(p, backend="torch").backend == "torch"
    if words is None:
        assert ns.compile(p, backend="native").backend == "native"
        return
    kernel = ns.compile(p)
    assert kernel.backend.startswith("torch (") and words in kernel.backend


def test_what_is_not_covered_is_refused() -> None:
    kernel = ns.compile(batchnorm_mlp(), backend="native")
    with pytest.raises(ns.UnsupportedError, match=r"NT702 .*no instruction for .*float64"):
        kernel(torch.ones(2, 4, 3))


def test_arguments() -> None:
    with pytest.raises(ns.InputError, match="NT605 backend is"):
        ns.compile(mlp(1), backend="cuda")  # type: ignore[arg-type]
    twin = pickle.loads(pickle.dumps(ns.compile(mlp(1), backend="native")))
    assert twin.backend == "native" and "native" in repr(twin.backends.asked)


def test_automatic(inputs: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small calls are torch's; what pays, or is there already, is compiled."""
    p = mlp(2, phi="erf", var_b=0.123)
    kernel = ns.compile(p)
    kernel(inputs)
    assert kernel.backend.startswith("torch, and native once")
    monkeypatch.setattr(choice, "NOTICED", 0.0)
    monkeypatch.setattr(choice, "PAYS", 0.0)
    kernel(inputs)
    assert kernel.backend == "native"
    monkeypatch.setattr(choice, "PAYS", 1e9)
    again = ns.compile(mlp(2, phi="erf", var_b=0.123))
    assert again.backend.startswith("torch, and native once")
    again(inputs)
    assert again.backend == "native"  # the library is on disk


def test_gradients_are_torchs() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found = [torch.autograd.grad(ns.compile(mlp(2), backend=b)(x).ntk.sum(), x)[0] for b in ("torch", "native")]
    assert torch.equal(*found)
    single = torch.func.vmap(lambda row: ns.compile(mlp(2), backend="native")(row[None]).ntk)(x.detach())
    assert torch.allclose(single.flatten(), ns.compile(mlp(2))(x.detach()).ntk.diagonal())


def test_a_store_has_one_backend(tmp_path: Path, inputs: torch.Tensor) -> None:
    p = mlp(2, phi="erf")
    kernel = ns.compile(p)
    stored = kernel.gram(inputs, store=tmp_path / "k.zarr", tile=64)
    want = ns.compile(p, backend="torch")(inputs)
    assert torch.allclose(torch.as_tensor(np.asarray(stored.ntk[:])), want.ntk, rtol=1e-12)
    ns.compile(p, backend="native").gram(inputs, store=tmp_path / "k.zarr", tile=64)
    with pytest.raises(ns.NetsorError, match="backend is native there and torch here"):
        ns.compile(p, backend="torch").gram(inputs, store=tmp_path / "k.zarr", tile=64)


# ---------------------------------------------------------------- compiling


def test_names_are_no_text(inputs: torch.Tensor) -> None:
    """A program's names, however they look, stand nowhere in the C text."""
    p = ns.Program('*/ "; system("x"); /*')
    n = p.width("n")
    x = p.data("int")
    h = p.let("return", p.matrix("#define T", n, x) @ x)
    p.output(p.readout("void", n), p.let("#error", ns.relu(h)))
    kernel = ns.compile(p, backend="native")
    assert torch.allclose(kernel(inputs[:5]).ntk, ns.compile(p, backend="torch")(inputs[:5]).ntk, rtol=1e-12)
    blocks = kernel.backends.native(("nngp", "ntk"), kernel._recursion)
    assert isinstance(blocks, Native)
    text = blocks.library(torch.float64).source
    assert all(word not in text for word in ("system", "#error", "define T ", "return(", "void("))


WORK = """
import sys, torch, netsor as ns
from netsor.programs import mlp
k = ns.compile(mlp(2, phi="erf", var_b=0.456), backend="native")
print(float(k(torch.eye(3, dtype=torch.float64)).ntk.sum()))
"""


def test_processes_that_compile_at_once(cache: Path) -> None:
    several = [subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = {process.communicate()[0] for process in several}
    assert len(found) == 1 and all(process.returncode == 0 for process in several)
    assert not [path for path in (cache / "netsor" / "native").iterdir() if path.suffix not in (".so", ".json")]


def test_a_broken_library_is_made_again(inputs: torch.Tensor) -> None:
    source = "long block(void) { return 17; }\n"
    path = compiler.path_of(source)
    assert path is not None
    path.write_bytes(b"no library")
    found, seconds = compiler.library(source)
    assert found.block() == 17 and seconds > 0
    assert compiler.library(source)[1] == 0


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiler.folder().is_dir() and tmp_path not in compiler.folder().parents
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "open"))
    (tmp_path / "open" / "netsor" / "native").mkdir(parents=True)
    (tmp_path / "open" / "netsor" / "native").chmod(0o777)  # anybody could put a library there
    assert tmp_path not in compiler.folder().parents


def test_without_a_compiler(inputs: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ns.UnsupportedError, match=r"NT702 .*needs a C compiler: 'no-such-compiler', which CC names"):
        ns.compile(mlp(1), backend="native")
    kernel = ns.compile(mlp(1))
    assert kernel.backend.startswith("torch (no C compiler")
    assert torch.equal(kernel(inputs).ntk, ns.compile(mlp(1), backend="torch")(inputs).ntk)


def test_what_the_compiler_refuses_is_said() -> None:
    with pytest.raises(ns.UnsupportedError, match=r"NT702 .*does not compile"):
        compiler.library("this is no C\n")
