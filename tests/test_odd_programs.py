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
    k, m = (torch.as_tensor(rng.uniform(0.3, 3, 20)) for _ in range(2))

    def near(value: torch.Tensor) -> torch.Tensor:
        return value * (1 + torch.as_tensor(rng.integers(-3, 4, 20) * 1.1e-16))

    for mean in (m, -m):
        exact = E11(KINKED[f], KINKED[g], k, mean)
        found = E2(KINKED[f], KINKED[g], near(k), near(k), near(k), near(mean), near(mean))
        assert torch.allclose(found, exact, rtol=1e-7 if f == g == "step" else 1e-12, atol=1e-12)


# ---------------------------------------------------------------- programs


def square(u: Any) -> Any:
    return u**2 + 0.5 * u - 0.3


def sequence() -> tuple[ns.Program, Any, Any, Any]:
    """A program over sequences, its width, its data, and an embedding of it."""
    p = ns.Program()
    n, x = p.width("n"), p.data("x", axes=("t",))
    return p, n, x, p.matrix("W", n, x) @ x


def test_mixes_that_are_not_square() -> None:
    """The gradients at the end depend on no sample: constants of their own, over two axes."""
    p, n, _, h = sequence()
    y = ns.mix([[1, 2, 0.5], [0, -1, 1]], square(h), "t")
    z = square(p.matrix("W2", n, n) @ y + p.bias("b", n, axes=y.dims))
    p.output(p.readout("v", n, axes=("t",)), ns.mix([[1, 2], [0, -1], [0.3, 0]], z, "t"))
    assert_exact(p, np.random.default_rng(0).normal(size=(2, 3, 2)))


def test_a_family_at_two_indices_in_one_product() -> None:
    """b[t] and b[key] are one vector where t = key, and both meet those of the other sample."""
    p, n, _, h = sequence()
    b = p.bias("b", n, axes=h.dims)
    z = square(h + b) * p.let("k", h + b).rename({"t": "key"}) + b
    y = square(p.matrix("W2", n, n) @ z)
    p.output(p.readout("v", n, axes=("t",)), y.sum("key"))
    x = np.random.default_rng(0).normal(size=(2, 2, 2))
    assert_exact(p, x[:1], x[1:])
