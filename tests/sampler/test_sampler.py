"""Sampling the limit variables: values, standard errors, and where the sampler is used."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import sympy as sp
import torch
from architectures import architecture
from load import Case, cases, load

import netsor as ns
from netsor import ir
from netsor.compilers.evaluate.results import KernelResult
from netsor.compilers.sampler import sampled
from netsor.compilers.sampler.linear import homogeneous, linear_lines
from netsor.compilers.sampler.matrices import Direction, triangular
from netsor.compilers.sampler.normals import Normals, scrambled
from netsor.passes.backward import backprop
from netsor.programs import (
    batchnorm_mlp,
    cnn,
    gia_counterexample,
    gru,
    lstm,
    maxpool_cnn,
    mlp,
    rnn,
    tied_autoencoder,
    transformer,
)

GATED = cases("gru_*", "lstm_*")
SAMPLED = cases("maxpool*", "bn_net_tanh_*", "bn_net_erf_*")
EXACT = ["mlp_relu2_special", "rnn_relu_avg_T3_T5", "tied_erf3_sum", "cnn1d_relu1_vec", "attn_tied_plain"]
CPU = torch.device("cpu")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ntk(result: KernelResult) -> torch.Tensor:
    assert result.ntk is not None
    return result.ntk


def close(result: KernelResult, key: str, expected: Any, allowed: Any = 0.0) -> None:
    """Within 5 standard errors of 16 scrambles (one entry in 6,000) and what the reference itself allows."""
    name, _, array = key.partition(".")
    value = result.terms[array] if name == "terms" and result.terms else getattr(result, key, None)
    if value is None:
        value = result.vectors[key]
    expected = torch.as_tensor(expected)
    error = result.errors[key]
    assert value.shape == expected.shape == error.shape
    assert bool(((value - expected).abs() <= 5 * error + torch.as_tensor(allowed) + 1e-12).all()), key


# ---------------------------------------------------------------- reference vectors


def blocks(case: Case) -> list[tuple[str, Any, Any]]:
    """(block, first input, second input) of the batchnorm networks; else the one call."""
    if not case.name.startswith("bn_net"):
        return [("", architecture(case.name).inputs, None)]
    x, y = (torch.as_tensor(case.inputs[k], dtype=torch.float64)[None] for k in ("X", "Xbar"))
    return [(".XX", x, None), (".XXbar", x, y)]


def stated(result: KernelResult, key: str, case: Case, block: str) -> None:
    """Within 3 standard errors and what the file allows; these are at most 0.2% of √(K_ii K_jj), or what it allows."""
    expected, allowed = (torch.as_tensor(f(key + block)) for f in (case.array, case.allowed))
    value, error = (x.reshape(expected.shape) for x in (getattr(result, key), result.errors[key]))
    ends = {"": ("", ""), ".XX": (".XX", ".XX"), ".XXbar": (".XX", ".XbarXbar")}[block]
    one, two = (torch.as_tensor(case.array(key + end)).diagonal().sqrt() for end in ends)
    assert bool((error <= torch.maximum(allowed, 0.002 * one[:, None] * two)).all()), key
    assert bool(((value - expected).abs() <= allowed + 3 * error).all()), key


@pytest.mark.parametrize("name", SAMPLED)
def test_maxima_and_smooth_functions_of_batches(name: str) -> None:
    case, p = load(name), architecture(name).program
    for block, x, y in blocks(case):
        result = sampled(p, x, y, samples=2**16)
        for key in ("nngp", "ntk"):
            stated(result, key, case, block)


@pytest.mark.parametrize("name", GATED)
def test_gated_recurrences(name: str) -> None:
    case, a = load(name), architecture(name)
    result = sampled(a.program, a.inputs, samples=2**17)
    for key in ("nngp", "ntk"):
        stated(result, key, case, "")


@pytest.mark.parametrize("name", EXACT)
def test_programs_with_an_exact_rule(name: str) -> None:
    """Ragged batches, windows, shared matrices, scalars: what is exact elsewhere is sampled right."""
    case, a = load(name), architecture(name)
    get = ("nngp", "ntk", "terms") if case.keys("terms") else ("nngp", "ntk")
    result = sampled(a.program, a.inputs, get=get, samples=2**14)
    for key in ("nngp", "ntk"):
        close(result, key, case.array(key), case.allowed(key))
    for key in case.keys("terms"):
        close(result, f"terms.{a.array(key.removeprefix('terms.'))}", case.array(key), case.allowed(key))


# ---------------------------------------------------------------- lines that are linear in readouts and Wᵀdh


@pytest.mark.parametrize("name", ["gru_T2_S2", "maxpool2_relu_L2_gap", "rnn_relu_avg_T3_T5"])
def test_gaussians_that_are_not_drawn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels and second moments of backward lines, with these Gaussian variables drawn and integrated."""
    a = architecture(name)
    p = backprop(a.program)
    gradients = sorted({g.is_.name for g in p.gradients if not (g.is_.dims and "rnn" in name)})  # unequal lengths
    get = ("nngp", "ntk", "terms", *gradients)
    known = sampled(p, a.inputs, get=get, samples=2**14)
    monkeypatch.setattr("netsor.compilers.sampler.linear.MOST", 0)
    drawn = sampled(p, a.inputs, get=get, samples=2**14, seed=1)
    for key, value in drawn.items():
        close(known, key, value, 5 * drawn.errors[key])
    if name == "gru_T2_S2":
        assert float(known.errors["ntk"].max()) < 0.5 * float(drawn.errors["ntk"].max())


