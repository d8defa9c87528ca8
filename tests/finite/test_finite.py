"""Programs at finite width: convergence, the NTK by backward lines, by autograd and by brute force, inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import architecture
from load import Case, load

import netsor as ns
from netsor import programs
from netsor.compilers.experiment.figure import figure, save
from netsor.compilers.experiment.simulate import simulate
from netsor.compilers.finite import run
from netsor.compilers.finite.arrays import sample
from netsor.compilers.finite.inputs import bind
from netsor.compilers.finite.network import Network
from netsor.errors import InputError, ProgramError
from netsor.run.order import steps

# ---------------------------------------------------------------- convergence


def two_layers(case: Case, ratio: float) -> ns.Program:
    """The vector's MLP with a hand-written backward pass and the second width `ratio` times the first."""
    q = case.params
    phi = getattr(ns, q["phi"][0])
    p = ns.Program("mlp")
    x, n1, n2 = p.data("x"), p.width("n1"), p.width("n2", ratio)
    W1, b1 = p.matrix("W1", n1, x, var=q["sigma_w"][0] ** 2), p.bias("b1", n1, var=q["sigma_b"][0] ** 2)
    h1 = W1 @ x
    x1 = p.let("x1", phi(h1 + b1))
    W2, b2 = p.matrix("W2", n2, n1, var=q["sigma_w"][1] ** 2), p.bias("b2", n2, var=q["sigma_b"][1] ** 2)
    h2 = W2 @ x1
    x2 = p.let("x2", phi(h2 + b2))
    v = p.readout("v", n2, var=q["sigma_v"] ** 2)
    p.output(v, x2)
    dh2 = p.let("dh2", phi.prime(h2 + b2) * v)
    dh1 = p.let("dh1", phi.prime(h1 + b1) * (W2.T @ dh2))
    for y, dy in ((h2, dh2), (b2, dh2), (h1, dh1), (b1, dh1)):
        p.gradient(y, dy)
    return p


def converges(name: str, ratio: int, widths: list[int], seeds: int, chosen: list[int]) -> None:
    case = load(name)
    limit = {key: case.array(key)[np.ix_(chosen, chosen)] for key in ("nngp", "ntk")}
    result = simulate(
        two_layers(case, ratio),
        np.asarray(case.x)[chosen],
        [w // ratio for w in widths],
        seeds,
        limit=limit,
        dtype=torch.float32,
    )
    assert result.compared() == ["nngp", "ntk", "ntk_autograd"]
    for key in result.compared():
        assert abs(result.slope(key) + 0.5) < 0.1, (key, result.slope(key))
    assert result.agreement() < 1e-5


@pytest.mark.parametrize(
    ("name", "ratio", "chosen"), [("mlp_erf2_special", 3, [0, 2, 3]), ("mlp_relu2_paperE1", 1, [0, 1])]
)
def test_deviation_falls_like_the_root_of_the_width(name: str, ratio: int, chosen: list[int]) -> None:
    converges(name, ratio, [66, 129, 258, 513], 60, chosen)


@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "widths"), [(1, [64, 256, 1024, 2048]), (3, [64, 256, 1024, 4096])])
@pytest.mark.parametrize(("name", "chosen"), [("mlp_erf2_special", [0, 2, 3]), ("mlp_relu2_paperE1", [0, 1, 2])])
def test_slope_up_to_width_4096(name: str, ratio: int, widths: list[int], chosen: list[int]) -> None:
    """Matrices of 2048 × 2048 and of 4095 × 1365."""
    converges(name, ratio, widths, 40, chosen)


# ---------------------------------------------------------------- the two NTKs

