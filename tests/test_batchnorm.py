"""Batch normalisation by the radial rule, against vectors and in the cases where it is delicate."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from load import assert_close, cases, load
from torch import Tensor

import netsor as ns
from netsor import programs
from netsor.compilers import expectation
from netsor.compilers.radial import radial, radial_single
from netsor.errors import InputError

EXACT = ("relu", "abs", "identity")
FUNCTIONS = {"relu": expectation.relu(), "abs": expectation.absolute(), "identity": expectation.power(1)}
NETS = [c for c in cases("bn_net_*") if load(c).data["params"]["phi"] in EXACT]


def tensor(x: Any) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def batch(rows: int, features: int, seed: int) -> Tensor:
    return torch.randn(1, rows, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("case", NETS)
def test_networks(case: str) -> None:
    vector = load(case)
    q, inputs = vector.data["params"], vector.data["inputs"]
    p = programs.batchnorm_mlp(q["depth"], q["phi"], q["eps"], q["sigma_w2"], q["sigma_v2"])
    kernel = ns.compile(p)
    x, y = tensor(inputs["X"])[None], tensor(inputs["Xbar"])[None]
    for name, result in (("XX", kernel(x)), ("XXbar", kernel(x, y)), ("XX", kernel(x, x.clone()))):
        assert result.nngp is not None and result.ntk is not None
        assert "sampled" not in result.method
        assert_close(result.nngp[0, 0].numpy(), vector, f"nngp.{name}")
        assert_close(result.ntk[0, 0].numpy(), vector, f"ntk.{name}")


@pytest.mark.parametrize("case", cases("bn_kernel_*"))
def test_maps(case: str) -> None:
    """Forward within and across batches; the backward map is the transpose of the tangent one."""
    vector = load(case)
    q = vector.data["params"]
    phi, eps = FUNCTIONS[q["phi"]], q["eps"]
    given = {k: tensor(v) for k, v in vector.data["inputs"].items()}
    g, h = (torch.eye(n, dtype=torch.float64) - 1 / n for n in (q["B"], q["Bbar"]))
    s, t, x = g @ given["Sigma"] @ g, h @ given["Sigmabar"] @ h, g @ given["Xi"] @ h
    half, both = (0.5, 0.5), (eps, eps)
    assert_close(radial_single(phi, phi, 1.0, eps, s).numpy(), vector, "forward_single")
    assert_close(radial(phi, phi, half, both, s, t, x).numpy(), vector, "forward_cross")
    if "backward_cross" in vector.data:
        out = torch.zeros_like(x)
        for k, m in itertools.product(range(q["B"]), range(q["Bbar"])):
            direction = g[:, k : k + 1] @ h[m : m + 1]
            out[k, m] = (given["chi"] * radial(phi, phi, half, both, s, t, x, direction)).sum()
        assert_close(out.numpy(), vector, "backward_cross")


def test_rank_deficient_batches_agree_with_a_basis_of_their_range() -> None:
    """Six rows of rank 3: appending zero features changes nothing but the scale of the weights."""
    x, y = batch(6, 3, 1), batch(4, 3, 2)
    wide = [torch.cat([b, torch.zeros(1, b.shape[1], 5, dtype=torch.float64)], -1) * (8 / 3) ** 0.5 for b in (x, y)]
    kernel = ns.compile(programs.batchnorm_mlp(1, "relu", 0.1))
    for one, two in ((y, wide[1]), (None, None)):
        a, b = kernel(x, one), kernel(wide[0], two)
        for left, right in ((a.nngp, b.nngp), (a.ntk, b.ntk)):
            assert left is not None and right is not None
            assert torch.isfinite(left).all()
            torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-11)


def test_rank_deficient_batch_against_direct_sampling() -> None:
    x, y = batch(6, 3, 1), batch(4, 3, 2)
    w = torch.randn(400_000, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64) / 3**0.5

    def values(rows: Tensor) -> Tensor:
        h = w @ rows[0].T
        c = h - h.mean(1, keepdim=True)
        return torch.relu(c / (c.square().mean(1, keepdim=True) + 0.1).sqrt())

    products = values(x)[:, :, None] * values(y)[:, None, :]
    error = products.std(0) / len(w) ** 0.5
    found = ns.compile(programs.batchnorm_mlp(1, "relu", 0.1))(x, y, get="nngp").nngp
    assert found is not None
    assert ((found[0, 0] - products.mean(0)).abs() < 5 * error + 1e-12).all()


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_scale_does_not_matter_without_eps(scale: float) -> None:
    x, y = batch(5, 7, 5), batch(5, 7, 6)
    kernel = ns.compile(programs.batchnorm_mlp(1, "relu", 0.0))
    reference = kernel(x, y)
    both, one = kernel(scale * x, scale * y), kernel(x, scale * y)
    for found in (both, one):
        torch.testing.assert_close(found.nngp, reference.nngp, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(both.ntk, reference.ntk, rtol=1e-8, atol=1e-10)


def test_two_rows_are_signs() -> None:
    """B = 2, eps = 0: the normalised values are ±1, so relu has second moment 1/2 and the rows are exclusive."""
    kernel = ns.compile(programs.batchnorm_mlp(1, "relu", 0.0))
    found = kernel(batch(2, 5, 7), get="nngp").nngp
    assert found is not None
    torch.testing.assert_close(found[0, 0], tensor([[0.5, 0.0], [0.0, 0.5]]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [2, 3])
def test_the_infinite_ntk_is_an_error(rows: int) -> None:
    with pytest.raises(InputError, match="infinite"):
        ns.compile(programs.batchnorm_mlp(1, "relu", 0.0))(batch(rows, 5, 7))


def test_identical_rows() -> None:
    x = batch(1, 5, 7).expand(1, 3, 5)
    with pytest.raises(InputError, match="identical rows"):
        ns.compile(programs.batchnorm_mlp(1, "relu", 0.0))(x, get="nngp")
    found = ns.compile(programs.batchnorm_mlp(1, "relu", 0.1))(x, get="nngp").nngp
    assert found is not None and float(found.abs().max()) == 0.0


def test_input_gradients_are_finite_and_right() -> None:
    x = torch.cat([batch(4, 6, 8), batch(4, 6, 9)]).requires_grad_()
    kernel = ns.compile(programs.batchnorm_mlp(1, "relu", 0.1))

    def f(z: Tensor) -> Tensor:
        out = kernel(z).ntk
        assert out is not None
        return out[0, 1].sum() + out[0, 0].sum()

    (grad,) = torch.autograd.grad(f(x), x)
    assert torch.isfinite(grad).all()
    step = torch.zeros_like(x)
    step[1, 2, 3] = 1e-5
    slope = (f(x.detach() + step) - f(x.detach() - step)) / 2e-5
    torch.testing.assert_close(grad[1, 2, 3], slope, rtol=1e-5, atol=1e-8)
