"""Batch normalisation by the radial rule, against vectors and in the cases where it is delicate."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest
import torch
from engine_functions import absolute, relu
from load import assert_close, cases, load
from torch import Tensor

import netsor as ns
from netsor import programs
from netsor.compilers import expectation
from netsor.compilers.expectation.radial import radial, radial_single
from netsor.compilers.sampler import sampled
from netsor.errors import InputError
from netsor.layers import batch_norm

EXACT = ("relu", "abs", "identity")
FUNCTIONS = {"relu": relu(), "abs": absolute(), "identity": expectation.power(1)}
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


@pytest.mark.parametrize("eps", [1e-9, 0.1, 0.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nodes_left_out_and_second_derivatives(name: str, eps: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the degree of φ all nodes are kept, and E φ″ψ is taken with φ″ a distribution: nothing changes."""
    phi = FUNCTIONS[name]
    found = []
    for _ in range(2):
        for rows, others in ((4, 4), (4, 3), (2, 2)) if eps else ((4, 4), (5, 4)):
            x, y = (b[0] - b[0].mean(0) for b in (batch(rows, 6, 1), batch(others, 6, 2)))
            s, t, c = x @ x.T, y @ y.T, x @ y.T
            pairs = [(s, t, c), (s, s, s)]
            for one, two, cross in pairs:
                theta = torch.linspace(-1, 2, cross.numel(), dtype=torch.float64).reshape(cross.shape)
                found += [radial(phi, phi, (0.5, 0.5), (eps, eps), one, two, cross, d) for d in (None, theta)]
        monkeypatch.setattr("netsor.compilers.expectation.radial._degree", lambda f: None)
    half = len(found) // 2
    for one, two in zip(found[:half], found[half:], strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-13 * max(1.0, float(two.abs().max())))


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


# ---------------------------------------------------------------- φ(γ y + β)


def affine(
    depth: int, phi: ns.Function, gamma: tuple[float, float] = (1, 0), beta: tuple[float, float] = (0, 0),
    eps: float = 0.1,
) -> ns.Program:  # fmt: skip
    """x = φ(γ BN(h) + β) with trained γ, β of the given (mean, variance)."""
    p = ns.Program("affine")
    n = p.width("n")
    x = p.data("x", axes=("batch",))
    for l in range(1, depth + 1):
        h = p.let(f"h{l}", p.matrix(f"W{l}", n, x) @ x)
        g, b = (
            p.vector(f"{name}{l}", n, mean=mean, var=var, trainable=True)
            for name, (mean, var) in (("gamma", gamma), ("beta", beta))
        )
        x = p.let(f"x{l}", phi(g * batch_norm(h, "batch", eps) + b))
    p.output(p.readout("v", n), x)
    return p


def exact(p: ns.Program, x: Tensor, y: Tensor | None) -> dict[str, Tensor]:
    result = ns.compile(p)(x, y, get=("nngp", "ntk", "terms"))
    assert "sampled" not in result.method and not result.errors
    found = dict(result.items())
    torch.testing.assert_close(found["ntk"], sum(v for k, v in found.items() if k.startswith("terms.")))
    return found


SLOPES = {"relu": (0.0, 1.0), "abs": (-1.0, 1.0), "identity": (1.0, 1.0), "leaky": (0.2, 1.0)}
PHI = {"relu": ns.relu, "abs": ns.abs, "identity": ns.identity, "leaky": ns.leaky_relu(0.2)}


