"""Kernels as exact expressions: known results, and values against the numeric kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp

import netsor as ns
from netsor import functions
from netsor.compilers.derive.recursion import derive
from netsor.compilers.lowering.module import generate
from netsor.compilers.symbolic.expectation import expectation
from netsor.functions import Function, write_out
from netsor.programs import cnn, mlp, resnet, rnn

q = sp.Symbol("q", positive=True)
u, v = sp.symbols("u v", real=True)
a, b, c = sp.symbols("a b c", real=True)
ZERO = sp.Integer(0)

CLOSED = [
    functions.relu, functions.step, functions.abs, functions.leaky_relu(0.1), functions.sign, functions.erf,
    functions.gelu, functions.exp, functions.sin, functions.cos, functions.gaussian, functions.square, functions.cube,
    functions.erf.prime, functions.gelu.prime,
]  # fmt: skip


def two(f: sp.Expr, k11: Any, k22: Any, k12: Any) -> sp.Expr:
    return expectation(f, [u, v], [[k11, k12], [k12, k22]], (ZERO, ZERO))


# ---------------------------------------------------------------- expectations


def test_arc_cosine_kernels() -> None:
    """Tensor Programs II, Fact E.2 and Cho and Saul's kernels of degree 0, 1 and 2."""
    table = {a: 2, b: 3, c: sp.Rational(1, 2)}
    angle = sp.acos(c / sp.sqrt(a * b))
    root = sp.sqrt(a * b - c**2)
    step = (sp.pi - angle) / (2 * sp.pi)
    relu = (root + (sp.pi - angle) * c) / (2 * sp.pi)
    square = (3 * root * c + (sp.pi - angle) * (a * b + 2 * c**2)) / (2 * sp.pi)
    for power, known in ((0, step), (1, relu), (2, square)):
        f = u**power * functions.step.sym(u) * v**power * functions.step.sym(v)
        assert sp.N((two(f, a, b, c) - known).subs(table), 30) == pytest.approx(0, abs=1e-25)


def test_erf_and_exponential() -> None:
    assert two(functions.erf.sym(u) * functions.erf.sym(v), a, a, c) == 2 * sp.asin(c / (a + sp.Rational(1, 2))) / sp.pi
    assert sp.simplify(two(sp.exp(u) * sp.exp(v), a, b, c) - sp.exp((a + b) / 2 + c)) == 0
    assert two(u**2 * v**2, a, b, c) == a * b + 2 * c**2


@pytest.mark.parametrize("f", CLOSED, ids=lambda f: f.name)
def test_equal_arguments_are_one_argument(f: Function) -> None:
    one = expectation(f.sym(u) ** 2, [u], [[a]], (ZERO,))
    assert two(f.sym(u) * f.sym(v), a, a, a) == one
    assert not one.has(sp.acos)


@pytest.mark.parametrize("f", CLOSED, ids=lambda f: f.name)
def test_values_against_quadrature(f: Function) -> None:
    """∫∫ f(u) f(v) by the trapezoid rule in polar form of the density, kinks on the grid lines between nodes."""
    k11, k22, k12 = 1.3, 0.7, 0.4
    value = float(two(f.sym(u) * f.sym(v), *(sp.Rational(str(k)) for k in (k11, k22, k12))))
    phi = sp.lambdify(u, write_out(f.sym(u)), ["scipy", "numpy"])
    h = 0.005
    x = (np.arange(-1800, 1800) + 0.5) * h
    inverse = np.linalg.inv([[k11, k12], [k12, k22]])
    quadratic = inverse[0, 0] * x[:, None] ** 2 + 2 * inverse[0, 1] * np.outer(x, x) + inverse[1, 1] * x[None] ** 2
    density = np.exp(-quadratic / 2) * np.sqrt(np.linalg.det(inverse)) / (2 * np.pi)
    numbers = np.broadcast_to(phi(x), x.shape)
    assert value == pytest.approx(float(numbers @ density @ numbers) * h * h, rel=2e-5, abs=1e-6)


def test_opposite_and_vanishing_arguments() -> None:
    relu = functions.relu.sym
    assert two(relu(u) * relu(v), a, a, -a) == 0
    assert two(functions.abs.sym(u) * functions.abs.sym(v), a, a, -a) == a
    assert two(relu(u) * functions.cos.sym(v), a, ZERO, ZERO) == expectation(relu(u), [u], [[a]], (ZERO,))


