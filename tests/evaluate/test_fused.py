"""The formulas of compiled blocks, and the older name of their backend."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch

import netsor as ns
from netsor.compilers.expectation.blocks import fused
from netsor.compilers.native import compiler
from netsor.programs import batchnorm_mlp, mlp

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


def test_fuse_is_an_older_name() -> None:
    """It warns and is backend="native", unless another backend is named."""
    warned = pytest.warns(ns.NetsorWarning, match=r'fuse=True is the older name of backend="native"')
    with warned:
        kernel = ns.compile(mlp(depth=1), fuse=True, backend="torch")
    assert kernel.backend == "torch"
    if compiler.current() is None:
        with warned, pytest.raises(ns.UnsupportedError, match="C compiler"):
            ns.compile(mlp(depth=1), fuse=True)
        return
    with warned:
        kernel = ns.compile(mlp(depth=1), fuse=True)
    x = torch.as_tensor(np.random.default_rng(3).standard_normal((4, 5)))
    assert torch.allclose(kernel(x).ntk, ns.compile(mlp(depth=1), backend="torch")(x).ntk, rtol=1e-12)
    assert kernel.backend == "native"
    with warned:
        other = ns.compile(batchnorm_mlp(1), fuse=True)
    with pytest.raises(ns.UnsupportedError, match='backend="native" has no instruction'):
        other(x[None])
