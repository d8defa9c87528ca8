"""`ns.limit`: the general Master Theorem against the reference vectors, by hand, and against finite width."""

from __future__ import annotations

import math
from functools import cache, reduce
from itertools import product
from operator import mul
from typing import Any

import numpy as np
import pytest
import sympy as sp
from load import Case, cases, load

import netsor as ns
from netsor.compilers.limit import METHODS, LimitResult
from netsor.layers import dense
from netsor.programs import cnn, gia_counterexample, lstm, mlp, paper, rnn, tied_autoencoder, transformer

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
def limit(name: str, *methods: str) -> LimitResult:
    result = ns.limit(program(load(name)), load(name).x, samples=2**15, methods=methods or METHODS)
    assert isinstance(result, LimitResult)
    return result


def ask(result: LimitResult, question: tuple[Any, ...]) -> Any:
    kind, *names = question
    return getattr(result, kind)(*names) if names else getattr(result, kind)


KEYS = [(n, k) for n in CASES for k in ("limits", "wrong_GIA") if load(n).keys(k)]
JUMP = 2.4e-9  # E step(Z)² is ½; the quadrature of gia_relu_xi, across the jump, is this far away
JUMPS = {"D_h2": 1, "D_x1": 2, "D_h1": 2, "ntk": 4}  # what it is multiplied by in D = 2 D_h2 and in the NTK


@pytest.mark.parametrize(("name", "key"), KEYS)
def test_reference_vectors(name: str, key: str) -> None:
    """Within `abs_error` exactly and by quadrature, whose own bound is far smaller."""
    case, truth = load(name), limit(name)
    result = truth if key == "limits" else truth.gia
    for path in case.keys(key):
        what = path.removeprefix(f"{key}.")
        value, expected = np.asarray(ask(result, LIMITS[what]), dtype=float), case.array(path)
        error = np.asarray(result.error(*LIMITS[what]), dtype=float)
        wrong = JUMP * JUMPS.get(what, 0) if name == "gia_relu_xi" else 0.0
        assert value.shape == expected.shape == error.shape
        assert (np.abs(value - expected) <= float(case.data["abs_error"]) + error + wrong).all(), path
        assert error.max() <= 1e-12 * max(1.0, np.abs(expected).max()), path
    assert result.method == ("exact" if name in POLYNOMIAL else "quadrature")


@pytest.mark.parametrize(("name", "key"), [k for k in KEYS if k[0] not in POLYNOMIAL])
def test_reference_vectors_sampled(name: str, key: str) -> None:
    """Sampling in place of quadrature: within 3 standard errors, which are at most 0.3% (of √E Z² for a mean)."""
    case, truth = load(name), limit(name, "sampled")
    result, known = (truth, limit(name)) if key == "limits" else (truth.gia, limit(name).gia)
    for path in case.keys(key):
        question = LIMITS[path.removeprefix(f"{key}.")]
        value, expected = np.asarray(ask(result, question), dtype=float), case.array(path)
        error = np.asarray(result.error(*question), dtype=float)
        assert (np.abs(value - expected) <= 1e-8 + 3 * error).all(), path
        root = question[0] == "mean"
        size = np.sqrt(np.asarray(known.second_moment(question[1])).max()) if root else np.abs(expected).max()
        assert error.max() <= 0.003 * size, path
    assert result.method == "sampled"


def test_steps_by_their_angle() -> None:
    """D of gia_relu_xi is E step step = ½ − arccos ρ/2π."""
    result = limit("gia_relu_xi")
    c = load("gia_relu_xi").array("limits.C_x1")
    rho = np.clip(c / np.sqrt(np.outer(c.diagonal(), c.diagonal())), -1, 1)
    np.testing.assert_allclose(result.second_moment("dh2"), 0.5 - np.arccos(rho) / (2 * np.pi), atol=1e-13)


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