NETWORKS: dict[str, tuple[Any, Any]] = {
    "mlp": (lambda: programs.mlp(depth=3, phi="tanh"), (3, 5)),
    "tied": (lambda: programs.mlp(depth=3, phi="erf", tied=True), (3, 5)),
    "rnn": (lambda: programs.rnn(readout="mean"), (3, 4, 5)),
    "cnn": (lambda: programs.cnn(depth=2, stride=2, var_b=0.1), (2, 5, 4, 3)),
    "cnn_gap": (lambda: programs.cnn(depth=2, readout="mean", phi="erf", padding="circular"), (2, 4, 4, 3)),
    "transformer": (lambda: programs.transformer(), (2, 3, 5)),
    "batchnorm": (lambda: programs.batchnorm_mlp(depth=2), (2, 4, 5)),
    "gru": (lambda: programs.gru(), (2, 3, 5)),
    "lstm": (lambda: programs.lstm(), (2, 3, 5)),
    "maxpool": (lambda: programs.maxpool_cnn(), (2, 6, 6, 3)),
    "resnet": (lambda: programs.resnet(var_b=0.2), (2, 5)),
    "tied_autoencoder": (lambda: programs.tied_autoencoder(), (3, 5)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_backward_lines_and_autograd_agree(name: str) -> None:
    make, shape = NETWORKS[name]
    x = np.random.default_rng(1).normal(size=shape)
    result = simulate(make(), x, [24], 2, limit=False)
    assert result.agreement() < 1e-10
    for array, value in result.terms.items():
        assert torch.allclose(
            value, result.kernel(f"terms_autograd.{array}"), atol=1e-10 * float(result.ntk.abs().max())
        )


@pytest.mark.parametrize("name", ["mlp", "rnn", "cnn", "transformer", "tied_autoencoder"])
def test_autograd_is_the_sum_over_all_parameters(name: str) -> None:
    """Θ from the Jacobian with respect to every entry of every trained array."""
    make, shape = NETWORKS[name]
    p = make()
    x = torch.from_numpy(np.random.default_rng(2).normal(size=shape))
    group = bind(p, x)[0]
    network = Network(p, steps(p.lines), group, 8)
    arrays = sample(p, network.binding, 0)
    names = [line.out.name for line in p.lines if getattr(line, "trainable", False)]
    tensors = [arrays[k].requires_grad_() for k in names]
    f = network.run(arrays).outputs["f"]
    rows = [torch.cat([g.flatten() for g in torch.autograd.grad(y, tensors, retain_graph=True)]) for y in f]
    jacobian = torch.stack(rows)
    result = simulate(p, x, [8], [0], limit=False)
    assert torch.allclose(result.kernel("ntk_autograd"), jacobian @ jacobian.T, rtol=1e-10)


def test_output_axes_of_both_ntks() -> None:
    x = np.random.default_rng(3).normal(size=(2, 3, 4))
    p = ns.Program()
    n, xi = p.width("n"), p.data("x", axes=("token",))
    h = p.matrix("W", n, xi) @ xi
    p.output(p.readout("v", n), ns.tanh(p.matrix("V", n, n) @ ns.tanh(h)) + h.mean("token"))
    result = simulate(p, x, [16], 2, limit=False)
    assert result.ntk.shape == result.nngp.shape == (2, 2, 3, 3)
    assert result.agreement() < 1e-12


@pytest.mark.parametrize("init", ["zero", "vector"])
@pytest.mark.parametrize("size", [None, 6])
def test_scan_over_a_strided_axis(init: str, size: int | None) -> None:
    p = ns.Program()
    n, axis = p.width("n"), p.axis("t", size)
    xi = p.data("x", axes=(axis,))
    h = (p.matrix("W", n, xi) @ xi).window("t", size=2, stride=2, padding="valid").sum("k")
    V = p.matrix("V", n, n)
    s = p.scan("t", 0 if init == "zero" else p.vector("a", n), lambda s: ns.tanh(V @ s + h))
    p.output(p.readout("v", n), s.at("t", -1))
    assert s.dims == h.dims
    assert simulate(p, np.ones((2, 6, 3)), [8], 1, limit=False).agreement() < 1e-10


# ---------------------------------------------------------------- samples of different size


def test_ragged_samples_equal_single_ones() -> None:
    case = load("rnn_relu_avg_T3_T5")
    a = architecture("rnn_relu_avg_T3_T5")
    result = simulate(a.program, a.inputs, [512], 20, limit={k: case.array(k) for k in ("nngp", "ntk")})
    assert result.agreement() < 1e-12
    assert result.mean("ntk", 512) < 0.15 and result.mean("nngp", 512) < 0.15
    for i, sequence in enumerate(a.inputs):
        alone = simulate(a.program, sequence[None], [512], 20, limit=False)
        assert torch.allclose(alone.kernels("ntk", 512)[:, 0, 0], result.kernels("ntk", 512)[:, i, i])


def test_readout_over_positions_meets_up_to_the_smaller_size() -> None:
    p = ns.Program()
    n, xi = p.width("n"), p.data("x", axes=("t",))
    p.output(p.readout("v", n, axes=("t",)), p.matrix("W", n, xi) @ xi)
    x = [np.ones((3, 2)), np.ones((5, 2))]
    result = simulate(p, x, [2000], 10, limit=False)
    expected = torch.tensor([[1.0, (3 / 5) ** 0.5], [(3 / 5) ** 0.5, 1.0]], dtype=torch.float64)
    assert torch.allclose(result.nngp, expected, atol=0.05)
    assert torch.allclose(result.ntk, 2 * expected, atol=0.1)


# ---------------------------------------------------------------- arrays


def test_covariances_of_input_vectors() -> None:
    p = ns.Program()
    n, t = p.width("n"), p.axis("t", 2)
    m = ((2.0, 0.6), (0.6, 1.0))
    p.vector("a", n, mean=0.5, var=3, axes=(t,), axis_cov=m, multiplier=2)
    p.vector("b", n, var=2, cov={p["a"]: 0.4})
    values = {v.name: x[0] for v, x in run(p, width=400_000).items()}
    joint = torch.stack([values["a"][0] / 2, values["a"][1] / 2, values["b"]])
    assert torch.allclose(joint.mean(1), torch.tensor([0.5, 0.5, 0.0]).double(), atol=0.02)
    expected = torch.tensor([[6.0, 1.8, 0.4], [1.8, 3.0, 0.4], [0.4, 0.4, 2.0]]).double()
    assert torch.allclose(torch.cov(joint), expected, atol=0.05)


def test_impossible_covariances_are_refused() -> None:
    p = ns.Program()
    n = p.width("n")
    p.vector("b", n, cov={p.vector("a", n): 2})
    with pytest.raises(InputError, match="not those of any vectors"):
        run(p)


def test_same_seed_same_result_and_moments_of_vectors() -> None:
    p, x = programs.rnn(), np.random.default_rng(4).normal(size=(2, 3, 4))
    a, b = (simulate(p, x, [32], 2, limit=False, vectors=("s",)) for _ in range(2))
    for key in a.keys():  # noqa: SIM118 - not a dict
        assert torch.equal(a.kernels(key, 32), b.kernels(key, 32))
    s = run(p, x, 32, 0)[p["s"].var]
    expected = torch.einsum("itn,jrn->ijtr", s, s) / 32
    assert torch.allclose(a.kernels("vectors.s", 32)[0], expected)


def test_outputs_are_gaussian_with_the_nngp() -> None:
    p, x = programs.mlp(depth=1), np.array([[1.0, 0.5], [-0.3, 0.8]])
    result = simulate(p, x, [64], 1000, limit=False, methods=())
    assert torch.allclose(result.output_kernel(), result.nngp, atol=0.2 * float(result.nngp.max()))


# ---------------------------------------------------------------- inputs that do not fit


def two_inputs() -> ns.Program:
    p = ns.Program()
    n = p.width("n")
    x, y = p.data("x", axes=("t",)), p.data("y", axes=("t",))
    m = p.scalar("m", axes=("t",), per_sample=True)
    p.output(p.readout("v", n), ((p.matrix("U", n, x) @ x + p.matrix("V", n, y) @ y) * m).sum("t"))
    return p


X = np.ones((2, 3, 4))
NAN = np.where(np.arange(24).reshape(2, 3, 4) == 17, np.nan, 1.0)
WRONG: dict[str, tuple[Any, Any, str, str]] = {
    "rank": (programs.mlp, np.ones((2, 3, 4)), "NT601", r"x takes arrays \[sample, feature\], and sample 0 has 2 dim"),
    "not numbers": (programs.mlp, "abc", "NT601", "x is not an array of numbers"),
    "nan": (programs.rnn, NAN, "NT603", "sample 1 of x contains NaN"),
    "infinite": (programs.rnn, np.full((1, 2, 3), np.inf), "NT603", "sample 0 of x contains an infinite number"),
    "one array": (two_inputs, X, "NT604", r"inputs are x, y, m, and one array was given"),
    "missing": (two_inputs, {"x": X, "y": X}, "NT604", "missing m"),
    "unknown": (programs.mlp, {"x": X[:, 0], "z": X}, "NT604", "unknown z"),
    "samples": (two_inputs, {"x": X, "y": X[:1], "m": X[:, :, 0]}, "NT602", "different numbers of samples"),
    "sizes": (two_inputs, {"x": X, "y": X[:, :2], "m": X[:, :, 0]}, "NT602", "the axis t of y has size 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_are_one_clear_error(name: str) -> None:
    make, x, code, message = WRONG[name]
    with pytest.raises(InputError, match=message) as error:
        run(make(), x, width=4)
    assert error.value.diagnostic.code == code


def test_device_memory_and_circles() -> None:
    with pytest.raises(InputError, match="the device nowhere cannot be used"):
        run(programs.mlp(), X[:, 0], device="nowhere")
    with pytest.raises(InputError, match=r"take \d+\.\d GB, more than memory"):
        simulate(programs.mlp(), X[:, 0], [100_000], 1, limit=False)
    p = ns.Program()
    x = p.data("x", axes=("t",))
    h = p.matrix("W", p.width("n"), x) @ x
    p.scan("t", 0, lambda s: s + h + s.mean("t"))
    with pytest.raises(ProgramError, match="depend on each other in a circle"):
        run(p, X)


def test_device(device: str) -> None:
    result = simulate(programs.rnn(), np.ones((2, 3, 4)), [16], 2, limit=False, device=device)
    assert result.agreement() < 1e-10 and result.ntk.device.type == "cpu"


# ---------------------------------------------------------------- files


def test_an_interrupted_simulation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p, x, store = programs.mlp(), np.ones((2, 3)), tmp_path / "runs.jsonl"
    first = simulate(p, x, [8, 16], 2, limit=False, store=store)
    store.write_text(store.read_text() + '{"simulation": "interru')
    with monkeypatch.context() as m:
        m.setattr("netsor.compilers.finite.network.Network.run", None)  # nothing runs again
        again = simulate(p, x, [8, 16], 2, limit=False, store=store)
    for width in (8, 16):
        assert torch.equal(first.kernels("ntk", width), again.kernels("ntk", width))
    other = simulate(p, 2 * x, [8], 1, limit=False, store=store)
    assert not torch.equal(other.kernels("ntk", 8)[0], first.kernels("ntk", 8)[0])


def test_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    case = load("mlp_relu2_paperE1")
    limit = {key: case.array(key) for key in ("nngp", "ntk")}
    result = simulate(two_layers(case, 1), case.x, [16, 32], 4, limit=limit)
    save([result], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    labels = [line.get_label() for line in figure([result]).axes[0].get_lines()]
    assert labels == [
        f"mlp nngp (slope {result.slope('nngp'):.2f})",
        f"mlp ntk (slope {result.slope('ntk'):.2f})",
        "$n^{-1/2}$",
    ]
    assert "slope" in str(result) and result.as_dict()["deviation"]["ntk"]["mean"] == [
        result.mean("ntk", w) for w in (16, 32)
    ]


# ---------------------------------------------------------------- softmax


def attention(mask: list[int] | None) -> ns.Program:
    """Attention of the first token to three; the queries and keys are the tokens."""
    p = ns.Program("attention")
    n, x = p.width("n"), p.data("x", axes=(p.axis("token", 3),))
    h = p.matrix("W", n, x) @ x
    keys = h.rename({"token": "key"})
    weights = ns.softmax(ns.dot(h, keys), "key", None if mask is None else p.constant(mask, ("key",)))
    p.output(p.readout("v", n), (weights * keys).sum("key").at("token", 0))
    return p


def test_a_mask_of_ones_changes_no_gradient() -> None:
    """The largest score counts whole: the NTK by autograd is that without a mask."""
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = [
        simulate(attention(mask), x, widths=(16,), seeds=1, limit=False, methods=("autograd",), progress=False)
        for mask in (None, [1, 1, 1])
    ]
    first, second = (f.ntk for f in found)
    torch.testing.assert_close(first, second, rtol=1e-12, atol=0)
