"""Native kernels of random compositions agree with torch on awkward inputs, and a compiler that fails leaves torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compositions import each

import netsor as ns
from netsor.compilers.native import choice, compiler
from netsor.programs import cnn, mlp

if compiler.current() is None:
    pytest.skip("no C compiler works here ($CC, cc, gcc, clang)", allow_module_level=True)

BOUND = {torch.float32: 1e-5, torch.float64: 1e-12}  # relative to the two inputs' own kernels
ANGLE = 1e-7  # the same of inputs that nearly coincide, whose angle is known to the root of the rounding
ROWS, CLOSE = 10, (7, 8)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler, "FLAGS", ("-O1", *compiler.FLAGS[1:]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def awkward(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Repeated, opposite, zero, large, small, doubled inputs, and two that are nearly another one (`CLOSE`)."""
    x = np.random.default_rng(seed).standard_normal((ROWS, *shape))
    x[1], x[2], x[3], x[4], x[6], x[9] = x[0], -x[0], 0, 1e3 * x[5], 1e-3 * x[5], 2 * x[0]
    x[7], x[8] = x[0] + 1e-6 * x[5], x[0] + 1e-9 * x[5]
    return torch.as_tensor(x)


def off(got: torch.Tensor, want: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The largest error of each pair relative to √(K(x, x)·K(x′, x′))."""
    scale = (left[:, None] * right).sqrt()
    error = (got.double() - want).abs().reshape(*scale.shape, -1).amax(2)
    return torch.where(scale > 0, error / scale, error)


def own(kernel: torch.Tensor) -> torch.Tensor:
    return kernel.diagonal(dim1=0, dim2=1).abs().reshape(-1, len(kernel)).amax(0)


def test_compositions() -> None:
    covered = 0

    def check(p: ns.Program, x: Any, _: Any) -> None:
        nonlocal covered
        torch_, native = (ns.compile(p, backend=b, threads=3) for b in ("torch", "native"))
        if torch_.backends.native(("nngp", "ntk"), torch_._recursion).__class__ is str:
            return
        covered += 1
        dtype = (torch.float64, torch.float64, torch.float32)[covered % 3]
        x = awkward(x.shape[1:], covered).to(dtype)
        whole = torch_(x.double())
        for two in (None, x.flip(0)[::2]):
            want, got = torch_(x.double(), None if two is None else two.double()), native(x, two)
            for name, exact in want.items():
                sizes = own(dict(whole.items())[name])
                error = off(dict(got.items())[name], exact, sizes, sizes if two is None else sizes.flip(0)[::2])
                places = torch.arange(ROWS) if two is None else torch.arange(ROWS).flip(0)[::2]
                close = sum((a == k for k in CLOSE for a in (torch.arange(ROWS)[:, None], places)), torch.tensor(0)) > 0
                assert float(error[~close].max()) <= BOUND[dtype], (name, str(p))
                assert float(error[close].max()) <= max(ANGLE, BOUND[dtype]), (name, str(p))

    each(12, check, depth=3)
    assert covered >= 10


def test_nothing_of_the_data() -> None:
    """Kernels of biases alone, and calls without inputs, are torch's."""
    p = ns.Program("constant")
    n = p.width("n")
    x, b = p.data("x"), p.bias("b", n, var=0.3)
    p.let("h", p.matrix("W", n, x) @ x)
    p.output(p.readout("v", n), p.let("z", ns.relu(b)))
    kernel = ns.compile(p)
    assert kernel.backend.startswith("torch (kernels that no inner product")
    assert torch.allclose(kernel(torch.ones(3, 2)).nngp, torch.tensor(0.15))
    assert ns.compile(mlp(2), backend="native")(torch.ones(0, 4)).ntk.shape == (0, 0)


FAILURES = {"killed": "kill -9 $$", "refused": "echo no >&2; exit 1", "no file": "exit 0", "no library": "echo > $out"}


@pytest.mark.parametrize("how", [*FAILURES, "quotation"])
def test_a_compiler_that_fails_later(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes the trial and not the kernel: `auto` is torch and says why, `native` one error."""
    script = tmp_path / "cc"
    work = f'case "$*" in *kernel.c*) {FAILURES.get(how, "")}; exit;; esac'
    command = " ".join(compiler.current().command)  # type: ignore[union-attr]
    script.write_text(
        f'#!/bin/sh\nfor a; do [ "$before" = -o ] && out=$a; before=$a; done\n{work}\nexec {command} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CC", 'cc "' if how == "quotation" else str(script))
    monkeypatch.setattr(choice, "NOTICED", 0.0)
    monkeypatch.setattr(choice, "PAYS", 0.0)
    for p, shape in ((mlp(1), (3, 4)), (cnn(1), (2, 3, 3, 2))):
        x = torch.as_tensor(np.random.default_rng(0).standard_normal(shape))
        kernel = ns.compile(p)
        for _ in range(2):
            assert torch.equal(kernel(x).ntk, ns.compile(p, backend="torch")(x).ntk)
        assert kernel.backend.startswith("torch (no C compiler" if how == "quotation" else "torch (" + str(script))
        with pytest.raises(ns.UnsupportedError, match=r"NT702 .*(does not compile|needs a C compiler)"):
            ns.compile(p, backend="native")(x)


def close_rows() -> torch.Tensor:
    """Float32, two of them so close that they are computed again in float64."""
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 4)))
    x[1] = x[0] + 1e-4 * x[2]
    return x.float()


def failing(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """The compiler makes so many more libraries."""
    run, made = compiler.Compiler.run, [0]

    def counted(self: compiler.Compiler, source: Path, out: Path) -> str | None:
        made[0] += 1
        return run(self, source, out) if made[0] <= left else "no more"

    monkeypatch.setattr(compiler.Compiler, "run", counted)


def test_a_second_library_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of float64 for pairs that are near in float32: torch takes them unless native blocks were asked for."""
    monkeypatch.setattr(choice, "NOTICED", 0.0)
    monkeypatch.setattr(choice, "PAYS", 0.0)
    x, wanted = close_rows(), ns.compile(mlp(1), backend="torch")(close_rows()).ntk
    failing(monkeypatch, 1)
    np.testing.assert_allclose(ns.compile(mlp(1))(x).ntk, wanted, rtol=1e-5)
    calls: list[Callable[[ns.Kernel], Any]] = [lambda k: k(x), lambda k: k.gram(x, store=tmp_path / "k.zarr", tile=4)]
    for call in calls:
        with pytest.raises(ns.UnsupportedError, match=r"NT702 .*does not compile the kernel: no more"):
            call(ns.compile(mlp(1), backend="native"))


def test_stores_where_the_compiler_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`auto`: a warning, and torch computes and stands in the attributes. `native`: one error, and no store."""
    pytest.importorskip("zarr")
    x, path = close_rows(), tmp_path / "k.zarr"
    failing(monkeypatch, 0)
    with pytest.raises(ns.UnsupportedError, match=r"NT702 .*does not compile the kernel: no more"):
        ns.compile(mlp(1), backend="native").gram(x, store=path)
    assert not path.exists()
    with pytest.warns(ns.NetsorWarning, match=r"does not compile the kernel: no more: torch computes all blocks"):
        found = ns.compile(mlp(1)).gram(x, store=path, tile=4)
    assert '"backend": "torch"' in (path / "zarr.json").read_text()
    np.testing.assert_array_equal(
        np.asarray(found.ntk), np.asarray(ns.compile(mlp(1), backend="torch").gram(x, store=path, tile=4).ntk)
    )
