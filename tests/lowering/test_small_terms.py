"""Terms of the NTK that are small beside their siblings keep their own digits.

In a residual network of inputs that are nearly orthogonal the term of the first matrix is as small as their product,
that of the readout is not. Each is compared with the recursion in 40 digits, relative to itself.
"""

from __future__ import annotations

from typing import Any, Literal

import mpmath as mp
import pytest
import torch

import netsor as ns
from netsor.programs import resnet

DIGITS = {torch.float64: 2e-14, torch.float32: 5e-6}
N = 12


def kappa(k: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """E relu², E relu·relu, E step·step and E relu of two variables of one variance."""
    variance, covariance = k
    rho = covariance / variance
    angle = mp.pi - mp.acos(rho)
    both = variance * (mp.sqrt(1 - rho**2) + rho * angle) / (2 * mp.pi)
    return variance / 2, both, angle / (2 * mp.pi), mp.sqrt(variance / (2 * mp.pi))


def terms(first: tuple[Any, Any], depth: int, var: Any) -> dict[str, Any]:
    """x^l = x^{l−1} + relu(W^l x^{l−1}): the terms of two inputs of one norm; x^{l−1} and the layer are independent."""
    k, mean, layers = first, mp.mpf(0), []
    for _ in range(depth):
        own, both, slope, added = kappa((var * k[0], var * k[1]))
        layers.append((k[1], slope))
        k = k[0] + own + 2 * mean * added, k[1] + both + 2 * mean * added
        mean += added
    found, back = {"v": k[1]}, mp.mpf(1)
    for number, (below, slope) in reversed(list(enumerate(layers, 1))):
        found[f"W{number}"] = below * slope * back
        back *= 1 + var * slope
    found["W0"] = first[1] * back
    return found


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("dtype", DIGITS)
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("small", [1e-2, -1e-5, 2e-9, -3e-12])
def test_every_term_to_its_own_digits(
    small: float, depth: int, dtype: torch.dtype, backend: Literal["torch", "native"]
) -> None:
    var = 2
    x = torch.eye(N, dtype=dtype)
    x += small * torch.roll(x, 1, 1)  # neighbors have the product `small`, up to the ends of the ring
    with mp.workdps(40):
        c = mp.mpf(float(x[0, 1]))
        expected = terms(((1 + c**2) / N, c / N), depth, mp.mpf(var))
    for scale in (1.0, 1e-3, 1e3):
        found = ns.compile(resnet(depth, "relu", var_w=var), backend=backend)(scale * x, get="terms").terms
        for name, value in expected.items():
            off = found[name][0, 1].double() / (scale**2 * float(value)) - 1
            assert abs(float(off)) <= DIGITS[dtype], name
