"""Kernels for GPyTorch, against the compiled kernels."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import netsor as ns
from netsor.errors import InputError

gpytorch: Any = pytest.importorskip("gpytorch")

from netsor.gpytorch import NetsorKernel  # noqa: E402

PROGRAM = ns.programs.mlp(2, "erf", "w", "b")
VALUES = {"w": 1.5, "b": 0.2}


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("which", ["nngp", "ntk"])
def test_values(which: Any) -> None:
    kernel = NetsorKernel(PROGRAM, which, params=VALUES).double()
    x, y = data(5, 3), data(4, 3, seed=1)
    plain = ns.compile(PROGRAM)
    torch.testing.assert_close(kernel(x, y).to_dense(), plain(x, y, which, VALUES)[which], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(kernel(x).to_dense(), plain(x, None, which, VALUES)[which], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(kernel(x, diag=True), kernel(x).to_dense().diagonal())
    torch.testing.assert_close(kernel(x[:4], y, diag=True), kernel(x[:4], y).to_dense().diagonal())
    unit = NetsorKernel(PROGRAM, which, "unit", VALUES).double()
    wanted = ns.compile(PROGRAM, convention="unit")(x, None, which, VALUES)[which]
    torch.testing.assert_close(unit(x).to_dense(), wanted, rtol=1e-6, atol=1e-7)


def test_batches() -> None:
    x, y = data(2, 3, 5, 4), data(3, 6, 4, seed=1)
    kernel = NetsorKernel(PROGRAM, batch_shape=torch.Size([3])).double()
    assert {k: v.shape for k, v in kernel.params.items()} == {"w": (3,), "b": (3,)}
    kernel.initialize(raw_w=data(3, 1, 1, seed=2))
    found = kernel(x, y).to_dense()
    assert found.shape == (2, 3, 5, 6) and kernel(x, diag=True).shape == (2, 3, 5)
    for i in range(2):
        for j in range(3):
            params = {k: float(v[j].detach()) for k, v in kernel.params.items()}
            torch.testing.assert_close(found[i, j], ns.compile(PROGRAM)(x[i, j], y[j], "nngp", params).nngp)


def test_images() -> None:
    program, x = ns.programs.cnn(1, "relu", readout="mean"), data(3, 18)
    kernel = NetsorKernel(program, input_shape=(3, 3, 2)).double()
    torch.testing.assert_close(kernel(x).to_dense(), ns.compile(program)(x.reshape(3, 3, 3, 2), get="nngp").nngp)
    with pytest.raises(InputError, match=r"outputs of shape \[3, 3\]"):
        NetsorKernel(ns.programs.batchnorm_mlp(1), input_shape=(3, 6)).double()(x).to_dense()


class Process(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, y: Tensor, likelihood: Any, kernel: Any) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_a_fit_raises_the_likelihood() -> None:
    x, t = data(30, 3), data(4, 3, seed=1)
    y = torch.sin(2 * x[:, 0])
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Process(x, y, likelihood, gpytorch.kernels.ScaleKernel(NetsorKernel(PROGRAM))).double()
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    values = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = -marginal(model(x), y)
        loss.backward()
        optimiser.step()
        values.append(float(loss.detach()))
    assert values[-1] < values[0] - 0.1
    kernel = model.covar_module.base_kernel
    assert all(abs(float(v.detach()) - 1) > 0.1 for v in kernel.params.values())
    model.eval()
    likelihood.eval()
    with torch.no_grad(), warnings.catch_warnings():
        found = model(t)
        scale, noise = float(model.covar_module.outputscale), float(likelihood.noise)
        params = {k: float(v) for k, v in kernel.params.items()}
        plain = ns.compile(PROGRAM)
        ridge = noise / scale / float(plain.diag(x, "nngp", params).nngp.mean())
        wanted = ns.predict(plain, x, y, ridge, params=params).gp(t)
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.variance / scale, wanted.variance, rtol=1e-3, atol=1e-4)


def test_it_travels_and_says_what_is_wrong() -> None:
    kernel, x = NetsorKernel(PROGRAM, params=VALUES).double(), data(3, 2)
    torch.testing.assert_close(pickle.loads(pickle.dumps(kernel))(x).to_dense(), kernel(x).to_dense())
    assert set(kernel.state_dict()) >= {"raw_w", "raw_b"}
    with pytest.raises(InputError, match="no parameter 'z'"):
        NetsorKernel(PROGRAM, params={"z": 1.0})
    with pytest.raises(InputError, match="which is"):
        NetsorKernel(PROGRAM, "K")  # type: ignore[arg-type]
