"""Zero, huge and tiny variances, |ρ| = 1, dtypes, and the algebra that every method must respect."""

from __future__ import annotations

import math
from collections.abc import Callable

import engine_functions as named
import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from netsor.compilers import expectation as ex
from netsor.compilers.expectation.terms import Numeric

ALL = [
    named.relu(), named.step(), ex.erf(1.0), named.gelu(), named.gelu().derivative, named.elu(),
    named.elu().derivative, named.leaky_relu(0.2), named.absolute(), named.sign(), named.tanh(),
    ex.sin(3.0, 0.2), ex.cos(1.0), named.sigmoid(), named.silu(), named.softplus(),
    ex.exp(0.3, 0.1), ex.power(0), ex.power(3), ex.gaussian(0.7), ex.times_power(ex.relu_power(0), 4),
    ex.times_power(ex.gaussian(0.4), 2), ex.times_power(ex.erf(0.8), 3), ex.times_power(ex.sin(1.0, 0.3), 2),
    ex.exp_left(1.0), ex.times_power(ex.exp_left(0.7), 2), ex.scaled(named.elu(), -1.3), ex.scaled(named.tanh(), 2.0),
    ex.combine((0.5, named.relu()), (2.0, named.tanh()), (-1.0, ex.power(2))),
    ex.function(lambda x: (x > 0.3) * 1.0 + x.abs(), kinks=(0.0, 0.3), name="kinked"),
]  # fmt: skip
IDS = [f.name[:40] for f in ALL]


