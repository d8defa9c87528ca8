"""Expectations of several jointly Gaussian variables against an independent quadrature, within the stated bounds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad
from torch import Tensor

import netsor as ns
from netsor import programs
from netsor.compilers.expectation import record
from netsor.compilers.expectation.quadrature.several import joint

COVARIANCE = np.array([[1.3, 0.6], [0.6, 0.8]])
Two = Callable[[Tensor, Tensor], Tensor]


def reference(f: Two, lines: Sequence[tuple[float, float]] = ()) -> float:
    """E f(u, v) by scipy's adaptive rule on the pieces between the lines u = a and v = b."""
    low = np.linalg.cholesky(COVARIANCE)
    inverse = np.linalg.inv(COVARIANCE)
    scale = 1 / (2 * np.pi * low[0, 0] * low[1, 1])
    us, vs = ([-11.0, *sorted({x[i] for x in lines}), 11.0] for i in (0, 1))

    def density(v: float, u: float) -> float:
        z = np.array([u, v])
        value = f(torch.tensor(u, dtype=torch.float64), torch.tensor(v, dtype=torch.float64))
        return float(float(value) * scale * np.exp(-0.5 * z @ inverse @ z))

    pieces = [(a, b, c, d) for a, b in pairwise(us) for c, d in pairwise(vs)]
    return float(sum(dblquad(density, *p, epsabs=1e-9, epsrel=1e-8)[0] for p in pieces))


CASES: dict[str, tuple[Two, tuple[int, ...] | None, tuple[tuple[float, float], ...], str]] = {
    "smooth": (lambda u, v: torch.tanh(u * v + v), (), (), "quadrature"),
    "kinks at zero": (lambda u, v: torch.relu(u) * torch.tanh(u * v), (0,), ((0.0, 0.0),), "quadrature"),
    "kinks elsewhere": (lambda u, v: torch.relu(u - 1) * torch.tanh(u * v), None, ((1.0, 0.0),), "sampled"),
}


@pytest.mark.parametrize("name", list(CASES))
def test_within_the_stated_bound(name: str) -> None:
    f, kinked, lines, method = CASES[name]
    triangle = [torch.tensor([c], dtype=torch.float64) for c in (1.3, 0.6, 0.8)]
    with record() as log:
        value = float(joint(f, triangle, (None, None), kinked))
    ((found, bound),) = log
    assert found == method
    scale = reference(lambda u, v: f(u, v) ** 2, lines) ** 0.5
    assert abs(value - reference(f, lines)) <= bound * scale + 2e-9  # the reference's own tolerance


def test_a_rule_whose_bound_fails_gives_way_to_sampling() -> None:
    """Kinks at zero that the caller did not name: the product rule sees its own error."""
    triangle = [torch.tensor([c], dtype=torch.float64) for c in (1.3, 0.6, 0.8)]
    with record() as log:
        joint(lambda u, v: torch.relu(u) * torch.sign(v), triangle, (None, None), ())
    assert [method for method, _ in log] == ["sampled"]


def test_compiled_kinks_away_from_zero_are_not_called_quadrature() -> None:
    """A user's function with a kink at 1, of two dependent nodes: the number says that it is sampled."""
    result = ns.compile(hinge())(X, get="nngp")
    assert "sampled" in result.method and result.error is not None and result.error > 1e-5


X = torch.tensor([[1.0, 0.5, -0.3]], dtype=torch.float64)


def hinge() -> ns.Program:
    phi = ns.function("hinge", lambda z: ns.relu(z - 1))
    p = ns.Program("hinge")
    n = p.width("n")
    x = p.data("x")
    h = p.matrix("W", n, x) @ x
    p.output(p.readout("v", n), phi(h) * ns.tanh(h * (h + p.matrix("U", n, x) @ x)))
    return p


def test_sampling_takes_the_options_of_the_kernel() -> None:
    """`seed`, `samples` and `tol` of ns.compile; runs agree within their errors, which fall with samples."""
    runs = [ns.compile(hinge(), samples=2**12, seed=s)(X, get="nngp") for s in (0, 0, 1)]
    assert torch.equal(runs[0].nngp, runs[1].nngp)
    assert not torch.equal(runs[0].nngp, runs[2].nngp)
    many = ns.compile(hinge(), samples=2**18)(X, get="nngp")
    fine = ns.compile(hinge(), tol=3e-5)(X, get="nngp")
    assert many.error is not None and fine.error is not None
    assert fine.error <= 3 * 3e-5
    sigma = float(X.square().mean().sqrt())
    h = np.linspace(1, 12 * sigma, 100_001)
    largest = np.trapezoid((h - 1) ** 4 * np.exp(-((h / sigma) ** 2) / 2) / sigma / np.sqrt(2 * np.pi), h) ** 0.5
    for run in (*runs, many):
        assert run.error is not None and run.error >= many.error
        assert abs(float(run.nngp) - float(fine.nngp)) <= (run.error + fine.error) * largest


def test_derivation_leaves_the_recursion_limit_alone() -> None:
    before = sys.getrecursionlimit()
    ns.derive(programs.mlp(120))
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("d", [1e-3, 1e-5, 1e-6, 1e-7, 1e-9])
def test_small_directions_that_others_carry_are_kept(d: float) -> None:
    """u₁ = u₀ + d·u₂: E sin(u₁u₂) = d E u₂² exp(−u₂²/2) + O(d³), Cov(u₁, u₂) = d being all that there is of it."""
    triangle = [torch.tensor([c], dtype=torch.float64) for c in (1.0, 1.0, 0.0, 1 + d * d, d, 1.0)]
    with record() as log:
        value = float(joint(lambda a, b, c: torch.sin(b * c), triangle, (None, None, None), ()))
    assert abs(value - d / 8**0.5) <= d**3 + log[0][1] + 1e-15


def test_what_is_dropped_counts_as_an_error() -> None:
    """relu(u)·relu(−v), v = u + √s·w: E is of the order s^{3/2}, that of steps √s."""
    s = 5e-14
    triangle = [torch.tensor([c], dtype=torch.float64) for c in (1.0, 1.0, 1.0 + s)]
    with record() as log:
        value = float(joint(lambda a, b: (torch.sign(a) - torch.sign(b)) ** 2, triangle, (None, None), (0, 1)))
    exact = 4 / np.pi * np.arctan(s**0.5)
    assert abs(value - exact) <= log[0][1] * 2
