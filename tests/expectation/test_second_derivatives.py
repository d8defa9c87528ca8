"""Second derivatives of kernels in their inputs: right where they exist, refused where they are infinite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import netsor as ns
from netsor import layers, programs

Pair = Callable[[Tensor, Tensor], Tensor]
X = torch.tensor([1.0, 0.5, -0.3], dtype=torch.float64)
Y = torch.tensor([0.4, -0.7, 0.2], dtype=torch.float64)
KINKED = {"relu": "relu", "abs": "abs", "leaky_relu": ns.leaky_relu(0.1)}
SMOOTH = {"erf": "erf", "tanh": "tanh", "gelu": "gelu", "sin": "sin", "softplus": "softplus", "square": "square"}


def pair(p: ns.Program, get: str = "ntk") -> Pair:
    kernel = ns.compile(p)
    return lambda x, y: getattr(kernel(x[None], y[None], get=get), get).sum()


def mlp(phi: Any, bias: float | None = 0.1) -> ns.Program:
    return programs.mlp(depth=1, phi=phi, var_b=bias)


def mixed(f: Pair, x: Tensor, y: Tensor) -> Tensor:
    """∂²f/∂x∂y."""
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(a, b), a, create_graph=True)
    return torch.stack([torch.autograd.grad(g, b, retain_graph=True)[0] for g in first])


def pure(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Hessian of f."""
    a = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(a), a, create_graph=True)
    return torch.stack([torch.autograd.grad(g, a, retain_graph=True)[0] for g in first])


def differences(f: Pair, x: Tensor, y: Tensor, h: float = 1e-3) -> Tensor:
    """∂²f/∂x∂y by central differences, Richardson's step once: an error of order h⁴."""

    def at(h: float) -> Tensor:
        e = h * torch.eye(len(x), dtype=x.dtype)
        rows = [[f(x + a, y + b) - f(x + a, y - b) - f(x - a, y + b) + f(x - a, y - b) for b in e] for a in e]
        return torch.tensor(rows, dtype=x.dtype) / (4 * h * h)

    return (4 * at(h) - at(2 * h)) / 3


@pytest.mark.parametrize("phi", SMOOTH)
@pytest.mark.parametrize("other", [X, -X, Y, 0 * X], ids=["equal", "opposite", "general", "zero"])
def test_smooth_functions_have_second_derivatives_everywhere(phi: str, other: Tensor) -> None:
    f = pair(mlp(SMOOTH[phi]))
    expected = differences(f, X, other)
    torch.testing.assert_close(mixed(f, X, other), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("phi", KINKED)
@pytest.mark.parametrize("other", [Y, 2 * X + Y], ids=["general", "near"])
def test_kinked_functions_have_them_off_the_cones(phi: str, other: Tensor) -> None:
    f = pair(mlp(KINKED[phi]))
    expected = differences(f, X, other)
    torch.testing.assert_close(mixed(f, X, other), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("phi", KINKED)
@pytest.mark.parametrize("where", [1.0, 2.0, -1.0, 0.0])
def test_the_second_derivative_at_a_cone_is_refused(phi: str, where: float) -> None:
    f = pair(mlp(KINKED[phi], None))
    other = where * X
    a = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(a, other), a)
    assert bool(torch.isfinite(first).all())  # the symmetric derivative
    with pytest.raises(ns.InputError, match="NT612"):
        mixed(f, X, other)
    if where == 0:
        with pytest.raises(ns.InputError, match="NT612"):
            pure(lambda x: f(x, X), other)


@pytest.mark.parametrize("phi", KINKED)
def test_with_a_bias_equal_inputs_alone_are_a_cone(phi: str) -> None:
    f = pair(mlp(KINKED[phi]))
    with pytest.raises(ns.InputError, match="NT612"):
        mixed(f, X, X)
    for other in (-X, 2 * X, 0 * X):
        expected = differences(f, X, other)
        torch.testing.assert_close(mixed(f, X, other), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_the_nngp_of_relu_is_smooth_enough() -> None:
    """∂²/∂x∂x̄ E relu(u)relu(ū) at x = x̄ is the covariance of the process's derivative, E step(u)² / d = 1/(2d)."""
    f = pair(mlp("relu", None), "nngp")
    torch.testing.assert_close(mixed(f, X, X), torch.eye(3, dtype=X.dtype) / 6)


@pytest.mark.parametrize("phi", [*KINKED, *SMOOTH])
def test_an_input_with_itself_moves_as_a_whole(phi: str) -> None:
    """kernel(X) has no cone on its diagonal: the Hessian of K(x, x) is that of a function of |x|²."""
    kernel = ns.compile(mlp((KINKED | SMOOTH)[phi]))
    batch = torch.stack([X, Y])

    def f(x: Tensor) -> Tensor:
        return kernel(x.reshape(2, 3)).ntk[0, 0]

    def plain(x: Tensor) -> Tensor:
        return kernel(x[None]).ntk[0, 0].detach()

    h = 1e-3
    e = torch.eye(3, dtype=X.dtype)

    def at(h: float) -> Tensor:
        rows = [
            [plain(X + h * a + h * b) - plain(X + h * a - h * b) - plain(X - h * a + h * b) + plain(X - h * a - h * b)
             for b in e] for a in e
        ]  # fmt: skip
        return torch.tensor(rows, dtype=X.dtype) / (4 * h * h)

    expected = (4 * at(h) - at(2 * h)) / 3
    found = pure(f, batch.reshape(-1))
    torch.testing.assert_close(found[:3, :3], expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert not found[:, 3:].any()


def test_equal_rows_of_a_batch_are_refused() -> None:
    kernel = ns.compile(mlp("relu"))
    with pytest.raises(ns.InputError, match="NT612"):
        pure(lambda x: kernel(x.reshape(2, 3)).ntk.sum(), torch.cat([X, X]))


def test_second_derivatives_of_layers() -> None:
    """Padding, shifts and zero starts are no cones."""
    some = torch.tensor([0, 5, 11])
    image = torch.linspace(-1, 1.3, 12, dtype=torch.float64)
    other = torch.cos(3 * image)
    for p in (programs.cnn(depth=2, axes="token"), programs.rnn(phi="relu", var_b=None), _unit()):
        kernel = ns.compile(p)

        def f(x: Tensor, y: Tensor, kernel: ns.Kernel = kernel) -> Tensor:
            return kernel(x.reshape(1, 4, 3), y.reshape(1, 4, 3)).ntk.sum()

        found = mixed(f, image, other)[some][:, some]

        def g(a: Tensor, b: Tensor, f: Pair = f) -> Tensor:
            return f(image.index_add(0, some, a), other.index_add(0, some, b))

        expected = differences(g, torch.zeros(3, dtype=X.dtype), torch.zeros(3, dtype=X.dtype))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def _unit() -> ns.Program:
    p = ns.Program("pooled")
    n = p.width("n")
    x = ns.relu(layers.dense(p.data("x", axes=("token",)), n, "W1", var=math.sqrt(2)))
    p.output(p.readout("v", n), layers.avg_pool(ns.relu(layers.conv(x, n, "W2", "token")), {"token": 2}).mean("token"))
    return p
