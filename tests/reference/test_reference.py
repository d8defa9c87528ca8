"""The reference interpreter against the reference vectors, exact moments and finite width."""

from __future__ import annotations

import numpy as np
import pytest
from architectures import architecture
from load import assert_close, load

import netsor as ns
from netsor.compilers.experiment.simulate import simulate
from netsor.compilers.reference import reference
from netsor.errors import UnsupportedError

QUICK = (
    "mlp_identity2", "mlp_cube1", "mlp_poly1", "mlp_relu1_zero_sigma_b", "mlp_silu1", "mlp_abs2_special",
    "rnn_erf_last_T1", "rnn_erf_last_T2", "varwidth_relu_2layer", "resnet_ln_erf", "gated_erf_sigmoid_relu",
    "attn_tied_plain",
)  # fmt: skip
SLOW = (
    "mlp_erf1_nobias", "mlp_elu2", "mlp_tanh2", "mlp_erf4_scales", "tied_erf3_sum", "tied_relu3_last_tiedbias",
    "resnet_post_relu2", "cnn1d_relu1_vec", "rnn_relu_avg_T3_T5",
)  # fmt: skip


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_vectors(name: str) -> None:
    case, a = load(name), architecture(name)
    result = reference(ns.backprop(a.program), a.inputs)
    assert_close(result.nngp, case, "nngp")
    assert result.ntk is not None
    assert_close(result.ntk, case, "ntk")
    for key in case.keys("terms"):
        assert_close(result.terms[a.array(key.removeprefix("terms."))], case, key)


def one_layer(make: str) -> ns.Program:
    """f = v·x/√n with x made of one h = Wξ in two steps."""
    p = ns.Program(make)
    n, xi = p.width("n"), p.data("x")
    h = p.matrix("W", n, xi) @ xi
    r = p.let("r", ns.relu(h))
    x = {"sin_relu": lambda: ns.sin(r), "product": lambda: r * ns.erf(h), "skip": lambda: ns.tanh(h + r)}[make]()
    p.output(p.readout("v", n), p.let("y", x))
    return p.backward()


@pytest.mark.parametrize("make", ["sin_relu", "product", "skip"])
def test_two_functions_in_a_row_agree_with_finite_width(make: str) -> None:
    """Line by line, the tangent recursion is 12-32% off on these."""
    x = np.array([[0.9, -1.2, 0.4], [0.3, 1.1, 0.8]])
    p = one_layer(make)
    result = reference(p, x)
    found = simulate(p, x, [20_000], 8, limit=False)
    assert result.ntk is not None
    mean, spread = found.ntk.numpy(), found.kernels("ntk", 20_000).std(0).numpy() / 8**0.5
    assert np.all(np.abs(mean - result.ntk) < 5 * spread + 1e-3 * np.abs(result.ntk).max())
    assert spread.max() < 0.02 * np.abs(result.ntk).max()


def test_two_sets_of_inputs_are_a_block() -> None:
    p = architecture("mlp_relu1_nobias").program.copy().backward()
    x = np.array([[0.5, 1.0, -0.3, 0.2], [1.5, 0.1, 0.3, 0.0]])
    y = np.array([[0.1, -0.7, 0.9, 0.4]])
    whole, block = reference(p, np.concatenate([x, y])), reference(p, x, y)
    assert np.array_equal(whole.nngp[:2, 2:], block.nngp)
    assert whole.ntk is not None and block.ntk is not None
    assert np.array_equal(whole.ntk[:2, 2:], block.ntk)


def test_moments_of_polynomials_are_exact() -> None:
    """E (b + c)⁴ = 3 s² + 6 s m² + m⁴ with mean m and variance s of the sum."""
    p = ns.Program()
    n = p.width("n")
    b = p.vector("b", n, mean=1, var=2)
    c = p.vector("c", n, mean=-0.5, var=3, cov={b: 1.5})
    p.let("q", (b + c) ** 2)
    s, m = 8.0, 0.5
    assert reference(p).moment("q", "q")[0, 0] == pytest.approx(3 * s**2 + 6 * s * m**2 + m**4, rel=1e-14)


