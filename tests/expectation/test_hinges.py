"""Piecewise linear functions at any kinks, means, σ and ρ, against quadrature in 30 digits."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import mpmath as mp
import pytest
import torch
from torch import Tensor

from netsor.compilers import expectation as ex
from netsor.compilers.expectation.gauss import gauss
from netsor.compilers.expectation.quadrature import hinges, linear


class Kinked(NamedTuple):
    """slope·x + offset, and at each (place, jump, change of slope) what is added from there on."""

    slope: float
    offset: float
    kinks: tuple[tuple[float, float, float], ...]

    def fn(self) -> ex.Fn:
        def call(x: Tensor) -> Tensor:
            out = self.slope * x + self.offset
            for c, jump, change in self.kinks:
                out = out + torch.where(x > c, jump + change * (x - c), 0.0)
            return out

        return ex.function(call, kinks=tuple(c for c, _, _ in self.kinks), name="kinked")

    def mean(self, m: Any, s: Any) -> Any:
        """E f(m + s·n)."""
        total = self.slope * m + self.offset
        for c, jump, change in self.kinks:
            gap = m - c
            below = mp.ncdf(gap / s) if s else mp.mpf(gap > 0)
            total += jump * below + change * (gap * below + (s * mp.npdf(gap / s) if s else 0))
        return total


HARD_TANH = Kinked(0, -1, ((-1, 0, 1), (1, 0, -1)))
RELU6 = Kinked(0, 0, ((0, 0, 1), (6, 0, -1)))
WINDOW = Kinked(0, 0, ((-1, 1, 0), (1, -1, 0)))
MIXED = Kinked(0.5, 1, ((-2, 1, 0.25), (0.5, -3, -1), (3, 0, 2)))


def truth(f: Kinked, k: tuple[float, float, float], means: tuple[float, float]) -> Any:
    """E f(u)f(v) by panels in u that end at the kinks and where the conditional mean of v meets one."""
    k11, k22, k12 = map(mp.mpf, k)
    m1, m2 = map(mp.mpf, means)
    det = k11 * k22 - k12**2
    det = det if det > 2e-15 * k11 * k22 else mp.mpf(0)
    s1, slope, s = mp.sqrt(k11), k12 / mp.sqrt(k11), mp.sqrt(det / k11)
    ends = {mp.mpf(i) for i in range(-12, 13, 3)} | {(c - m1) / s1 for c, _, _ in f.kinks}
    for c, _, _ in f.kinks if slope else ():
        ends |= {((c - m2) + t * s) / slope for t in (-12, -6, -3, -1, 0, 1, 3, 6, 12)}
    edges = sorted(z for z in ends if -12 <= z <= 12)

    def integrand(z: Any) -> Any:
        return f.mean(m1 + s1 * z, mp.mpf(0)) * f.mean(m2 + slope * z, s) * mp.npdf(z)

    return mp.fsum(mp.quad(integrand, [a, b], maxdegree=5) for a, b in pairwise(edges))


CASES = [
    (HARD_TANH, (1e-3, 2.0), 1e-8, 1, (0.0, 0.0)),
    (HARD_TANH, (7.0, 3.0), 1e-5, -1, (0.7, -2.0)),
    (HARD_TANH, (1e2, 1e2), 1e-5, 1, (0.0, 0.0)),
    (HARD_TANH, (1e-8, 1e-8), 0.3, 1, (0.0, 0.0)),
    (RELU6, (30.0, 100.0), 1e-2, 1, (0.7, -2.0)),
    (RELU6, (1.0, 1.0), 1e-12, -1, (6.0, 0.0)),
    (WINDOW, (2.0, 0.5), 0.5, 1, (0.3, 0.9)),
    (WINDOW, (20.0, 20.0), 1e-12, 1, (0.0, 0.0)),
    (WINDOW, (1.0, 1.0), 0.0, 1, (0.5, 0.5)),
    (MIXED, (4.0, 1.5), 1e-2, -1, (0.7, -2.0)),
    (MIXED, (100.0, 30.0), 1e-8, 1, (0.0, 1.0)),
]


@pytest.mark.parametrize(("f", "sigmas", "gap", "side", "means"), CASES)
def test_against_quadrature(
    f: Kinked, sigmas: tuple[float, float], gap: float, side: int, means: tuple[float, float]
) -> None:
    """The error is within the bound, also where hinges cancel (large σ) and where they are far (small σ)."""
    k = (sigmas[0] ** 2, sigmas[1] ** 2, side * (1 - gap) * sigmas[0] * sigmas[1])
    with mp.workdps(30):
        own = [truth(f, (x, x, x), (m, m)) for x, m in zip(k[:2], means, strict=True)]
        scale = mp.sqrt(own[0] * own[1])
        want = float(truth(f, k, means) / scale)
    numbers = [torch.tensor(x, dtype=torch.float64) for x in (*k, *means)]
    found = hinges.expectation(f.fn(), f.fn(), gauss(*numbers))
    assert found is not None
    value, bound = found
    # an ulp of the covariance turns s by 1e-16/s, and a jump with it
    rounding = 1e-16 / math.sqrt(gap) if gap else 0.0
    assert bound <= 1e-9
    assert abs(float(value) / float(scale) - want) <= bound + rounding


@pytest.mark.parametrize("means", [(0.3, 0.0), (0.4, -1.2)])
@pytest.mark.parametrize("f", [HARD_TANH, MIXED._replace(kinks=((-2, 0, 0.25), (0.5, 0, -1), (3, 0, 2)))])
def test_gradients(f: Kinked, means: tuple[float, float]) -> None:
    """In inputs and means, against central differences of fourth order."""
    generator = torch.Generator().manual_seed(1)
    x = 3 * (1 + 0.2 * torch.randn(30, 3, generator=generator, dtype=torch.float64))
    weight = torch.randn(30, 30, generator=generator, dtype=torch.float64)
    fn = f.fn()

    def total(x: Tensor, m: Tensor) -> Tensor:
        k = (x * x).sum(1) / 3
        return (weight * ex.E2(fn, fn, k[:, None], k[None], x @ x.T / 3, m[0], m[1])).sum()

    at, m = x.clone().requires_grad_(), torch.tensor(means, dtype=torch.float64, requires_grad=True)
    gradients = torch.autograd.grad(total(at, m), (at, m))
    for which, place in ((0, (0, 0)), (0, (7, 2)), (1, (0,)), (1, (1,))):
        values = []
        for t in (-2, -1, 1, 2):
            moved = [x.clone(), m.detach().clone()]
            moved[which][place] += 1e-3 * t
            values.append(float(total(moved[0], moved[1])))
        a, b, c, d = values
        want, size = (a - 8 * b + 8 * c - d) / 12e-3, float(gradients[which].abs().max())
        assert math.isclose(want, float(gradients[which][place]), abs_tol=1e-7 * size)


def test_pieces_are_linear_everywhere() -> None:
    """Functions that look linear on whole numbers, near 0, or far from it have other pieces."""
    for call in (
        lambda x: x + torch.sin(math.pi * x),
        lambda x: torch.nn.functional.softplus(x - 100),
        lambda x: torch.exp(-((x - 5) ** 2)),
        torch.tanh,
    ):
        assert linear.pieces(call, ()) == ()
    assert linear.pieces(lambda x: 2 * x - 3, ()) == (linear.Piece(-math.inf, 2.0, -3.0),)
