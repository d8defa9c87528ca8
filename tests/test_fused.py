"""`fuse=True`: compiled blocks agree with the plain ones, and without a compiler nothing breaks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import netsor as ns
from netsor.compilers.evaluate import fused as fuse
from netsor.compilers.expectation.blocks import fused
from netsor.programs import cnn, mlp, rnn, transformer

DTYPES = (torch.float32, torch.float64)
PRECISION = {torch.float32: 2e-7, torch.float64: 5e-16}


@pytest.mark.parametrize("dtype", DTYPES)
def test_polynomials(dtype: torch.dtype) -> None:
    """arccos(1 − u) = √u·P(u) and √(u(2 − u)) − (1 − u)·arccos(1 − u) = u√u·Q(u), to the precision of the dtype."""
    p, q, _ = fused.polynomials(dtype)
    with mpmath.workdps(40):
        for u in [mpmath.mpf(10) ** -k for k in range(12)] + [mpmath.mpf(j) / 37 for j in range(1, 38)]:
            angle = mpmath.acos(1 - u)
            arch = mpmath.sqrt(u * (2 - u)) - (1 - u) * angle
            t = 2 * u - 1
            assert abs(mpmath.sqrt(u) * mpmath.polyval(p[::-1], t) / angle - 1) < PRECISION[dtype]
            assert abs(u * mpmath.sqrt(u) * mpmath.polyval(q[::-1], t) / arch - 1) < PRECISION[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_transforms(dtype: torch.dtype) -> None:
    """The bodies, not compiled, against closed forms at 30 digits: all correlations, both ends, a variance of zero."""
    r = torch.tensor([-1.0, -0.9999, -0.5, -1e-3, 0.0, 1e-3, 0.3, 0.75, 0.9999, 1.0, 0.0], dtype=torch.float64)
    k11 = torch.tensor([1e-6, 1.0, 2.0, 3.0, 0.5, 1.0, 1e6, 1.0, 2.0, 1.0, 0.0], dtype=torch.float64)
    k22 = torch.full_like(k11, 1.5)
    k12 = r * (k11 * k22).sqrt()
    one, two, cross = k11.to(dtype), k22.to(dtype), k12.to(dtype)

    def inverse(k: torch.Tensor) -> torch.Tensor:
        return torch.where(k > 0, k.rsqrt(), torch.zeros_like(k))

    root = [(k / (2 * torch.pi)).sqrt() for k in (one, two)]
    geometry = fused.Geometry(cross, inverse(one), inverse(two))
    plain, steps, erf = geometry.relu(*root), geometry.step(), geometry.erf()
    eps = torch.finfo(dtype).eps
    for i in range(len(r)):
        with mpmath.workdps(30):
            a, b, c = (mpmath.mpf(float(x[i])) for x in (one, two, cross))
            rho = min(max(c / mpmath.sqrt(a * b), mpmath.mpf(-1)), mpmath.mpf(1)) if a else mpmath.mpf(0)
            angle = mpmath.acos(rho)
            scale = mpmath.sqrt(a * b)
            want = (scale * mpmath.sqrt(1 - rho**2) + c * (mpmath.pi - angle)) / (2 * mpmath.pi)
            ends = eps / max(mpmath.sqrt(1 - abs(rho)), mpmath.sqrt(eps))  # an angle near 0 or π has half the digits
            assert abs(float(plain[i]) - want) <= 8 * eps * (scale or 1)
            assert abs(float(steps[i]) - (1 - angle / mpmath.pi) / 2) <= 4 * ends
            assert abs(float(erf[i]) - 2 * mpmath.asin(rho) / mpmath.pi) <= 4 * ends


# ---------------------------------------------------------------- whole blocks


@pytest.fixture(scope="module")
def inputs() -> torch.Tensor:
    """Rows with a duplicate, a near-duplicate, an opposite one and a row of zeros."""
    x = torch.as_tensor(np.random.default_rng(3).standard_normal((14, 5)))
    x[7], x[8], x[9], x[10] = x[3], x[3] + 1e-6 * x[4], -x[3], 0
    return x


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Blocks are traced at once and run as traced, without a compiler; the list counts the graphs."""
    graphs: list[int] = []

    def as_traced(graph: Any, **options: Any) -> Any:
        graphs.append(1)
        return graph

    monkeypatch.setattr(torch, "compile", as_traced)
    monkeypatch.setattr(fuse, "OFTEN", 1)
    monkeypatch.setattr(fuse, "available", lambda device: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fuse.FusionWarning)
        yield graphs


BOUND = {torch.float32: 1e-5, torch.float64: 1e-12}


