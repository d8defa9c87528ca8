"""Small odd programs, exactly: the compiled kernels against the literal Master Theorem, and its C/D terms."""

from __future__ import annotations

from typing import Any

import engine_functions as engine
import numpy as np
import pytest
import torch

import netsor as ns
from netsor import programs
from netsor.compilers.compile import compile
from netsor.compilers.expectation.engine import E2, E11
from netsor.compilers.reference import reference
from netsor.compilers.sampler import sampled
from netsor.errors import UnsupportedError
from netsor.layers import conv, conv_transposed


def assert_exact(p: ns.Program, x: Any, x2: Any = None, tolerance: float = 1e-9) -> None:
    """NNGP, NTK and every term of the compiled program are those of the reference interpreter."""
    expected = reference(ns.backprop(p), x, x2)
    found = compile(p)(x, x2, get=("nngp", "ntk", "terms"))
    assert expected.ntk is not None and found.nngp is not None and found.ntk is not None and found.terms is not None
    size = np.abs(expected.ntk).max()
    assert np.allclose(found.nngp, expected.nngp, rtol=0, atol=tolerance * np.abs(expected.nngp).max())
    assert np.allclose(found.ntk, expected.ntk, rtol=0, atol=tolerance * size)
    for name, value in expected.terms.items():
        assert np.allclose(found.terms.get(name, 0), value, rtol=0, atol=tolerance * size), name


# ---------------------------------------------------------------- expectations at the edge of the diagonal

KINKED = {
    "relu": engine.relu(), "step": engine.step(), "elu": engine.elu(), "leaky_relu": engine.leaky_relu(0.2)
}  # fmt: skip


@pytest.mark.parametrize("f", KINKED)
@pytest.mark.parametrize("g", KINKED)
def test_the_diagonal_may_be_off_by_rounding(f: str, g: str) -> None:
    """A conditional mean of ±1e-17 beside a jump is 0: which side it falls on is rounding."""
    rng = np.random.default_rng(0)
    k, m = (torch.as_tensor(rng.uniform(0.3, 3, 20)) for _ in range(2))

    def near(value: torch.Tensor) -> torch.Tensor:
        return value * (1 + torch.as_tensor(rng.integers(-3, 4, 20) * 1.1e-16))

    for mean in (m, -m):
        exact = E11(KINKED[f], KINKED[g], k, mean)
        found = E2(KINKED[f], KINKED[g], near(k), near(k), near(k), near(mean), near(mean))
        assert torch.allclose(found, exact, rtol=1e-7 if f == g == "step" else 1e-12, atol=1e-12)


# ---------------------------------------------------------------- programs


def square(u: Any) -> Any:
    return u**2 + 0.5 * u - 0.3


def sequence() -> tuple[ns.Program, Any, Any, Any]:
    """A program over sequences, its width, its data, and an embedding of it."""
    p = ns.Program()
    n, x = p.width("n"), p.data("x", axes=("t",))
    return p, n, x, p.matrix("W", n, x) @ x


def test_mixes_that_are_not_square() -> None:
    """The gradients at the end depend on no sample: constants of their own, over two axes."""
    p, n, _, h = sequence()
    y = ns.mix([[1, 2, 0.5], [0, -1, 1]], square(h), "t")
    z = square(p.matrix("W2", n, n) @ y + p.bias("b", n, axes=y.dims))
    p.output(p.readout("v", n, axes=("t",)), ns.mix([[1, 2], [0, -1], [0.3, 0]], z, "t"))
    assert_exact(p, np.random.default_rng(0).normal(size=(2, 3, 2)))


def test_a_family_at_two_indices_in_one_product() -> None:
    """b[t] and b[key] are one vector where t = key, and both meet those of the other sample."""
    p, n, _, h = sequence()
    b = p.bias("b", n, axes=h.dims)
    z = square(h + b) * p.let("k", h + b).rename({"t": "key"}) + b
    y = square(p.matrix("W2", n, n) @ z)
    p.output(p.readout("v", n, axes=("t",)), y.sum("key"))
    x = np.random.default_rng(0).normal(size=(2, 2, 2))
    assert_exact(p, x[:1], x[1:])


# ---------------------------------------------------------------- borders, and samples of different sizes

SIZES = [(3, 2), (2, 3), (1, 3), (3, 1)]