def test_rows_of_unnamed_lines_say_what_they_are() -> None:
    p = ns.Program("unnamed")
    n, x = p.width("n"), p.data("x")
    p.output(p.readout("v", n), ns.tanh(p.matrix("W", n, x) @ x))
    text = str(ns.limit(p, np.ones((1, 2))))
    assert "E W @ x " in text and "E tanh(W @ x) " in text and "E (W @ x)²" in text
    assert "e-17" not in text  # a mean that is rounding


def test_the_table() -> None:
    text = str(ns.limit(paper.load("section_6_3"), np.zeros((1, 1))))
    row = next(line for line in text.splitlines() if line.startswith("E dx1²"))
    assert row.split() == ["E", "dx1²", "8", "4", "exact", "differs"]
    assert text.splitlines()[1].split() == ["limit", "gradient", "independence", "method"]
    assert text.splitlines()[-1] == "gradient independence gives other limits"


def test_exact_and_sampled_agree() -> None:
    """A family with an axis is unrolled: the same numbers as without it, and as from samples."""
    p = ns.Program("family")
    n, two = p.width("n"), p.axis("two", 2)
    W = p.matrix("W", n, n, var=0.5)
    u = p.vector("u", n, mean=1, var=2, axes=(two,))
    h = p.let("h", W @ u)
    p.let("y", W.T @ (h**2))
    q = ns.Program("single")
    n = q.width("n")
    M = q.matrix("W", n, n, var=0.5)
    u1, u2 = (q.vector(name, n, mean=1, var=2) for name in ("u1", "u2"))
    h1, h2 = q.let("h1", M @ u1), q.let("h2", M @ u2)
    q.let("y1", M.T @ (h1**2))
    q.let("y2", M.T @ (h2**2))
    family, single, sampled = ns.limit(p), ns.limit(q), ns.limit(p, samples=2**15, methods=("sampled",))
    assert (family.method, single.method, sampled.method) == ("exact", "exact", "sampled")
    assert family.mean("y").tolist() == [[single.mean("y1")[0], single.mean("y2")[0]]]
    both = family.second_moment("y")
    assert both.shape == (1, 1, 2, 2)
    for i, a in enumerate(("y1", "y2")):
        for j, b in enumerate(("y1", "y2")):
            assert both[0, 0, i, j] == single.second_moment(a, b)[0, 0]
    questions: list[tuple[Any, ...]] = [
        ("mean", "y"), ("second_moment", "y"), ("second_moment", "y", "u"), ("moment", "y", 4),
    ]  # fmt: skip
    for question in questions:
        value, error = ask(sampled, question), np.asarray(sampled.error(*question))
        assert (np.abs(np.asarray(value) - ask(family, question).astype(float)) <= 4 * error + 1e-12).all()


# ---------------------------------------------------------------- quadrature


def gaussian_program(*values: tuple[str, Any]) -> LimitResult:
    """Moments of functions of three independent standard normal vectors a, b, c."""
    p = ns.Program("functions")
    n = p.width("n")
    a, b, c = (p.vector(name, n) for name in "abc")
    for name, f in values:
        p.let(name, f(a, b, c))
    return ns.limit(p, samples=2**12)