def test_output_axes() -> None:
    """Per-token outputs are the kernels of every pair of tokens."""
    p = ns.Program()
    n, xi = p.width("n"), p.data("x", axes=("token",))
    p.output(p.readout("v", n), ns.relu(p.matrix("W", n, xi) @ xi))
    x = np.array([[[1.0, 0.5], [0.2, -1.0]]])
    flat = ns.Program()
    n, xi = flat.width("n"), flat.data("x")
    flat.output(flat.readout("v", n), ns.relu(flat.matrix("W", n, xi) @ xi))
    a, b = reference(p.backward(), x), reference(flat.backward(), x[0])
    assert a.ntk is not None and b.ntk is not None
    assert a.nngp.shape == (1, 1, 2, 2) and np.allclose(a.nngp[0, 0], b.nngp, rtol=1e-13)
    assert np.allclose(a.ntk[0, 0], b.ntk, rtol=1e-13)


def test_output_axes_of_two_sizes() -> None:
    """Every position of one sample with every position of the other; the sides may have sizes of their own."""
    p = ns.Program()
    n, xi = p.width("n"), p.data("x", axes=("t",))
    p.output(p.readout("v", n), ns.relu(p.matrix("W", n, xi) @ xi))
    x, y = np.random.default_rng(0).normal(size=(2, 1, 3, 2))
    whole, block = reference(p.backward(), x), reference(p, x, y[:, :2])
    joint = reference(p, np.concatenate([x, y], 1))
    assert whole.ntk is not None and block.ntk is not None and joint.ntk is not None
    assert np.allclose(joint.nngp[0, 0, :3, :3], whole.nngp[0, 0], rtol=1e-13)
    assert np.allclose(joint.nngp[0, 0, :3, 3:5], block.nngp[0, 0], rtol=1e-13)
    assert np.allclose(joint.ntk[0, 0, :3, 3:5], block.ntk[0, 0], rtol=1e-13)
    with pytest.raises(UnsupportedError, match="outputs of different sizes on one side"):
        reference(p, [x[0], y[0, :2]])


def test_samples_of_different_size_share_their_arrays() -> None:
    """v is a family over the positions: f, f̄ meet up to the smaller size."""
    p = ns.Program()
    n, xi = p.width("n"), p.data("x", axes=("t",))
    p.output(p.readout("v", n, axes=("t",)), p.matrix("W", n, xi) @ xi)
    result = reference(p.backward(), [np.ones((3, 2)), np.ones((5, 2))])
    expected = np.array([[1, (3 / 5) ** 0.5], [(3 / 5) ** 0.5, 1]])
    assert np.allclose(result.nngp, expected, rtol=1e-14)
    assert result.ntk is not None and np.allclose(result.ntk, 2 * expected, rtol=1e-14)


def test_several_outputs() -> None:
    p = ns.Program()
    n, xi = p.width("n"), p.data("x")
    h, v = p.matrix("W", n, xi) @ xi, p.readout("v", n)
    p.output(v, h, name="f")
    p.output(v, 2 * h, name="g")
    result = reference(p.backward(), [[1.0, 2.0]])
    assert np.allclose(result.nngp[0, 0], 2.5 * np.array([[1, 2], [2, 4]]))
    assert result.ntk is not None and np.allclose(result.ntk[0, 0], 5 * np.array([[1, 2], [2, 4]]))


def test_three_gaussians_in_one_expectation_are_refused() -> None:
    p = ns.Program()
    n, xi = p.width("n"), p.data("x")
    h = [p.matrix(f"W{i}", n, xi) @ xi for i in range(3)]
    b = p.vector("b", n)
    p.output(p.readout("v", n), ns.tanh(h[0] + b) * ns.tanh(h[1] + b) * ns.tanh(h[2] + b))
    with pytest.raises(UnsupportedError, match="needs 3 Gaussian variables"):
        reference(p, [[1.0, 2.0]])


def test_transposes_in_the_forward_pass_are_refused() -> None:
    p = ns.Program()
    n, xi = p.width("n"), p.data("x")
    W = p.matrix("W", n, n)
    p.output(p.readout("v", n), W.T @ ns.tanh(W @ (p.matrix("U", n, xi) @ xi)))
    with pytest.raises(UnsupportedError, match="applies W transposed"):
        reference(p.backward(), [[1.0, 2.0]])
