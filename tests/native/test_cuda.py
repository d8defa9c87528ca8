"""The kernels of CUDA: the text that a GPU would run, run as plain C on the CPU; their launches; what they wait for."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cuda_on_cpu
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import netsor as ns
from netsor.compilers.native import compiler, offered
from netsor.compilers.native.blocks import Native
from netsor.compilers.native.cuda.library import Library, series_of
from netsor.compilers.native.cuda.text import Text
from netsor.compilers.native.library import Batch
from netsor.compilers.native.tables import Terms
from netsor.programs import mlp, resnet

if compiler.current() is None:
    pytest.skip("no C compiler works here ($CC, cc, gcc, clang)", allow_module_level=True)

BOUND = {torch.float32: 1e-5, torch.float64: 1e-12}  # relative to the largest entry


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """CUDA's kernels in the place of the CPU's; the launches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(offered.LIBRARIES, "cpu", lambda pairs, dtype: Library(pairs, dtype, cuda_on_cpu.compiled))
    cuda_on_cpu.launches.clear()
    yield cuda_on_cpu.launches


def inputs() -> torch.Tensor:
    """Rows with a duplicate, a near-duplicate, an opposite one, a row of zeros, and rows of other sizes."""
    x = torch.as_tensor(np.random.default_rng(3).standard_normal((45, 5)))
    x[7], x[8], x[9], x[10] = x[3], x[3] + 1e-6 * x[4], -x[3], 0
    x[11], x[12] = 10 * x[2], 1e-3 * x[1]
    return x


def agree(p: Any, x: torch.Tensor, two: torch.Tensor | None = None, **options: Any) -> None:
    want = ns.compile(p, backend="torch")(x, two, **options)
    for dtype in BOUND:
        got = ns.compile(p, backend="native")(x.to(dtype), None if two is None else two.to(dtype), **options)
        for name, exact in want.items():
            error = (dict(got.items())[name] - exact).abs().max() / exact.abs().max()
            assert float(error) <= BOUND[dtype], (name, dtype)


@pytest.mark.parametrize("phi", ["relu", "abs", "gelu", "tanh"])
def test_the_text_as_plain_c(phi: str, on_cpu: list[str]) -> None:
    x = inputs()
    agree(mlp(depth=3, phi=phi, var_b=0.0 if phi == "abs" else 0.3), x)
    agree(mlp(depth=2, phi=phi, var_b=0.1), x, x.flip(0)[:9].clone())
    assert "band" in on_cpu and ("entries" in on_cpu or phi not in ("relu", "abs"))


def test_programs_and_parameters(on_cpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from netsor.compilers.native.cuda import library

    monkeypatch.setattr(library, "BLOCK", 16 * 16 * 8)  # several blocks
    agree(resnet(3, phi="erf", var_b=0.2, kind="pre"), inputs())
    agree(mlp(2, tied=True), inputs(), get=("nngp", "ntk", "terms"))
    agree(mlp(2, var_w="s", var_b="b"), inputs(), params={"s": 1.3, "b": 0.2})


# ---------------------------------------------------------------- launches and waits

WAITS = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "_to_copy"}  # of the device by the host
VIEWS = {
    "alias",
    "slice",
    "t",
    "transpose",
    "view",
    "expand",
    "unsqueeze",
    "as_strided",
    "detach",
    "empty",
    "new_empty",
}


class Counter(TorchDispatchMode):
    """What a device would be given to do, and where the host would wait for it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launched: list[str] = []
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in WAITS:
            self.waits.append(name)
        elif name not in VIEWS:
            self.launched.append(name)
        return func(*args, **(kwargs or {}))


def pieces(phi: str, depth: int, compile: Any) -> tuple[Library, dict[str, Any]]:
    """A library and the arguments of its blocks for some inputs."""
    kernel = ns.compile(mlp(depth, phi=phi, var_b=0.1), backend="native")
    blocks = kernel.backends.native(("nngp", "ntk"), kernel._recursion)
    assert isinstance(blocks, Native)
    found = blocks.library(torch.float32)
    library = Library(found.pairs, torch.float32, compile)
    n = 40
    columns = torch.rand(len(library.columns), n).T
    terms, tables = [], []
    for _ in found.pairs.series:
        terms.append(Terms(0, 1, 4, torch.ones(4, dtype=torch.float64), 0.9, 0.0))
        tables.append(torch.rand(4, n).T)
    batch = Batch((torch.rand(n, 5),), columns, tuple(tables))
    out = [torch.empty(n, n) for _ in found.pairs.results]
    given = {
        "one": batch, "two": batch, "series": series_of(batch, batch, terms, out[0]), "out": out, "mirror": out,
        "rows": range(n), "same": True, "upper": True, "bound": 0.999,
    }  # fmt: skip
    return library, given


@pytest.mark.parametrize("phi", ["relu", "erf", "gelu", "tanh"])
def test_launches_and_waits(phi: str) -> None:
    """A block of any depth is one product of matrices and one kernel; nothing in it waits for the device."""
    for depth in (1, 4):
        library, given = pieces(phi, depth, cuda_on_cpu.counted)
        cuda_on_cpu.launches.clear()
        places, count = torch.empty(8, dtype=torch.int64), torch.zeros(20, dtype=torch.int64)
        with Counter() as counter:
            library.launched(**given, places=places, count=count)
        assert counter.launched == ["mm"] and cuda_on_cpu.launches == ["band"] and not counter.waits


@pytest.mark.parametrize("phi", ["relu", "erf", "gelu", "tanh"])
def test_blocks_on_tensors_without_memory(phi: str) -> None:
    """No branch depends on a value."""
    library, given = pieces(phi, 3, cuda_on_cpu.counted)
    cuda_on_cpu.launches.clear()
    with FakeTensorMode() as mode:
        fake = mode.from_tensor
        batch = given["one"]
        columns = None if batch.columns is None else fake(batch.columns)
        batch = Batch(tuple(map(fake, batch.data)), columns, ())
        series = {k: fake(v) if isinstance(v, torch.Tensor) else v for k, v in given["series"].items()}
        out = [fake(x) for x in given["out"]]
        places, count = torch.empty(8, dtype=torch.int64), torch.zeros(20, dtype=torch.int64)
        given |= {"one": batch, "two": batch, "out": out, "mirror": out, "series": series}
        library.launched(**given, places=places, count=count)
    assert cuda_on_cpu.launches == ["band"]


# ---------------------------------------------------------------- the compiler of CUDA, and what is said


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("phi", ["gelu", "tanh"])
def test_nvcc_takes_the_text(phi: str, tmp_path: Path) -> None:
    library, _ = pieces(phi, 2, cuda_on_cpu.counted)
    for dtype in BOUND:
        source = tmp_path / "kernel.cu"
        source.write_text(Text(library.pairs, dtype).source)
        command = ["nvcc", "--std=c++17", "-ptx", "-o", str(tmp_path / "kernel.ptx"), str(source)]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


def test_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ns.compile(mlp(2))
    kernel.backends.kind = "cuda"
    assert kernel.backend.startswith("torch (on CUDA") and "checked through the CPU target only" in kernel.backend
    kernel.backends.asked = "native"
    assert kernel.backend == "native (on CUDA it has been checked through the CPU target only)"
