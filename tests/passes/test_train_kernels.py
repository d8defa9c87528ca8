"""Kernels of trained networks: against autograd of ordinary networks, the NTK at the start, and exact numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from finite_sgd import Model, Parameters, Shapes, drawn, tangent_kernel, trained
from passes.test_train import (
    LONG,
    NETWORKS,
    SIGNS,
    TESTS,
    X,
    Y,
    classes,
    classes_model,
    classes_shapes,
    cross_entropy,
    linear,
)
from torch import Tensor

import netsor as ns
from netsor.compilers.finite import run
from netsor.programs import mlp, rnn

WIDTH, STEPS = 7, 3


def found_and_wanted(
    p: ns.Program, model: Model, shapes: Shapes, x: Any, y: Any, lr: float, inputs: Any = None, tests: Any = None,
    loss: Any = "mse", torch_loss: Any = lambda f, y: (f - y).square() / 2,
) -> tuple[dict[str, Tensor], list[Tensor]]:  # fmt: skip
    """What the lines return at width 7, and the NTK of the same network trained by torch after every step."""
    given = x if inputs is None else inputs
    q = ns.train(p, given, y, STEPS, lr, loss=loss, test_inputs=tests, kernels=range(STEPS + 1))
    arrays = {k: w[0] for k, w in drawn(shapes(WIDTH), 1, 3).items()}
    columns = {k: w.transpose(-1, -2) / 2**0.5 for k, w in arrays.items() if w.ndim > 1 and w.shape[-1] == 2}
    values = run(q, width=WIDTH, arrays=arrays | columns)
    kernels: list[Tensor] = []

    def see(params: Parameters, data: Tensor) -> None:
        kernels.append(tangent_kernel(model, params, data, WIDTH))

    trained(model, shapes, x, y, WIDTH, 1, lr, [range(len(y))] * STEPS, torch_loss, True, tests, seed=3, see=see)
    return {r.name: values[r.value][0] for r in q.returned}, kernels


@pytest.mark.parametrize("name", NETWORKS)
def test_the_ntk_of_trained_networks(name: str) -> None:
    p, model, shapes, x, y, _, lr, more = NETWORKS[name]
    options = {k: v for k, v in more.items() if k in ("inputs", "tests")}
    found, wanted = found_and_wanted(p, model, shapes, x, y, lr, **options)
    for t, kernel in enumerate(wanted):
        torch.testing.assert_close(found[f"ntk[{t}]"], kernel, rtol=1e-10, atol=1e-12)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    product: Tensor = torch.dot(a.flatten(), b.flatten())
    return product.div(a.norm() * b.norm())


def test_the_ntk_of_several_outputs_and_alignments() -> None:
    y = np.array([0, 2, 1])
    more: dict[str, Any] = {"loss": "cross-entropy", "torch_loss": cross_entropy, "tests": TESTS}
    found, wanted = found_and_wanted(classes(), classes_model, classes_shapes, X, y, 1.0, **more)
    hot = torch.eye(3, dtype=torch.float64)[y]
    for t, kernel in enumerate(wanted):
        torch.testing.assert_close(found[f"ntk[{t}]"], kernel, rtol=1e-10, atol=1e-12)
        outer = torch.einsum("ik,jl->ijkl", hot, hot)
        torch.testing.assert_close(found[f"ntk_alignment[{t}]"], cosine(kernel[:3, :3], outer))
        features = found[f"features[{t}]"]
        torch.testing.assert_close(found[f"features_alignment[{t}]"], cosine(features[:3, :3], hot @ hot.T))
        if t > 0:
            torch.testing.assert_close(found[f"ntk_cosine[{t}]"], cosine(kernel, wanted[0]))
            torch.testing.assert_close(found[f"features_cosine[{t}]"], cosine(features, found["features[0]"]))


def test_alignments_of_one_output() -> None:
    p, model, shapes, x, y, _, lr, more = NETWORKS["mlp"]
    found, wanted = found_and_wanted(p, model, shapes, x, y, lr, **more)
    target = torch.as_tensor(y)
    for t, kernel in enumerate(wanted):
        k = kernel[:3, :3]
        alignment = target @ k @ target / (k.norm() * target.square().sum())
        torch.testing.assert_close(found[f"ntk_alignment[{t}]"], alignment)


@pytest.mark.parametrize(("p", "x"), [(mlp(depth=2, phi="erf"), X), (rnn(phi="erf"), LONG)], ids=["mlp", "rnn"])
def test_at_the_start_it_is_the_ntk(p: ns.Program, x: Any) -> None:
    r = ns.limit(ns.train(p, x, np.arange(len(x)) - 0.5, 0, 0.1, kernels=[0]), samples=2**15, methods=("sampled",))
    wanted = ns.compile(p)(x, get=("nngp", "ntk"))
    for name, kernel in (("ntk[0]", wanted.ntk), ("features[0]", wanted.nngp)):
        error = r.error("scalar", name)[0]
        assert (np.abs(r.scalar(name)[0] - np.asarray(kernel)) <= 4 * error + 1e-9).all()
        assert (error < 0.02).all()


def test_kernels_of_a_linear_network_are_exact() -> None:
    """Θ = Σ ⟨∂f, ∂f′⟩ moves f by −η Θ χ: the derivative of f[1] by the rate at 0, from three small rates."""
    x, y = np.array([[0.5, -0.25], [1.0, 0.75]]), np.array([1.0, -0.5])
    rates = [sp.Rational(1, 2**k) for k in (3, 4, 5)]
    f = [ns.limit(ns.train(linear(2), x, y, 1, float(r), reduction="sum")).scalar("f[1]")[0] for r in rates]
    r = ns.limit(ns.train(linear(2), x, y, 0, 0.1, kernels=[0]), methods=("exact",))
    theta = r.scalar("ntk[0]")[0]
    assert all(isinstance(value, sp.Rational) for value in theta.flat)
    eta = sp.Symbol("eta")
    for i in range(2):
        through = sp.interpolate(
            [(0, 0), *zip(rates, (v[i] for v in f), strict=True)], eta
        )  # f[1] is a cubic in the rate
        slope = sp.diff(through, eta).subs(eta, 0)
        assert slope == sum(theta[i, j] * sp.nsimplify(y[j]) for j in range(2))


def test_features_are_the_second_moments_of_the_last_layer() -> None:
    q = ns.train(mlp(depth=2, phi="tanh"), X, Y, 2, 0.5, kernels=(0, 2))
    r = ns.limit(q, samples=2**12, methods=("sampled",))
    np.testing.assert_allclose(r.scalar("features[2]")[0], r.second_moment("x2_t2")[0, 0], rtol=1e-12)


def test_targets_of_zero_have_no_alignment() -> None:
    q = ns.train(mlp(depth=1), X, 0 * Y, 1, 0.1, kernels=[1])
    assert not any("alignment" in r.name for r in q.returned)


@pytest.mark.parametrize("kernels", [[4], [-1], [0.5], 3, ["last"]])
def test_steps_of_kernels_are_steps(kernels: Any) -> None:
    with pytest.raises(ns.InputError, match="from 0 to 3") as error:
        ns.train(mlp(depth=1), X, Y, 3, 0.1, kernels=kernels)
    assert error.value.diagnostic.code == "NT630"


def test_a_kernel_that_was_not_asked_for() -> None:
    r = ns.limit(ns.train(mlp(depth=1), X, Y, 3, 0.1, kernels=[1]))
    with pytest.raises(ns.InputError, match=r"kernels=\(3,\)"):
        r.scalar("ntk[3]")


def test_the_listing_holds_the_kernels() -> None:
    q = ns.train(rnn(), LONG, SIGNS, 2, 0.1, kernels=(0, 2))
    assert ns.parse(str(q)) == q


def test_simulations_of_trained_programs() -> None:
    """Networks of growing width against the limit; f[0] = 0 has no relative deviation."""
    q = ns.train(mlp(depth=2, phi="tanh"), X, Y, 1, 0.5, kernels=[1])
    s = ns.simulate(q, widths=(32, 64, 128), seeds=24, limit=ns.limit(q, samples=2**14), progress=False)
    assert "f[0]" in s.keys() and "f[0]" not in s.compared()  # noqa: SIM118 - not a dict
    assert {"f[1]", "loss[0]", "ntk[1]", "ntk_alignment[1]"} <= set(s.compared())
    assert s.kernels("ntk[1]", 64).shape == (24, 1, 3, 3)
    for name in ("f[1]", "loss[1]", "ntk[1]"):
        assert abs(s.slope(name) + 0.5) < 0.25
        assert s.mean(name, 128) < 0.5
    only = ns.simulate(q, widths=(8,), seeds=1, limit=False, scalars=["f[1]"], progress=False)
    assert only.keys() == ["f[1]"]
    with pytest.raises(ns.InputError, match=r"returns no f\[7\]"):
        ns.simulate(q, widths=(8,), seeds=1, scalars=["f[7]"], progress=False)
