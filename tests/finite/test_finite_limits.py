"""Compiled limits against networks of finite width: correlated branches, windows, inputs of different size.

The nonlinear branches here share their Gaussian vectors; a recursion that treats them as independent, or goes through
`φ(ψ(h))` line by line, is 10 to 40% off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor.compilers.compile import compile
from netsor.compilers.experiment.simulate import simulate
from netsor.layers import attention, avg_pool, concat, conv, dense, global_avg_pool, layer_norm
from netsor.programs import cnn, cntk, gcn, rnn, transformer

WIDTH, SEEDS = 256, 24


def meets_finite_width(p: ns.Program, x: Any, width: int = WIDTH) -> None:
    """NNGP and NTK are the means over networks of finite width, and the NTK is the sum of its D·C terms."""
    result: Any = compile(p)(x, get=("nngp", "ntk", "terms"))
    terms = sum(result.terms.values())
    assert float((terms - result.ntk).abs().max()) <= 1e-9 * float(result.ntk.abs().max())
    found = simulate(p, x, [width], SEEDS, limit=result, methods=("autograd",), progress=False)
    for key in ("nngp", "ntk_autograd"):
        samples, limit = found.kernels(key, width), found.limits[key.removesuffix("_autograd")]
        scale = float(torch.linalg.vector_norm(limit))
        error = 5 * samples.std(0) / SEEDS**0.5 + 4 * scale / width / len(limit)
        assert bool(((samples.mean(0) - limit).abs() <= error).all()), f"{key}: {samples.mean(0)} is not {limit}"
        assert float(torch.linalg.vector_norm(error)) <= 0.5 * scale


# ---------------------------------------------------------------- correlated branches


def after_first_layer(branch: Callable[[Any], Any]) -> ns.Program:
    """h = W1 ξ, y = relu(W2 branch(h) + b2), f = v·y/√n."""
    p = ns.Program("branches")
    n = p.width("n")
    x = p.data("x")
    h = p.let("h", p.matrix("W1", n, x, var=1.3) @ x)
    y = ns.relu(dense(branch(h), n, "W2", var=1.5, bias_var=0.1))
    p.output(p.readout("v", n), y)
    return p


BRANCHES: dict[str, Callable[[Any], Any]] = {
    "relu(h + h)": lambda h: ns.relu(h + h),
    "h * h": lambda h: h * h,
    "relu(h) * erf(h)": lambda h: ns.relu(h) * ns.erf(h),
    "tanh(h + relu(h))": lambda h: ns.tanh(h + ns.relu(h)),
    "sin(relu(h))": lambda h: ns.sin(ns.relu(h)),
    "h + abs(h)": lambda h: h + ns.abs(h),
    "concat(h, h)": lambda h: concat(h, h),
    "concat(relu(h), h)": lambda h: concat(ns.relu(h), h),
}


@pytest.mark.parametrize("branch", BRANCHES)
def test_branches_of_one_vector(branch: str) -> None:
    x = np.random.default_rng(1).normal(size=(3, 4))
    meets_finite_width(after_first_layer(BRANCHES[branch]), x)


def test_one_matrix_used_twice_with_a_skip() -> None:
    p = ns.Program("twice")
    n = p.width("n")
    data = p.data("x")
    x = p.matrix("W1", n, data, var=1.3) @ data
    W = p.matrix("W", n, n, var=0.8)
    x = x + ns.erf(W @ x)
    x = x + ns.erf(W @ x)
    p.output(p.readout("v", n), ns.relu(dense(x, n, "W2", bias_var=0.1)))
    meets_finite_width(p, np.random.default_rng(2).normal(size=(3, 4)))


@pytest.mark.parametrize("flat", [False, True])
def test_convolution_then_the_sum_with_its_average_pool(flat: bool) -> None:
    p = ns.Program("pooled")
    n = p.width("n")
    x = ns.relu(conv(p.data("x", axes=("row",)), n, "W1", "row"))
    x = x + avg_pool(x, {"row": 3}, stride=1, padding="same")
    x = ns.relu(conv(x, n, "W2", "row", bias_var=0.1))
    if flat:
        p.output(p.readout("v", n, axes=("row",)), x)
    else:
        p.output(p.readout("v", n), x.mean("row"))
    meets_finite_width(p, np.random.default_rng(3).normal(size=(2, 6, 3)))


# ---------------------------------------------------------------- windows

WINDOWS: dict[str, dict[str, Any]] = {
    "stride 2": {"stride": 2},
    "dilation 2": {"dilation": 2},
    "stride 2, dilation 2": {"stride": 2, "dilation": 2},
    "stride 2, circular": {"stride": 2, "padding": "circular"},
    "padding 2": {"kernel": 2, "padding": 2},
}


@pytest.mark.parametrize("readout", ["flatten", "mean"])
@pytest.mark.parametrize("window", WINDOWS)
def test_strided_and_dilated_convolutions(window: str, readout: Any) -> None:
    p = cnn(depth=2, axes=("row",), readout=readout, var_b=0.1, **WINDOWS[window])
    meets_finite_width(p, np.random.default_rng(4).normal(size=(2, 7, 2)))


def test_a_strided_convolution_of_images() -> None:
    p = cnn(depth=2, stride=(2, 1), dilation=(1, 2), readout="mean", var_w=0.3)
    meets_finite_width(p, np.random.default_rng(5).normal(size=(2, 5, 4, 2)), width=128)


# ---------------------------------------------------------------- inputs of different size


def sequences(*lengths: int, seed: int = 6) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(t, 3)) for t in lengths]


def attention_over_states() -> ns.Program:
    p = ns.Program("states")
    n = p.width("n")
    x = p.data("x", axes=("token",))
    u = p.matrix("U", n, x) @ x
    W = p.matrix("W", n, n)
    s = p.scan("token", 0, lambda previous: ns.erf(W @ previous + u))
    p.output(p.readout("v", n), layer_norm(attention(s, s, s, "token") + s, 0.1).mean("token"))
    return p


SEQUENCE_PROGRAMS: dict[str, Callable[[], ns.Program]] = {
    "transformer": transformer,
    "rnn, last": lambda: rnn("erf"),
    "rnn, mean": lambda: rnn("relu", readout="mean", var_w=0.5, var_b=0.2),
    "attention over states": attention_over_states,
    "cnn, flatten": lambda: cnn(depth=2, axes=("token",), var_b=0.1),
    "cnn, mean": lambda: cnn(depth=2, axes=("token",), stride=2, readout="mean"),
}


@pytest.mark.parametrize("name", SEQUENCE_PROGRAMS)
def test_sequences_of_seven_and_nine_tokens(name: str) -> None:
    p, x = SEQUENCE_PROGRAMS[name](), sequences(7, 9)
    k = compile(p)
    both, apart = k(x), [k(s[None]) for s in x]
    for key in ("nngp", "ntk"):
        value = getattr(both, key)
        assert value.shape == (2, 2)
        assert torch.equal(value, value.T)
        assert [float(value[i, i]) for i in range(2)] == [pytest.approx(float(getattr(a, key))) for a in apart]
    meets_finite_width(p, x, width=128)


def test_graphs_of_different_order() -> None:
    rng = np.random.default_rng(7)
    path = np.diag(np.ones(3), 1)
    triangle = np.ones((3, 3)) - np.eye(3)
    graphs = {
        "x": [rng.normal(size=(4, 3)), rng.normal(size=(3, 3))],
        "A": [path + path.T, triangle],
    }
    for readout in ("sum", "mean"):
        meets_finite_width(gcn(readout=readout, var_b=0.2), graphs, width=128)


@pytest.mark.parametrize("readout", ["flatten", "mean"])
def test_images_with_an_all_zero_border(readout: Any) -> None:
    images = np.zeros((3, 6, 6, 2))
    images[:, 2:4, 2:4] = np.random.default_rng(8).normal(size=(3, 2, 2, 2))
    images[2, :, :] = 0.0  # and one that is zero everywhere
    for p in (cnn(depth=2, readout=readout, var_w=0.3), cntk(2, readout=readout, train_ends=True)):
        x = torch.tensor(images, requires_grad=True)
        result: Any = compile(p)(x)
        assert bool(torch.isfinite(result.ntk).all())
        (gradient,) = torch.autograd.grad(result.ntk.sum() + result.nngp.sum(), x)
        assert bool(torch.isfinite(gradient).all())
        meets_finite_width(p, images, width=64)
        assert not result.nngp[2].any()


def test_images_of_different_size_and_a_global_pool() -> None:
    rng = np.random.default_rng(9)
    p = ns.Program("pooled")
    n = p.width("n")
    x = ns.relu(conv(p.data("x", axes=("row", "col")), n, "W1", ("row", "col"), var=0.3))
    p.output(p.readout("v", n), global_avg_pool(x, ("row", "col")))
    meets_finite_width(p, [rng.normal(size=(4, 3, 2)), rng.normal(size=(3, 5, 2))], width=128)
