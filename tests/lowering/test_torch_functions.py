"""Expressions printed as torch: values, stability, derivatives by autograd, text."""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import pytest
import sympy as sp
import torch

import netsor as ns
from netsor.compilers import expectation as ex
from netsor.compilers.lowering.functions import as_fn
from netsor.compilers.lowering.torch_functions import torch_function, torch_source
from netsor.errors import UnsupportedError
from netsor.functions import builtin, builtin_names, elu_alpha, write_out

X, Y = sp.symbols("x y", real=True)
PARAMETERS = {"leaky_relu": (0.1,), "polynomial": (1, 0.5, -2, 0.25)}
FUNCTIONS = [builtin(name, PARAMETERS.get(name, ())) for name in builtin_names()] + [elu_alpha(0.5)]
POINTS = [-60.0, -7.3, -1.0, -0.3, -1e-8, 0.7, 2.5, 40.0]


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_values_and_two_derivatives(function: ns.Function) -> None:
    """φ, φ′ and φ″ equal 40-digit values of the definition, at large arguments too."""
    mp.mp.dps = 40
    for f in (function, function.prime, function.prime.prime):
        exact = sp.lambdify(X, write_out(f.sym(X)), [{"Heaviside": lambda x, _: mp.mpf(x > 0)}, "mpmath"])
        expected = torch.tensor([float(exact(mp.mpf(x))) for x in POINTS], dtype=torch.float64)
        actual = torch_function(f.sym(X), (X,))(torch.tensor(POINTS, dtype=torch.float64))
        scale = max(1.0, float(expected.abs().max()))
        assert torch.allclose(actual, expected, rtol=1e-14, atol=1e-15 * scale), f.name


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_value_at_a_number(function: ns.Function) -> None:
    """A head of a number has its value in sympy too, whatever mpmath calls by the same name."""
    x = sp.Rational(-3, 7)
    mp.mp.dps = 40
    for f in (function, function.prime):
        exact = sp.lambdify(X, write_out(f.sym(X)), [{"Heaviside": lambda x, _: mp.mpf(x > 0)}, "mpmath"])
        assert float(f.sym(x)) == pytest.approx(float(exact(mp.mpf(-3) / 7)), rel=1e-15)


def test_value_at_a_number_of_user_functions() -> None:
    zeta = ns.function("zeta", lambda x: sp.exp(-x) + x)
    half = ns.numeric("gamma", lambda x: torch.tanh(x) / 2)
    assert float(zeta(sp.Integer(0))) == 1
    assert float(half(sp.Integer(1))) == pytest.approx(float(torch.tanh(torch.tensor(1.0).double())) / 2, rel=1e-15)


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_derivative_is_autograd(function: ns.Function) -> None:
    x = torch.tensor([-3.0, -0.5, 0.2, 1.7], dtype=torch.float64, requires_grad=True)
    torch_function(function.sym(X) + X, (X,))(x).sum().backward()
    assert x.grad is not None
    assert torch.allclose(torch_function(function.prime.sym(X), (X,))(x) + 1, x.grad, atol=1e-14)


def test_source_is_readable() -> None:
    h, b = sp.symbols("h b", real=True)
    names = {h: "h1", b: "b1"}
    assert torch_source(ns.relu(h + b), names) in (
        "torch.maximum(h1 + b1, torch.zeros(()))", "torch.maximum(b1 + h1, torch.zeros(()))",
    )  # fmt: skip
    assert torch_source(ns.tanh(h) * sp.Rational("1.44"), names) == "1.44 * torch.tanh(h1)"
    assert torch_source(h / sp.sqrt(b + sp.Rational("1e-5")), names) == "h1 / torch.sqrt(b1 + 1e-05)"
    assert torch_source(sp.Max(h, b), names) == "torch.maximum(b1, h1)"
    assert torch_source(ns.tanh.prime.sym(h), names) == "4 * torch.sigmoid(2 * h1) * torch.sigmoid(-2 * h1)"


def test_constants_and_sympy_functions() -> None:
    e = sp.sqrt(2) * X / 3 + sp.sqrt(sp.pi / 2) - sp.Rational(3, 7) + sp.Max(X, Y, 0) - sp.Min(X, 2) + sp.floor(Y)
    e += sp.log(1 + Y**2) + sp.tan(X) + sp.Heaviside(X) + sp.erf(Y) + (X**2 + 1) ** sp.Rational(-3, 2) - (X - Y) ** 3
    e += sp.Piecewise((X, X > Y), (Y**2, True)) + sp.exp(-(X**2) / 2)
    for x, y in ((0.3, -1.7), (-2.2, 0.9), (1.1, 1.0)):
        value = torch_function(e, (X, Y))(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64))
        assert float(value) == pytest.approx(float(e.subs({X: x, Y: y}).evalf()), rel=1e-14)


