"""Small odd programs, exactly: the compiled kernels against the literal Master Theorem, and its C/D terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor.compilers.compile import compile
from netsor.compilers.expectation import catalogue
from netsor.compilers.expectation.engine import E2, E11
from netsor.compilers.reference import reference


def assert_exact(p: ns.Program, x: Any, x2: Any = None, tolerance: float = 1e-9) -> None:
    """NNGP, NTK and every term of the compiled program are those of the reference interpreter."""
    expected = reference(ns.backprop(p), x, x2)
    found = compile(p)(x, x2, get=("nngp", "ntk", "terms"))
    assert expected.ntk is not None and found.nngp is not None and found.ntk is not None and found.terms is not None
    size = np.abs(expected.ntk).max()
    assert np.allclose(found.nngp, expected.nngp, rtol=0, atol=tolerance * np.abs(expected.nngp).max())
    assert np.allclose(found.ntk, expected.ntk, rtol=0, atol=tolerance * size)
    for name, value in expected.terms.items():
        assert np.allclose(found.terms.get(name, 0), value, rtol=0, atol=tolerance * size), name


# ---------------------------------------------------------------- expectations at the edge of the diagonal

KINKED = {
    "relu": catalogue.relu(), "step": catalogue.step(), "elu": catalogue.elu(), "leaky_relu": catalogue.leaky_relu(0.2)
}  # fmt: skip


@pytest.mark.parametrize("f", KINKED)
@pytest.mark.parametrize("g", KINKED)
def test_the_diagonal_may_be_off_by_rounding(f: str, g: str) -> None:
    """A conditional mean of ±1e-17 beside a jump is 0: which side it falls on is rounding."""
    rng = np.random.default_rng(0)
    k, m = (torch.as_tensor(rng.uniform(0.3, 3, 200)) for _ in range(2))

    def near(value: torch.Tensor) -> torch.Tensor:
        return value * (1 + torch.as_tensor(rng.integers(-3, 4, 200) * 1.1e-16))

    for mean in (m, -m):
        exact = E11(KINKED[f], KINKED[g], k, mean)
        found = E2(KINKED[f], KINKED[g], near(k), near(k), near(k), near(mean), near(mean))
        assert torch.allclose(found, exact, rtol=1e-7 if f == g == "step" else 1e-12, atol=1e-12)