def samples(sizes: tuple[int, int], features: int = 2) -> tuple[Any, Any]:
    """One sequence of each size."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(1, sizes[0], features)), rng.normal(size=(1, sizes[1], features))


def pointwise(h: Any) -> Any:
    return square(h)


def convolution(h: Any) -> Any:
    return square(conv(square(h), h.rows, "C", "t", size=3))


def strided_and_back(h: Any) -> Any:
    x = square(h)
    y = square(conv(x, h.rows, "C", "t", stride=2))
    return square(conv_transposed(y, h.rows, "D", "t", like=x, stride=2))


def linear_and_back(h: Any) -> Any:
    return conv_transposed(conv(h, h.rows, "C", "t", stride=2), h.rows, "D", "t", like=h, stride=2)


def recurrent(h: Any, reverse: bool = False) -> Any:
    p, x = h.program, square(h)
    W, u = p.matrix("R", h.rows, x, var=0.5), p.matrix("U", h.rows, x) @ x
    return p.scan("t", 0, lambda s: square(W @ s + u), reverse=reverse)


def reverse_recurrent(h: Any) -> Any:
    return recurrent(h, reverse=True)


def own_arrays(h: Any) -> Any:
    """Matrices and biases of its own at every position."""
    p, x = h.program, square(h)
    return square(p.matrix("W2", h.rows, x, axes=("t",)) @ x + p.bias("b2", h.rows, mean=0.3, axes=h.dims))


def pooled(h: Any) -> Any:
    return square(h).window("t", size=2, stride=2).mean("k")


BODIES = [pointwise, convolution, strided_and_back, linear_and_back, recurrent, reverse_recurrent, own_arrays, pooled]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("body", BODIES)
def test_positions_meet_up_to_the_shorter_sample(body: Any, sizes: tuple[int, int]) -> None:
    """f(0) is not 0 here: a position that one sample lacks contributes nothing, not E f(u) f(0); one is not many."""
    p, _, _, h = sequence()
    y = body(h)
    p.output(p.readout("v", h.rows, axes=[d for d in y.dims if d.axis.name == "t"]), y)
    assert_exact(p, *samples(sizes))


@pytest.mark.parametrize("offsets", [[1, -1], [0, 2], [-2, 0]])
def test_a_window_of_a_sum_with_a_constant_is_zero_outside(offsets: list[int]) -> None:
    """The constant of E (a u² + b u + c)² must not be read where the window leaves the axis."""
    p, n, _, h = sequence()
    b = p.bias("b", n, axes=h.dims)
    y = square(p.matrix("W2", n, n, axes=("t",)) @ square(h) + b)
    p.output(p.readout("v", n, axes=("t",)), conv(y, n, "C", "t", offsets=offsets))
    assert_exact(p, *samples((2, 2)))
    assert_exact(p, *samples((3, 2)))


def test_circular_axes_of_two_sizes() -> None:
    """Exact where all pairs of positions are compared; refused where position s meets position s only."""
    for readout in ("mean", "axes"):
        p, n, _, h = sequence()
        y = square(conv(square(h), n, "C", "t", size=2, padding="circular"))
        if readout == "mean":
            p.output(p.readout("v", n), y.mean("t"))
            assert_exact(p, *samples((3, 2)))
            continue
        p.output(p.readout("v", n, axes=("t",)), y)
        assert_exact(p, *samples((3, 3)))
        with pytest.raises(UnsupportedError, match="circular axes of different sizes"):
            compile(p)(*samples((3, 2)))


def test_a_window_over_one_of_two_axes_that_share_an_array() -> None:
    """b[t] + b[key]: the covariance is 1 where t of one sample is key of the other, and the window moves only t."""
    for sizes in ((2, 2), (3, 2)):
        p, n, _, h = sequence()
        b = p.bias("b", n, axes=h.dims)
        u = p.let("u", b + h) + p.let("c", 0.5 * b).rename({"t": "key"})
        w = p.let("u2", u).window("t", offsets=[0, 1], name="tap").sum("tap")
        y = square(p.matrix("W2", n, n) @ w)
        p.output(p.readout("v", n, axes=("t",)), y.mean("key"))
        assert_exact(p, *samples(sizes))


@pytest.mark.parametrize("readout", ["t", "k", "neither"])
def test_a_scan_over_the_taps_of_a_window(readout: str) -> None:
    """The recurrence steps through the offsets of the window that it reads."""
    p, n, _, h = sequence()
    w = square(h).window("t", offsets=[1, -1, 0], name="k")
    W, u = p.matrix("R", n, n, var=0.7), p.matrix("U", n, w) @ w
    s = p.scan("k", 0, lambda s: ns.erf(W @ s) + u)
    y = s if readout == "k" else s.mean("k")
    y = y if readout == "t" else y.mean("t")
    p.output(p.readout("v", n, axes=y.dims), y)
    assert_exact(p, *samples((2, 3)))


def test_a_sample_too_short_for_a_window() -> None:
    """No position is left in the middle; what is added to it remains."""
    p, n, _, h = sequence()
    x = square(h)
    short = square(conv(x, n, "C", "t", size=2, stride=2, padding="valid"))
    back = conv_transposed(short, n, "D", "t", like=x, size=2, stride=2, padding="valid")
    y = square(back + p.matrix("W2", n, n) @ x)
    p.output(p.readout("v", n, axes=("t",)), y)
    assert_exact(p, *samples((2, 1)))
    assert_exact(p, *samples((1, 3)))


def test_a_mean_over_another_axis_inside_a_recurrence() -> None:
    """All pairs of steps at once, and a sum over positions in each of them."""
    p = ns.Program()
    n, xi = p.width("n"), p.data("x", axes=("u", "t"))
    h = square(p.matrix("W", n, xi) @ xi)
    A, B, u = p.matrix("A", n, n, var=0.5), p.matrix("B", n, n, var=0.5), p.matrix("U", n, h) @ h
    start = p.vector("s", n, var=0.2, axes=u.dims[:1])
    y = p.scan("t", start, lambda s: ns.erf(A @ s + (B @ s).mean("u") + u))
    p.output(p.readout("v", n), y.mean("u").mean("t"))
    rng = np.random.default_rng(0)
    assert_exact(p, rng.normal(size=(1, 1, 2, 2)), rng.normal(size=(1, 2, 3, 2)))


# ---------------------------------------------------------------- products with what stands elsewhere too


def a_skip(h: Any, k: Any, l: Any) -> Any:
    u = named(ns.erf(k))
    return u * ns.relu(h) + u


def a_function_of_what_a_factor_is_made_of(h: Any, k: Any, l: Any) -> Any:
    return named(ns.erf(k)) * ns.relu(h) + ns.sin(k)


def a_linear_term(h: Any, k: Any, l: Any) -> Any:
    return named(ns.erf(k)) * ns.relu(h) + k


def a_gate_of_a_gate(h: Any, k: Any, l: Any) -> Any:
    u = named(ns.erf(h))
    return u * named(u * ns.relu(k)) + u


def two_products_of_three(h: Any, k: Any, l: Any) -> Any:
    u, w = named(ns.erf(k)), named(ns.relu(h))
    return u * ns.relu(l) + w * ns.erf(l) + u * w


def a_product_and_a_function_of_its_factors(h: Any, k: Any, l: Any) -> Any:
    u = named(ns.erf(k))
    return u * ns.relu(h) + named(ns.sin(ns.relu(k)))


def named(e: Any) -> Any:
    """A line of its own, so that it is one variable of the lines after it."""
    return e.program.handle(e.var)


PRODUCTS = (
    a_skip, a_function_of_what_a_factor_is_made_of, a_linear_term, a_gate_of_a_gate, two_products_of_three,
    a_product_and_a_function_of_its_factors,
)  # fmt: skip


@pytest.mark.parametrize("make", PRODUCTS, ids=lambda f: f.__name__)
def test_a_factor_that_another_term_depends_on(make: Any) -> None:
    """Θ(u A, Ḡ) is E[A ∂Ḡ] Θ(u, ·) only where u is independent of what ∂Ḡ reads."""
    p = ns.Program("products")
    n = p.width("n")
    x = p.data("x")
    p.output(p.readout("v", n), make(*(p.let(f"h{i}", p.matrix(f"W{i}", n, x, var=0.5 + i) @ x) for i in range(3))))
    assert_exact(p, *np.random.default_rng(0).normal(size=(2, 2, 3)))


# ---------------------------------------------------------------- W and its transpose in the forward pass


def decoder() -> ns.Program:
    """Only Wᵀ is applied; the widths differ."""
    p = ns.Program("decoder")
    n, m = p.width("n"), p.width("m", ratio=2)
    x = p.data("x")
    h = p.let("h", p.matrix("W1", m, x) @ x)
    W = p.matrix("W", m, n, var=1.5, multiplier=0.7)
    p.output(p.readout("v", n), ns.relu(p.let("y", p.let("Wt", W.T) @ ns.erf(h))))
    return p


def autoencoder(mean: float = 0.0) -> ns.Program:
    """W and Wᵀ are applied."""
    p = ns.Program("autoencoder")
    n, m = p.width("n"), p.width("m", ratio=2)
    x = p.data("x")
    u = p.let("u", p.matrix("W1", n, x) @ x)
    W = p.matrix("W", m, n, var=1.5, multiplier=0.7)
    h = p.let("h", W @ ns.relu(u))
    y = p.let("y", p.let("Wt", W.T) @ ns.erf(h))
    p.output(p.readout("v", n, mean=mean), ns.gelu(y))
    return p


@pytest.mark.parametrize("make", [decoder, autoencoder, lambda: programs.tied_autoencoder("relu")])
def test_forward_uses_of_a_transpose(make: Any) -> None:
    """Under gradient independence; y = Wᵀa gives multiplier² rows/n_out · E dy dȳ · E a ā."""
    p, x = make(), torch.as_tensor(np.random.default_rng(0).normal(size=(3, 4)))
    found = ns.compile(p, assume_gia=True)(x, get=("nngp", "ntk", "terms"))
    assert found.terms is not None and found.ntk is not None and "sampled" not in found.method
    torch.testing.assert_close(found.ntk, torch.stack(list(found.terms.values())).sum(0), rtol=1e-10, atol=0)
    drawn = sampled(p, x, get=("nngp", "ntk", "terms"), samples=2**15)
    for (key, one), (_, other) in zip(found.items(), drawn.items(), strict=True):
        assert bool(((one - other).abs() <= 5 * drawn.errors[key] + 1e-12).all()), key


def test_a_transpose_and_a_readout_of_nonzero_mean() -> None:
    """Pairs of a use of W and one of Wᵀ do not vanish then: no exact rule."""
    x = np.random.default_rng(0).normal(size=(2, 4))
    result = ns.compile(autoencoder(0.5), assume_gia=True, samples=2**10)(x, get=("ntk", "terms"))
    assert result.methods == {name: "sampled" for name, _ in result.items()}


# ---------------------------------------------------------------- vectors of one matrix without covariance


def test_images_of_uncorrelated_vectors_factor() -> None:
    """E F(W x) G(W y) = E F E G where E x y = 0: four Gaussian variables, two at a time."""
    p = ns.Program("apart")
    n = p.width("n")
    x = p.data("x")
    W = p.matrix("W", n, n)
    h, k = (p.let(f"h{i}", p.matrix(f"W{i}", n, x) @ x) for i in range(2))
    p.output(p.readout("v", n), p.let("y", ns.sin(W @ ns.erf(h)) * ns.tanh(W @ ns.erf(k))))
    inputs = np.random.default_rng(0).normal(size=(2, 3))
    found = ns.compile(p)(inputs, get="nngp")
    assert found.nngp is not None and "sampled" not in found.method and (found.error or 0) < 1e-9

    def alone(phi: ns.Function) -> torch.Tensor:
        q = programs.mlp(2, ["erf", phi], var_b=None)
        out = ns.compile(q)(inputs, get="nngp").nngp
        assert out is not None
        return out

    torch.testing.assert_close(found.nngp, alone(ns.sin) * alone(ns.tanh), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("degree", [2, 3])
def test_products_of_polynomials_at_two_indices(degree: int) -> None:
    """Moments of four Gaussian variables are shared: a third of the recursion without; as the reference has it."""
    p = ns.Program("two indices")
    n = p.width("n")
    x = p.data("x", axes=("s",))
    h = p.let("h", p.matrix("W", n, x) @ x)
    f = ns.polynomial([1] * (degree + 1))
    p.output(p.readout("v", n), f(h.at("s", 0)) * f(h.at("s", 1)))
    if degree > 2:
        assert len(str(ns.derive(p, get=("ntk",)))) < 60_000
        return
    data = 0.5 * np.random.default_rng(0).standard_normal((2, 3, 4))
    found, wanted = ns.compile(p)(data), reference(ns.backprop(p), data)
    np.testing.assert_allclose(np.asarray(found.nngp), wanted.nngp, rtol=1e-13)
    np.testing.assert_allclose(np.asarray(found.ntk), np.asarray(wanted.ntk), rtol=1e-13)


def test_sums_of_many_terms_compile() -> None:
    """Python reads 200 nested calls."""
    p = ns.Program("many terms")
    n = p.width("n")
    x = p.data("x")
    hs = [p.let(f"h{i}", p.matrix(f"W{i}", n, x) @ x) for i in range(230)]
    p.output(p.readout("v", n), ns.relu(sum(hs[1:], hs[0])) + sum((ns.tanh(h) for h in hs), hs[0]))
    out = ns.compile(p)(np.array([[1.0, 0.5], [0.2, -1.0]]), get="nngp").nngp
    assert out is not None and bool(np.isfinite(np.asarray(out)).all())
