"""What a recursion computes once: multiples of sums, and expectations of homogeneous functions without their factor."""

from __future__ import annotations

import pytest
import sympy as sp

import netsor as ns
from netsor.compilers.derive.entries.functions_of import degree
from netsor.functions import as_function
from netsor.programs import cnn, mlp

Z = sp.Symbol("z", real=True)


@pytest.mark.parametrize(
    ("phi", "want"),
    [
        ("relu", 1), ("abs", 1), ("leaky_relu", 1), ("step", 0), ("sign", 0), ("tanh", None), ("erf", None),
    ],
)  # fmt: skip
def test_degree(phi: str, want: int | None) -> None:
    """f(c·z) = c^p·f(z) is seen through the definitions of the functions."""
    assert degree(as_function(phi).sym(Z)) == want


def test_degree_of_expressions() -> None:
    relu, step = ns.relu.sym, ns.step.sym
    assert degree(relu(Z) - 3 * relu(-Z) + Z) == 1
    assert degree(Z * step(Z) + relu(2 * Z)) == 1
    assert degree(Z**2 * step(Z)) == 2
    assert degree(relu(Z) + step(Z)) is None
    assert degree(relu(Z + 1)) is None
    assert degree(sp.Integer(3)) == 0


def test_each_window_sum_once() -> None:
    """Θ(h) = K(h)/σ² + σ²·Σ Θ(x): two window sums a layer, one in the first."""
    for depth in (1, 2, 4):
        source = ns.compile(cnn(depth=depth, var_w=2 / 9, readout="mean")).source
        pairs = source[source.index("def pairs") : source.index("def kernel")]
        assert pairs.count("rt.box(") == 2 * depth - 1


def test_arguments_without_factor() -> None:
    """E relu·relu and E step·step of the same Gaussians have the same arguments, whatever the weights' variance."""
    source = ns.compile(mlp(depth=3, phi="relu", var_w=1.7, var_b=0)).source
    pairs = source[source.index("def pairs") : source.index("def kernel")]
    arguments = [
        line.split("rt.E2(")[1].split(", ", 2)[2].split(", same")[0] for line in pairs.splitlines() if "rt.E2(" in line
    ]
    assert len(arguments) == 6
    assert len(set(arguments)) == 3
    assert not any("*" in a for a in arguments)