def test_backward_lines_are_linear() -> None:
    """Every built-in program that passes the check; not where the readout has a mean, covaries, or is read forward."""
    for p in (gru(), lstm(), batchnorm_mlp(2, "tanh"), maxpool_cnn(2), transformer(), mlp(2), rnn()):
        q = backprop(p)
        found = linear_lines(q)
        assert {g.is_ for g in q.gradients} <= found.variables, p.name
    q = backprop(tied_autoencoder("tanh"))
    assert not linear_lines(q).variables
    assert not linear_lines(backprop(gia_counterexample("tanh"))).variables
    p = ns.Program("readout_inside")
    n = p.width("n")
    v = p.readout("v", n)
    p.output(v, p.let("y", ns.tanh(p.matrix("W", n, n) @ v)))
    assert not linear_lines(backprop(p)).variables


def test_linear_expressions() -> None:
    x, y, c = ir.arg(0), ir.arg(1), ir.param(0)
    assert homogeneous(sp.tanh(y) * x, [x])
    assert homogeneous(y * c + sp.sin(y) * x, [x, c])
    assert not homogeneous(x * c, [x, c])
    assert not homogeneous(x + 1, [x])
    assert not homogeneous(sp.Abs(x), [x])


# ---------------------------------------------------------------- widths, scales, vectors


def test_widths_multipliers_and_fan_in() -> None:
    """Ratios of widths, multipliers, a divisor of one's own, biases over axes, untrained arrays."""
    p = ns.Program("scales")
    m, n = p.width("m", ratio=0.5), p.width("n", ratio=3)
    x = p.data("x")
    h = p.matrix("W1", m, x, var=2, multiplier=0.5, fan_in=3) @ x
    y = ns.erf(h + p.bias("b", m, mean=0.3, var=0.4, multiplier=2))
    z = p.let("z", ns.erf(p.matrix("W2", n, m, var=1.5, multiplier=1.2) @ y))
    p.output(p.readout("v", n, var=0.7, multiplier=1.1), z, scale=0.9)
    inputs = normal(2, 4)
    exact = ns.compile(p)(inputs, get=("nngp", "ntk", "terms", "z"))
    result = sampled(p, inputs, get=("nngp", "ntk", "terms", "z"), samples=2**15)
    for key, value in exact.items():
        close(result, key, value)


def test_axes_of_the_output_and_returned_scalars() -> None:
    """Per-pixel outputs give kernels [N, N, pixel, pixel′]; scalars are [N]."""
    p = ns.Program("pixels")
    n = p.width("n")
    x = p.data("x", axes=("pixel",))
    h = p.let("h", ns.relu(p.matrix("W", n, x) @ x))
    p.output(p.readout("v", n), h)
    p.returns("size", ns.moment(h.sum("pixel") ** 2))
    inputs = normal(2, 3, 4)
    exact = ns.compile(p)(inputs, get=("nngp", "ntk", "size"))
    result = sampled(p, inputs, get=("nngp", "ntk", "size"), samples=2**14)
    assert result.nngp is not None
    assert result.nngp.shape == (2, 2, 3, 3)
    for key, value in exact.items():
        close(result, key, value)


# ---------------------------------------------------------------- identities


@cache
def pooled() -> tuple[ns.Program, torch.Tensor]:
    return maxpool_cnn(1, "relu", axes=("row",), pool=2), normal(3, 4, 2)


def test_the_same_inputs_twice_give_the_symmetric_call() -> None:
    p, x = pooled()
    one, two = sampled(p, x, samples=2**12), sampled(p, x, x.clone(), samples=2**12)
    for key in ("nngp", "ntk"):
        torch.testing.assert_close(getattr(one, key), getattr(two, key), rtol=1e-12, atol=1e-12)
    assert torch.equal(ntk(one), ntk(sampled(p, x, samples=2**12)))
    assert not torch.equal(ntk(one), ntk(sampled(p, x, samples=2**12, seed=1)))


