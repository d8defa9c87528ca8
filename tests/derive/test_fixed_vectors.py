"""Vectors of variance zero are their means: products with them are as Gaussian as what they multiply."""

from __future__ import annotations

import pytest
import torch

import netsor as ns
from netsor.functions import Function

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def program(f: Function, gain: bool) -> ns.Program:
    """f(γ ⊙ W x + β) with γ = 3/2 and β = 1/4, as vectors or as numbers."""
    p = ns.Program("gain")
    n, x = p.width("n"), p.data("x")
    h = p.matrix("W", n, x) @ x
    g, b = (p.vector(name, n, mean=mean, var=0) if gain else mean for name, mean in (("g", 1.5), ("b", 0.25)))
    p.output(p.readout("v", n), f(h * g + b))
    return p


@pytest.mark.parametrize("f", [ns.relu, ns.tanh, ns.gelu, ns.erf])
def test_a_fixed_gain_is_a_number(f: Function) -> None:
    """The same rule, so the same digits: no integral over the gain and the shift."""
    mine, theirs = (ns.compile(program(f, gain))(X) for gain in (True, False))
    for a, b in ((mine.nngp, theirs.nngp), (mine.ntk, theirs.ntk)):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
