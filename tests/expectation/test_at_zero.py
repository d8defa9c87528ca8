"""One value at 0: step(0) = ½, sign(0) = 0, relu′(0) = ½, the same in every part of the library."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import netsor as ns
from netsor.compilers.lowering.torch_functions import torch_function
from netsor.compilers.reference import reference
from netsor.compilers.reference.values import evaluate
from netsor.functions import builtin, builtin_names, elu_alpha, write_out
from netsor.layers import max_pool
from netsor.run.expressions import evaluate as check_value

X = sp.Symbol("x", real=True)
PARAMETERS = {"leaky_relu": (Fraction(1, 5),), "polynomial": (1, Fraction(1, 2), -2)}
FUNCTIONS = [builtin(name, PARAMETERS.get(name, ())) for name in builtin_names()] + [elu_alpha(Fraction(1, 2))]
KINKED = {  # φ(0), φ′(0), by hand: the mean of both sides
    "step": (0.5, 0), "sign": (0, 0), "relu": (0, 0.5), "abs": (0, 0), "leaky_relu[1/5]": (0, 0.6), "elu": (0, 1),
    "elu[1/2]": (0, 0.75),
}  # fmt: skip


def limits(f: ns.Function) -> tuple[float, float]:
    """(φ(0−) + φ(0+))/2 and the same of φ′, by sympy's limits of the definition written out."""
    if f.name in KINKED:
        return KINKED[f.name]
    body = write_out(f.sym(X))
    return float(body.subs(X, 0)), float(sp.diff(body, X).subs(X, 0))


@pytest.mark.parametrize("f", FUNCTIONS, ids=str)
def test_functions_and_their_derivatives(f: ns.Function) -> None:
    """In sympy, torch (with autograd), the checker and the reference interpreter."""
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    for g, wanted in zip((f, f.prime), limits(f), strict=True):
        found = [float(g.sym(sp.Integer(0))), float(torch_function(g.sym(X), (X,))(zero.detach()))]
        found += [float(np.ravel(h(g.sym(X), {X: np.zeros(1)}))[0]) for h in (evaluate, check_value)]
        assert found == pytest.approx([wanted] * 4, abs=1e-15), g.name
    value = torch_function(f.sym(X) + X, (X,))(zero).sum()
    (slope,) = torch.autograd.grad(value, zero)
    assert float(slope) - 1 == pytest.approx(limits(f)[1], abs=1e-15)


def at_zero(f: ns.Function) -> ns.Program:
    """f(Wx + b), b trained and initialised at 0."""
    p = ns.Program("at zero")
    n = p.width("n")
    x = p.data("x")
    h = p.matrix("W", n, x) @ x + p.bias("b", n, var=0)
    p.output(p.readout("v", n), f(h))
    return p


@pytest.mark.parametrize("f", FUNCTIONS, ids=str)
def test_kernels_at_a_zero_input(f: ns.Function) -> None:
    """NNGP φ(0)², NTK φ(0)² + φ′(0)²: compiled, by the reference and by ns.limit."""
    p, x = at_zero(f), np.zeros((1, 3))
    value, slope = limits(f)
    wanted = {"nngp": value**2}
    if not f.jumps:
        wanted["ntk"] = value**2 + slope**2
    kernel, limit, literal = ns.compile(p)(x, get=tuple(wanted)), ns.limit(p, x), reference(ns.backprop(p), x)
    for key, number in wanted.items():
        found = [np.ravel(getattr(result, key))[0] for result in (kernel, limit, literal)]
        assert [float(k) for k in found] == pytest.approx([number] * 3, abs=1e-13), key


def network(f: ns.Function, method: str) -> float:
    """The NTK at x = 0 of one network of width 8."""
    run = ns.simulate(at_zero(f), np.zeros((1, 3)), [8], 1, limit=False, progress=False)
    return float(run.kernels(method, 8).ravel()[0])


@pytest.mark.parametrize("method", ["ntk", "ntk_autograd"])
@pytest.mark.parametrize("f", [f for f in FUNCTIONS if not f.jumps], ids=str)
def test_a_network_at_a_zero_input(f: ns.Function, method: str) -> None:
    """φ(0)² + φ′(0)² |v|²/n, |v|²/n being what the identity gives with the same v."""
    value, slope = limits(f)
    assert network(f, method) == pytest.approx(value**2 + slope**2 * network(ns.identity, method), rel=1e-13)


@pytest.mark.parametrize("f", [f for f in FUNCTIONS if f.name in KINKED and not f.jumps], ids=str)
def test_a_zero_input_beside_another(f: ns.Function) -> None:
    """E φ′(0)φ′(h) = φ′(0) E φ′(h), by the reference interpreter's quadrature too."""
    p, x = at_zero(f), np.array([[0.0, 0.0], [1.0, -0.5]])
    kernel, literal = ns.compile(p)(x), reference(ns.backprop(p), x)
    assert literal.ntk is not None
    np.testing.assert_allclose(np.asarray(kernel.ntk), literal.ntk, rtol=0, atol=1e-11)


def test_equal_positions_share_the_gradient_of_their_maximum() -> None:
    """max(h, h) = h: the NTK is that of a linear layer, at width 16 and in the limit, where it is sampled."""
    p = ns.Program("ties")
    n = p.width("n")
    x = p.data("x", axes=("s",))
    h = p.let("h", p.matrix("W", n, x) @ x)
    p.output(p.readout("v", n), max_pool(h, {"s": 2}).mean("s"))
    data = torch.tensor([[[1.0, 2.0], [1.0, 2.0]], [[0.5, -1.0], [0.5, -1.0]]], dtype=torch.float64)
    gram = data[:, 0] @ data[:, 0].T / 2
    run = ns.simulate(p, data, [16], 1, limit=False, progress=False)
    ntk, autograd = (run.kernels(m, 16)[0].flatten(0) for m in ("ntk", "ntk_autograd"))
    torch.testing.assert_close(ntk, autograd, rtol=1e-12, atol=1e-12)
    found: Any = ns.compile(p, samples=2**12)(data)
    assert ((found.ntk - 2 * gram).abs() <= 5 * found.errors["ntk"] + 1e-9).all()
