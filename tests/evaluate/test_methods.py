"""How every kernel of the built-in programs is obtained: no exact rule gives way to a weaker one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor import programs
from netsor.compilers.evaluate.results import KernelResult
from netsor.layers import batch_norm
from netsor.programs import (
    batchnorm_mlp,
    cnn,
    cntk,
    gcn,
    gia_counterexample,
    gru,
    lstm,
    maxpool_cnn,
    mlp,
    resnet,
    rnn,
    tied_autoencoder,
    transformer,
)

CLOSED, SERIES, RADIAL, SAMPLED = "closed form", "hermite+quadrature", "closed form+quadrature", "sampled"
# The largest error a method may state, relative to √(E f² E g²). The radial rule's is that of r⁻⁴ at ε = 1e-5.
ERRORS = {CLOSED: None, SERIES: 1e-12, RADIAL: 5e-6}
SAMPLES = 2**10


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


FLAT, SEQUENCE, ROW, IMAGE = normal(2, 3), normal(2, 3, 3), normal(2, 4, 2), normal(2, 4, 4, 3)
GRAPH = {"x": normal(2, 3, 2), "A": np.array([[[1, 1, 0], [1, 1, 1], [0, 1, 1]]] * 2, dtype=float)}

# Closed forms exist for the relu family, elu, erf, gelu, sines, exponentials and polynomials; a single smooth argument
# has a series, whose diagonal is 1-D quadrature; homogeneous functions after batchnorm have the radial rule, with
# factors γ and a shift β of 0 too. Gates by previous states, maxima, tanh after batchnorm and relu after a shift that
# is not 0 have none of these.
TABLE: dict[str, tuple[ns.Program, Any, str]] = {
    "mlp": (mlp(2, "relu"), FLAT, CLOSED),
    **{f"mlp {f}": (mlp(2, f), FLAT, CLOSED) for f in ("erf", "gelu", "elu", "abs", "sin", "cos", "square", "cube")},
    **{f"mlp {f}": (mlp(2, f), FLAT, CLOSED) for f in ("gaussian", "identity")},
    **{f"mlp {f}": (mlp(2, f), FLAT, SERIES) for f in ("tanh", "sigmoid", "silu", "softplus")},
    "mlp tied": (mlp(3, "erf", tied=True), FLAT, CLOSED),
    "mlp tied tanh": (mlp(3, "tanh", tied=True), FLAT, SERIES),
    "resnet": (resnet(2), FLAT, CLOSED),
    "resnet pre erf": (resnet(2, "erf", "pre", final_phi="relu"), FLAT, CLOSED),
    "resnet tanh": (resnet(2, "tanh"), FLAT, SERIES),
    "rnn": (rnn(), SEQUENCE, SERIES),
    "rnn relu mean": (rnn("relu", "mean"), SEQUENCE, CLOSED),
    "gru": (gru(), SEQUENCE, SAMPLED),
    "lstm": (lstm(), SEQUENCE, SAMPLED),
    "cnn": (cnn(2), IMAGE, CLOSED),
    "cnn tanh mean": (cnn(2, "tanh", axes=("row",), readout="mean"), ROW, SERIES),
    "cntk": (cntk(2), IMAGE, CLOSED),
    "maxpool_cnn": (maxpool_cnn(1, axes=("row",)), ROW, SAMPLED),
    "gcn": (gcn(2), GRAPH, CLOSED),
    "gcn mean tanh": (gcn(2, "tanh", readout="mean"), GRAPH, SERIES),
    "transformer": (transformer(2), SEQUENCE, CLOSED),
    "transformer eps": (transformer(1, eps=1e-3), SEQUENCE, CLOSED),
    "transformer tanh": (transformer(1, "tanh"), SEQUENCE, SERIES),
    "batchnorm_mlp": (batchnorm_mlp(2), SEQUENCE, RADIAL),
    "batchnorm_mlp abs": (batchnorm_mlp(1, "abs"), SEQUENCE, RADIAL),
    "batchnorm_mlp tanh": (batchnorm_mlp(1, "tanh"), SEQUENCE, SAMPLED),
    "tied_autoencoder": (tied_autoencoder(), FLAT, SERIES),
    "tied_autoencoder relu": (tied_autoencoder("relu"), FLAT, CLOSED),
    "gia_counterexample": (gia_counterexample(), FLAT, CLOSED),
}


def affine_batchnorm(beta: float) -> ns.Program:
    """relu(γ BN(h) + β) with γ ~ N(1, 1/2) and β ~ N(0, beta), both trained."""
    p = ns.Program("affine_batchnorm")
    n = p.width("n")
    x = p.data("x", axes=("batch",))
    g = p.vector("gamma", n, mean=1, var=0.5, trainable=True)
    b = p.bias("beta", n, var=beta)
    h = p.let("h", p.matrix("W", n, x) @ x)
    p.output(p.readout("v", n), p.let("y", ns.relu(g * batch_norm(h, "batch", 1e-2) + b)))
    return p


TABLE["batchnorm, affine"] = (affine_batchnorm(0), SEQUENCE, RADIAL)
TABLE["batchnorm, affine, random shift"] = (affine_batchnorm(0.5), SEQUENCE, SAMPLED)


def stated(result: KernelResult, method: str) -> None:
    assert result.method == method
    if method == SAMPLED:
        names = [name for name, _ in result.items()]
        assert result.methods == dict.fromkeys(names, SAMPLED)
        assert set(result.errors) == set(names)
        return
    assert not result.errors
    largest = ERRORS[method]
    assert result.error is None if largest is None else result.error is not None and result.error <= largest


@pytest.mark.parametrize("get", ["nngp", "ntk", "terms"])
@pytest.mark.parametrize("name", TABLE)
def test_the_method_of_every_kernel(name: str, get: str) -> None:
    p, x, method = TABLE[name]
    result = ns.compile(p, assume_gia=True, samples=SAMPLES)(x, get=get)
    stated(result, method)
    for _, value in result.items():
        assert bool(torch.isfinite(value).all())


def test_every_program_is_in_the_table() -> None:
    assert {name for name in programs.__all__ if name != "BUILTIN"} <= set(TABLE)


@pytest.mark.parametrize(
    "name", ["gru", "lstm", "maxpool_cnn", "batchnorm_mlp tanh", "batchnorm, affine, random shift"]
)
def test_what_is_sampled_has_no_rule(name: str) -> None:
    """Each of these is refused by the derivation, kernel by kernel."""
    p, _, _ = TABLE[name]
    for get in ("nngp", "ntk"):
        with pytest.raises(ns.UnsupportedError):
            ns.derive(p, get=get)