def test_kinks_and_steep_functions() -> None:
    """Closed forms: E relu(a − 1) = φ(1) − Φ(−1), E |a + b| |a|, a function of a function, a step."""
    phi, tail = math.exp(-0.5) / math.sqrt(2 * math.pi), 0.5 * math.erfc(1 / math.sqrt(2))
    r = gaussian_program(
        ("shifted", lambda a, b, c: ns.relu(a - 1)),
        ("angle", lambda a, b, c: ns.abs(a + b) * ns.abs(a)),
        ("composed", lambda a, b, c: ns.relu(ns.tanh(a) - ns.tanh(1))),
        ("steep", lambda a, b, c: ns.tanh(1000 * a - 500) * a),
        ("polynomial", lambda a, b, c: ns.step(a + b) * (a - 2 * b) ** 2 * c**2),
        ("product", lambda a, b, c: ns.relu(a) * ns.relu(b) * ns.relu(c)),
    )
    theta = math.pi / 4
    assert abs(r.mean("shifted")[0] - (phi - tail)) < 1e-13
    want = 2 / math.pi * math.sqrt(2) * (math.sin(theta) + (math.pi / 2 - theta) * math.cos(theta))
    assert abs(r.mean("angle")[0] - want) < 1e-12
    assert abs(r.mean("steep")[0] - 2 * math.exp(-0.125) / math.sqrt(2 * math.pi)) < 1e-5  # its limit is a step at ½
    assert abs(r.mean("polynomial")[0] - 2.5) < 1e-12
    assert abs(r.mean("product")[0] - (2 * math.pi) ** -1.5) < 1e-13
    x = np.linspace(1, 12, 2_000_001)
    outer = np.trapezoid((np.tanh(x) - math.tanh(1)) * np.exp(-x * x / 2) / math.sqrt(2 * math.pi), x)
    assert abs(r.mean("composed")[0] - outer) < 1e-10
    assert r.method == "quadrature"
    for name in ("shifted", "angle", "composed", "steep", "polynomial", "product"):
        assert float(r.error("mean", name)[0]) < 1e-9


def test_three_and_four_gaussians_by_their_characteristic_function() -> None:
    """E Π cos(u_k + c_k) is the mean of exp(i Σ ± c_k − Var(Σ ± u_k)/2) over signs; Gauss–Hermite agrees on tanh."""
    forms = {
        "three": np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0]]),
        "four": np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1], [0.5, 0, 0.5, 1]]),
    }
    shifts = [0.3, 0, -0.2, 0.1, 0]
    p = ns.Program("waves")
    n = p.width("n")
    g = [p.vector(name, n) for name in "abcd"]
    for name, rows in forms.items():
        terms = (
            (sum(c * v for c, v in zip(row, g, strict=True) if c), s)
            for row, s in zip(rows.tolist(), shifts, strict=False)
        )
        p.let(name, reduce(mul, (ns.cos(u + s) for u, s in terms)))
    p.let("tanh", ns.tanh(g[0] + g[1] + 1) * ns.tanh(g[1] + g[2]) * ns.tanh(g[0] + g[2]))
    r = ns.limit(p, methods=("quadrature",))
    for name, rows in forms.items():
        signs = np.array(list(product((-1, 1), repeat=len(rows))))
        phase, variance = signs @ np.array(shifts[: len(rows)]), ((signs @ rows) ** 2).sum(1)
        assert abs(r.mean(name)[0] - (np.cos(phase) * np.exp(-variance / 2)).mean()) < 1e-12
        assert float(r.error("mean", name)[0]) < 1e-10
    x, w = np.polynomial.hermite_e.hermegauss(100)
    a, b, c = np.meshgrid(x, x, x, indexing="ij")
    weights = w[:, None, None] * w[:, None] * w / w.sum() ** 3
    want = (weights * np.tanh(a + b + 1) * np.tanh(b + c) * np.tanh(a + c)).sum()
    assert abs(r.mean("tanh")[0] - want) < 1e-6  # what 100 nodes leave


def test_what_quadrature_cannot_do_is_sampled() -> None:
    """Kinks along three Gaussians, five Gaussians, mass outside of the nodes: only these questions are sampled."""
    hard = gaussian_program(
        ("kinks", lambda a, b, c: ns.relu(a + b + 1) * ns.abs(b + c) * ns.relu(a + c)),
        ("far", lambda a, b, c: ns.exp(6 * a - 18)),
        ("two", lambda a, b, c: ns.tanh(a + b) * ns.tanh(b)),
    )
    assert float(hard.error("mean", "two")[0]) < 1e-12
    assert hard.method == "quadrature"
    for name in ("kinks", "far"):
        with pytest.raises(ns.UnsupportedError, match="no limit by exact, quadrature"):
            ns.limit(hard.program, methods=("exact", "quadrature")).mean(name)
    assert float(hard.error("mean", "kinks")[0]) > 1e-6
    assert hard.method == "quadrature+sampled"
    with pytest.raises(ns.InputError, match="methods are"):
        ns.limit(hard.program, methods=("guess",))


