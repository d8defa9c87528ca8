"""Corners of (σ, σ̄, ρ, means) against independent quadrature, and blocks against single entries."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine_functions as named
import pytest
import torch
from torch import Tensor

from netsor.compilers import expectation as ex
from netsor.compilers.expectation import engine
from netsor.compilers.expectation.blocks import fast
from netsor.compilers.expectation.blocks.law import Law
from netsor.compilers.expectation.blocks.work import Work

CORNERS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("corners.json").read_text())
FUNCTIONS: dict[str, Callable[[], ex.Fn]] = {
    "tanh": named.tanh,
    "tanh'": lambda: named.tanh().derivative,
    "sigmoid": named.sigmoid,
    "silu": named.silu,
    "silu'": lambda: named.silu().derivative,
    "softplus": named.softplus,
    "elu": named.elu,
    "elu'": lambda: named.elu().derivative,
    "selu": lambda: ex.function(lambda x: torch.nn.functional.selu(x), kinks=(0.0,)),
    "hard tanh": lambda: ex.function(lambda x: x.clamp(-1, 1), kinks=(-1.0, 1.0)),
    "relu6": lambda: ex.function(lambda x: x.clamp(0, 6), kinks=(0.0, 6.0)),
    "shrunk tanh": lambda: ex.function(lambda x: torch.tanh(x - x.clamp(-0.5, 0.5)), kinks=(-0.5, 0.5)),
    "late tanh": lambda: ex.function(lambda x: torch.where(x > 1, torch.tanh(x), 0.0), kinks=(1.0,)),
    "algebraic": lambda: ex.function(lambda x: x / (1 + x * x).sqrt(), name="algebraic"),
}


def number(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def moved_by_rounding(f: ex.Fn, k: tuple[Tensor, ...], means: list[Tensor | None], scale: float) -> float:
    """What some ulps of the covariance change: E f′f′ times it, relative to the scale."""
    if scale == 0:
        return 0.0
    slope = ex.E2(f.derivative, f.derivative, *k, *means)
    return 2.0**-50 * float((slope * k[2]).abs()) / scale + 2.0**-50


@pytest.mark.parametrize("row", CORNERS, ids=lambda e: f"{e['f']}-{e['k']}-{e['means']}")
def test_corner(row: dict[str, Any]) -> None:
    """The error is within the stated bound, and the bound is small, at |ρ| = 1, σ of 1e-8 and 1e3, and beside means."""
    f = FUNCTIONS[row["f"]]()
    k = tuple(map(number, row["k"]))
    means = [number(m) if any(row["means"]) else None for m in row["means"]]
    with ex.record() as log:
        out = float(ex.E2(f, f, *k, *means))
    bound = max(b for _, b in log)
    assert bound <= 1e-9
    allowed = bound + moved_by_rounding(f, k, means, row["scale"])
    assert abs(out / row["scale"] - row["value"]) <= allowed


def block(sigma: float, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Variances and covariances of `size` inputs, some of them equal, opposite or nearly equal."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, 3, generator=generator, dtype=torch.float64) + 2
    x[1], x[2], x[3] = x[0], -x[0], x[0] * (1 + 1e-7)
    x[4] = x[0] + 1e-6 * x[5]
    K = sigma**2 * (x @ x.T) / 12
    return K.diagonal()[:, None], K.diagonal()[None], K


@pytest.mark.parametrize("sigma", [0.01, 5.0, 300.0])
@pytest.mark.parametrize("name", ["tanh", "silu", "elu'", "shrunk tanh", "late tanh"])
@pytest.mark.parametrize("mean", [None, -0.6])
def test_blocks_agree_with_single_entries(name: str, sigma: float, mean: float | None) -> None:
    f = FUNCTIONS[name]()
    k11, k22, k12 = block(sigma, 40)
    m = None if mean is None else number(mean)
    out = fast.E2(f, f, Law(Work(), k11, k22, k12, m, m))
    scale = (ex.E11(f, f, k11, m) * ex.E11(f, f, k22, m)).sqrt()
    for i, j in ((0, 1), (0, 2), (0, 3), (0, 4), (7, 9), (20, 11)):
        alone = ex.E2(f, f, k11[i, 0], k22[0, j], k12[i, j], m, m)
        rounding = moved_by_rounding(f, (k11[i, 0], k22[0, j], k12[i, j]), [m, m], float(scale[i, j]))
        assert abs(float(out[i, j] - alone)) <= (3e-11 + rounding) * float(scale[i, j])


@pytest.mark.parametrize("scale", [0.05, 3.0, 80.0])
@pytest.mark.parametrize("name", ["tanh", "softplus", "elu"])
def test_input_gradients(name: str, scale: float) -> None:
    """Against central differences of fourth order, at general, equal, opposite and nearly equal inputs."""
    f = FUNCTIONS[name]()
    generator = torch.Generator().manual_seed(1)
    x = scale * (1 + 0.1 * torch.randn(5, 3, generator=generator, dtype=torch.float64))
    x[1], x[2], x[3] = x[0], -x[0], x[0] * (1 + 1e-9)
    weight = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    weight = weight + weight.T

    def total(x: Tensor) -> Tensor:
        k = (x * x).sum(1) / 3
        return (weight * ex.E2(f, f, k[:, None], k[None], x @ x.T / 3)).sum()

    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(total(at), at)
    assert bool(torch.isfinite(gradient).all())
    step = 1e-4 * scale
    for i, j in ((0, 0), (2, 1), (3, 2), (4, 0)):
        moved = [x.clone() for _ in range(4)]
        for y, t in zip(moved, (-2, -1, 1, 2), strict=True):
            y[i, j] += t * step
        a, b, c, d = (float(total(y)) for y in moved)
        assert math.isclose(
            (a - 8 * b + 8 * c - d) / (12 * step), float(gradient[i, j]), abs_tol=2e-8 * float(gradient.abs().max())
        )


def test_single_precision_keeps_the_rule() -> None:
    k11, k22, k12 = block(20.0, 30)
    out = fast.E2(named.tanh(), named.tanh(), Law(Work(), k11.float(), k22.float(), k12.float()))
    rounded = ex.E2(named.tanh(), named.tanh(), k11.float().double(), k22.float().double(), k12.float().double())
    assert out.dtype == torch.float32
    assert (out - rounded).abs().max() <= 1e-5


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("sigma", [0.5, 20.0])
def test_kinks_of_many_inputs(order: int, sigma: float) -> None:
    """A hard tanh of many inputs, each with kinks of its own, against pairs on a grid with edges at their kinks."""
    f = ex.function(lambda x: x.clamp(-1, 1), lambda x: (x.abs() < 1).to(x.dtype), kinks=(-1.0, 1.0))
    f = f.derivative if order else f
    k11, k22, k12 = block(sigma, 30)
    with ex.record() as log:
        out = ex.E2(f, f, k11, k22, k12)
    scale = (ex.E11(f, f, k11) * ex.E11(f, f, k22)).sqrt()
    bound = max(b for _, b in log)
    assert bound <= 1e-9
    for i, j in ((0, 1), (0, 2), (0, 3), (0, 4), (7, 9), (20, 11)):
        alone = ex.E2(f, f, k11[i, 0], k22[0, j], k12[i, j])
        assert abs(float(out[i, j] - alone)) <= 2e-9 * float(scale[i, j])


def test_long_quadratures_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ex.function(lambda x: torch.where(x > 0.3, torch.sin(x), 0.1), kinks=(0.3,), name="clipped")
    monkeypatch.setattr(engine, "LONG", 0.0)
    with pytest.warns(ex.SlowExpectationWarning, match="expectations of clipped and clipped take a quadrature each"):
        k11, k22, k12 = block(3.0, 14)
        ex.E2(f, f, k11, k22[:, :1], k12[:, :1])


def test_independent_variables_of_one_mean() -> None:
    """ρ = 0: E f·E g, also where all conditional means are one number."""
    f = FUNCTIONS["late tanh"]()
    sigma = torch.linspace(0.5, 2, 30, dtype=torch.float64)
    m1, m2 = number(0.7), number(-0.4)
    out = ex.E2(f, f, sigma[:, None] ** 2, sigma[None] ** 2, -torch.zeros(30, 30, dtype=torch.float64), m1, m2)
    want = ex.E1(f, sigma**2, m1)[:, None] * ex.E1(f, sigma**2, m2)
    scale = (ex.E11(f, f, sigma[:, None] ** 2, m1) * ex.E11(f, f, sigma[None] ** 2, m2)).sqrt()
    assert ((out - want).abs() <= 1e-10 * scale).all()