@pytest.mark.parametrize("gamma", [(1, 0), (-2, 0), (0, 1), (0.5, 0.7)])
@pytest.mark.parametrize("phi", PHI)
def test_affine_map(phi: str, gamma: tuple[float, float]) -> None:
    """φ(γy) for independent γ, φ(w) = φ′(w) w: kernels are E γ² times the plain ones, γ's term is the plain NNGP.

    β's term is E φ′(c_i) φ′(c̄_j), φ′ a step of two slopes a, b: with P(same sign) from the angle.
    """
    a, b = SLOPES[phi]
    square = gamma[0] ** 2 + gamma[1]
    for x, y in ((batch(4, 5, 1), None), (batch(4, 5, 1), batch(3, 5, 2))):
        found = exact(affine(1, PHI[phi], gamma), x, y)
        plain = exact(programs.batchnorm_mlp(1, PHI[phi], 0.1), x, y)
        torch.testing.assert_close(found["nngp"], square * plain["nngp"], rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(found["terms.W1"], square * plain["terms.W1"], rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(found["terms.gamma1"], plain["nngp"], rtol=1e-8, atol=1e-10)
        one, two = (z[0] - z[0].mean(0) for z in (x, x if y is None else y))
        cosines = torch.nn.functional.normalize(one, dim=1) @ torch.nn.functional.normalize(two, dim=1).T
        same = 1 - torch.arccos(cosines.clamp(-1, 1)) / torch.pi
        slopes = same * (a * a + b * b) / 2 + (1 - same) * a * b
        torch.testing.assert_close(found["terms.beta1"][0, 0], slopes, rtol=1e-7, atol=1e-7)


def pixels(norm: tuple[str, ...], axis: str) -> ns.Program:
    """Statistics over batch (and pixels), γ and β for every element of an axis."""
    p = ns.Program("pixels")
    n = p.width("n")
    x = p.data("x", axes=("batch", "pixel"))
    h = p.let("h", p.matrix("W", n, x) @ x)
    g = p.vector("gamma", n, mean=0.5, var=0.7, axes=(axis,), trainable=True)
    b = p.vector("beta", n, var=0, axes=(axis,), trainable=True)
    p.output(p.readout("v", n), p.let("y", ns.relu(g * batch_norm(h, norm, 0.1) + b)).sum("pixel"))
    return p


def gated() -> ns.Program:
    """A factor that is not Gaussian, and stands beside the product too."""
    p = ns.Program("gated")
    n = p.width("n")
    x = p.data("x", axes=("batch",))
    h, u = p.matrix("W", n, x) @ x, p.let("u", ns.erf(p.matrix("U", n, x) @ x))
    p.output(p.readout("v", n), p.let("y", u * ns.relu(batch_norm(h, "batch", 0.1)) + u))
    return p


def inside() -> ns.Program:
    """relu of a Gaussian vector times a normalised one."""
    p = ns.Program("inside")
    n = p.width("n")
    x = p.data("x", axes=("batch",))
    h, u = p.let("h", p.matrix("W", n, x) @ x), p.let("u", p.matrix("U", n, x) @ x)
    p.output(p.readout("v", n), p.let("y", ns.relu(u * batch_norm(h, "batch", 0.1))))
    return p


IMAGES = torch.randn(1, 3, 2, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
BESIDE = {
    "depth 2": (affine(2, ns.relu, (0.5, 0.7)), batch(4, 5, 1)),
    "depth 2, leaky": (affine(2, ns.leaky_relu(0.2), (1, 0)), batch(4, 5, 1)),
    "a linear layer": (affine(1, ns.identity, (1, 0.4), (0.2, 0.3)), batch(4, 5, 1)),
    "a gate": (gated(), batch(4, 5, 1)),
    "a Gaussian factor": (inside(), batch(4, 5, 1)),
    "by pixel": (pixels(("batch", "pixel"), "pixel"), IMAGES),
    "statistics by pixel": (pixels(("batch",), "pixel"), IMAGES),
    "by element": (pixels(("batch", "pixel"), "batch"), IMAGES),
}


@pytest.mark.parametrize("name", BESIDE)
def test_products_with_normalised_vectors_against_sampling(name: str) -> None:
    p, x = BESIDE[name]
    found, result = exact(p, x, None), sampled(p, x, get=("nngp", "ntk", "terms"), samples=2**15)
    for key, value in result.items():
        # Student's t with 15 degrees of freedom: one entry in 6,000 is beyond
        assert ((found[key] - value).abs() <= 5 * result.errors[key] + 1e-12).all(), key


@pytest.mark.parametrize("beta", [(0, 0.3), (0.2, 0)])
def test_a_shift_that_is_not_zero_is_sampled(beta: tuple[float, float]) -> None:
    """relu(γ c/r + β) is not homogeneous in c."""
    result = ns.compile(affine(1, ns.relu, beta=beta), samples=2**10)(batch(4, 5, 1))
    assert result.method == "sampled"


def test_terms_of_programs_with_backward_lines() -> None:
    """An output with axes has terms with and without its backward lines in the program, the same ones."""
    p = ns.backprop(programs.batchnorm_mlp(depth=1))
    x = torch.randn(2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    want = ns.compile(programs.batchnorm_mlp(depth=1))(x, get=("ntk", "terms"))
    got = ns.compile(p)(x, get=("ntk", "terms"))
    assert want.terms is not None and got.terms is not None and set(got.terms) == set(want.terms)
    for name, term in want.terms.items():
        assert torch.allclose(got.terms[name], term, rtol=1e-12, atol=1e-12)
    total = torch.stack(list(got.terms.values())).sum(0)
    assert torch.allclose(total, want.ntk, rtol=1e-10, atol=1e-10)


def test_homogeneous_functions_are_known_by_their_definition() -> None:
    """A function of one's own that is leaky relu has leaky relu's radial rule."""
    x = batch(4, 5, 1)
    own = ns.function("prelu", lambda z: ns.relu(z) - Fraction(1, 5) * ns.relu(-z))
    want = exact(affine(1, ns.leaky_relu(0.2), (0.5, 0.7)), x, None)
    got = exact(affine(1, own, (0.5, 0.7)), x, None)
    for key, value in want.items():
        torch.testing.assert_close(got[key], value, rtol=1e-8, atol=1e-10)
