"""Directions without variance: zero-variance trained arrays, equal rows and positions, batches of low rank.

A tangent need not lie in the range of the covariance of what it is a tangent of. References: direct draws of the
Jacobian, the backward map of Tensor Programs II, E.4 (as corrected), networks of finite width, the limit var → 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from engine_functions import relu
from torch import Tensor

import netsor as ns
from netsor import ir, programs
from netsor.compilers.expectation.radial import radial
from netsor.layers import batch_norm

Array = np.ndarray[Any, Any]
RELU = relu()


def tensor(x: Any) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def rows(count: int, features: int, seed: int, equal: bool = False) -> Array:
    x = np.random.default_rng(seed).standard_normal((count, features))
    if equal:
        x[1] = x[0]
    return np.asarray(x - x.mean(0))


BATCHES = {
    "low rank": (rows(5, 2, 1), rows(4, 2, 2)),
    "equal rows": (rows(4, 3, 3, equal=True), rows(5, 3, 4, equal=True)),
    "equal rows of low rank": (rows(5, 2, 5, equal=True), rows(5, 2, 6)),
}


def jacobian(z: Array, eps: float) -> Array:
    """∂_k relu(z_i)/r, r² = mean z² + eps, `[draw, i, k]`."""
    r2 = (z**2).mean(1) + eps
    out = -np.maximum(z, 0)[:, :, None] * z[:, None, :] / z.shape[1] * (r2**-1.5)[:, None, None]
    own = np.arange(z.shape[1])
    out[:, own, own] += (z > 0) * (r2**-0.5)[:, None]
    return np.asarray(out)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("name", BATCHES)
def test_the_radial_rule_against_draws_of_the_jacobian(name: str, same: bool) -> None:
    """E J Θ J̄ᵀ for a Θ without any structure; 5 standard errors of 100,000 draws."""
    one, two = BATCHES[name][0], BATCHES[name][0 if same else 1]
    rng = np.random.default_rng(7)
    theta, w = rng.standard_normal((len(one), len(two))), rng.standard_normal((100_000, one.shape[1]))
    values = np.einsum("nik,kl,njl->nij", jacobian(w @ one.T, 0.1), theta, jacobian(w @ two.T, 0.1), optimize=True)
    error = values.std(0) / len(w) ** 0.5
    s, t, x = (tensor(a @ b.T) for a, b in ((one, one), (two, two), (one, two)))
    found = radial(RELU, RELU, (0.5, 0.5), (0.1, 0.1), s, t, x, tensor(theta)).numpy()
    assert (np.abs(found - values.mean(0)) < 5 * error + 1e-12).all()


def backward_map(sigma: Array, delta: Array, eps: float) -> Array:
    """Δ′ = B∫ e^{−Bεs} det(I + 2sΣ)^{−1/2} G(Λ₁ + Λ₂ − Λ₃)G ds for relu, Σ = GΣG of any rank (errata to E.4)."""
    size = len(sigma)
    g = np.eye(size) - 1 / size
    w, q = np.linalg.eigh(g @ sigma @ g)
    w = np.where(w > 1e-12, w, 0)
    total = np.zeros((size, size))
    for u in 0.02 * np.arange(-200, 181):
        s = np.exp(np.pi / 2 * np.sinh(u))
        k = (q * (w / (1 + 2 * s * w))) @ q.T
        d = np.diag(k)
        root = np.sqrt(np.maximum(np.outer(d, d) - k**2, 0))
        root[root < 1e-7 * np.sqrt(np.outer(d, d))] = 0  # equal rows
        angle = np.pi - np.arctan2(root, k)
        v, slope = (root + k * angle) / (2 * np.pi), angle / (2 * np.pi)
        off = delta * (1 - np.eye(size))
        j = off * slope + np.diag(np.diag(delta) / 2 + (2 * off * root / (4 * np.pi * d[:, None])).sum(1))
        inner = delta * slope + 0.5 * s**2 * ((delta * v).sum() * k + 2 * k @ j @ k) - s * (k @ j + j @ k)
        weight = size * np.exp(-size * eps * s) / np.sqrt(np.prod(1 + 2 * s * w))
        total += 0.02 * np.pi / 2 * np.cosh(u) * s * weight * (g @ inner @ g)
    return total


@pytest.mark.parametrize("name", BATCHES)
def test_the_backward_map_of_a_singular_batch(name: str) -> None:
    """It is the transpose of the tangent map."""
    x = BATCHES[name][0]
    delta = np.random.default_rng(8).standard_normal((len(x), len(x)))
    delta, s, g = delta + delta.T, tensor(x @ x.T), np.eye(len(x)) - 1 / len(x)
    found = np.zeros_like(delta)
    for k, m in np.ndindex(*delta.shape):
        theta = tensor(np.outer(g[k], g[m]))
        found[k, m] = (tensor(delta) * radial(RELU, RELU, (0.5, 0.5), (0.01, 0.01), s, s, s, theta)).sum()
    np.testing.assert_allclose(found, backward_map(x @ x.T, delta, 0.01), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("pair", [(0, 0), (0, 1)])
@pytest.mark.parametrize("get", ["nngp", "ntk"])
def test_input_gradients_turn_the_range(get: str, pair: tuple[int, int]) -> None:
    """Five rows of two features: the range of their covariance moves with them."""
    rng = torch.Generator().manual_seed(3)
    x, step, weight = (torch.randn(*s, dtype=torch.float64, generator=rng) for s in ((2, 5, 2), (2, 5, 2), (5, 5)))
    kernel = ns.compile(programs.batchnorm_mlp(1, "relu", 0.1))

    def f(z: Tensor) -> Tensor:
        out: Tensor = (getattr(kernel(z, get=(get,)), get)[pair] * weight).sum()
        return out

    x.requires_grad_()
    (grad,) = torch.autograd.grad(f(x), x)
    x = x.detach()
    slope = (f(x + 1e-5 * step) - f(x - 1e-5 * step)) / 2e-5
    torch.testing.assert_close((grad * step).sum(), slope, rtol=1e-6, atol=1e-8)


def test_gradients_at_equal_batches_belong_to_one_of_them() -> None:
    rng = torch.Generator().manual_seed(4)
    x, step = (torch.randn(1, 4, 6, dtype=torch.float64, generator=rng) for _ in range(2))
    kernel = ns.compile(programs.batchnorm_mlp(1, "relu", 0.1))

    def f(z: Tensor) -> Tensor:
        out: Tensor = kernel(z, x, get="nngp").nngp[0, 0, 0].sum()
        return out

    moving = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(f(moving), moving)
    slope = (f(x + 1e-4 * step) - f(x - 1e-4 * step)) / 2e-4
    torch.testing.assert_close((grad * step).sum(), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_batch_in_another_order(depth: int, offset: float) -> None:
    """A permuted batch, with two equal rows: a permuted kernel, to rounding."""
    x = tensor(rows(6, 3, 9, equal=True))[None] + offset
    order = [4, 1, 0, 5, 2, 3]
    kernel = ns.compile(programs.batchnorm_mlp(depth, "relu", 0.1))
    found, wanted = kernel(x, x[:, order]), kernel(x)
    for name in ("nngp", "ntk"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name)[..., order], rtol=0, atol=1e-13)


# ---------------------------------------------------------------- trained arrays of variance 0


def positions(phi: ns.Function, var: float = 0) -> ns.Program:
    """BN(Wx + b[pos]), b initialised at 0 and trained."""
    p = ns.Program("positions")
    n = p.width("n")
    x = p.data("x", axes=("pos",))
    b = p.vector("b", n, var=var, axes=("pos",), trainable=True)
    p.output(p.readout("v", n), p.let("y", phi(batch_norm(p.matrix("W", n, x) @ x + b, "pos", 0.1))))
    return p


def branch(phi: ns.Function, var: float = 0) -> ns.Program:
    """BN(Wx + U relu(Vx)), U initialised at 0 and trained."""
    p = ns.Program("branch")
    n = p.width("n")
    x = p.data("x", axes=("pos",))
    a = ns.relu(p.matrix("V", n, x) @ x)
    h = p.matrix("W", n, x) @ x + p.matrix("U", n, a, var=var) @ a
    p.output(p.readout("v", n), p.let("y", phi(batch_norm(h, "pos", 0.1))))
    return p


EQUAL = tensor(rows(5, 2, 10))[None].clone()
EQUAL[0, 1] = EQUAL[0, 2] = EQUAL[0, 0]
LOW = tensor(rows(5, 2, 11))[None]
CASES = {"positions": (positions, EQUAL), "branch": (branch, LOW)}


@pytest.mark.parametrize("phi", [ns.relu, ns.identity, ns.abs], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_variance_zero_is_the_limit(name: str, phi: ns.Function) -> None:
    """Angles between equal rows open like √var."""
    make, x = CASES[name]
    k = [ns.compile(make(phi, v))(x).ntk for v in (0, 1e-10)]
    torch.testing.assert_close(k[0], k[1], rtol=0, atol=2e-5 * float(k[0].abs().max()))


def meets(p: ns.Program, x: Any, result: Any, method: str = "ntk_autograd", width: int = 128, seeds: int = 24) -> None:
    """The NTK is the mean over networks, within 5 standard errors, those of the limit, and 4/width of its size."""
    found = ns.simulate(p, x, [width], seeds, limit=False, progress=False).kernels(method, width)
    limit = result.ntk
    scale = float(torch.linalg.vector_norm(limit))
    error = 5 * found.std(0) / seeds**0.5 + 4 * scale / width
    if "ntk" in result.errors:
        error = error + 5 * result.errors["ntk"]
    assert bool(((found.mean(0) - limit).abs() <= error).all()), f"{found.mean(0)} is not {limit}"


@pytest.mark.parametrize("phi", [ns.relu, ns.tanh], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_variance_zero_against_networks(name: str, phi: ns.Function) -> None:
    """By the radial rule (relu) and sampled (tanh)."""
    make, x = CASES[name]
    p = make(phi)
    meets(p, x, ns.compile(p, samples=2**13)(x), width=512)


def with_variance(p: ns.Program, name: str, var: ir.Number) -> ns.Program:
    lines = [
        replace(line, var=var) if isinstance(line, ir.InputMatrix | ir.InputVector) and line.out.name == name else line
        for line in p.lines
    ]
    return ns.Program.from_parts(p.name, p.widths, lines, p.outputs, p.gradients, p.returned, p.functions)


def trained(p: ns.Program) -> list[str]:
    return [
        line.out.name
        for line in p.lines
        if isinstance(line, ir.InputMatrix | ir.InputVector) and line.trainable
    ]  # fmt: skip


SMALL: dict[str, dict[str, Any]] = {
    "mlp": {}, "rnn": {}, "cnn": {"depth": 2}, "cntk": {"convolutions": 2}, "resnet": {"depth": 2}, "transformer": {},
    "batchnorm_mlp": {"eps": 0.1}, "gru": {}, "lstm": {}, "gcn": {}, "maxpool_cnn": {"depth": 1},
}  # fmt: skip
SAMPLED = ("gru", "lstm", "maxpool_cnn")


def inputs(p: ns.Program, seed: int = 1) -> Any:
    """Two samples with three elements on every axis, two of them equal (or two equal samples and another)."""
    rng = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    for line in p.lines:
        if isinstance(line, ir.Data):
            shape = [3 for _ in line.out.dims]
            x = torch.randn(2 if shape else 3, *shape, 3, dtype=torch.float64, generator=rng)
            if shape:
                x[:, 1] = x[:, 0]
            else:
                x[1] = x[0]
            found[line.out.name] = x
        elif isinstance(line, ir.InputScalar) and line.per_sample:
            found[line.out.name] = torch.full((2, *(3 for _ in line.out.dims)), 1 / 3, dtype=torch.float64)
    return found if len(found) > 1 else next(iter(found.values()))


@pytest.mark.parametrize("name", SMALL)
def test_equal_rows_and_positions_in_every_program(name: str) -> None:
    p = programs.BUILTIN[name](**SMALL[name])
    x = inputs(p)
    meets(p, x, ns.compile(p, samples=2**12)(x))


@pytest.mark.parametrize("name", [n for n in SMALL if n not in SAMPLED])
def test_every_array_at_variance_zero(name: str) -> None:
    """Against networks, where a preactivation that is exactly 0 has relu′(0) = ½."""
    p = programs.BUILTIN[name](**SMALL[name])
    x = inputs(p)
    for array in trained(p):
        q = with_variance(p, array, 0)
        if name == "transformer" and array == "U1":  # layer normalisation of zeros without ε
            continue
        meets(q, x, ns.compile(q)(x), seeds=12)


SMOOTH = {"mlp": ns.erf, "rnn": ns.erf, "cnn": ns.erf, "resnet": ns.erf, "batchnorm_mlp": ns.identity}


@pytest.mark.parametrize("name", SMOOTH)
def test_variance_zero_is_the_limit_in_every_program(name: str) -> None:
    """For smooth functions, to the order of the variance."""
    p = programs.BUILTIN[name](**SMALL[name] | {"phi": SMOOTH[name]})
    x = inputs(p)
    for array in trained(p):
        zero, small = (ns.compile(with_variance(p, array, v))(x).ntk for v in (0, 1e-10))
        torch.testing.assert_close(zero, small, rtol=0, atol=1e-7 * float(small.abs().max()))


@pytest.mark.parametrize("name", CASES)
def test_the_sampled_limit_agrees_with_the_rule(name: str) -> None:
    """ns.limit reads gradients of the null directions from its draws."""
    make, x = CASES[name]
    limit, wanted = ns.limit(make(ns.relu), x, samples=2**15), ns.compile(make(ns.relu))(x).ntk
    assert limit.method == "sampled" and wanted is not None
    assert (np.abs(limit.ntk - wanted.numpy()) <= 5 * limit.error("ntk") + 1e-12).all()


@pytest.mark.parametrize("name", ["tied_autoencoder", "gia_counterexample"])
def test_tied_matrices_with_equal_inputs_and_variance_zero(name: str) -> None:
    """Cov(Ẑ)⁺ where a matrix has variance 0, or its arguments are equal."""
    p, x = programs.BUILTIN[name](), torch.tensor([[1.0, 0.5], [1.0, 0.5], [-0.3, 0.7]], dtype=torch.float64)
    for q in (p, *(with_variance(p, array, 0) for array in trained(p))):
        wanted = torch.as_tensor(np.asarray(ns.limit(q, x).ntk, dtype=float))
        found = ns.simulate(q, x, [256], 24, limit=False, progress=False).kernels("ntk_autograd", 256)
        error = 5 * found.std(0) / 24**0.5 + 4 * torch.linalg.vector_norm(wanted) / 256
        assert bool(((found.mean(0) - wanted).abs() <= error).all())