def agree(got: torch.Tensor, want: torch.Tensor, one: torch.Tensor, two: torch.Tensor | None = None) -> None:
    """Within the dtype's precision; of nearly equal inputs within the root of it, as an angle near 0 is known."""
    assert got.dtype == want.dtype and got.shape == want.shape
    first, second = (torch.nn.functional.normalize(t.flatten(1), dim=1) for t in (one, one if two is None else two))
    twins = (1 - (first @ second.T).abs() < 1e-8) | (first[:, None] == second[None]).all(2)
    off = (got - want).abs() / want.abs().max()
    assert float(off.masked_fill(twins, 0).max()) <= BOUND[want.dtype]
    assert float(off.max()) <= max(BOUND[want.dtype], 1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("phi", ["relu", "abs", "leaky_relu", "erf", "gelu"])
def test_kernels(inputs: torch.Tensor, phi: str, dtype: torch.dtype, traced: list[int]) -> None:
    """Symmetric and rectangular calls and tiles, one graph for each shape of block."""
    x = inputs.to(dtype)
    p = mlp(depth=3, phi=phi, var_b=0.0 if phi == "abs" else 0.3)
    plain, fast = ns.compile(p), ns.compile(p, fuse=True)
    for two in (None, x.flip(0)[:9].clone()):
        want, got = plain(x, two), fast(x, two)
        agree(got.nngp, want.nngp, x, two)
        agree(got.ntk, want.ntk, x, two)
        assert got.method == want.method
    assert len(traced) == 2
    agree(fast.gram(x, tile=7).ntk, plain(x).ntk, x)
    assert len(traced) == 3  # the block on the diagonal and the one beside it are one graph


def programs() -> dict[str, tuple[Any, tuple[int, ...]]]:
    p = ns.Program("residual")
    n = p.width("n")
    data = p.data("x")
    x: Any = p.let("x0", p.matrix("W0", n, data) @ data)
    for l in (1, 2):
        h = p.let(f"h{l}", p.matrix(f"W{l}a", n, n, var=2) @ ns.relu(x))
        x = p.let(f"x{l}", x + p.matrix(f"W{l}b", n, n, var=2) @ ns.relu(h))
    p.output(p.readout("v", n), x)
    return {
        "residual": (p, (6,)),
        "cnn mean": (cnn(depth=2, readout="mean"), (4, 5, 2)),
        "cnn flatten": (cnn(depth=2, readout="flatten"), (4, 5, 2)),
        "transformer": (transformer(depth=1), (5, 3)),
    }


@pytest.mark.parametrize("name", list(programs()))
@pytest.mark.parametrize("get", [("nngp", "ntk"), ("nngp",)])
def test_programs(name: str, get: tuple[str, ...], traced: list[int]) -> None:
    """Residual sums, windows, attention: with a duplicated input, in tiles."""
    p, shape = programs()[name]
    x = torch.as_tensor(np.random.default_rng(1).standard_normal((4, *shape)))
    x[3] = x[1]
    fast, plain = ns.compile(p, fuse=True), ns.compile(p)
    for tile in (4, 2):
        got, want = fast.gram(x, tile=tile, get=get), plain.gram(x, get=get)
        agree(got.nngp, want.nngp, x)
        if "ntk" in get:
            agree(got.ntk, want.ntk, x)
    assert len(traced) == 2


def counted(calls: list[int], pairs: Callable[..., Any]) -> Callable[..., Any]:
    def again(*given: Any) -> Any:
        calls.append(1)
        return pairs(*given)

    return again


def test_own_entries_are_not_computed_again(traced: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """An input with itself is exact in the compiled block, in every layout."""
    calls: list[int] = []
    for name, (p, shape) in programs().items():
        x = torch.as_tensor(np.random.default_rng(1).standard_normal((3, *shape)))
        kernel = ns.compile(p, fuse=True)
        kernel(x)
        module = kernel._module(("nngp", "ntk"))
        monkeypatch.setattr(module, "pairs", counted(calls, module.pairs))
        kernel(x)
        assert not calls, name


@pytest.mark.parametrize(
    ("program", "words"), [(mlp(depth=2, phi="tanh"), "function"), (rnn(), "step by step")]
)  # fmt: skip
def test_what_cannot_be_fused_says_so(program: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "available", lambda device: True)
    x = torch.as_tensor(np.random.default_rng(1).standard_normal((3, 4, 2) if program.name == "rnn" else (3, 4)))
    kernel = ns.compile(program, fuse=True)
    with pytest.warns(fuse.FusionWarning, match=words):
        got = kernel(x)
    assert torch.equal(got.ntk, ns.compile(program)(x).ntk)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(x)  # said once


def test_compiled(inputs: torch.Tensor) -> None:
    """By torch.compile itself, from the third call on."""
    if not fuse.available("cpu"):
        pytest.skip("torch.compile needs a C++ compiler")
    p = mlp(depth=2)
    x = inputs.to(torch.float32)
    want, kernel = ns.compile(p)(x), ns.compile(p, fuse=True)
    for call in range(4):
        got = kernel(x)
        agree(got.nngp, want.nngp, x)
        agree(got.ntk, want.ntk, x)
        assert len(next(iter(kernel.backends.fused.values()))._compiled) == (call >= 2)


def test_without_a_compiler(inputs: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("no working C++ compiler found\nand more")

    monkeypatch.setattr(torch, "compile", broken)
    fuse.available.cache_clear()
    with pytest.warns(fuse.FusionWarning, match="no working C\\+\\+ compiler found.*g\\+\\+"):
        kernel = ns.compile(mlp(depth=2), fuse=True)
    assert torch.equal(kernel(inputs).ntk, ns.compile(mlp(depth=2))(inputs).ntk)
    fuse.available.cache_clear()


def test_gradients(inputs: torch.Tensor, traced: list[int]) -> None:
    """Where a gradient is asked for, the route that has one is taken."""
    x = inputs[:5].clone().requires_grad_()
    ns.compile(mlp(depth=1), fuse=True)(x).ntk.sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all()) and not traced


@pytest.mark.parametrize("phi", ["relu", "abs", "erf"])
def test_float32(phi: str, traced: list[int]) -> None:
    """On the diagonal and off it, a compiled float32 block is as near to float64 as an ordinary one."""
    x = torch.as_tensor(np.random.default_rng(3).standard_normal((60, 20)))
    p = mlp(depth=5, phi=phi, var_w=2, var_b=0.0 if phi == "abs" else 1.0)
    exact, plain, got = ns.compile(p)(x), ns.compile(p)(x.float()), ns.compile(p, fuse=True)(x.float())
    assert len(traced) == 1
    for name in ("nngp", "ntk"):
        want = getattr(exact, name)
        fused_error, plain_error = ((getattr(r, name) - want).abs().max() for r in (got, plain))
        assert fused_error <= max(2 * plain_error, 1e-6 * want.abs().max())
