"""The compiled kernel as users call it: shapes, blocks, memory, ragged batches, dtypes, gradients, saving, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

import netsor as ns
from netsor import programs
from netsor.errors import CheckError, InputError


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------- calls


def test_symmetric_call_equals_two_copies_at_every_tile() -> None:
    x = data(7, 5)
    kernel = ns.compile(programs.mlp(3, "erf", 1.3, 0.2))
    whole = kernel(x, x.clone())
    for tile in (1, 2, 3, 7):
        found = kernel.gram(x, tile=tile)
        torch.testing.assert_close(found.ntk, whole.ntk, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found.nngp, whole.nngp, rtol=1e-12, atol=1e-12)


def test_number_of_blocks() -> None:
    kernel = ns.compile(programs.mlp(1))
    kernel.gram(data(7, 5), data(4, 5), tile=2)
    assert kernel.calls == 8
    kernel.gram(data(6, 5), tile=2)  # the upper half: 3 + 2 + 1
    assert kernel.calls == 14


def test_output_axes_mirror_in_the_symmetric_call() -> None:
    """With output axes the transposed block exchanges the copies' axes too."""
    x = data(3, 4, 6)
    kernel = ns.compile(programs.batchnorm_mlp(1, "relu", 0.1))
    torch.testing.assert_close(kernel.gram(x, tile=1).ntk, kernel(x, x.clone()).ntk, rtol=1e-9, atol=1e-11)


def test_memory_budget() -> None:
    kernel = ns.compile(programs.cnn(2))
    x = data(6, 5, 5, 3)
    torch.testing.assert_close(kernel.gram(x, memory="1MB").ntk, kernel(x).ntk, rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="give at least memory="):
        kernel.gram(x, memory="1kB")
    with pytest.raises(InputError, match="'2GB'"):
        kernel.gram(x, memory="much")


def test_ragged_batch_equals_calls_per_size() -> None:
    rows = [data(n, 3, seed=n) for n in (7, 9, 7)]
    kernel = ns.compile(programs.rnn("erf"))
    found = kernel(rows).ntk
    assert found is not None
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            alone = kernel(a[None], b[None]).ntk
            assert alone is not None
            torch.testing.assert_close(found[i, j], alone[0, 0], rtol=1e-12, atol=1e-12)


def test_ragged_output_axes_are_an_error() -> None:
    with pytest.raises(InputError, match="once per size"):
        ns.compile(programs.batchnorm_mlp(1, "relu", 0.1))([data(3, 5), data(4, 5)])


def test_get_takes_vectors_and_scalars() -> None:
    p = programs.mlp(2, "relu")
    p.returns("q", ns.moment(p["x1"] ** 2))
    result = ns.compile(p)(data(3, 4), get=("h2", "q"))
    assert result.nngp is None and result.ntk is None
    assert result.vectors["q"].shape == (3,)
    torch.testing.assert_close(result.vectors["h2"].diagonal(), result.vectors["q"], rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="has no vector 'nope'"):
        ns.compile(p)(data(3, 4), get="nope")


def test_terms_add_up_and_a_tied_array_is_one_key() -> None:
    x = data(3, 4)
    result = ns.compile(programs.mlp(3, "erf", tied=True))(x, get=("ntk", "terms"))
    assert result.terms is not None and result.ntk is not None
    assert "W" in result.terms
    torch.testing.assert_close(sum(result.terms.values()), result.ntk, rtol=1e-12, atol=1e-12)


def test_dtypes() -> None:
    kernel = ns.compile(programs.mlp(2, "tanh"))
    x = data(4, 5)
    assert kernel(x.float()).ntk.dtype == torch.float32
    assert kernel(x.numpy().astype(np.float32)).ntk.dtype == torch.float32
    assert kernel(x.float(), x).ntk.dtype == torch.float64
    assert kernel([[1, 2], [3, 4]]).ntk.dtype == torch.float64
    assert ns.compile(programs.mlp(2), dtype="float32")(x).ntk.dtype == torch.float32


