"""`ns.train`: the limit of SGD against quadrature, moments of linear networks, and ordinary networks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from finite_sgd import Model, Parameters, Shapes, drawn, extrapolated, trained
from linear_sgd import one_hidden, two_hidden
from torch import Tensor

import netsor as ns
from netsor.compilers.finite import run
from netsor.layers import attention, layer_norm
from netsor.programs import batchnorm_mlp, cnn, gcn, mlp, rnn, tied_autoencoder

VECTORS = sorted((Path(__file__).parents[1] / "vectors").glob("mup_mlp1_*.json"))
PHI = {"tanh": ns.tanh, "erf": ns.erf, "square": ns.square}
Array = Any


def outputs(q: ns.Program, steps: int, gia: bool = False, **options: Any) -> tuple[Array, Array]:
    """f after every step with errors, `[step, sample, …]`."""
    r = ns.limit(q, **options)
    r = r.gia if gia else r
    names = [f"f[{t}]" for t in range(steps + 1)]
    values = np.array([np.asarray(r.scalar(name), dtype=float)[0] for name in names])
    return values, np.array([np.asarray(r.error("scalar", name), dtype=float)[0] for name in names])


# ---------------------------------------------------------------- one hidden layer


@pytest.mark.parametrize("path", VECTORS, ids=lambda p: p.stem)
def test_vectors(path: Path) -> None:
    case = json.loads(path.read_text("utf-8"))
    p = ns.Program("one_hidden")
    n, x = p.width("n"), p.data("x")
    h = p.matrix("U", n, x, var=case["var_u"]) @ x
    p.output(p.readout("v", n, var=case["var_v"]), PHI[case["phi"]](h))
    steps, tests = case["steps"], case["test_inputs"] or None
    q = ns.train(p, case["inputs"], case["targets"], steps, case["lr"], reduction="sum", test_inputs=tests)
    values, errors = outputs(q, steps, samples=2**17)
    tolerance = 1e-12 if case["phi"] == "square" else case["abs_error"] + 3 * errors
    assert (np.abs(values - np.array(case["outputs"])) <= tolerance).all()
    assert (errors < 1e-4).all()


# ---------------------------------------------------------------- linear networks


def linear(hidden: int) -> ns.Program:
    p = ns.Program("linear")
    n, x = p.width("n"), p.data("x")
    h = p.matrix("U", n, x, fan_in=None) @ x
    for l in range(1, hidden):
        h = p.matrix(f"W{l}", n, n) @ h
    p.output(p.readout("v", n), h)
    return p


@pytest.mark.parametrize(("hidden", "steps"), [(1, 3), (2, 3)])
def test_linear_networks_are_exact(hidden: int, steps: int) -> None:
    """Rational numbers, equal to those of the moments' own recursion."""
    half = sp.Rational(1, 2)
    x, y = [[half, -half / 2], [1, 3 * half / 2]], [1, -half]
    q = ns.train(linear(hidden), np.array(x, dtype=float), np.array(y, dtype=float), steps, 0.25, reduction="sum")
    r = ns.limit(q, methods=("exact",))
    rows = [[rational(c) for c in row] for row in x]
    wanted = (one_hidden if hidden == 1 else two_hidden)(rows, [rational(c) for c in y], rational(half / 2), steps)
    for t, row in enumerate(wanted):
        assert [rational(c) for c in r.scalar(f"f[{t}]")[0]] == row


def rational(value: Any) -> Fraction:
    exact = sp.Rational(value)
    return Fraction(int(exact.p), int(exact.q))


# ---------------------------------------------------------------- ordinary networks


def dense(w: Tensor, x: Tensor) -> Tensor:
    """W x/√cols for x `[seed, sample, …, column]`."""
    y: Tensor = torch.einsum("sab,s...b->s...a", w, x)
    return y.div(w.shape[-1] ** 0.5)


def embed(w: Tensor, x: Tensor) -> Tensor:
    """The same for data `[sample, …, column]`."""
    return dense(w, x.expand(len(w), *x.shape))


def read(v: Tensor, x: Tensor) -> Tensor:
    f: Tensor = torch.einsum("sa,sia->si", v, x)
    return f.div(v.shape[-1])


