"""The fast paths agree with the engine: blocks, tiles, the symmetric call, float32, near-duplicates, window sums."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from engine_functions import absolute, gelu, leaky_relu, relu, sigmoid, sign, silu, softplus, step, tanh

import netsor as ns
from netsor import ir
from netsor.compilers.budget import plan
from netsor.compilers.derive.recursion import derive
from netsor.compilers.expectation import (
    Fn,
    engine,
    erf,
    function,
    gaussian,
    scaled,
)
from netsor.compilers.expectation.blocks import fast, formulas
from netsor.compilers.expectation.blocks.law import Law
from netsor.compilers.expectation.blocks.work import Work
from netsor.compilers.expectation.functions import from_terms
from netsor.compilers.expectation.series import hermite
from netsor.compilers.runtime import boxes
from netsor.programs import BUILTIN, cnn, mlp

PAIRS = {
    "relu": (relu(), relu()), "step": (step(), step()), "leaky": (leaky_relu(0.2), absolute()),
    "sign": (sign(), step()), "erf": (erf(0.7), erf(1.3)), "gaussian": (gaussian(0.5), gaussian(1.5)),
    "gelu": (gelu(), gelu()), "gelu′": (gelu().derivative, gelu().derivative),
    "gelus": (scaled(gelu(), -1.7), gelu()), "gelus′": (scaled(gelu(), -1.7).derivative, gelu().derivative),
}  # fmt: skip


def covariances(n: int = 40, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gram matrix of points among which are duplicates, opposites, near-duplicates and zero."""
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[1], x[2], x[3], x[4] = x[0], -x[0], x[0] + 1e-6 * x[5], 0
    k = (x @ x.T).to(dtype)
    d = k.diagonal().clone()
    return d[:, None], d[None, :], k


@pytest.mark.parametrize("name", PAIRS)
def test_blocks_agree_with_the_engine(name: str) -> None:
    f, g = PAIRS[name]
    assert formulas.rule(f, g) is not None
    k11, k22, k12 = covariances()
    torch.testing.assert_close(
        fast.E2(f, g, Law(Work(), k11, k22, k12)), engine.E2(f, g, k11, k22, k12), rtol=1e-12, atol=1e-13
    )


def test_gradients_take_the_engine() -> None:
    k11, k22, k12 = (k.clone().requires_grad_() for k in covariances())
    fast.E2(relu(), relu(), Law(Work(), k11, k22, k12)).sum().backward()
    assert all(k.grad is not None and bool(k.grad.isfinite().all()) for k in (k11, k22, k12))


def test_functions_without_a_formula() -> None:
    shifted: Fn = from_terms(((1.0, relu().terms[0][1]), (1.0, step().terms[0][1])), "relu + step")
    assert formulas.rule(shifted, relu()) is None


def points(n: int, *shape: int) -> torch.Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def inputs(n: int, *shape: int) -> torch.Tensor:
    """With duplicates, opposites and near-duplicates."""
    x = points(n, *shape)
    x[1], x[2], x[3] = x[0], x[0] * (1 + 1e-7), x[0] + 1e-4 * x[4]
    x[5] = -x[0]
    return x


PROGRAMS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "relu": (lambda: mlp(depth=4, phi="relu", var_w=2, var_b=0.1), (5,)),
    "erf": (lambda: mlp(depth=3, phi="erf"), (5,)),
    "tanh": (lambda: mlp(depth=2, phi="tanh"), (5,)),
    "flatten": (lambda: cnn(depth=2, var_w=2), (4, 5, 3)),
    "mean": (lambda: cnn(depth=2, var_w=2, readout="mean"), (4, 5, 3)),
}


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b).abs().max() / b.abs().max())


@pytest.mark.parametrize("name", PROGRAMS)
def test_tiles_and_symmetry(name: str) -> None:
    program, shape = PROGRAMS[name]
    kernel, x = ns.compile(program()), points(9, *shape)
    whole = kernel.gram(x, tile=9)
    for tile in (1, 2, 4):
        found = kernel.gram(x, tile=tile)
        assert distance(found.ntk, whole.ntk) < 1e-12 and distance(found.nngp, whole.nngp) < 1e-12
    assert torch.equal(kernel(x, x.clone()).ntk, kernel(x).ntk)
    assert distance(kernel(x[:4], x).ntk, whole.ntk[:4]) < 1e-7  # the diagonal: √ of rounding


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("tile", [3, 9])
def test_float32(name: str, tile: int) -> None:
    program, shape = PROGRAMS[name]
    kernel, x = ns.compile(program()), inputs(9, *shape).float()
    for two in (None, x[:7].clone()):
        found, exact = kernel.gram(x, two, tile=tile), kernel(x.double(), None if two is None else two.double())
        assert found.ntk.dtype == torch.float32
        assert distance(found.ntk, exact.ntk) < 1e-5 and distance(found.nngp, exact.nngp) < 1e-5