def test_duplicate_and_opposite_inputs_are_exact() -> None:
    """x, x, −x, 2x: no new directions, so that kernels are equal, opposite and scaled to rounding."""
    x = normal(1, 3)
    k = sampled(mlp(1, "identity", var_b=0), torch.cat([x, x, -x, 2 * x]), get=["nngp"], samples=2**10).nngp
    assert k is not None
    scale = torch.tensor([1.0, 1.0, -1.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(k, k[0, 0] * scale[:, None] * scale, rtol=1e-12, atol=0)


def test_scrambled_points_are_nets() -> None:
    """Each coordinate has one point in each of 2^m cells, and equal beginnings stay equal (Owen's scrambling)."""
    points = torch.quasirandom.SobolEngine(7).draw(2**8, dtype=torch.float64).T
    cells = (points * 2**8).long()
    found = scrambled(cells, 8, torch.Generator().manual_seed(0))
    assert not torch.equal(found, cells)
    for before, after in zip(cells, found, strict=True):
        for digits in range(9):
            pairs = {(a >> 8 - digits, b >> 8 - digits) for a, b in zip(before.tolist(), after.tolist(), strict=True)}
            assert len(pairs) == len({b for _, b in pairs}) == 2**digits


def test_uses_of_one_matrix() -> None:
    """W z over three calls: dependent vectors bring no direction, images have σ² ⟨z, z̄⟩."""
    normals = Normals(2**12, 8, 0, 0, CPU)
    z = normals.draw(3)
    w = Direction(2.0)
    a = w.apply(z[:2], normals)
    b = w.apply(torch.stack([z[0] - 3 * z[1], z[0]]), normals)
    assert normals.used == 5
    torch.testing.assert_close(b, torch.stack([a[0] - 3 * a[1], a[0]]), rtol=1e-9, atol=1e-9)
    c = w.apply(z[2:], normals)
    images, known = torch.cat([a, c]), z @ z.T / 2**12
    torch.testing.assert_close(images @ images.T / 2**12, 4 * known, rtol=0, atol=0.05)


def test_rank_of_a_triangular_factor() -> None:
    rows = torch.tensor([[1.0, 0, 0], [2.0, 0, 0], [1.0, 1e-3, 0], [0, 0, 0], [0, 0, 5.0]], dtype=torch.float64)
    gram = rows @ rows.T
    factor, pivots = triangular(gram, gram.diagonal())
    assert pivots == [0, 2, 4]
    torch.testing.assert_close(factor @ factor.T, gram, rtol=0, atol=1e-12)


# ---------------------------------------------------------------- errors


def test_standard_errors_are_calibrated() -> None:
    """|error|/SE over 40 seeds is below 3 nearly always, and not always far below; SE halves when samples quadruple."""
    p, x = mlp(1, "relu"), normal(1, 2)
    exact = ntk(ns.compile(p)(x))
    runs = [sampled(p, x, get=("ntk",), samples=2**11, seed=s) for s in range(40)]
    ratios = torch.stack([(ntk(r) - exact).abs() / r.errors["ntk"] for r in runs])
    assert int((ratios > 3).sum()) <= 3
    assert 0.4 < float(ratios.median()) < 1.1  # Student's t with 15 degrees of freedom: 0.69
    more = [sampled(p, x, get=("ntk",), samples=2**13, seed=s) for s in range(10)]
    falls = torch.stack([a.errors["ntk"] / b.errors["ntk"] for a, b in zip(runs, more, strict=False)])
    assert float(falls.log().mean().exp()) > 1.9


def test_tolerance_is_met() -> None:
    p, x = pooled()
    loose, tight = sampled(p, x, tol=0.02), sampled(p, x, tol=0.002)
    assert loose.error is not None
    assert tight.error is not None
    assert tight.error <= 0.002 <= 0.02
    assert loose.error <= 0.02


# ---------------------------------------------------------------- in ns.compile


def test_a_kernel_without_an_exact_rule_is_sampled_and_says_so() -> None:
    p, x = pooled()
    kernel = ns.compile(p, samples=2**12, seed=3)
    result = kernel(x)
    assert result.method == "sampled"
    assert result.methods == {"nngp": "sampled", "ntk": "sampled"}
    assert result.error is not None
    assert torch.equal(ntk(result), ntk(sampled(p, x, samples=2**12, seed=3)))
    assert torch.equal(ntk(result), ntk(kernel.gram(x)))
    assert ntk(kernel(x.float()[:1], x.float()[1:])).dtype == torch.float32
    with pytest.raises(ns.UnsupportedError, match="its kernels are sampled"):
        kernel.source  # noqa: B018
    with pytest.raises(ns.UnsupportedError, match="no exact rule"):
        ns.derive(p)


@pytest.mark.parametrize("p", [mlp(2, "relu"), rnn("erf"), cnn(2, "tanh", axes=("row",))], ids=lambda p: p.name)
def test_an_exact_rule_is_not_bypassed(p: ns.Program) -> None:
    shape = {"mlp": (2, 3), "rnn": (2, 3, 3), "cnn": (2, 4, 3)}[p.name]
    result = ns.compile(p, samples=2**4)(normal(*shape), get=("nngp", "ntk", "terms"))
    assert "sampled" not in result.method
    assert not result.errors


def test_what_is_exact_stays_exact_beside_what_is_sampled() -> None:
    """A vector before the pooling has a rule, the kernels after it have none."""
    p, x = pooled()
    result = ns.compile(p, samples=2**12)(x, get=("ntk", "y1"))
    alone = ns.compile(p)(x, get="y1")
    assert "y1" not in result.errors
    assert torch.equal(result.vectors["y1"], alone.vectors["y1"])
    assert set(result.errors) == {"ntk"}
    assert "sampled" in result.method.split("+")
    assert alone.method != "sampled"
