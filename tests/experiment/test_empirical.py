"""The tangent kernel of torch modules, against Jacobians taken one by one and against the infinite width."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import netsor as ns
from netsor.errors import InputError

torch.manual_seed(0)
CONV = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)).double()
SEQUENCE = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()  # outputs [n, time, 2]
SCALAR = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 1), nn.Flatten(0)).double()  # outputs [n]
FROZEN = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).double().eval()
FROZEN[0].weight.requires_grad_(False)
CASES: dict[str, tuple[nn.Module, Tensor, Tensor]] = {
    name: (f, torch.randn(5, *shape, dtype=torch.float64), torch.randn(3, *shape, dtype=torch.float64))
    for name, f, shape in (
        ("conv", CONV, (2, 3, 3)), ("sequence", SEQUENCE, (2, 3)), ("scalar", SCALAR, (3,)), ("frozen", FROZEN, (3,)),
    )
}  # fmt: skip


def brute(f: nn.Module, x1: Tensor, x2: Tensor) -> Tensor:
    """Gradients of every output of every sample, one at a time."""

    def gradients(x: Tensor) -> tuple[Tensor, torch.Size]:
        theta = [p for p in f.parameters() if p.requires_grad]
        outputs = [f(x[i : i + 1])[0] for i in range(len(x))]
        rows: list[Tensor] = []
        for value in (v for out in outputs for v in out.reshape(-1)):
            found = torch.autograd.grad(value, theta, retain_graph=True)
            rows.append(torch.cat([g.reshape(-1) for g in found]))
        return torch.stack(rows).reshape(len(x), outputs[0].numel(), -1), outputs[0].shape

    (one, axes), (two, _) = gradients(x1), gradients(x2)
    return torch.einsum("nip,mjp->nmij", one, two).reshape(len(x1), len(x2), *axes, *axes)


@pytest.mark.parametrize("more", [{}, {"memory": 3000}, {"method": "product"}, {"memory": 10}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_brute_force(name: str, more: dict[str, Any]) -> None:
    f, x1, x2 = CASES[name]
    torch.testing.assert_close(ns.empirical_ntk(f, x1, x2, **more), brute(f, x1, x2), rtol=1e-12, atol=1e-13)
    own = ns.empirical_ntk(f, x1, **more)
    torch.testing.assert_close(own, brute(f, x1, x1), rtol=1e-12, atol=1e-13)
    flat = own.reshape(5, 5, int((own[0, 0].numel()) ** 0.5), -1)
    mean = ns.empirical_ntk(f, x1, outputs="mean", **more)
    torch.testing.assert_close(mean, flat.diagonal(dim1=2, dim2=3).mean(-1))
    assert not own.requires_grad


def test_functions() -> None:
    f, x1, x2 = CASES["scalar"]
    params = dict(f.named_parameters())
    found = ns.empirical_ntk(lambda p, x: torch.func.functional_call(f, p, (x,)), x1.numpy(), x2, params=params)
    torch.testing.assert_close(found, ns.empirical_ntk(f, x1, x2))


class SumUp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


class Wide(nn.Module):
    """An MLP in NTK parametrisation, relu, biases of variance 0.1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [(width, 3), (width, width)]
        self.w = nn.ParameterList([torch.randn(s) for s in sizes])
        self.b = nn.ParameterList([0.1**0.5 * torch.randn(width) for _ in sizes])
        self.v = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        for w, b in zip(self.w, self.b, strict=True):
            x = torch.relu(x @ w.T / x.shape[-1] ** 0.5 + b)
        out: Tensor = x @ self.v / x.shape[-1] ** 0.5
        return out


def test_wide_networks_have_the_limit() -> None:
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    seeds = torch.stack([ns.empirical_ntk(Wide(512), x) for _ in range(24)]).double()
    limit = ns.compile(ns.programs.mlp(2, "relu", 1, 0.1))(x.double()).ntk
    error = seeds.std(0) / len(seeds) ** 0.5
    assert bool(((seeds.mean(0) - limit).abs() <= 4 * error + 3 / 512 * limit).all())  # the bias is O(1/n)
    assert float((error / limit).max()) < 0.04


def test_errors() -> None:
    f, x, _ = CASES["scalar"]
    with pytest.raises(InputError, match="needs its parameters"):
        ns.empirical_ntk(lambda p, x: x, x)
    with pytest.raises(InputError, match="has its own parameters"):
        ns.empirical_ntk(f, x, params={"w": x})
    with pytest.raises(InputError, match="no parameter that requires gradients"):
        ns.empirical_ntk(nn.ReLU(), x)
    with pytest.raises(InputError, match=r"of one sample has shape \(\), wanted \[1, …\]"):
        ns.empirical_ntk(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0), SumUp()).double(), x)
    with pytest.raises(InputError, match="outputs is 'full' or 'mean', got 'trace'"):
        ns.empirical_ntk(f, x, outputs="trace")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="x1 has no samples"):
        ns.empirical_ntk(f, x[:0])