SMOOTH = {
    "odd": tanh(), "even": function(lambda x: x * torch.tanh(x), name="z tanh z"), "neither": sigmoid(),
    "growing": silu(), "convex": softplus(),
}  # fmt: skip


def trapezoid(f: Any, k11: torch.Tensor, k22: torch.Tensor, k12: torch.Tensor, rows: slice) -> torch.Tensor:
    """E f(u)f(v) by a product rule, which converges geometrically for functions that are analytic in a strip."""
    z = torch.linspace(-9, 9, 181, dtype=torch.float64)
    w = torch.exp(-(z**2) / 2)
    w /= w.sum()
    a, b, c = (x[..., None, None] for x in torch.broadcast_tensors(k11[rows], k22, k12[rows]))
    slope = c / a.sqrt()
    rest = (b - slope**2).clamp(min=0).sqrt()
    values = f.call(a.sqrt() * z[:, None]) * f.call(slope * z[:, None] + rest * z)
    total: torch.Tensor = (values * w[:, None] * w).sum((-2, -1))
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SMOOTH)
def test_series_and_its_slope_in_one_pass(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """E f′g′ from the pass that gives E fg, and not where small variances would cost its digits."""
    f, prime = SMOOTH[name], SMOOTH[name].derivative
    passes: list[int] = []
    rows = slice(0, 3)
    one_pass = hermite.horner_with_slope

    def counted(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        passes.append(1)
        return one_pass(*given)

    monkeypatch.setattr(hermite, "horner_with_slope", counted)
    for scale in (1.0, 1e-3):
        x = scale * torch.randn(40, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        k = x @ x.T / 30
        d = k.diagonal().clone()
        given = d[:, None].to(dtype), d[None, :].to(dtype), k.to(dtype)
        law = Law(Work(own=True, tangents=True), *given, same=True)
        found = fast.E2(f, f, law, slope=True), fast.E2(prime, prime, law)
        for h, got in zip((f, prime), found, strict=True):
            want = trapezoid(h, d[:, None], d[None, :], k, rows)
            tolerance = 1e-13 if dtype == torch.float64 else 1e-6
            assert distance(got[rows], want) < tolerance
        assert bool(passes) == (scale == 1.0 or name not in ("neither", "convex"))  # f(0) = 0
        passes.clear()


@pytest.mark.parametrize("name", SMOOTH)
def test_many_equal_inputs(name: str) -> None:
    """E f², then E f′² over the same variances, where most pairs are of equal inputs: as of one such pair."""
    f, prime = SMOOTH[name], SMOOTH[name].derivative
    k = torch.linspace(0.5, 2, 3, dtype=torch.float64).repeat(20)
    k12 = torch.where(k[:, None] == k, k, 0.6 * (k[:, None] * k).sqrt())
    law = Law(Work(), k[:, None], k, k12)
    for h in (f, prime):
        got = fast.E2(h, h, law)
        want = fast.E11(h, h, k)[:, None].expand_as(got)
        assert distance(got[k[:, None] == k], want[k[:, None] == k]) < 1e-11


@pytest.mark.parametrize("phi", ["relu", "erf", "gelu", "tanh", "elu", "sin", "square"])
def test_no_inputs_and_one(phi: str) -> None:
    kernel, one = ns.compile(mlp(depth=2, phi=phi)), points(1, 4)
    for dtype in (torch.float32, torch.float64):
        none = torch.zeros(0, 4, dtype=dtype)
        assert kernel(none).ntk.shape == (0, 0) and kernel(none, one.to(dtype)).nngp.shape == (0, 1)
        assert distance(kernel(one.to(dtype)).ntk, kernel(one, one + 0.0).ntk) < 1e-6


def test_elu() -> None:
    """Its closed form takes many operations: a series in float32."""
    x = points(12, 30)
    kernel = ns.compile(mlp(depth=3, phi="elu", var_w=2))
    single, double = kernel(x.float()), kernel(x)
    assert "hermite" in single.method
    assert distance(single.ntk, double.ntk) < 1e-6 and distance(single.nngp, double.nngp) < 1e-6


def test_ragged_tiles() -> None:
    assert len(list(plan.blocks(7, 4, 2, False))) == 8


def naive(x: torch.Tensor, leads: int, moves: tuple[boxes.Move, ...]) -> torch.Tensor:
    """Every tap and every position by itself, for forward moves."""
    sizes = [m.size for m in moves]
    out = x.new_zeros((*x.shape[:leads], *sizes))
    for tap in range(len(moves[0].offsets)):
        for place in itertools.product(*map(range, sizes)):
            read = [m.stride * s + m.offsets[tap] for m, s in zip(moves, place, strict=True)]
            read = [r % n if m.wrap else r for r, n, m in zip(read, x.shape[leads:], moves, strict=True)]
            if all(0 <= r < n for r, n in zip(read, x.shape[leads:], strict=True)):
                at: tuple[Any, ...] = (..., *place)
                source: tuple[Any, ...] = (..., *read)
                out[at] += x[source]
    return out


ROWS, COLS = (-1, -1, -1, 0, 0, 0, 1, 1, 1), (-1, 0, 1) * 3


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_separable_windows(wrap: bool, stride: int) -> None:
    x = torch.randn(2, 4, 6, 4, 6, dtype=torch.float64)
    moves = tuple(
        boxes.forward(d, o, stride, x.shape[1 + d] // stride, wrap) for d, o in enumerate((ROWS, COLS, ROWS, COLS))
    )
    assert [len(g) for g in boxes.separated(moves)] == [2, 2]
    torch.testing.assert_close(boxes.box(x, 1, *moves), naive(x, 1, moves))


def test_windows_that_do_not_separate() -> None:
    x = torch.randn(1, 5, 5, dtype=torch.float64)
    moves = (boxes.forward(0, (0, 1, 1), 1, 5, False), boxes.forward(1, (0, 0, 1), 1, 5, False))
    assert len(boxes.separated(moves)) == 1
    torch.testing.assert_close(boxes.box(x, 1, *moves), naive(x, 1, moves))


@pytest.mark.parametrize("f", ["tanh", "elu"])
def test_many_near_duplicates_are_as_exact_as_one(f: str) -> None:
    """The kernels of nearly equal inputs, however many pairs of them a block holds."""
    x = torch.randn(600, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = x + 1e-6 * x.flip(0)
    kernel = ns.compile(ns.programs.mlp(depth=2, phi=f), backend="torch")
    many, one = kernel(x, y), kernel(x[:2], y[:2])
    for a, b in ((many.nngp, one.nngp), (many.ntk, one.ntk)):
        torch.testing.assert_close(a[:2, :2], b, rtol=1e-10, atol=0)


EXACT = ("batchnorm_mlp", "cnn", "cntk", "gcn", "mlp", "resnet", "rnn", "transformer")  # the others are sampled


@pytest.mark.parametrize("name", EXACT)
def test_float32_near_duplicates(name: str) -> None:
    """Float32 kernels of equal and nearly equal inputs are those of float64, for every program with exact rules."""
    p = BUILTIN[name]() if name != "batchnorm_mlp" else BUILTIN[name](depth=1)
    rng = np.random.default_rng(1)
    x = {}
    for line in p.lines:
        if isinstance(line, ir.Data) or (isinstance(line, ir.InputScalar) and line.per_sample):
            shape = [3 if a.size is None else a.size for a in line.out.axes]
            v = rng.normal(size=(3, *shape, *([4] if isinstance(line, ir.Data) else []))).astype("float32")
            v = v if isinstance(line, ir.Data) else np.abs(v)
            v[1], v[2] = v[0], v[0] + 1e-3 * v[2]
            x[line.out.name] = v
    wide = ns.compile(p, dtype=torch.float64)(x)
    narrow = ns.compile(p, dtype=torch.float32)(x)
    for (key, a), (_, b) in zip(narrow.items(), wide.items(), strict=True):
        assert float((a.double() - b).abs().max()) <= 1e-5 * float(b.abs().max()), key


def test_source_does_not_depend_on_what_was_derived_before() -> None:
    p = ns.programs.transformer(depth=2)
    first = str(derive(p))
    for _ in range(10):
        assert str(derive(p)) == first


@pytest.mark.parametrize("f", ["tanh", "sigmoid", "gelu", "silu"])
def test_many_inputs_share_an_interpolant(f: str) -> None:
    """Quantities of an input are the same whether it comes alone or among many, at any scale."""
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(size=(60, 5)) * np.exp(rng.uniform(-6, 0, size=(60, 1))))
    kernel = ns.compile(ns.programs.mlp(depth=2, phi=f))
    many, few = kernel(x), kernel(x[:5])
    for a, b in ((many.nngp[:5, :5], few.nngp), (many.ntk[:5, :5], few.ntk)):
        scale = b.diagonal().sqrt()
        assert float(((a - b).abs() / (scale[:, None] * scale)).max()) <= 1e-12
