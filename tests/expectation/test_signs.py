"""E sgn·sgn and E erf·erf where they are small and where |ρ| is near 1, in every route, and the dtype of signs."""

from __future__ import annotations

import engine_functions as named
import mpmath as mp
import pytest
import torch

from netsor.compilers import expectation as ex
from netsor.compilers.expectation.blocks import fast, fused
from netsor.compilers.expectation.blocks.law import Law
from netsor.compilers.expectation.blocks.work import Work
from netsor.compilers.expectation.closed import sign_mean
from netsor.compilers.expectation.gauss import quadrant, sign_product
from netsor.compilers.expectation.terms import Gate

RHO = (1e-13, -3e-9, 1e-4, -0.2, 0.4999, 0.5001, -0.9, 1 - 1e-6, -1 + 1e-9)


def number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("rho", RHO)
@pytest.mark.parametrize("asks", [False, True])
def test_signs_keep_their_digits(rho: float, asks: bool) -> None:
    """Relative to the value itself, with and without gradients (2/π)·arcsin ρ."""
    one = torch.ones(1, 1, dtype=torch.float64)
    covariance = (rho * one).requires_grad_(asks)
    want = float(2 / mp.pi * mp.asin(mp.mpf(rho)))
    rounding = 4e-16 + 2.0**-52 / (1 - abs(rho)) ** 0.5  # of ρ itself
    for f in (named.sign(), ex.combine((2.0, named.step()), (-1.0, ex.power(0)))):
        got = float(fast.E2(f, f, Law(Work(), one, one, covariance)))
        assert abs(got - want) <= rounding * abs(want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_signs_keep_their_digits(dtype: torch.dtype) -> None:
    one, eps = torch.ones((), dtype=dtype), torch.finfo(dtype).eps
    for rho in (r for r in RHO if 1 - abs(r) > 4 * fused.NEAR[dtype]):
        r = torch.tensor(rho, dtype=dtype)
        want = float(2 / mp.pi * mp.asin(mp.mpf(float(r))))
        got = float(fused.Geometry(r, one, one).erf())
        assert abs(got - want) <= 8 * eps * abs(want) / (1 - abs(rho)) ** 0.5


def test_numbers_of_one_dimension_meet_numbers_of_none() -> None:
    """A vector of signs with a scalar in float64: nothing is rounded to float32."""
    rho = torch.tensor([0.3, -0.7], dtype=torch.float64)
    s = (1 - rho**2).sqrt()
    x, y = number(0.123456789123456789), number(-0.2)
    for got in (sign_product(x, y, rho, s), quadrant(-x, y, rho, s).both):
        assert got.dtype == torch.float64
    single = [float(sign_product(x, y, r, t)) for r, t in zip(rho, s, strict=True)]
    assert sign_product(x, y, rho, s).tolist() == pytest.approx(single, rel=1e-15)
    m = number(0.123456789123456789)
    got = sign_mean(Gate(0.0, 1.0, 0.0), torch.tensor([0.0, 1.0], dtype=torch.float64), m)
    assert got.tolist() == pytest.approx([1.0, float(mp.erf(mp.mpf(float(m)) / mp.sqrt(2)))], rel=1e-15)
    zero = sign_mean(Gate(0.0, 1.0, 0.0), torch.zeros(2, dtype=torch.float64), number(0.0))
    assert zero.tolist() == [0.0, 0.0]