def mlp_model(p: Parameters, x: Tensor) -> Tensor:
    h = torch.tanh(embed(p["W1"], x) + p["b1"][:, None])
    return read(p["v"], torch.tanh(dense(p["W2"], h) + p["b2"][:, None]))


def mlp_shapes(n: int) -> Mapping[str, tuple[int, ...]]:
    return {"W1": (n, 2), "b1": (n,), "W2": (n, n), "b2": (n,), "v": (n,)}


def three() -> ns.Program:
    p = ns.Program("three")
    n, x = p.width("n"), p.data("x")
    h = p.matrix("U", n, x) @ x
    h = p.matrix("V", n, n) @ (p.matrix("W", n, n) @ h)
    p.output(p.readout("v", n), h)
    return p


def three_model(p: Parameters, x: Tensor) -> Tensor:
    return read(p["v"], dense(p["V"], dense(p["W"], embed(p["U"], x))))


def deep_model(p: Parameters, x: Tensor) -> Tensor:
    h = torch.tanh(embed(p["W1"], x) + p["b1"][:, None])
    for l in (2, 3):
        h = torch.tanh(dense(p[f"W{l}"], h) + p[f"b{l}"][:, None])
    return read(p["v"], h)


def tied() -> ns.Program:
    p = ns.Program("tied")
    n, x = p.width("n"), p.data("x")
    W = p.matrix("W", n, n)
    h = ns.tanh(p.matrix("U", n, x) @ x)
    for _ in range(2):
        h = ns.tanh(W @ h)
    p.output(p.readout("v", n), h)
    return p


def tied_model(p: Parameters, x: Tensor) -> Tensor:
    h = torch.tanh(embed(p["U"], x))
    for _ in range(2):
        h = torch.tanh(dense(p["W"], h))
    return read(p["v"], h)


def rnn_model(p: Parameters, x: Tensor) -> Tensor:
    s = torch.zeros(len(p["v"]), len(x), p["v"].shape[1], dtype=x.dtype)
    for t in range(x.shape[1]):
        s = torch.tanh(dense(p["W"], s) + embed(p["U"], x[:, t]) + p["b"][:, None])
    return read(p["v"], s)


def convolution(w: Tensor, x: Tensor) -> Tensor:
    """Three taps, zeros outside; w `[seed, tap, row, column]`, x `[seed, sample, position, column]`."""
    z = torch.nn.functional.pad(x, (0, 0, 1, 1))
    return torch.stack([dense(w[:, k], z[:, :, k : k + x.shape[2]]) for k in range(3)]).sum(0)


def cnn_model(p: Parameters, x: Tensor) -> Tensor:
    h = torch.tanh(convolution(p["W1"], x.expand(len(p["v"]), *x.shape)))
    return read(p["v"], torch.tanh(convolution(p["W2"], h)).mean(2))


def residual() -> ns.Program:
    p = ns.Program("residual")
    n, data = p.width("n"), p.data("x")
    x = p.let("x0", p.matrix("U", n, data) @ data)
    for l in (1, 2):
        x = p.let(f"x{l}", x + p.matrix(f"W{l}", n, n) @ ns.tanh(layer_norm(x, 0.1)))
    p.output(p.readout("v", n), layer_norm(x, 0.1))
    return p


def normal(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=0.1)


def residual_model(p: Parameters, x: Tensor) -> Tensor:
    h = embed(p["U"], x)
    for l in (1, 2):
        h = h + dense(p[f"W{l}"], torch.tanh(normal(h)))
    return read(p["v"], normal(h))


def attending() -> ns.Program:
    p = ns.Program("attending")
    n, data = p.width("n"), p.data("x", axes=("token",))
    x = ns.tanh(p.matrix("U", n, data) @ data)
    q, k, v = (p.matrix(name, n, n) @ x for name in ("Q", "K", "V"))
    p.output(p.readout("v", n), ns.tanh(attention(q, k, v, "token") + x).mean("token"))
    return p


def attending_model(p: Parameters, x: Tensor) -> Tensor:
    h = torch.tanh(embed(p["U"], x))
    q, k, v = (dense(p[name], h) for name in ("Q", "K", "V"))
    a = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1], -1)
    return read(p["v"], torch.tanh(a @ v + h).mean(2))


GRAPHS = np.array([[[0, 1, 0], [1, 0, 1], [0, 1, 0]], [[0, 1, 1], [1, 0, 0], [1, 0, 0]]], dtype=float)