@pytest.mark.parametrize("phi", ["tanh", "relu"])
def test_dependent_and_nearly_equal_inputs(phi: str) -> None:
    """Equal, opposite, zero, scaled, tiny and nearly equal inputs: within the stated error, which sees rounding."""
    x = np.array([[1.2, -0.7], [1.2, -0.7], [-1.2, 0.7], [0, 0], [2.4, -1.4], [1.2, -0.7000001], [1e-6, 2e-6]])
    p = mlp(2, phi, var_b=0)
    r, kernel = ns.limit(p, x, methods=("quadrature",)), ns.compile(p)(x, get="nngp")
    error = np.asarray(r.error("nngp"))
    assert (np.abs(np.asarray(r.nngp) - kernel.nngp.numpy()) <= error).all()
    assert error.max() < 1e-6


@pytest.mark.parametrize("phi", ["tanh", "relu"])
def test_inputs_of_mixed_scales(phi: str) -> None:
    """Nearly equal inputs of sizes 1e-6, 1 and 1e3: every entry has an error of its own size, and is within it."""
    x = np.array([[1.2, -0.7], [1.2, -0.7000001], [1.2e-6, -0.7e-6], [1.2e-6, -0.701e-6], [1.2e3, -0.7e3]])
    p = mlp(2, phi, var_b=0)
    r, kernel = ns.limit(p, x, methods=("quadrature",)), ns.compile(p)(x)
    for key in ("nngp", "ntk"):
        value, error, want = np.asarray(getattr(r, key)), np.asarray(r.error(key)), np.asarray(getattr(kernel, key))
        size = np.sqrt(np.outer(want.diagonal(), want.diagonal()))
        assert (np.abs(value - want) <= error).all()
        assert (error <= 3e-6 * size).all()
    moments = np.asarray(r.second_moment("x1")).diagonal()
    assert (np.asarray(r.error("second_moment", "x1")).diagonal() <= 3e-6 * moments).all()
    assert (np.asarray(r.error("moment", "x1", 2)) <= 3e-6 * moments).all()


@pytest.mark.parametrize("phi", ["tanh", "relu", "erf"])
def test_families_and_scans_against_compiled_kernels(phi: str) -> None:
    """BP-like programs with axes, unrolled: the general rule is the compiled kernel."""
    cases: list[tuple[ns.Program, Any]] = [
        (mlp(2, phi), X),
        (cnn(1, phi, axes=("row",)), np.array([[[1.2, -0.7], [0.4, 0.9]], [[0.1, 0.3], [-0.5, 0.8]]])),
        (rnn(phi), np.array([[[1.2, -0.7], [0.4, 0.9]]])),
    ]
    for p, x in cases:
        r, kernel = ns.limit(p, x, methods=("quadrature",)), ns.compile(p)(x)
        for name in ("nngp", "ntk"):
            value, error = getattr(r, name), r.error(name)
            np.testing.assert_allclose(value, getattr(kernel, name), rtol=1e-9, atol=1e-12)
            assert float(error.max()) < 1e-8


def test_gates_and_attention_by_quadrature() -> None:
    """Gates are products of functions of independent Gaussians: inside what samples say; attention as compiled."""
    x = np.random.default_rng(0).normal(size=(1, 2, 2))
    r, kernel = ns.limit(transformer(), x, methods=("quadrature",)), ns.compile(transformer())(x)
    np.testing.assert_allclose(r.ntk, kernel.ntk, rtol=1e-9)
    r, drawn = ns.limit(lstm(), x[:, :1], methods=("quadrature",)), ns.compile(lstm(), samples=2**14)(x[:, :1])
    assert drawn.ntk is not None and drawn.method == "sampled"
    ntk = float(r.ntk.item())
    assert abs(ntk - float(drawn.ntk)) <= 3 * float(drawn.errors["ntk"]) <= 0.01 * ntk
    assert float(r.error("ntk").item()) < 1e-10