def number(x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def by_values(f: ex.Fn) -> ex.Fn:
    return ex.function(f.call, kinks=f.kinks, name=f.name)


def scale(f: ex.Fn, g: ex.Fn, k1: Tensor, k2: Tensor, m1: Tensor | None = None, m2: Tensor | None = None) -> float:
    return float((ex.E11(f, f, k1, m1) * ex.E11(g, g, k2, m2)).sqrt())


@pytest.mark.parametrize("f", ALL, ids=IDS)
@pytest.mark.parametrize("means", [(None, None), (0.3, -0.5)], ids=["centred", "means"])
def test_every_pair_against_its_values(f: ex.Fn, means: tuple[float | None, float | None]) -> None:
    """Closed forms of all pairs against the series on values alone; E f and E f·g too."""
    k = number(1.3), number(0.6), number(0.4)
    m1, m2 = (None if m is None else number(m) for m in means)
    for g in ALL[ALL.index(f) :: 7]:
        got, want = ex.E2(f, g, *k, m1, m2), ex.E2(by_values(f), by_values(g), *k, m1, m2)
        assert abs(float(got - want)) <= 1e-11 * scale(f, g, k[0], k[1], m1, m2)
        other = ex.E2(g, f, k[1], k[0], k[2], m2, m1)
        assert abs(float(got - other)) <= 1e-13 * scale(f, g, k[0], k[1], m1, m2)
        got, want = ex.E11(f, g, k[0], m1), ex.E11(by_values(f), by_values(g), k[0], m1)
        assert abs(float(got - want)) <= 1e-12 * scale(f, g, k[0], k[0], m1, m1)
    got, want = ex.E1(f, k[0], m1), ex.E1(by_values(f), k[0], m1)
    assert abs(float(got - want)) <= 1e-12 * scale(f, f, k[0], k[0], m1, m1)


@pytest.mark.parametrize("f", ALL, ids=IDS)
@pytest.mark.parametrize("means", [(), (0.3, -0.5)], ids=["centred", "means"])
def test_gradients_in_general_position(f: ex.Fn, means: tuple[float, ...]) -> None:
    """Price's theorem against central differences, E f·g included."""
    g = ALL[(ALL.index(f) + 3) % len(ALL)]
    at = [number(x).requires_grad_() for x in (1.3, 0.6, 0.4, *means)]
    _compare(lambda *a: ex.E2(f, g, *a), at)
    _compare(lambda *a: ex.E11(f, g, *a), [at[0], *at[3:4]])
    _compare(lambda *a: ex.E1(f, *a), [at[0], *at[3:4]])


def _compare(value: Callable[..., Tensor], at: list[Tensor]) -> None:
    got = torch.autograd.grad(value(*at), at)
    for i, slope in enumerate(got):

        def moved(t: float, i: int = i) -> float:
            return float(value(*[x.detach() + (t if j == i else 0.0) for j, x in enumerate(at)]))

        h = 2e-3
        want = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
        assert math.isclose(float(slope), want, rel_tol=2e-7, abs_tol=2e-8)


@pytest.mark.parametrize("f", ALL, ids=IDS)
def test_zero_variance(f: ex.Fn) -> None:
    """A constant u factors out: E f(0)·g(v) = f(0)·E g."""
    zero, k = number(0.0), number(0.8)
    at_zero = float(f.call(zero))
    for g in (named.relu(), named.tanh(), ex.erf(), named.elu()):
        assert math.isclose(
            float(ex.E2(f, g, zero, k, zero)), at_zero * float(ex.E1(g, k)), rel_tol=1e-11, abs_tol=1e-12
        )
        assert math.isclose(
            float(ex.E2(g, f, zero, zero, zero)), at_zero * float(g.call(zero)), rel_tol=1e-11, abs_tol=1e-12
        )
    assert math.isclose(float(ex.E1(f, zero)), at_zero, rel_tol=1e-11, abs_tol=1e-12)


@pytest.mark.parametrize("f", ALL, ids=IDS)
@pytest.mark.parametrize("k", [0.0, 1e-12, 0.9, 4.0])
def test_gradients_are_finite_at_degenerate_points(f: ex.Fn, k: float) -> None:
    for rho, other in ((1.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (-1.0, 0.25)):
        at = [number(k).requires_grad_(), number(other * k).requires_grad_()]
        at.append(number(rho * k * math.sqrt(other)).requires_grad_())
        for slope in torch.autograd.grad(ex.E2(f, f, *at), at):
            assert torch.isfinite(slope).all()


@pytest.mark.parametrize("f", ALL, ids=IDS)
@pytest.mark.parametrize("k", [1e-12, 1e-4, 0.9, 30.0, 1e6])
def test_equal_arguments_take_the_exact_diagonal(f: ex.Fn, k: float) -> None:
    if "exp" in f.name and k > 1:
        pytest.skip("E exp² overflows")
    kk = number(k)
    want = float(ex.E11(f, f, kk))
    assert math.isclose(float(ex.E2(f, f, kk, kk, kk)), want, rel_tol=1e-11)
    near = float(ex.E2(f, f, kk, kk, kk * (1 - 1e-13)))
    assert abs(near - want) <= 1e-6 * abs(want)


@pytest.mark.parametrize("k", [1e-12, 1e6])
@pytest.mark.parametrize("f", [named.tanh(), named.elu(), ex.erf(), named.gelu(), named.silu()], ids=lambda f: f.name)
def test_extreme_variances_approach_the_tangent_and_the_asymptote(f: ex.Fn, k: float) -> None:
    kk, k12 = number(k), number(0.3 * k)
    got = float(ex.E2(f, f, kk, kk, k12))
    if k < 1:
        zero = number(0.0)
        linear = float(f.call(zero)) ** 2 + float(f.derivative.call(zero)) ** 2 * 0.3 * k
        assert math.isclose(got, linear, rel_tol=1e-5)
        return
    limit = named.sign() if f.name in ("tanh", "erf(1.0)") else named.relu()
    assert math.isclose(got, float(ex.E2(limit, limit, kk, kk, k12)), rel_tol=5e-3)


@pytest.mark.parametrize("f", [f for f in ALL if f.name != "kinked"], ids=[n for n in IDS if n != "kinked"])
def test_single_precision(f: ex.Fn) -> None:
    """float32 in, float32 out, and as exact as its inputs: near-duplicates too."""
    x = torch.randn(12, 20)
    x[1], x[2], x[3], x[4] = x[0] * (1 + 1e-6), -x[0], x[0] + 1e-4 * x[5], 0.0
    K = (x @ x.T) / 20
    k = K.diagonal()
    got = ex.E2(f, f, k[:, None], k[None, :], K)
    want = ex.E2(f, f, k[:, None].double(), k[None, :].double(), K.double())
    assert got.dtype == torch.float32
    assert want.dtype == torch.float64
    assert (got - want).abs().max() <= 1e-6 * want.abs().max()


def test_numbers_become_double() -> None:
    third = 1 / 3
    out = ex.E2(named.relu(), named.tanh(), 1.0, number(2.0), third)  # type: ignore[arg-type]
    assert out.dtype == torch.float64
    assert float(out) == float(ex.E2(named.relu(), named.tanh(), number(1.0), number(2.0), number(third)))
    single = torch.tensor([1.0, 2.0])
    assert ex.E1(ex.erf(), single).dtype == torch.float32
    assert ex.E2(ex.erf(), ex.erf(), single, number(1.0), 0.1 * single).dtype == torch.float32


def test_shapes_broadcast_and_may_be_empty() -> None:
    k = torch.rand(3, 1, 4, dtype=torch.float64) + 1
    for f in (named.relu(), named.tanh(), named.elu()):
        out = ex.E2(f, f, k, number(1.0).expand(5, 1), 0.1 * k)
        assert out.shape == (3, 5, 4)
        alone = ex.E2(f, f, k[1, 0, 2], number(1.0), 0.1 * k[1, 0, 2])
        assert torch.allclose(out[1, 3, 2], alone, rtol=1e-12, atol=0)
        assert ex.E2(f, f, k[:0], number(1.0), k[:0]).shape == (0, 1, 4)
        assert ex.E1(f, k[:0]).shape == (0, 1, 4)


def test_nan_stays_where_it_is() -> None:
    k = torch.tensor([1.0, math.nan, 2.0], dtype=torch.float64)
    for f in (named.relu(), ex.erf(), named.elu()):
        assert torch.isnan(ex.E2(f, f, k, number(1.0), number(0.1))).tolist() == [False, True, False]


def test_v_transform() -> None:
    x = torch.randn(6, 4, dtype=torch.float64)
    K = x @ x.T
    v = ex.v_transform(named.relu(), K)
    c = (K / (K.diagonal()[:, None] * K.diagonal()).sqrt()).clamp(-1, 1)
    want = ((1 - c * c).sqrt() + (math.pi - torch.acos(c)) * c) * (K.diagonal()[:, None] * K.diagonal()).sqrt()
    assert torch.allclose(v, want / (2 * math.pi), rtol=1e-12, atol=1e-7)  # acos near 1
    off = ~torch.eye(6, dtype=torch.bool)
    assert torch.allclose(v[off], want[off] / (2 * math.pi), rtol=1e-12, atol=1e-13)
    assert torch.equal(v.diagonal(), K.diagonal() / 2)


def test_pairs_are_the_single_results() -> None:
    k = number(1.2), number(0.7), number(0.3)
    f = named.tanh()
    pairs = [(f, f), (f.derivative, f.derivative), (named.relu(), f)]
    for got, (a, b) in zip(ex.E2_pairs(pairs, *k), pairs, strict=True):
        assert torch.allclose(got, ex.E2(a, b, *k), rtol=1e-13, atol=0)


@pytest.mark.parametrize("f", [f for f in ALL if not any(isinstance(atom, Numeric) for _, atom in f.terms)], ids=repr)
def test_source_builds_the_function_again(f: ex.Fn) -> None:
    names = {name: getattr(ex, name) for name in ex.__all__}
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)
    assert torch.allclose(eval(f.source, names).call(x), f.call(x), rtol=1e-14, atol=1e-14)
    assert torch.allclose(eval(f.derivative.source, names).call(x), f.derivative.call(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("f", ALL, ids=IDS)
def test_derivative_is_the_derivative(f: ex.Fn) -> None:
    x = torch.tensor([-2.1, -0.7, 0.2, 0.9, 1.8], dtype=torch.float64)
    h = 1e-5
    assert torch.allclose(f.derivative.call(x), (f.call(x + h) - f.call(x - h)) / (2 * h), rtol=1e-7, atol=1e-8)


def test_methods_are_recorded() -> None:
    k = number(1.0)
    with ex.record() as log:
        ex.E2(named.relu(), named.relu(), k, k, number(0.5))
        ex.E2(named.tanh(), named.tanh(), k, k, number(0.5))
        ex.E11(named.tanh(), named.tanh(), k)
    assert [method for method, _ in log] == ["closed form", "hermite", "quadrature"]
    assert all(0 <= bound <= 1e-12 for _, bound in log)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(ALL[:16]), st.floats(0.01, 9), st.floats(0.01, 9), st.floats(-1, 1))
def test_cauchy_schwarz_and_bilinearity(f: ex.Fn, k1: float, k2: float, rho: float) -> None:
    k = number(k1), number(k2), number(rho * math.sqrt(k1 * k2))
    bound = scale(f, f, k[0], k[1])
    value = float(ex.E2(f, f, *k))
    assert abs(value) <= bound * (1 + 1e-9)
    g = ex.combine((2.0, f), (-0.5, ex.power(1)))
    parts = 2 * value - 0.5 * float(ex.E2(f, ex.power(1), *k))
    assert abs(float(ex.E2(f, g, *k)) - parts) <= 1e-9 * (2 * bound + 0.5 * scale(f, ex.power(1), k[0], k[1]))


def _elu_reference(k11: float, k22: float, k12: float) -> mp.mpf:
    """E elu(u)elu(v): the inner integral by hand, the outer by panels that shrink to where it turns."""
    s1 = mp.sqrt(mp.mpf(k11))
    slope, rest = k12 / s1, mp.sqrt(mp.mpf(k22) - mp.mpf(k12) ** 2 / k11)

    def tail(t: mp.mpf) -> mp.mpf:
        return mp.erfc(-t / mp.sqrt(2)) / 2

    def inner(m: mp.mpf) -> mp.mpf:
        t = m / rest
        return m * tail(t) + rest * mp.npdf(t) + mp.exp(m + rest**2 / 2) * tail(-t - rest) - tail(-t)

    def outer(z: mp.mpf) -> mp.mpf:
        u = s1 * z
        return (u if u > 0 else mp.expm1(u)) * inner(slope * z) * mp.npdf(z)

    widths = [w for w in (mp.mpf(4) ** j * rest / abs(slope) for j in range(-1, 16)) if w < 9]
    return mp.quad(outer, [-11, *(-w for w in reversed(widths)), 0, *widths, 11], maxdegree=6)


@pytest.mark.parametrize("k11, k22, gap", [(1.738, 2.385, 8e-11), (2.974, 2.974, 1.4e-10), (1.271, 1.271, 1e-6)])
@pytest.mark.parametrize("side", [1, -1])
def test_near_duplicates_of_a_tilted_form_stay_within_the_bound(k11: float, k22: float, gap: float, side: int) -> None:
    """elu's closed form conditions a tilted Gaussian at |ρ| ≈ 1, where means cancel if taken in the wrong order."""
    k = number(k11), number(k22), number(side * (1 - gap) * math.sqrt(k11 * k22))
    f = named.elu()
    with ex.record() as log:
        got = ex.E2(f, f, *k)
    with mp.workdps(30):
        error = float(abs(mp.mpf(float(got)) - _elu_reference(*(float(x) for x in k))))
    assert [method for method, _ in log] == ["closed form"]
    assert error <= log[0][1] * scale(f, f, k[0], k[1])
