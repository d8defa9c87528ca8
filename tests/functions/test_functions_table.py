"""Every row of the table of functions: its columns say the same, and nothing else lists the functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import sympy as sp
import torch

import netsor as ns
from netsor.compilers.expectation.functions import from_terms
from netsor.compilers.expectation.terms import Numeric
from netsor.compilers.lowering.atoms import Reference, closed
from netsor.compilers.lowering.functions import as_fn
from netsor.compilers.lowering.torch_functions import torch_function
from netsor.compilers.reference import reference
from netsor.functions import Function, builtin, builtin_names, elu_alpha, leaky_relu, table, write_out
from netsor.run.expressions import evaluate

X = sp.Symbol("x", real=True)
Z = sp.Symbol("z", real=True)
PARAMETERS = {"leaky_relu": (0.2,), "polynomial": (1, 0.5, -2, 0.25)}
ROWS = [
    *(builtin(name, PARAMETERS.get(name, ())) for name in builtin_names()),
    elu_alpha(0.5), elu_alpha(-0.5), leaky_relu(1 / sp.sqrt(5)), leaky_relu(-1),
]  # fmt: skip
RNG = np.random.default_rng(0)
BULK = np.concatenate([4 * RNG.standard_normal(150), RNG.uniform(-40, 40, 41)])
POINTS = np.concatenate([BULK, [0.0, 1e-3, -1e-3, 1e3, -1e3, 1e-9, -1e-9, 1.0, -1.0]])


def points(f: Function) -> Any:
    """200 points among which are 0, ±1e±3 and all kinks; exp overflows beyond 700."""
    at = np.concatenate([POINTS, f.kinks])
    return at[np.abs(at) < 700] if f.name == "exp" else at


def heaviside(x: Any, at_zero: Any) -> Any:
    return mp.mpf(x > 0) if x else at_zero


def definition(f: Function, at: Any) -> Any:
    """Values of the definition in 40 digits; below 1e-300 they are 0, as exp(−x²) is."""
    with mp.workdps(460):  # 1 + tanh(x/2) at x = −1000 is 1e−434
        exact = sp.lambdify(X, write_out(f.sym(X)), [{"Heaviside": heaviside}, "mpmath"])
        return np.array([float(exact(mp.mpf(float(x)))) for x in at])


@pytest.mark.parametrize("f", ROWS, ids=str)
def test_numpy_torch_and_the_engine_agree_with_the_definition(f: Function) -> None:
    """To rounding of the argument and of the value, also in the tails and at the kinks."""
    at = points(f)
    wanted = definition(f, at)
    found = {
        "numpy": evaluate(f.sym(X), {X: at}) * np.ones_like(at),
        "torch": torch_function(f.sym(X), (X,))(torch.from_numpy(at)).numpy(),
        "engine": as_fn(f).call(torch.from_numpy(at)).numpy(),
    }
    slack = 1e-15 * np.abs(definition(f.prime, at) * at) + 1e-307
    for name, values in found.items():
        np.testing.assert_array_less(np.abs(values - wanted), 1e-14 * np.abs(wanted) + slack, err_msg=name)


@pytest.mark.parametrize("f", [f for f in ROWS if f.sources[1:]], ids=str)
def test_the_text_of_a_derivative_agrees_with_its_definition(f: Function) -> None:
    for order, _ in enumerate(f.sources):
        at, g = points(f), f
        for _ in range(order):
            g = g.prime
        found = torch_function(g.sym(X), (X,))(torch.from_numpy(at)).numpy()
        wanted = definition(g, at)
        np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-15 * np.abs(at).max() * 1e-16, err_msg=g.name)


@pytest.mark.parametrize("f", ROWS, ids=str)
def test_the_closed_terms_are_the_function(f: Function) -> None:
    """The atoms of a closed form add up to the values, to the rounding of the largest of them."""
    whole = as_fn(f)
    assert closed(f.sym(Z), lambda h: Reference(str(h))) is None or not any(
        isinstance(atom, Numeric) for _, atom in whole.terms
    )
    if any(isinstance(atom, Numeric) for _, atom in whole.terms):
        return
    at = torch.from_numpy(points(f))
    summed = from_terms(whole.terms, "sum").call(at)
    torch.testing.assert_close(summed, whole.call(at), rtol=1e-14, atol=1e-15 * max(1.0, float(at.abs().max())))


@pytest.mark.parametrize("f", ROWS, ids=str)
def test_the_derivative_is_that_of_the_values(f: Function) -> None:
    """Against central differences of 40-digit values, away from the kinks."""
    at = BULK[np.abs(BULK) > 1e-3]
    with mp.workdps(60):
        exact = sp.lambdify(X, write_out(f.sym(X)), [{"Heaviside": heaviside}, "mpmath"])
        h = mp.mpf("1e-12")
        slopes = [float((exact(mp.mpf(float(x)) + h) - exact(mp.mpf(float(x)) - h)) / (2 * h)) for x in at]
    found = torch_function(f.prime.sym(X), (X,))(torch.from_numpy(at)).numpy()
    np.testing.assert_allclose(found, slopes, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("f", ROWS, ids=str)
def test_parity_growth_range_and_kinks_hold(f: Function) -> None:
    at = points(f)
    values = definition(f, at)
    low, high = f.range
    assert (low <= values).all() and (values <= high).all()
    if f.parity is not None:
        np.testing.assert_array_equal(definition(f, -at), values if f.parity == "even" else -values)
    if f.growth in ("bounded", "polynomial"):
        assert (np.abs(values) <= 10 * (1 + np.abs(at) ** (3 if f.growth == "polynomial" else 0))).all()
    else:
        assert f.growth == "exponential" and (np.abs(values) <= 2 * np.exp(np.abs(at))).all()
    beside = np.array([-1e-9, 1e-9])
    jumps = [np.ptp(definition(f, k + beside)) > 1e-6 for k in f.kinks]
    assert any(jumps) == f.jumps
    assert all(
        j or np.ptp(definition(f.prime, k + beside)) > 1e-6 or f.name == "elu"
        for j, k in zip(jumps, f.kinks, strict=True)
    )


# ---------------------------------------------------------------- a further row


@pytest.fixture
def softabs(monkeypatch: pytest.MonkeyPatch) -> Function:
    """x erf(x) + x/3, which has no name elsewhere."""
    made = Function(
        "softabs", lambda x: x * table.erf.head(x) + x / 3, growth="polynomial",
        numpy=lambda x: x * evaluate(sp.erf(X), {X: x}) + x / 3, sources=("{x} * torch.erf({0}) + {x} / 3",),
    )  # fmt: skip
    monkeypatch.setattr(table, "TABLE", dict(table.TABLE))
    return table.listed(made)


def test_a_row_makes_a_function_known_everywhere(softabs: Function) -> None:
    """In listings, by name, to the checker, to both compilers and at finite width."""
    assert "softabs" in builtin_names() and ns.functions.as_function("softabs") is softabs
    p = ns.programs.mlp(1, "softabs", var_b=None)
    again = ns.parse(str(p))
    assert str(again) == str(p) and "function softabs" not in str(p)
    assert ns.check(p).ok
    x = np.random.default_rng(1).standard_normal((3, 4))
    kernel, literal = ns.compile(p)(x), reference(ns.backprop(p), x)
    np.testing.assert_allclose(np.asarray(kernel.nngp), literal.nngp, rtol=1e-9)
    assert literal.ntk is not None
    np.testing.assert_allclose(np.asarray(kernel.ntk), literal.ntk, rtol=1e-9)
    assert "rt.combine(" in ns.compile(p).source and "rt.named(" in ns.compile(p).source
    network = ns.simulate(p, x, [64], 1, limit=False, progress=False).kernels("ntk", 64)
    assert np.isfinite(np.asarray(network)).all()
    listed = ns.parse("width n\ndata x\nW : A(n, x) var 1\nv : G(n) var 1 readout\n"
                      "h := W @ x\ny := softabs(h)\noutput v . y\n")  # fmt: skip
    np.testing.assert_allclose(np.asarray(ns.compile(listed)(x).nngp), literal.nngp, rtol=1e-9)


# ---------------------------------------------------------------- nothing else lists them

OWN = {"gelu", "silu", "softplus", "leaky_relu", "elu_alpha"}  # names that neither sympy nor numpy has
LISTS = {
    "netsor/functions/table.py", "netsor/functions/__init__.py", "netsor/__init__.py",  # the table, the public names
    "netsor/functions/definitions.py",  # the parameter of torch's LeakyReLU
    "compilers/lift/rules/elementwise.py", "compilers/lowering/checked.py",  # the same names in torch
    "compilers/reference/values.py",  # independent
}  # fmt: skip


def words(tree: ast.AST) -> Iterator[str]:
    """Identifiers and texts of a module, docstrings left out."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name):
                yield name
            case ast.Constant(value=str(text)):
                yield text
            case _:
                pass


def test_nothing_but_the_table_lists_the_functions() -> None:
    root = Path(ns.__file__).parents[1]
    found = set()
    for folder in ("netsor", "compilers"):
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not name.startswith(("netsor/compilers/", "netsor/programs/")):
                found |= {name for w in words(ast.parse(path.read_text(encoding="utf-8"))) if w in OWN}
    assert found <= LISTS, found - LISTS