@pytest.mark.parametrize("phi", ["relu", "erf", "abs", "tanh", "gelu"])
def test_float32_stays_close_to_float64(phi: str) -> None:
    x = data(12, 30)
    x = torch.cat([x, x[:3] + 1e-4 * data(3, 30, seed=5), -x[:2], x[:1]])
    kernel = ns.compile(programs.mlp(4, phi, 1.5, 0.1))
    for half, full in zip(kernel(x.float()).items(), kernel(x).items(), strict=True):
        assert float((half[1] - full[1]).abs().max()) <= 1e-5 * float(full[1].abs().max())


def test_several_outputs() -> None:
    p = ns.Program("two")
    n = p.width("n")
    h = ns.relu(p.matrix("W", n, p.data("x")) @ p["x"])
    p.output(p.readout("v", n), h, name="f")
    p.output(p.readout("w", n), 2 * h, name="g")
    f, g = (ns.compile(p, output=o)(data(2, 3)).nngp for o in "fg")
    torch.testing.assert_close(g, 4 * f)
    with pytest.raises(InputError, match="several outputs"):
        ns.compile(p)(data(2, 3))


def test_functions_of_data() -> None:
    """An embedding of φ(ξ) is the kernel of the transformed data."""
    p = ns.Program("features")
    n = p.width("n")
    x = p.data("x")
    p.output(p.readout("v", n), ns.relu(p.matrix("W", n, x) @ (ns.tanh(x) + x**2)))
    plain = ns.compile(programs.mlp(1, "relu", var_b=None))
    z = data(4, 6)
    torch.testing.assert_close(ns.compile(p)(z).ntk, plain(torch.tanh(z) + z**2).ntk, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- numeric functions, saving, cost


def test_numeric_function_equals_its_expression() -> None:
    wave = ns.numeric("wave", lambda x: torch.sin(3 * x), derivative=lambda x: 3 * torch.cos(3 * x), parity="odd",
                      growth="bounded")  # fmt: skip
    x = data(4, 3)
    expression = ns.function("wave2", lambda x: ns.sin(3 * x))
    a, b = (ns.compile(programs.mlp(1, f))(x) for f in (wave, expression))
    torch.testing.assert_close(a.ntk, b.ntk, rtol=1e-8, atol=1e-9)


def test_saved_module_runs_alone(tmp_path: Path) -> None:
    kernel = ns.compile(programs.rnn("relu"))
    kernel.save(tmp_path / "kernels.py")
    x = data(2, 3, 4)
    np.save(tmp_path / "x.npy", x.numpy())
    code = "import kernels, numpy, torch; print(repr(kernels.ntk(torch.tensor(numpy.load('x.npy'))).tolist()))"
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
                         env={"PYTHONPATH": str(Path(ns.__file__).parent.parent), "PATH": ""})  # fmt: skip
    np.testing.assert_allclose(eval(out.stdout), kernel(x).ntk.numpy(), rtol=1e-12)
    assert "import netsor" not in kernel.source.replace("from netsor.compilers import runtime as rt", "")


def test_cost_counts_the_integrals_of_batch_normalisation() -> None:
    """Every entry of every pair is a sum over the 109² nodes of a double integral."""
    kernel = ns.compile(programs.batchnorm_mlp(1))
    small, large = (kernel.cost(2, 3, {"batch": b, "feature": 5}) for b in (4, 8))
    assert small.operations > 2 * 3 * 4 * 4 * 109**2
    assert large.operations == pytest.approx(4 * small.operations, rel=0.01)
    assert large.peak > small.peak > 8 * 109**2 * 4 * 4


