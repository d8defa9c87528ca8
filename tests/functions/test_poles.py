"""Poles of functions of several Gaussian variables: which moments exist, and who is told."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp
import torch

import netsor as ns
from netsor.checker.regularity.moments import moments
from netsor.compilers.sampler.existence import existing
from netsor.compilers.sampler.kernels import needed
from netsor.compilers.sampler.tails import tail_index
from netsor.passes.backward import with_backward

X = np.random.default_rng(0).standard_normal((2, 4))
H, G, F = sp.symbols("h g f", real=True)
ABS, HALF = sp.Abs, sp.Rational(1, 2)
THIRD, FOURTH = sp.Rational(3, 10), sp.Rational(4, 10)

# by Fubini and polar coordinates: r^−q near a set of codimension d has E|·|^p < ∞ for p q < d
FINITE: dict[str, tuple[sp.Expr, tuple[bool, bool]]] = {
    "both: a root": (sp.sqrt(ABS(H)) * G, (True, True)),
    "both: a share": (H**2 / (H**2 + G**2), (True, True)),
    "both: a direction": (H / sp.sqrt(H**2 + G**2), (True, True)),
    "both: a logarithm": (sp.log(ABS(H + G)), (True, True)),
    "both: removable": (sp.sin(H) * G / H, (True, True)),
    "both: a weak pole": (G * ABS(H) ** -THIRD, (True, True)),
    "both: a weak pole at a point": ((H**2 + G**2) ** sp.Rational(-1, 4), (True, True)),
    "both: in space": (1 / sp.sqrt(H**2 + G**2 + F**2), (True, True)),
    "both: two planes": (ABS(H - G) ** -FOURTH * ABS(H + G) ** -FOURTH, (True, True)),
    "both: never zero": (1 / (H**2 + H + 1), (True, True)),
    "both: a sum that is never zero": (1 / (H**2 + G**2 - 2 * H + 2), (True, True)),
    "first: a root in the denominator": (G / sp.sqrt(ABS(H)), (True, False)),
    "first: a radius": (1 / sp.sqrt(H**2 + G**2), (True, False)),
    "first: a sum of sizes": (1 / (ABS(H) + ABS(G)), (True, False)),
    "first: a definite form": (1 / sp.sqrt(H**2 + H * G + G**2), (True, False)),
    "first: a square in hiding": ((H**2 - 2 * H * G + G**2) ** -THIRD, (True, False)),
    "first: a derivative": (sp.diff(H / sp.sqrt(H**2 + G**2), H), (True, False)),
    "first: off the origin": (1 / sp.sqrt((H - G) ** 2 + (F - 1) ** 2), (True, False)),
    "first: three planes on a line": (ABS((H - G) * (H - F) * (G - F)) ** -FOURTH, (True, False)),
    "first: a square in space": (1 / (H**2 + G**2 + F**2), (True, False)),
    "none: a quotient": (G / H, (False, False)),
    "none: a difference": (1 / (H - G), (False, False)),
    "none: a product": (1 / (H * G), (False, False)),
    "none: a curve": (1 / (H * G - 1), (False, False)),
    "none: a cube in space": ((H**2 + G**2 + F**2) ** sp.Rational(-3, 2), (False, False)),
    "none: no real value": (sp.log(H + G), (False, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", FINITE)
def test_moments_near_points(name: str) -> None:
    e, want = FINITE[name]
    known = moments(e, tuple(sorted(e.free_symbols, key=str)))
    assert (known.exists(1), known.exists(2)) == want


@pytest.mark.parametrize(
    "e", [(H**2 + G**4) ** -FOURTH, 1 / sp.sqrt(ABS(H - sp.sin(3 * G) - F) + ABS(F))], ids=["anisotropic", "a curve"]
)
def test_what_is_not_recognised_is_not_claimed(e: sp.Expr) -> None:
    """E (h² + g⁴)^−0.8 is infinite, along h ~ g² only: 2 · 1.6 ≥ 3."""
    assert moments(e, tuple(sorted(e.free_symbols, key=str))).exists(2) is not True


def net(f: Callable[..., sp.Expr], correlated: bool = False) -> ns.Program:
    p = ns.Program("two")
    n, x = p.width("n"), p.data("x")
    h = p.let("h", p.matrix("W", n, x) @ x)
    g = p.let("g", p.matrix("U", n, x) @ x + (h if correlated else 0))
    p.output(p.readout("v", n), p.let("z", ns.function("f", f)(h, g)))
    return p


NO_KERNEL: dict[str, Callable[..., sp.Expr]] = {
    "g/h": lambda h, g: g / h, "1/(h-g)": lambda h, g: 1 / (h - g), "1/(h g)": lambda h, g: 1 / (h * g),
    "1/r": lambda h, g: 1 / sp.sqrt(h**2 + g**2),
}  # fmt: skip
NO_NTK: dict[str, Callable[..., sp.Expr]] = {
    "h/r": lambda h, g: h / sp.sqrt(h**2 + g**2), "log": lambda h, g: sp.log(ABS(h + g)),
    "sqrt": lambda h, g: sp.sqrt(ABS(h * g)),
}  # fmt: skip


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("name", NO_KERNEL)
def test_an_infinite_kernel_is_refused_by_all(name: str, correlated: bool) -> None:
    p = net(NO_KERNEL[name], correlated)
    with pytest.raises(ns.InputError, match=r"(?s)NT303.*is infinite"):
        ns.compile(p)(X, get="nngp")
    with pytest.raises(ns.InputError, match=r"(?s)NT303.*is infinite"):
        _ = ns.limit(p, X, samples=2**12).nngp
    with pytest.raises(ns.InputError, match=r"(?s)NT303.*is infinite"):
        _ = ns.limit(p, X, samples=2**12, methods=("sampled",)).nngp
    found = [d for d in ns.check(p).diagnostics if d.code == "NT303" and d.variable == "z"]
    assert "is infinite" in found[0].message


@pytest.mark.parametrize("name", NO_NTK)
def test_a_kernel_without_an_ntk(name: str) -> None:
    p = net(NO_NTK[name])
    kernel = ns.compile(p, samples=2**14)
    assert np.isfinite(np.asarray(kernel(X, get="nngp").nngp)).all()
    with pytest.raises(ns.InputError, match=r"(?s)NT303.*is infinite"):
        kernel(X, get="ntk")
    with pytest.raises(ns.InputError, match=r"(?s)NT303.*is infinite"):
        _ = ns.limit(p, X, samples=2**12).ntk


def test_limits_ask_for_the_moment_in_question() -> None:
    """E |h|^−½ is finite, E |h|^−1 is not; E 1/h is no principal value."""
    for phi, power in ((lambda h: ABS(h) ** -HALF, 2), (lambda h: 1 / h, 1)):
        p = ns.programs.mlp(depth=1, phi=ns.function("f", phi))
        r = ns.limit(p, X, samples=2**14)
        vector = p.outputs[0].vector.name
        if power == 2:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ns.NetsorWarning)
                mean = r.mean(vector)
            # E |σ z|^−½ = σ^−½ 2^−¼ Γ(¼)/√π
            want = (1 + (X**2).mean(1)) ** -0.25 * 2**-0.25 * float(sp.gamma(sp.Rational(1, 4))) / np.sqrt(np.pi)
            np.testing.assert_allclose(np.asarray(mean, dtype=float), want, rtol=0.02)
        ask = r.mean if power == 1 else r.second_moment
        with pytest.raises(ns.InputError, match=r"(?s)NT303.*is infinite"):
            ask(vector)


def test_a_number_without_a_standard_error_says_so() -> None:
    """f = (h² + g²)^−¼ has E f² = E 1/r finite and E f⁴ = E 1/r² infinite."""
    p = net(lambda h, g: (h**2 + g**2) ** sp.Rational(-1, 4))
    for ask in (lambda: ns.compile(p, samples=2**14)(X, get="nngp"), lambda: ns.limit(p, X, samples=2**14).nngp):
        with pytest.warns(ns.NetsorWarning, match="NT704"):
            ask()


def test_the_tail_index_of_a_power_and_of_lighter_tails() -> None:
    g = torch.randn(8, 2**14, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u = torch.rand(8, 2**14, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for alpha in (0.5, 1.0, 2.0):
        assert tail_index(u ** (-1 / alpha)).numpy() == pytest.approx(alpha, rel=0.6)
    assert (tail_index(g) > 4).all()


@pytest.mark.parametrize("name", [*ns.programs.BUILTIN, "norm"])
def test_no_program_is_refused(name: str) -> None:
    """Divisions by scalars, radii and sums of exponentials have their moments, with ε = 0 too."""
    p = layer_norm() if name == "norm" else getattr(ns.programs, name)()
    q = with_backward(p)
    assert existing(q, dict.fromkeys(needed(q, ("nngp", "ntk")), 2)) == []


def layer_norm() -> ns.Program:
    """(h − mean h)/√(mean (h − mean h)²), without ε, and what follows."""
    p = ns.Program("norm")
    n, x = p.width("n"), p.data("x")
    h = p.let("h", p.matrix("W", n, x) @ x)
    p.output(p.readout("v", n), ns.relu(ns.layers.layer_norm(h, eps=0)))
    return p