def gcn_model(p: Parameters, x: Tensor) -> Tensor:
    """Data are the features and the adjacency side by side."""
    x, loops = x[..., :2], x[..., 2:] + torch.eye(3)
    d = loops.sum(-1) ** -0.5
    a = d[:, :, None] * loops * d[:, None]
    h = torch.tanh(embed(p["W1"], a @ x))
    return read(p["v"], torch.tanh(dense(p["W2"], a @ h)).sum(2))


RNG = np.random.default_rng(0)
X, TESTS, Y = RNG.normal(size=(3, 2)), RNG.normal(size=(1, 2)), np.array([1.0, -0.5, 0.3])
LONG, LONG_TESTS, SIGNS = RNG.normal(size=(2, 3, 2)), RNG.normal(size=(1, 3, 2)), np.array([1.0, -1.0])


def against_networks(
    p: ns.Program, model: Model, shapes: Shapes, x: Array, y: Array, steps: int, lr: float, *, inputs: Any = None,
    tests: Array = None, n: int = 160, seeds: int = 120, loss: Any = "mse",
    torch_loss: Callable[[Tensor, Tensor], Tensor] = lambda f, y: (f - y).square() / 2, batches: Any = None,
    gia: bool = False, rates: Any = None, momentum: float = 0, decay: float = 0,
) -> float:  # fmt: skip
    """The largest deviation of the limit from networks extrapolated in 1/n, in standard errors of both."""
    q = ns.train(
        p, x if inputs is None else inputs, y, steps, lr if rates is None else rates, loss=loss, test_inputs=tests,
        batches=batches, momentum=momentum, weight_decay=decay,
    )  # fmt: skip
    values, errors = outputs(q, steps, gia, samples=2**15, methods=("sampled",))
    schedule = [batches[t % len(batches)] if batches else range(len(y)) for t in range(steps)]

    def run(width: int, part: int) -> Tensor:
        return trained(
            model, shapes, x, y, width, seeds, lr, schedule, torch_loss, True, tests, rates, momentum, decay, part
        )  # fmt: skip

    mean, spread = extrapolated(run, n, seeds)
    z = (values - mean.numpy()) / np.sqrt(errors**2 + spread.numpy() ** 2)
    assert (spread[-1].numpy() < 0.02).all()
    return float(np.abs(z[1:]).max())


