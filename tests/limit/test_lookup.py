"""Names that are asked for: the same in kernels, limits, simulations and recursions; and the arrays that answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import netsor as ns
from netsor import layers, programs

X = np.array([[1.0, 0.0], [0.5, -0.5]])


def returning() -> ns.Program:
    """Lines h, x1, dh of their own names, a gradient shared by two variables, and a returned scalar."""
    p = ns.Program("names")
    n = p.width("n")
    h = p.let("h1", layers.dense(p.data("x"), n, "W1"))
    x = p.let("x1", ns.erf(h + p.bias("b1", n)))
    p.returns("size", ns.moment(x**2))
    p.output(p.readout("v", n), x)
    return p


NAMES = ["h1", "b1", "x1", "dx1", "dh1", "db1", "v"]


@pytest.mark.parametrize("given", [returning(), ns.backprop(returning())], ids=["forward", "with gradients"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_same_vector_everywhere(name: str, given: ns.Program) -> None:
    kernel = ns.compile(given)(X, get=name).vectors[name].numpy()
    limit = ns.limit(given, X)
    np.testing.assert_allclose(np.asarray(limit.second_moment(name), dtype=float), kernel, atol=1e-12)
    np.testing.assert_allclose(ns.compile(given)(X, get=(name, "ntk")).vectors[name].numpy(), kernel, atol=1e-12)
    assert name in str(ns.derive(given, name)) or name == "db1"
    run = ns.simulate(given, X, widths=[4], seeds=1, vectors=[name], methods=["backward"])
    assert f"vectors.{name}" in run.limits


def test_db1_is_dh1() -> None:
    out = ns.compile(returning())(X, get=("dh1", "db1"))
    assert torch.equal(out.vectors["dh1"], out.vectors["db1"])


def test_returned_scalars() -> None:
    p = returning()
    found = ns.limit(p, X).scalar("size")
    np.testing.assert_allclose(found, ns.compile(p)(X, get="size").vectors["size"], rtol=1e-12)


def test_an_unknown_name_lists_the_known_ones() -> None:
    p = returning()
    asks: list[Any] = [
        lambda: ns.compile(p)(X, get="dh7"), lambda: ns.limit(p, X).mean("dh7"), lambda: ns.limit(p, X).scalar("dh7"),
        lambda: ns.derive(p, "dh7"), lambda: ns.simulate(p, X, widths=[4], seeds=1, vectors=["dh7"]),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(ns.InputError, match=r"(?s)NT605.*dh7.*h1.*x1"):
            ask()


def test_sampled_kernels_know_the_same_names() -> None:
    p = programs.gru()
    out = ns.compile(p, samples=64)(X[None], get=("s", "ds") if "s" in p else tuple(_some(p)))
    assert all(v.shape[:2] == (1, 1) for v in out.vectors.values())


def _some(p: ns.Program) -> list[str]:
    name = next(g.of.name for g in ns.backprop(p).gradients)
    return [name, f"d{name}"]


# ---------------------------------------------------------------- arrays of ns.limit


@pytest.mark.parametrize(("phi", "method"), [("square", "exact"), ("erf", "quadrature"), ("relu", "sampled")])
def test_answers_are_numpy_arrays(phi: str, method: str) -> None:
    r = ns.limit(programs.mlp(depth=1, phi=phi), X, methods=[method], samples=64)
    found = [r.mean("x1"), r.second_moment("x1"), r.moment("x1", 3), r.nngp, r.ntk, r.gia.ntk]
    found += [r.error("mean", "x1"), r.error("second_moment", "x1"), r.error("ntk")]
    assert all(type(a) is np.ndarray for a in found)
    assert [a.shape for a in found[:5]] == [(2,), (2, 2), (2,), (2, 2), (2, 2)]
    kind = object if method == "exact" else np.float64
    assert all(a.dtype == kind for a in found[:6])
    assert method != "exact" or isinstance(r.ntk[0, 0], sp.Rational)
    assert (r.ntk.astype(float) > 0).all()


# ---------------------------------------------------------------- several axes, constants


def test_several_axes_at_once() -> None:
    def network(several: bool) -> ns.Program:
        p = ns.Program("axes")
        n = p.width("n")
        h = layers.dense(p.data("x", axes=("a", "b", "c")), n, "W")
        if several:
            y = ns.relu(h.mean("a", "b")).sum(("c",)) + h.max("a", "b", "c") + h.sum(p.axis("a"), "b", "c")
        else:
            y = ns.relu(h.mean("a").mean("b")).sum("c") + h.max("a").max("b").max("c") + h.sum("a").sum("b").sum("c")
        p.output(p.readout("v", n), y)
        return p

    assert str(network(True)) == str(network(False))
    p = ns.Program("wrong")
    with pytest.raises(ns.ProgramError, match=r"NT107.*no axis d"):
        p.data("x", axes=("a", "b")).mean("a", "d")


@pytest.mark.parametrize("line", ["y := 1 + 0*u", "y := u - u + 1", "y[t] := 2 + 0*w[t]", "y : H(n) := 1"])
def test_a_constant_of_a_written_vectors_width(line: str) -> None:
    text = f"""program constant
width n
axis t = 2
data x
W : A(n, x) var 1
u : G(n) var 1
w[t] : G(n) var 1
v : G(n) var 1 readout
h := W @ x
{line}
z{"[t]" if "[t]" in line else ""} := tanh(h) + {"y[t]" if "[t]" in line else "y"}
output v . z
"""
    p = ns.parse(text)
    y = p["y"].var
    assert (y.kind, y.rows, len(y.axes)) == ("H", p.widths[0], int("[t]" in line))
    again = ns.parse(str(p))
    assert str(again) == str(p)
    constant = 2 if "[t]" in line else 1
    assert ns.compile(p)(X, get="y").vectors["y"].flatten()[0] == constant**2