def test_cost_grows_linearly_in_depth_and_pairs() -> None:
    costs = [ns.compile(programs.mlp(d)).cost(10, 20, {"feature": 7}).operations for d in (4, 8, 16)]
    assert costs[2] - costs[1] == pytest.approx(2 * (costs[1] - costs[0]), rel=1e-6)
    one, two = (ns.compile(programs.mlp(4)).cost(n, 20, {"feature": 7}).operations for n in (10, 20))
    assert two == 2 * one
    with pytest.raises(InputError, match="col, row"):
        ns.compile(programs.cnn(2)).cost(10)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (data(2, 3, 4), "dimensions, the program wants 2"),
        (torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]), "not finite in sample 1"),
        ("text", "not an array of numbers"),
        ({"y": data(2, 3)}, "missing x"),
    ],
)
def test_wrong_inputs(x: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ns.compile(programs.mlp(1))(x)


def test_different_features() -> None:
    with pytest.raises(InputError, match="3 features in the first batch and 5"):
        ns.compile(programs.mlp(1))(data(2, 3), data(2, 5))


def test_missing_device_and_dtype() -> None:
    with pytest.raises(InputError, match="cannot be used"):
        ns.compile(programs.mlp(1), device="cuda:99")
    with pytest.raises(InputError, match="float32 or float64"):
        ns.compile(programs.mlp(1), dtype="int8")


def test_refusals() -> None:
    with pytest.raises(CheckError, match=r"assume_gia=True"):
        ns.compile(programs.tied_autoencoder())
    with pytest.raises(CheckError, match="step jumps"):
        ns.compile(programs.mlp(1, "step"))(data(2, 3), get="ntk")
    assert ns.compile(programs.mlp(1, "step"))(data(2, 3), get="nngp").nngp is not None


# ---------------------------------------------------------------- gradients


def reference_kernel(phi: str, x: Any, y: Any) -> Any:
    """NTK of a two-layer perceptron with biases (variances 1.3, 0.2, 0.9), in mpmath."""
    d = len(x)

    def pair(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
        if phi == "erf":
            root = mpmath.sqrt((1 + 2 * a) * (1 + 2 * b))
            slope = 4 / (mpmath.pi * mpmath.sqrt((1 + 2 * a) * (1 + 2 * b) - 4 * c * c))
            return 2 / mpmath.pi * mpmath.asin(2 * c / root), slope
        cosine = c / mpmath.sqrt(a * b)
        cosine = max(min(cosine, mpmath.mpf(1)), mpmath.mpf(-1))
        angle = mpmath.pi - mpmath.acos(cosine)
        arc = mpmath.sqrt(1 - cosine**2) + angle * cosine
        return arc * mpmath.sqrt(a * b) / (2 * mpmath.pi), angle / (2 * mpmath.pi)

    w, b, v = (mpmath.mpf(s) for s in ("1.3", "0.2", "0.9"))
    inner = {
        k: sum(p * q for p, q in zip(*z, strict=True)) / d for k, z in (("xx", (x, x)), ("yy", (y, y)), ("xy", (x, y)))
    }
    k = {key: w * value + b for key, value in inner.items()}
    theta = inner["xy"] + 1
    for last in (False, True):
        value, slope = pair(k["xx"], k["yy"], k["xy"])
        theta = theta * slope
        if last:
            return value + v * theta
        theta = w * theta + value + 1
        k = {"xx": w * pair(k["xx"], k["xx"], k["xx"])[0] + b, "yy": w * pair(k["yy"], k["yy"], k["yy"])[0] + b,
             "xy": w * value + b}  # fmt: skip
    return None


POINTS = {
    "general": ([0.3, -1.2, 0.7], [1.1, 0.4, -0.6]),
    "equal": ([0.3, -1.2, 0.7], [0.3, -1.2, 0.7]),
    "opposite": ([0.3, -1.2, 0.7], [-0.3, 1.2, -0.7]),
    "zero": ([0.0, 0.0, 0.0], [1.1, 0.4, -0.6]),
    "both zero": ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("phi", ["relu", "erf"])
@pytest.mark.parametrize("point", list(POINTS))
def test_input_gradients_against_many_digits(phi: str, point: str) -> None:
    """Where relu's kernel has a cone (equal inputs) the symmetric derivative is meant."""
    a, b = POINTS[point]
    x = torch.tensor([a], dtype=torch.float64, requires_grad=True)
    out = ns.compile(programs.mlp(2, phi, 1.3, 0.2, 0.9))(x, torch.tensor([b], dtype=torch.float64)).ntk
    assert out is not None
    (grad,) = torch.autograd.grad(out.sum(), x)
    with mpmath.workdps(40):
        u, v = [mpmath.mpf(t) for t in a], [mpmath.mpf(t) for t in b]
        step = mpmath.mpf(10) ** -12
        slopes = []
        for i in range(3):
            ends = [reference_kernel(phi, [t + s * step * (j == i) for j, t in enumerate(u)], v) for s in (1, -1)]
            slopes.append(float((ends[0] - ends[1]) / (2 * step)))
    np.testing.assert_allclose(grad[0].numpy(), slopes, rtol=1e-8, atol=1e-9)