NETWORKS: dict[str, Any] = {
    "mlp": (mlp(depth=2, phi="tanh"), mlp_model, mlp_shapes, X, Y, 2, 0.7, {"tests": TESTS}),
    "three hidden layers": (
        mlp(depth=3, phi="tanh"), deep_model, lambda n: {**mlp_shapes(n), "W3": (n, n), "b3": (n,)}, X, Y, 2, 0.7,
        {"tests": TESTS},
    ),
    "three linear layers": (
        three(), three_model, lambda n: {"U": (n, 2), "V": (n, n), "W": (n, n), "v": (n,)}, X, Y, 2, 0.3, {},
    ),
    "tied": (tied(), tied_model, lambda n: {"U": (n, 2), "W": (n, n), "v": (n,)}, X, Y, 2, 0.7, {"tests": TESTS}),
    "rnn": (
        rnn(), rnn_model, lambda n: {"U": (n, 2), "W": (n, n), "b": (n,), "v": (n,)}, LONG, SIGNS, 2, 0.7,
        {"tests": LONG_TESTS},
    ),
    "cnn": (
        cnn(depth=2, phi="tanh", axes=("pos",), readout="mean"), cnn_model,
        lambda n: {"W1": (3, n, 2), "W2": (3, n, n), "v": (n,)}, LONG, SIGNS, 2, 0.7, {"n": 96, "seeds": 60},
    ),
    "residual, layer normalisation": (
        residual(), residual_model, lambda n: {"U": (n, 2), "W1": (n, n), "W2": (n, n), "v": (n,)}, X, Y, 2, 0.7, {},
    ),
    "attention": (
        attending(), attending_model, lambda n: {"U": (n, 2), "Q": (n, n), "K": (n, n), "V": (n, n), "v": (n,)},
        LONG, SIGNS, 2, 1.0, {"n": 128, "seeds": 60},
    ),
    "gcn": (
        gcn(depth=2, phi="tanh"), gcn_model, lambda n: {"W1": (n, 2), "W2": (n, n), "v": (n,)},
        np.concatenate([LONG, GRAPHS], -1), SIGNS, 2, 0.3,        {"inputs": {"x": LONG, "A": GRAPHS}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_converge_to_the_limit(name: str) -> None:
    *case, more = NETWORKS[name]
    assert against_networks(*case, **more) < 3.5


@pytest.mark.parametrize("name", NETWORKS)
def test_the_squared_deviation_falls_like_the_width(name: str) -> None:
    p, model, shapes, x, y, steps, lr, more = NETWORKS[name]
    q = ns.train(p, more.get("inputs", x), y, steps, lr, test_inputs=more.get("tests"))
    limit = torch.as_tensor(outputs(q, steps, samples=2**14, methods=("sampled",))[0][-1])
    widths, schedule = (32, 64, 128, 256), [range(len(y))] * steps
    runs = [trained(model, shapes, x, y, n, 80, lr, schedule, tests=more.get("tests"), seed=5)[-1] for n in widths]
    squares = [float((f - limit).square().mean()) for f in runs]
    assert abs(np.polyfit(np.log(widths), np.log(squares), 1)[0] + 1) < 0.3


@pytest.mark.parametrize("name", ["mlp", "tied"])
def test_without_the_terms_of_the_transposes_it_fails(name: str) -> None:
    """The check has power: gradient independence is wrong after two steps of two hidden layers."""
    *case, more = NETWORKS[name]
    assert against_networks(*case, **more, seeds=240, gia=True) > 8


# ---------------------------------------------------------------- optimisers and losses


OPTIMISERS: dict[str, Mapping[str, Any]] = {
    "momentum": {"momentum": 0.9}, "weight decay": {"decay": 0.3}, "both": {"momentum": 0.5, "decay": 0.3},
    "minibatches": {"batches": [[0, 1], [2], [1, 0]]},
    "rates": {"rates": {"W1": 0.5, "b1": 0.5, "W2": 1.0, "b2": 0.0, "v": 0.25}},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name: str) -> None:
    p = mlp(depth=2, phi="tanh")
    assert against_networks(p, mlp_model, mlp_shapes, X, Y, 3, 0.4, tests=TESTS, **OPTIMISERS[name]) < 3.5


def classes() -> ns.Program:
    p = ns.Program("classes")
    n, x = p.width("n"), p.data("x")
    h = ns.tanh(p.matrix("W2", n, n) @ ns.tanh(p.matrix("W1", n, x) @ x + p.bias("b1", n)) + p.bias("b2", n))
    for k in range(3):
        p.output(p.readout(f"v{k}", n), h, name=f"class{k}")
    return p


def classes_model(p: Parameters, x: Tensor) -> Tensor:
    return torch.stack([mlp_model(p | {"v": p[f"v{k}"]}, x) for k in range(3)], -1)


def classes_shapes(n: int) -> Mapping[str, tuple[int, ...]]:
    return {k: s for k, s in mlp_shapes(n).items() if k != "v"} | {f"v{k}": (n,) for k in range(3)}


def cross_entropy(f: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(f.movedim(-1, 1), y.expand(f.shape[:-1]), reduction="none")


def test_cross_entropy_of_three_classes() -> None:
    y = np.array([0, 2, 1])
    more: dict[str, Any] = {"loss": "cross-entropy", "torch_loss": cross_entropy}
    assert against_networks(classes(), classes_model, classes_shapes, X, y, 3, 1.0, **more) < 3.5


def test_a_loss_by_its_expression() -> None:
    f, y = sp.symbols("f y")

    def logistic(a: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-a * b)

    more: dict[str, Any] = {"loss": sp.log(1 + sp.exp(-f * y)), "torch_loss": logistic}
    case = (mlp(depth=2, phi="tanh"), mlp_model, mlp_shapes, X, np.sign(Y), 2, 2.0)
    assert against_networks(*case, **more) < 3.5


# ---------------------------------------------------------------- at finite width


def same_as_networks(
    p: ns.Program, model: Model, shapes: Shapes, x: Array, y: Array, steps: int, lr: float, *, inputs: Any = None,
    tests: Array = None, n: int = 0, seeds: int = 0, loss: Any = "mse",
    torch_loss: Callable[[Tensor, Tensor], Tensor] = lambda f, y: (f - y).square() / 2, batches: Any = None,
    rates: Any = None, momentum: float = 0, decay: float = 0,
) -> None:  # fmt: skip
    """The lines at width 7 on one network's arrays are that network trained, to rounding."""
    q = ns.train(
        p, x if inputs is None else inputs, y, steps, lr if rates is None else rates, loss=loss, test_inputs=tests,
        batches=batches, momentum=momentum, weight_decay=decay,
    )  # fmt: skip
    schedule = [batches[t % len(batches)] if batches else range(len(y)) for t in range(steps)]
    wanted = trained(model, shapes, x, y, 7, 1, lr, schedule, torch_loss, True, tests, rates, momentum, decay, 3)
    arrays = {k: w[0] for k, w in drawn(shapes(7), 1, 3).items()}
    columns = {k: w.transpose(-1, -2) / 2**0.5 for k, w in arrays.items() if w.ndim > 1 and w.shape[-1] == 2}
    values = run(q, width=7, arrays=arrays | columns)
    found = torch.stack([values[r.value][0] for r in q.returned if r.name.startswith("f[")])
    torch.testing.assert_close(found, wanted[:, 0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_lines_are_torch_training(name: str) -> None:
    p, model, shapes, x, y, _, lr, more = NETWORKS[name]
    variants: list[dict[str, Any]] = [{}, {"momentum": 0.9, "decay": 0.3, "batches": [[0, 1], [1], [1, 0]]}]
    for optimiser in variants:
        same_as_networks(p, model, shapes, x, y, 4, lr, **more, **optimiser)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_lines_are_torch_optimisers(name: str) -> None:
    same_as_networks(mlp(depth=2, phi="tanh"), mlp_model, mlp_shapes, X, Y, 4, 0.4, tests=TESTS, **OPTIMISERS[name])


def test_many_steps() -> None:
    """Coefficients of the optimiser whose fractions would have more than a hundred digits."""
    case = (mlp(depth=2, phi="tanh"), mlp_model, mlp_shapes, X, Y, 25, 0.123)
    same_as_networks(*case, tests=TESTS, momentum=0.87, decay=0.0456)
    q = ns.train(mlp(depth=2, phi="tanh"), X, Y, 25, 0.123, momentum=0.87, weight_decay=0.0456)
    assert ns.parse(str(q)) == q and re.search(r"\d{25}", str(q)) is None


def scaled() -> ns.Program:
    """Widths n, 2n and n/2, multipliers, variances, a mean, a scale, and the square of an input beside it."""
    p = ns.Program("scaled")
    one, two, three = p.width("n"), p.width("n2", ratio=2), p.width("n3", ratio=Fraction(1, 2))
    x = p.data("x")
    U = p.matrix("U", one, x, var=2.0, multiplier=0.5, fan_in=3)
    b = p.bias("b", two, mean=0.5, var=0.25, multiplier=2.0)
    h = ns.tanh(p.matrix("W", two, one, var=0.5, multiplier=1.5) @ ns.tanh(U @ (x**2 + x)) + b)
    p.output(p.readout("v", three, multiplier=0.7), ns.tanh(p.matrix("V", three, two) @ h), scale=3.0)
    return p


def test_scales_and_widths() -> None:
    """Widths 8, 16 and 4 against torch: every rate is η times the readout's width, which f is divided by."""
    q = ns.train(scaled(), X, Y, 3, 0.4, momentum=0.5)
    arrays = {k: w[0] for k, w in drawn({"U": (8, 2), "W": (16, 8), "b": (16,), "V": (4, 16), "v": (4,)}, 1, 0).items()}
    params = {k: (w + 0.0).requires_grad_() for k, w in arrays.items()}
    optimiser = torch.optim.SGD(params.values(), lr=0.4 * 4, momentum=0.5)
    x, y, wanted = torch.as_tensor(X), torch.as_tensor(Y), []
    for _ in range(4):
        h = torch.tanh(0.5 * (x**2 + x) @ params["U"].T / 3**0.5)
        h = torch.tanh(1.5 * h @ params["W"].T / 8**0.5 + 2 * params["b"])
        f = 3 * 0.7 * torch.tanh(h @ params["V"].T / 16**0.5) @ params["v"] / 4
        wanted.append(f.detach())
        optimiser.zero_grad()
        ((f - y).square() / 2).mean().backward()
        optimiser.step()
    values = run(q, width=8, arrays=arrays | {"U": 0.5 * arrays["U"].T / 3**0.5})
    found = [values[r.value][0] for r in q.returned if r.name.startswith("f[")]
    torch.testing.assert_close(torch.stack(found), torch.stack(wanted), rtol=1e-10, atol=1e-12)


def test_the_lines_are_torch_cross_entropy() -> None:
    more: dict[str, Any] = {"loss": "cross-entropy", "torch_loss": cross_entropy, "momentum": 0.5}
    same_as_networks(classes(), classes_model, classes_shapes, X, np.array([0, 2, 1]), 4, 1.0, tests=TESTS, **more)


# ---------------------------------------------------------------- the program


def test_every_step_adds_as_many_lines() -> None:
    for p, x in ((mlp(depth=3), X[:2]), (rnn(), LONG), (cnn(readout="mean", axes=("pos",)), LONG)):
        counts = [len(ns.train(p, x, SIGNS, steps, 0.1).lines) for steps in (2, 3, 4, 5)]
        assert len(set(np.diff(counts))) == 1
        assert counts[-1] == len(ns.train(p, np.repeat(x, 3, 0), np.repeat(SIGNS, 3), 5, 0.1).lines)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_listing_is_the_program(name: str) -> None:
    p, _, _, x, y, *_, more = NETWORKS[name]
    q = ns.train(p, more.get("inputs", x), y, 2, 0.1, test_inputs=more.get("tests"), batches=[[0], [1, 0]])
    assert ns.parse(str(q)) == q


def test_no_steps_give_the_initial_output() -> None:
    q = ns.train(mlp(depth=2, phi="identity"), X, Y, 0, 0.1)
    r = ns.limit(q)
    assert [v.name for v in q.returned] == ["f[0]", "loss[0]"]
    assert list(r.scalar("f[0]")[0]) == [0, 0, 0]
    np.testing.assert_allclose(np.asarray(r.scalar("loss[0]"), dtype=float)[0], Y**2 / 2, rtol=1e-15)


def test_many_features_are_those_of_their_span() -> None:
    """Inputs of 5 features of which 3 are zero, and the same turned: the outputs do not change."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    wide = np.concatenate([X[:2], np.zeros((2, 3))], 1)
    p = mlp(depth=1, phi="square", var_b=None)
    one, two = (outputs(ns.train(p, x, SIGNS, 2, 0.1), 2)[0] for x in (wide, wide @ turn))
    np.testing.assert_allclose(one, two, atol=1e-13)
    narrow = mlp(depth=1, phi="square", var_b=None, var_w=0.4)  # f depends on ξ·ξ′/d: 2/5 of the variance, of the rate
    three = outputs(ns.train(narrow, X[:2], SIGNS, 2, {"W1": 0.1 * 0.4, "v": 0.1}), 2)[0]
    np.testing.assert_allclose(one, three, atol=1e-13)


def test_frozen_arrays_stay() -> None:
    p = mlp(depth=2, phi="tanh")
    q = ns.train(p, X, Y, 2, 0.1, freeze=("W1", "b1", "W2"))
    assert not any(v in q for v in ("h1_t1", "W1_t1", "b1_t1", "h2_t1"))
    assert {"b2_t1", "v_t1"} <= {line.out.name for line in q.lines}


def test_the_same_seed_gives_the_same_number() -> None:
    q = ns.train(mlp(depth=2, phi="tanh"), X, Y, 1, 0.1)
    one, two = (outputs(q, 1, samples=2**10, seed=3, methods=("sampled",))[0] for _ in range(2))
    assert (one == two).all()


# ---------------------------------------------------------------- refused


GOOD: dict[str, Any] = {"p": mlp(depth=1), "inputs": X, "targets": Y, "steps": 1, "lr": 0.1}
BAD: dict[str, tuple[Mapping[str, Any], str, str]] = {
    "steps": ({"steps": -1}, "NT630", "whole number"),
    "lr": ({"lr": -0.1}, "NT630", "lr of"),
    "lr nan": ({"lr": float("nan")}, "NT630", "lr of"),
    "lr of no array": ({"lr": {"W9": 1.0}}, "NT630", "W9"),
    "momentum": ({"momentum": "much"}, "NT630", "momentum"),
    "reduction": ({"reduction": "max"}, "NT630", "reduction"),
    "loss": ({"loss": "hinge"}, "NT630", "loss"),
    "symbols of a loss": ({"loss": sp.Symbol("f") * sp.Symbol("z")}, "NT630", "symbols z"),
    "one class": ({"loss": "cross-entropy"}, "NT630", "several outputs"),
    "class": ({"p": classes(), "loss": "cross-entropy", "targets": np.array([0, 3, 1])}, "NT630", "from 0 to 2"),
    "targets": ({"targets": Y[:2]}, "NT602", r"\[2\], expected \[3\]"),
    "targets of classes": ({"p": classes()}, "NT602", r"expected \[3, 3\]"),
    "targets nan": ({"targets": Y * np.nan}, "NT603", "targets"),
    "inputs": ({"inputs": X[0]}, "NT601", "dimensions"),
    "inputs nan": ({"inputs": X * np.nan}, "NT603", "sample 0"),
    "inputs ragged": ({"p": rnn(), "inputs": [[[1.0]], [[1.0], [2.0]], [[1.0]]]}, "NT634", "different sizes"),
    "inputs ragged arrays": ({"p": rnn(), "inputs": [X[:1], X[:2], X[:1]]}, "NT634", "one size"),
    "inputs of words": ({"inputs": [["a", "b"]] * 3}, "NT601", "not an array of numbers"),
    "inputs complex": ({"inputs": X * 1j}, "NT601", "complex"),
    "targets complex": ({"targets": Y * 1j}, "NT601", "complex"),
    "targets of words": ({"targets": ["a", "b", "c"]}, "NT601", "not an array of numbers"),
    "input names": ({"inputs": {"z": X}}, "NT604", "inputs are x"),
    "no samples": ({"inputs": X[:0], "targets": Y[:0]}, "NT602", "at least one"),
    "test inputs": ({"test_inputs": np.ones((1, 3))}, "NT602", "test"),
    "batch outside": ({"batches": [[0, 3]]}, "NT630", "sample 3"),
    "empty batch": ({"batches": [[]]}, "NT630", "sample numbers"),
    "no batches": ({"batches": []}, "NT630", "empty"),
    "freeze": ({"freeze": ("W9",)}, "NT630", "W9"),
    "nothing trained": ({"freeze": ("W1", "b1", "v")}, "NT631", "no trained array"),
    "output axes": ({"p": batchnorm_mlp(), "inputs": LONG, "targets": SIGNS}, "NT632", "batch"),
    "not BP-like": ({"p": tied_autoencoder()}, "NT201", "not BP-like"),
    "no output": ({"p": ns.Program("empty")}, "NT630", "no output"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    changes, code, text = BAD[name]
    with pytest.raises(ns.NetsorError, match=text) as error:
        ns.train(**GOOD | dict(changes))
    assert error.value.diagnostic.code == code


def test_divergence_names_its_step() -> None:
    """f is of order 1e45 after one step of such a rate, 1e270 after two: its square overflows."""
    q = ns.train(mlp(depth=1, phi="square", var_b=None), X, Y, 4, 1e15)
    with pytest.raises(ns.InputError, match=r"diverged: loss\[2\]") as error:
        ns.limit(q, samples=2**8, methods=("sampled",)).scalar("f[4]")
    assert error.value.diagnostic.code == "NT633"


def test_curves_of_loss(tmp_path: Path) -> None:
    """The table, the JSON and the figure; networks of width 512 are near the limit."""
    from netsor.compilers.predict.curves import curves

    q = ns.train(mlp(depth=1, phi="tanh"), X, Y, 2, 0.5)
    r = ns.limit(q, samples=2**12, methods=("sampled",))
    found = curves(r, (64, 512), 8)
    losses = [float(np.mean(np.asarray(r.scalar(f"loss[{t}]"), dtype=float))) for t in range(3)]
    np.testing.assert_allclose(found.losses, losses, rtol=1e-12)
    assert np.abs(found.finite[512].mean(0) - losses).max() < 0.05
    assert found.finite[64].shape == (8, 3)
    assert len(str(found).splitlines()) == 5
    assert found.as_dict()["finite"].keys() == {"64", "512"}
    pytest.importorskip("matplotlib")
    found.save(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000
