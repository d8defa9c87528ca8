"""Kernels inside torch.func, vmap and torch.compile: the numbers of autograd and of a loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, vmap

import netsor as ns
from netsor import layers, programs
from netsor.compilers.lowering.load import load

G = torch.Generator().manual_seed(0)
X = torch.randn(3, 4, generator=G, dtype=torch.float64)
Y = torch.randn(2, 4, generator=G, dtype=torch.float64)
T = torch.randn(3, 4, generator=G, dtype=torch.float64)
PHIS = ["relu", "tanh"]
SMALL = X[:2, :2]
To = Callable[[Tensor], Tensor]
jvp: Any = torch.func.jvp
vjp: Any = torch.func.vjp
jacobian_of: Any = torch.autograd.functional.jacobian
hessian_of: Any = torch.autograd.functional.hessian


def sides(phi: str) -> list[To]:
    kernel, y = ns.compile(programs.mlp(depth=1, phi=phi)), Y[:, :2]
    return [lambda x: kernel(x, y).ntk, lambda x: kernel(x).ntk, lambda x: kernel(y, x, get="nngp").nngp]


def jacobian(f: To, x: Tensor) -> Tensor:
    return jacobian_of(f, x)  # type: ignore[no-any-return]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("side", [0, 1, 2])
@pytest.mark.parametrize("phi", PHIS)
def test_first_derivatives(phi: str, side: int) -> None:
    f, t = sides(phi)[side], T[:2, :2]
    whole = jacobian(f, SMALL)
    close(grad(lambda x: f(x).sum())(SMALL), whole.sum((0, 1)))
    close(jacrev(f)(SMALL), whole)
    close(jacfwd(f)(SMALL), whole)
    value, moved = jvp(f, (SMALL,), (t,))
    close(value, f(SMALL))
    close(moved, torch.tensordot(whole, t, 2))
    value, pull = vjp(f, SMALL)
    close(pull(torch.ones_like(value))[0], whole.sum((0, 1)))


@pytest.mark.parametrize(("phi", "side"), [("relu", 0), ("relu", 1), ("tanh", 0)])
def test_second_derivatives(phi: str, side: int) -> None:
    f = sides(phi)[side]
    expected = hessian_of(lambda x: f(x).sum(), SMALL)
    close(hessian(lambda x: f(x).sum())(SMALL), expected)
    close(jacrev(jacrev(lambda x: f(x).sum()))(SMALL), expected)


def test_both_arguments_and_a_gradient_of_autograd_outside() -> None:
    kernel = ns.compile(programs.mlp(depth=1, phi="erf"))

    def f(x: Tensor, y: Tensor) -> Tensor:
        return kernel(x, y).ntk.sum()

    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    expected = torch.autograd.grad(f(x, y), (x, y))
    close(grad(f, argnums=(0, 1))(X, Y), expected)
    (outer,) = torch.autograd.grad(grad(f)(X, y).square().sum(), y)
    (first,) = torch.autograd.grad(f(x, y), x, create_graph=True)
    close(outer, torch.autograd.grad(first.square().sum(), y)[0])


@pytest.mark.parametrize("phi", PHIS)
def test_vmap_over_samples(phi: str) -> None:
    kernel = ns.compile(programs.mlp(depth=2, phi=phi))
    expected = kernel(X, Y).ntk
    close(vmap(lambda x: kernel(x[None], Y).ntk[0])(X), expected)
    close(vmap(lambda y: kernel(X, y[None]).ntk[:, 0], out_dims=1)(Y), expected)
    close(vmap(lambda x, y: kernel(x[None], y[None]).ntk[0, 0])(X[:2], Y), expected[:2].diagonal())
    close(vmap(vmap(lambda x, y: kernel(x[None], y[None]).ntk[0, 0], (None, 0)), (0, None))(X, Y), expected)
    close(vmap(lambda x: kernel(x).ntk)(X.reshape(3, 2, 2)), torch.stack([kernel(x).ntk for x in X.reshape(3, 2, 2)]))
    rows = torch.stack([grad(lambda x: kernel(x[None], Y).ntk.sum())(x) for x in X])
    close(vmap(grad(lambda x: kernel(x[None], Y).ntk.sum()))(X), rows)


def test_dicts_lists_terms_and_vectors() -> None:
    p = ns.Program("two")
    n = p.width("n")
    x, y = p.data("x"), p.data("y")
    h = p.let("h", layers.dense(x, n, "W1") + layers.dense(y, n, "W2"))
    a = p.let("a", ns.tanh(h))
    p.output(p.readout("v", n), a)
    p.returns("m", ns.moment(a**2))
    kernel = ns.compile(p)
    get = ("nngp", "ntk", "terms", "a", "m")

    def f(x: Tensor) -> Any:
        out = kernel({"x": x, "y": X[:2]}, get=get)
        return dict(out.items())

    one, t = X[:2], T[:2]
    plain = f(one)
    assert list(plain) == ["nngp", "ntk", "a", "m", "terms.W1", "terms.W2", "terms.v"]
    values, moved = jvp(f, (one,), (t,))
    slopes = jacobian_of(lambda x: tuple(f(x).values()), one)
    for (name, value), slope in zip(plain.items(), slopes, strict=True):
        close(values[name], value)
        close(moved[name], torch.tensordot(slope, t, 2))
    sequence = ns.compile(programs.rnn())
    ragged = [X[:2], X]

    def g(scale: Tensor) -> Tensor:
        return sequence([scale * x for x in ragged]).ntk.sum()

    one = torch.ones((), dtype=torch.float64)
    close(grad(g)(one), jacobian_of(g, one))


def test_blocks_transforms_and_printed_modules(tmp_path: Path) -> None:
    kernel = ns.compile(programs.mlp(depth=1))
    expected = jacobian(lambda x: kernel(x, Y).ntk, X)
    close(jacrev(lambda x: kernel.gram(x, Y, tile=1).ntk)(X), expected)
    from netsor.compilers.lowering.module import generate

    module = load(generate(ns.derive(programs.mlp(depth=1))), "again")
    close(jacrev(lambda x: module.ntk(x, Y))(X), expected)
    K = X @ X.T + torch.eye(3, dtype=torch.float64)
    close(jacrev(lambda k: ns.v_transform("relu", k))(K), jacobian(lambda k: ns.v_transform("relu", k), K))
    close(vmap(lambda k: ns.v_transform("relu", k))(K.expand(2, 3, 3)), ns.v_transform("relu", K.expand(2, 3, 3)))


def test_what_has_no_derivative_says_so() -> None:
    p = ns.Program("sampled")
    n = p.width("n")
    h = layers.dense(p.data("x", axes=("t",)), n, "W")
    p.output(p.readout("v", n), ns.tanh(layers.batch_norm(h, "t", 0.1)).mean("t"))
    x = X[None]
    kernel = ns.compile(p, samples=64)
    assert "sampled" in kernel(x).method
    close(vmap(lambda a: kernel(a[None]).nngp)(x), kernel(x).nngp[None])
    with pytest.raises(ns.UnsupportedError, match=r"NT702.*sampled kernel"):
        grad(lambda a: kernel(a).nngp.sum())(x)
    with pytest.raises(ns.InputError, match="NT612"):
        hessian(lambda a: ns.compile(programs.mlp(depth=1))(a, X).ntk.sum())(X)
    for call in (lambda a: ns.limit(programs.mlp(depth=1), a), lambda a: ns.simulate(programs.mlp(depth=1), a)):
        with pytest.raises(ns.InputError, match=r"(?s)NT601.*torch\.func"):
            vmap(call)(x)
    with pytest.raises(ns.InputError, match="NT603"):
        vmap(lambda a: ns.compile(programs.mlp(depth=1))(a).ntk)(x * torch.nan)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_torch_compile_leaves_the_numbers() -> None:
    kernel = ns.compile(programs.mlp(depth=2, phi="tanh"))

    def f(x: Tensor) -> Tensor:
        return 2 * kernel(x.sin(), Y).ntk + 1

    compiled = torch.compile(f, backend="eager")
    close(compiled(X), f(X))
    close(compiled(X[:2]), f(X[:2]))
    x = X.clone().requires_grad_()
    close(torch.autograd.grad(compiled(x).sum(), x), torch.autograd.grad(f(x).sum(), x))