def test_results_have_the_arguments_shape() -> None:
    x, y = torch.ones(3, 1), torch.ones(4)
    assert torch_function(sp.Integer(2), (X, Y))(x, y).shape == (3, 4)
    assert torch_function(X + 1, (X, Y))(x, y).shape == (3, 4)
    assert torch_function(X / 3, (X,))(x).dtype == torch.float32


def test_numeric_functions_are_called_and_others_refused() -> None:
    f = ns.numeric("bump", lambda x: torch.exp(-(x**4)), derivative=lambda x: -4 * x**3 * torch.exp(-(x**4)))
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    assert torch.equal(torch_function(2 * f.sym(X), (X,))(x), 2 * torch.exp(-(x**4)))
    assert torch.equal(torch_function(f.prime.sym(X), (X,))(x), -4 * x**3 * torch.exp(-(x**4)))
    with pytest.raises(UnsupportedError, match="bump is a numeric function"):
        torch_source(f.sym(X), (X,))
    with pytest.raises(UnsupportedError, match="zeta"):
        torch_source(sp.zeta(X), (X,))


STEP = sp.Piecewise((1, X > 0), (0, True))
CONSTANT_PIECES = {
    "step": STEP,
    "fractions": sp.Piecewise((sp.Rational(1, 10), X > 0), (sp.Rational(7, 10), True)),
    "three": sp.Piecewise((-1, X < -1), (1, X > 1), (X, True)),
    "either": sp.Piecewise((0, (X < -1) | (X > 1)), (1, True)),
    "both": sp.Piecewise((2, (X > -1) & (X < 1)), (0, True)),
    "number": sp.Integer(3),
}


def pieces(expr: sp.Expr) -> ns.Function:
    return ns.function("pieces", lambda z: expr.subs(X, z))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("expr", CONSTANT_PIECES.values(), ids=CONSTANT_PIECES)
def test_constant_pieces_have_the_arguments_dtype(expr: sp.Expr, dtype: torch.dtype) -> None:
    """In values and in both derivatives, for the printed function and for the engine's."""
    x = torch.tensor([[-7.3, -0.5, 0.3], [0.9, 2.0, 5.0]], dtype=dtype)
    for order in range(3):
        f = sp.diff(expr, X, order)
        expected = torch.tensor([float(f.subs(X, float(v))) for v in x.flatten()], dtype=dtype).reshape(x.shape)
        found = torch_function(f, (X,))(x)
        assert found.dtype == dtype and torch.equal(found, expected)
        function = as_fn(pieces(f))
        values = function.call(x)
        assert values.dtype == dtype and values.shape == x.shape
        assert torch.allclose(values, expected)


@pytest.mark.parametrize("make", [ns.programs.mlp, ns.programs.cnn])
def test_kernels_and_gradients_of_constant_pieces(make: Callable[..., ns.Program]) -> None:
    """[x > 0] typed as pieces is the step, and a hard tanh has a gradient with respect to the inputs."""
    shape = (3, 2) if make is ns.programs.mlp else (2, 2, 3, 1)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found, want = (ns.compile(make(depth=1, phi=phi))(x, get="nngp").nngp for phi in (pieces(STEP), ns.step))
    assert torch.allclose(found, want, rtol=1e-9)
    kernel = ns.compile(make(depth=1, phi=pieces(CONSTANT_PIECES["three"])))
    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(kernel(at, get="nngp").nngp.sum(), at)
    step = torch.zeros_like(x)
    step.view(-1)[0] = 1e-5
    slope = (kernel(x + step, get="nngp").nngp.sum() - kernel(x - step, get="nngp").nngp.sum()) / 2e-5
    assert torch.allclose(gradient.view(-1)[0], slope, rtol=1e-6)


def test_numbers_of_a_callable_stand_for_tensors() -> None:
    """A torch callable or a derivative that gives a number, or integers."""
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    f = ex.function(lambda z: z.clamp(0, 1), lambda z: (z > 0).long(), kinks=(0.0, 1.0))
    assert f.derivative.call(x).dtype == torch.float64
    assert ex.function(lambda _: torch.tensor(2)).call(x).tolist() == [2.0] * 5