def test_means() -> None:
    m = sp.Symbol("m", real=True)
    assert sp.expand(expectation(u**3, [u], [[a]], (m,))) == 3 * a * m + m**3
    assert expectation(functions.erf.sym(u), [u], [[a]], (m,)) == sp.erf(m / sp.sqrt(2 * a + 1))


@pytest.mark.parametrize("f", [functions.tanh, functions.silu, functions.softplus])
def test_no_closed_form(f: Function) -> None:
    with pytest.raises(ns.UnsupportedError, match=rf"no closed form .*{f.name}"):
        derive(mlp(phi=f)).symbolic(gram=q)


# ---------------------------------------------------------------- kernels


def test_the_mlp_of_tensor_programs_ii() -> None:
    """Appendix E.1: two hidden layers of relu, all variances 1, q = ‖x‖²/m."""
    k = derive(mlp(depth=2)).symbolic(gram=q)
    assert k.nngp == q / 4 + sp.Rational(3, 4)
    assert k.ntk == 3 * q / 4 + sp.Rational(7, 4)


def test_deep_relu_mlps_stay_polynomial() -> None:
    k = derive(mlp(depth=30, var_w=2, var_b=None)).symbolic(gram=q)
    assert k.nngp == q
    assert k.ntk == 31 * q / 2 or sp.Poly(k.ntk, q).degree() == 1


def test_two_inputs_meet_in_one() -> None:
    q11, q12, q22 = sp.symbols("q11 q12 q22", real=True)
    pair = derive(mlp(depth=2)).symbolic()
    assert pair.ntk.free_symbols == {q11, q12, q22}
    equal = pair.ntk.subs({q11: 3, q12: 3, q22: 3})
    assert sp.nsimplify(equal) == 4
    assert derive(mlp(depth=2)).symbolic(gram=(3, 3, 3)).ntk == 4


def numeric(program: ns.Program, x: Any, y: Any) -> tuple[float, float]:
    """Both kernels from the generated module."""

    source = generate(derive(program))
    scope: dict[str, Any] = dict(source.numeric)
    exec(source.text, scope)
    out = scope["kernel"](np.array(x, float)[None], None if y is None else np.array(y, float)[None])
    return float(out.nngp), float(out.ntk)


CASES: list[tuple[Callable[[], ns.Program], tuple[int, ...], tuple[int, ...] | None]] = [
    (lambda: mlp(phi=["erf", "relu"], var_w=1.5, var_b=0.25), (3,), (3,)),
    (lambda: mlp(depth=1, phi="gelu"), (3,), (3,)),
    (lambda: mlp(phi=["sin", "abs"]), (3,), (3,)),
    (lambda: resnet(depth=2), (3,), (3,)),
    (lambda: rnn(phi="relu"), (3, 2), (2, 2)),
    (lambda: cnn(depth=2, readout="mean", axes=("s",)), (3, 2), (3, 2)),
    (lambda: cnn(depth=2, axes=("s",), stride=2), (4, 2), None),
]


@pytest.mark.parametrize(("make", "one", "two_"), CASES)
def test_values_against_the_compiled_kernel(
    make: Callable[[], ns.Program], one: tuple[int, ...], two_: tuple[int, ...] | None
) -> None:
    rng = np.random.default_rng(1)
    x, y = (None if s is None else rng.integers(-3, 4, size=s).tolist() for s in (one, two_))
    k = derive(make()).symbolic(x, y)
    assert (float(k.nngp), float(k.ntk)) == pytest.approx(numeric(make(), x, y), rel=1e-10)


def test_sizes_are_asked_for() -> None:
    recursion = derive(cnn(depth=1, axes=("s",), readout="mean"))
    with pytest.raises(ns.InputError, match="size of the axis 's' is not known"):
        recursion.symbolic()
    expr = recursion.symbolic(sizes={"s": 2}).nngp
    assert sp.Symbol("q12[0, 1]", real=True) in expr.free_symbols


def test_wrong_arguments() -> None:
    recursion = derive(mlp(depth=1))
    with pytest.raises(ns.InputError, match="a pair has three"):
        recursion.symbolic(gram=(1, 2))
    with pytest.raises(ns.InputError, match="expected 1"):
        recursion.symbolic([[1, 2], [3, 4]])