def tokens(phi: Any) -> ns.Program:
    """An output per token, layers of which mix tokens."""
    p = ns.Program("tokens")
    n = p.width("n")
    x = p.data("x", axes=("token",))
    h = phi(dense(x, n, "W1", bias_var=0.5))
    p.output(p.readout("v", n), phi(dense(h + h.mean("token"), n, "W2", bias_var=0.25)))
    return p


def flattened(phi: Any) -> ns.Program:
    """An output per column, read out over two rows."""
    p = ns.Program("flattened")
    n = p.width("n")
    h = phi(dense(p.data("x", axes=("row", "col")), n, "W1"))
    p.output(p.readout("v", n, axes=("row",)), h + h.mean("col"))
    return p


def states(phi: Any) -> ns.Program:
    """An output per step."""
    p = ns.Program("states")
    n = p.width("n")
    x = p.data("x", axes=("time",))
    u, W = p.matrix("U", n, x) @ x, p.matrix("W", n, n)
    p.output(p.readout("v", n), p.scan("time", 0, lambda s: phi(W @ s + u)))
    return p


AXES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "tokens": (tokens, (1, 2, 2)), "flattened": (flattened, (2, 2, 2, 2)), "states": (states, (2, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("phi", [ns.tanh, ns.relu, ns.square], ids=["tanh", "relu", "square"])
@pytest.mark.parametrize("name", AXES)
def test_outputs_with_axes_against_compiled_kernels(name: str, phi: Any) -> None:
    """`[sample, sample′, axis, axis′]` without sampling, polynomials as rationals where no root is in the way."""
    make, shape = AXES[name]
    p, x = make(phi), np.random.default_rng(0).normal(size=shape).round(2)
    r, kernel = ns.limit(p, x, methods=("exact", "quadrature")), ns.compile(p)(x)
    for key in ("nngp", "ntk"):
        value, want = np.asarray(getattr(r, key), dtype=float), getattr(kernel, key)
        assert want is not None and value.shape == want.shape == (shape[0], shape[0], 2, 2)
        np.testing.assert_allclose(value, want, rtol=1e-9, atol=1e-12)
        assert float(np.asarray(r.error(key)).max()) <= 1e-8 * float(want.abs().max())
    assert r.method == ("exact" if phi is ns.square and name != "flattened" else "quadrature")


@pytest.mark.parametrize("key", ["nngp", "ntk"])
def test_outputs_with_axes_entry_by_entry(key: str) -> None:
    """Of a program with forward uses of Wᵀ: entry i, j from outputs without axes, by polarisation.

    The NTK also where the readout is added to what it reads; there is no NNGP kernel then.
    """

    def network(pick: Any = None) -> ns.Program:
        p = ns.Program("tied")
        n = p.width("n")
        W, v = p.matrix("W", n, n, var=0.5), p.readout("v", n, var=2)
        x = p.data("x", axes=("token",))
        h = W @ (p.matrix("U", n, x) @ x)
        y = p.let("y", W.T @ (h**2 + h) + (v if key == "ntk" else p.bias("b", n, var=2)))
        p.output(v, y if pick is None else pick(y))
        return p

    x = np.array([[[1, 2], [0.5, -1]], [[-1, 0.25], [3, 1]]])
    whole = ns.limit(network(), x)
    picks = [lambda y: y.at("token", 0), lambda y: y.at("token", 1), lambda y: y.sum("token")]
    first, second, both = (ns.limit(network(pick), x) for pick in picks)
    k, a, b, c = (getattr(r, key) for r in (whole, first, second, both))
    assert k.shape == (2, 2, 2, 2) and whole.method == "exact"
    assert (k[:, :, 0, 0] == a).all() and (k[:, :, 1, 1] == b).all()
    assert (k[:, :, 0, 1] + k[:, :, 1, 0] == c - a - b).all()
    assert (k == k.transpose(1, 0, 3, 2)).all()
    assert (whole.ntk != whole.gia.ntk).any()
    assert (whole.nngp is None) == (key == "ntk")


def readout_as_bias(_: ns.Width, h: Any, v: Any, b: Any, W: Any) -> Any:
    return ns.relu(h + v)


def readout_through_its_matrix(_: ns.Width, h: Any, v: Any, b: Any, W: Any) -> Any:
    return ns.tanh(W.T @ (W @ (h + v)))


def correlated_bias(_: ns.Width, h: Any, v: Any, b: Any, W: Any) -> Any:
    return ns.relu(h + b)


def readout_through_a_matrix(_: ns.Width, h: Any, v: Any, b: Any, W: Any) -> Any:
    return ns.relu(W @ v + h)


def cancelled_readout(_: ns.Width, h: Any, v: Any, b: Any, W: Any) -> Any:
    return ns.tanh(h + v) + ns.relu(h) - ns.tanh(v + h)


Reading = Any
GROWS: list[Reading] = [readout_as_bias, readout_through_its_matrix, correlated_bias]
EXISTS: list[Reading] = [readout_through_a_matrix, cancelled_readout]


def reads(make: Reading) -> ns.Program:
    p = ns.Program(make.__name__)
    n = p.width("n")
    x = p.data("x")
    v = p.readout("v", n)
    b, W = p.vector("b", n, cov={v: 0.5}), p.matrix("W", n, n)
    p.output(v, p.let("y", make(n, p.let("h", p.matrix("U", n, x) @ x), v, b, W)))
    return p


@pytest.mark.parametrize("make", GROWS)
def test_no_nngp_where_the_vector_depends_on_the_readout(make: Reading) -> None:
    """E f² = E (v·y)²/n grows with the width when Z^v Z^y has a mean: no number, and the reason."""
    r = ns.limit(reads(make), X[:1], samples=2**12)
    assert r.nngp is None and r.gia.nngp is None
    assert "y depends on" in r.reasons["nngp"] and "v" in r.reasons["nngp"] and "NNGP" not in str(r)
    with pytest.raises(ns.InputError, match="grow with the width"):
        r.error("nngp")
    assert r.ntk is not None and "ntk" not in r.reasons


@pytest.mark.parametrize("make", EXISTS)
def test_nngp_where_the_limit_is_independent_of_the_readout(make: Reading) -> None:
    """E relu(z)² = E z²/2 with E z² = |x|²/2 (+ 1 for Wv, a Gaussian variable independent of v)."""
    square = float((X[0] ** 2).sum()) / 2
    want = (square + (make is readout_through_a_matrix)) / 2
    r = ns.limit(reads(make), X[:1])
    assert "nngp" not in r.reasons
    np.testing.assert_allclose(float(r.nngp.squeeze()), want, rtol=1e-9)


def test_ntk_of_a_network_that_adds_its_readout() -> None:
    """z = Ux/√2 + v, s = |x|²/2: E v² 1[z > 0] s + E (relu(z) + v 1[z > 0])² = s/2 + (s + 1)/2 + 3/2."""
    s = float((X[0] ** 2).sum()) / 2
    np.testing.assert_allclose(float(ns.limit(reads(readout_as_bias), X[:1]).ntk.squeeze()), s + 2, rtol=1e-9)


def test_why_there_is_no_kernel() -> None:
    p = ns.Program("no output")
    p.let("y", ns.tanh(p.vector("u", p.width("n"))))
    assert ns.limit(p).reasons == dict.fromkeys(("nngp", "ntk"), "the program has no output")


def test_scalars_by_the_names_that_are_returned() -> None:
    """E u² = 2 under both of its names."""
    p = ns.Program("returns")
    u = p.vector("u", p.width("n"), var=2)
    p.returns("second moment", p.let("c", ns.moment(u**2)))
    r = ns.limit(p)
    assert r.scalar("second moment") == r.scalar("c") == 2
    with pytest.raises(ns.InputError, match="no vector called second moment"):
        r.mean("second moment")


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
