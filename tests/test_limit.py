"""`ns.limit`: the general Master Theorem against the reference vectors, by hand, and against finite width."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import sympy as sp
from load import Case, cases, load

import netsor as ns
from netsor.compilers.limit import LimitResult
from netsor.programs import gia_counterexample, mlp, paper, tied_autoencoder

CASES = cases("gia_*")
POLYNOMIAL = [name for name in CASES if load(name).params["phi"] in ("square", "cube")]
X = np.array([[1.2, -0.7], [0.4, 0.9]])
LIMITS: dict[str, tuple[Any, ...]] = {
    "C_x1": ("second_moment", "x1"), "C_x2": ("second_moment", "x2"), "C_y": ("second_moment", "y"),
    "D_h2": ("second_moment", "dh2"), "D_x1": ("second_moment", "dx1"), "D_h1": ("second_moment", "dh1"),
    "D_h": ("second_moment", "dh"), "D_x": ("second_moment", "dx"), "grad_v": ("second_moment", "dv"),
    "mean_dx1": ("mean", "dx1"), "nngp": ("nngp",), "ntk": ("ntk",),
}  # fmt: skip


def v_inside(var_1: float, var_2: float, var_v: float) -> ns.Program:
    """The readout also enters the first layer."""
    p = ns.Program("v_inside")
    n = p.width("n")
    data = p.data("xi")
    v = p.readout("v", n, var=var_v)
    x1 = p.let("x1", p.matrix("W1", n, data, var=var_1) @ data + v)
    x2 = p.let("x2", ns.tanh(p.let("h2", p.matrix("W2", n, n, var=var_2) @ x1)))
    p.output(v, x2)
    return p


def program(case: Case) -> ns.Program:
    q = case.params
    if case.name == "gia_tied_tanh":
        return tied_autoencoder(q["phi"], q["s1"], q["s2"], 0, q["sv"])
    if case.name == "gia_v_inside_matmul_tanh":
        return v_inside(q["s1"], q["s2"], q["sv"])
    return gia_counterexample(q["phi"], q["s1"], q["s2"], q["mean_v"], q["var_v"], q["v_trained"])


@cache
def limit(name: str) -> LimitResult:
    result = ns.limit(program(load(name)), load(name).x, samples=2**15)
    assert isinstance(result, LimitResult)
    return result


def ask(result: LimitResult, question: tuple[Any, ...]) -> Any:
    kind, *names = question
    return getattr(result, kind)(*names) if names else getattr(result, kind)


@pytest.mark.parametrize(("name", "key"), [(n, k) for n in CASES for k in ("limits", "wrong_GIA") if load(n).keys(k)])
def test_reference_vectors(name: str, key: str) -> None:
    """Within `abs_error` where exact, within 4.5 standard errors (about one in 2,500 each) where sampled.

    E step(Z)² is sampled without error as ½, from which the quadrature of gia_relu_xi is 2.4e-9 away.
    """
    case, truth = load(name), limit(name)
    result = truth if key == "limits" else truth.gia
    assert result.method == ("exact" if name in POLYNOMIAL else "sampled")
    for path in case.keys(key):
        question = LIMITS[path.removeprefix(f"{key}.")]
        value, expected = np.asarray(ask(result, question), dtype=float), case.array(path)
        error = np.asarray(result.error(*question), dtype=float)
        allowed = float(case.data["abs_error"]) if result.method == "exact" else 1e-8
        assert value.shape == expected.shape
        assert (np.abs(value - expected) <= allowed + 4.5 * error).all(), path
        assert error.max() <= 0.003 * max(1.0, np.abs(expected).max()), path


def test_section_6_3_is_exact() -> None:
    """Mean 2, second moment 8, fourth moment 160; independence says 0 and 4."""
    r = ns.limit(paper.load("section_6_3"), np.zeros((1, 1)))
    assert isinstance(r.mean("dx1")[0], sp.Rational)
    assert (r.mean("dx1")[0], r.second_moment("dx1")[0, 0], r.moment("dx1", 4)[0]) == (2, 8, 160)
    assert (r.gia.mean("dx1")[0], r.gia.second_moment("dx1")[0, 0]) == (0, 4)
    assert r.ntk[0, 0] == 4
    assert r.differs["E dx1"]
    assert not r.differs["NTK"]
    assert r.nngp is None  # the readout has a mean


def test_the_table() -> None:
    text = str(ns.limit(paper.load("section_6_3"), np.zeros((1, 1))))
    row = next(line for line in text.splitlines() if line.startswith("E dx1²"))
    assert row.split() == ["E", "dx1²", "8", "4", "differs"]
    assert text.splitlines()[-1] == "gradient independence gives other limits"


def test_exact_and_sampled_agree() -> None:
    """One program both ways: an axis of size one makes it a family, which is sampled."""
    p = ns.Program("family")
    n, one = p.width("n"), p.axis("one", 1)
    W = p.matrix("W", n, n, var=0.5)
    u = p.vector("u", n, mean=1, var=2, axes=(one,))
    h = p.let("h", W @ u)
    p.let("y", W.T @ (h**2))
    q = ns.Program("single")
    n = q.width("n")
    M = q.matrix("W", n, n, var=0.5)
    h = q.let("h", M @ q.vector("u", n, mean=1, var=2))
    q.let("y", M.T @ (h**2))
    exact, sampled = ns.limit(q), ns.limit(p, samples=2**15)
    assert (exact.method, sampled.method) == ("exact", "sampled")
    questions: list[tuple[Any, ...]] = [
        ("mean", "y"), ("second_moment", "y"), ("second_moment", "y", "u"), ("moment", "y", 4),
    ]  # fmt: skip
    for question in questions:
        value, error = ask(sampled, question), sampled.error(*question)
        assert abs(float(value.flatten()[0]) - float(ask(exact, question).flatten()[0])) <= 4 * float(error.max())


def test_correlated_inputs_and_widths() -> None:
    """E u w = Cov + means; E (Wᵀa)² = ratio · var · E a²; a transpose of another width couples back."""
    p = ns.Program("inputs")
    n, m = p.width("n"), p.width("m", ratio=2)
    u = p.vector("u", n, mean=1, var=2)
    w = p.vector("w", n, mean=3, var=1, multiplier=2, cov={u: 0.5})
    z = p.vector("z", n, cov={w: 0.25, u: 0.125})
    W = p.matrix("W", m, n, var=3)
    a = p.let("a", W @ u)
    b = p.let("b", W.T @ a)
    p.let("c", W.T @ p.vector("k", m, var=5))
    r = ns.limit(p)
    assert r.second_moment("u", "w")[0, 0] == 2 * (sp.Rational(1, 2) + 3)
    assert r.second_moment(z, "w")[0, 0] == 2 * sp.Rational(1, 4)
    assert r.second_moment("z", "u")[0, 0] == sp.Rational(1, 8)
    assert r.second_moment("a")[0, 0] == 3 * 3
    assert r.second_moment("c")[0, 0] == 2 * 3 * 5
    assert r.mean(b)[0] == 2 * 3  # Ż = (m/n) var · Z^u
    assert r.gia.mean("b")[0] == 0
    with pytest.raises(ns.InputError, match="different widths"):
        r.second_moment("u", "a")


def test_scalars_and_unknown_names() -> None:
    p = ns.Program("scalar")
    n = p.width("n")
    u = p.vector("u", n, mean=1, var=1)
    c = p.let("c", ns.moment(u**2))
    p.let("y", c * u)
    r = ns.limit(p)
    assert r.scalar("c")[0] == 2
    assert r.mean("y")[0] == 2
    assert r.error("scalar", "c").max() == 0
    with pytest.raises(ns.InputError, match="no vector called nothing"):
        r.mean("nothing")


def test_bp_like_programs_do_not_differ() -> None:
    """For an MLP the general rule is the compiled kernel, and gradient independence holds."""
    p = mlp(2, "square")
    r, kernel = ns.limit(p, X), ns.compile(p)(X)
    assert kernel.ntk is not None
    assert kernel.nngp is not None
    np.testing.assert_allclose(np.asarray(r.ntk, dtype=float), kernel.ntk.numpy(), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(r.nngp, dtype=float), kernel.nngp.numpy(), rtol=1e-12)
    assert not any(r.differs.values())


@pytest.mark.parametrize("phi", [ns.polynomial([0, 1, 0.5]), "tanh"], ids=["polynomial", "tanh"])
def test_a_tied_autoencoder_with_a_mean_against_simulation(phi: Any) -> None:
    """Forward uses of Wᵀ meet gradients: the truth is near what networks have, gradient independence is far."""
    p = tied_autoencoder(phi, 1, 0.25, 1, 0.1)
    r = ns.limit(p, X, samples=2**15)
    truth, other = (np.asarray(k, dtype=float).diagonal() for k in (r.ntk, r.gia.ntk))
    runs = ns.simulate(p, X, widths=[512], seeds=16, limit=False, progress=False, methods=("backward",))
    kernels = runs.kernels("ntk", 512).numpy().diagonal(axis1=1, axis2=2)
    mean, error = kernels.mean(0), kernels.std(0, ddof=1) / 4
    assert (np.abs(mean - truth) <= 4 * error + 0.02 * truth).all()
    assert (np.abs(mean - other) > 4 * error + 0.02 * truth).any()
