"""`backend="native"`: a C function agrees with torch, says what it does not cover, and is compiled once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor.compilers.native import compiler
from netsor.programs import mlp, resnet

if compiler.command() is None:
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


def agree(p: Any, x: torch.Tensor, two: torch.Tensor | None = None, get: Any = ("nngp", "ntk")) -> None:
    """Native in both dtypes against torch in float64."""
    want = ns.compile(p, backend="torch")(x, two, get=get)
    for dtype in DTYPES:
        got = ns.compile(p, backend="native")(x.to(dtype), None if two is None else two.to(dtype), get=get)
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


@pytest.mark.parametrize("phi", ["step", "sign", "exp"])
def test_functions_without_tangents(inputs: torch.Tensor, phi: str) -> None:
    agree(mlp(depth=1 if phi == "exp" else 2, phi=phi, var_w=0.5), inputs[:11], get=("nngp",))


@pytest.mark.parametrize(
    "p",
    [
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
