"""Names are for people: no name runs as code, ends in a foreign error, or changes a number.

Hostile names stand in every place, and random renamings of all names change no kernel and rename the keys of results.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compositions import compositions
from generate import programs
from hypothesis import given, settings
from hypothesis import strategies as st
from renaming import (
    FEW,
    HOSTILE,
    REFUSED,
    Naming,
    inputs,
    namings,
    recurrent,
    renamed,
    spread,
    swapped,
)

import netsor as ns
from netsor.compilers.derive.outputs import Key
from netsor.compilers.experiment.keys import OUTPUTS as SIMULATED
from netsor.compilers.experiment.keys import of_output, of_scalar, of_vector
from netsor.compilers.finite import run
from netsor.compilers.sampler import sampled
from netsor.errors import NetsorError, ParseError, ProgramError
from netsor.programs import BUILTIN as PROGRAMS
from netsor.text.graph import mermaid

pytestmark = pytest.mark.usefixtures("nothing_runs")
X = np.random.default_rng(0).normal(size=(2, 3))


def kernels(p: ns.Program, naming: Naming) -> dict[str, Any]:
    """All kernels, under the names of the first program."""
    get = ("nngp", "ntk", "terms", naming("variable", "s"), naming("returned", "r"))
    out: Any = ns.compile(p, assume_gia=True)(inputs(naming), inputs(naming, False), get=get)
    assert set(out.vectors) == set(get[3:])
    assert set(out.terms) == {naming("variable", k) for k in ("U", "W", "b", "v")}
    terms = {k: out.terms[naming("variable", k)] for k in ("U", "W", "b", "v")}
    return {"nngp": out.nngp, "ntk": out.ntk, "s": out.vectors[get[3]], "r": out.vectors[get[4]], **terms}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-12, atol=1e-13)


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return kernels(recurrent(), lambda kind, name: name)


@pytest.mark.parametrize("first", range(6))
def test_hostile_names_in_every_place_give_the_same_numbers(first: int, plain: dict[str, Any]) -> None:
    """Each name stands in several of the places."""
    for start in range(first, len(HOSTILE), 36):
        naming = spread(start)
        assert_same(kernels(renamed(recurrent(), naming), naming), plain)


@given(st.data())
@settings(max_examples=6)
def test_all_names_at_once(plain: dict[str, Any], data: st.DataObject) -> None:
    naming = data.draw(namings())
    q = renamed(recurrent(), naming)
    assert str(ns.parse(str(q))) == str(q)
    assert_same(kernels(q, naming), plain)
    assert_same(kernels(ns.parse(str(q)), naming), plain)


@given(compositions(depth=3), namings())
@settings(max_examples=12)
def test_a_random_renaming_changes_no_kernel(case: tuple[ns.Program, Any, Any], naming: Naming) -> None:
    p, x, x2 = case
    get = ("nngp", "ntk", "terms")
    expected: Any = ns.compile(p, assume_gia=True, samples=64)(x, x2, get=get)
    found: Any = ns.compile(renamed(p, naming), assume_gia=True, samples=64)(x, x2, get=get)
    terms = {naming("variable", k): v for k, v in expected.terms.items()}
    assert found.method == expected.method and found.terms.keys() == terms.keys()
    scale = float(expected.ntk.abs().max())
    pairs = [(found.nngp, expected.nngp), (found.ntk, expected.ntk), *((found.terms[k], v) for k, v in terms.items())]
    for one, two in pairs:
        torch.testing.assert_close(one, two, rtol=1e-11, atol=1e-12 * scale)


@given(programs(lines=5), namings())
@settings(max_examples=15)
def test_a_random_renaming_changes_no_verdict_and_no_shape(p: ns.Program, naming: Naming) -> None:
    q = renamed(p, naming)
    assert str(ns.parse(str(q))) == str(q)
    assert ns.check(q).verdict == ns.check(p).verdict
    assert [type(x) for x in q.unroll(sizes(p, naming)).lines] == [type(x) for x in p.unroll(sizes(p)).lines]
    assert mermaid(q).count("\n") == mermaid(p).count("\n")


def sizes(p: ns.Program, naming: Naming = lambda kind, name: name) -> dict[str, int]:
    return {naming("axis", a.name): 4 for a in p.axes if a.size is None}


BUILTIN: dict[str, tuple[Any, dict[str, tuple[int, ...]]]] = {
    "gru": ({}, {"x": (1, 2, 2)}), "maxpool_cnn": ({"depth": 1}, {"x": (1, 3, 3, 2)}),
    "batchnorm_mlp": ({"depth": 1}, {"x": (1, 3, 2)}), "transformer": ({}, {"x": (1, 2, 2)}),
    "gcn": ({"depth": 1}, {"x": (1, 2, 2), "A": (1, 2, 2)}),
}  # fmt: skip


@pytest.mark.parametrize("program", BUILTIN)
def test_programs_under_other_names(program: str) -> None:
    """Kernels that are sampled, normalised, and of several inputs."""
    arguments, shapes = BUILTIN[program]
    p = PROGRAMS[program](**arguments)
    names = iter(HOSTILE[::2])
    table: dict[tuple[str, str], str] = {}

    def naming(kind: str, old: str) -> str:
        if (kind, old) not in table:
            table[kind, old] = next(names)
        return table[kind, old]

    x = {k: np.abs(np.random.default_rng(0).normal(size=shape)) for k, shape in shapes.items()}
    x2 = {naming("variable", k): v for k, v in x.items()}
    one, two = (ns.compile(q, samples=64)(data) for q, data in ((p, x), (renamed(p, naming), x2)))
    assert one.method == two.method
    for a, b in ((one.nngp, two.nngp), (one.ntk, two.ntk)):
        torch.testing.assert_close(b, a, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("new", FEW)
def test_finite_networks_and_limits(new: str) -> None:
    """The same arrays give the same vectors; a simulation draws its arrays by name, so its draws are others."""
    p, naming = swapped(new)
    plain, same = recurrent(), lambda kind, name: name
    random = np.random.default_rng(2)
    shapes = {"U": (16, 2), "W": (16, 16), "b": (16,), "v": (16,)}
    arrays = {name: random.normal(size=shape) for name, shape in shapes.items()}
    one = {v.name: value for v, value in run(plain, inputs(same), 16, arrays=arrays).items()}
    given = {naming("variable", name): array for name, array in arrays.items()}
    two = {v.name: value for v, value in run(p, inputs(naming), 16, arrays=given).items()}
    for name in ("s", "y", "m"):
        torch.testing.assert_close(two[naming("variable", name)], one[name], rtol=1e-12, atol=1e-13)
    assert new in str(ns.simulate(p, inputs(naming), widths=[8], seeds=2, limit=ns.compile(p)(inputs(naming))))
    found, expected = (ns.limit(q, inputs(f), samples=64) for q, f in ((p, naming), (plain, same)))
    assert float(found.scalar(naming("variable", "m")).max()) == pytest.approx(float(expected.scalar("m").max()))
    assert len(str(found).splitlines()) == len(str(expected).splitlines())


def test_backward_lines_and_layers_may_be_named_after_any_width_and_axis() -> None:
    """`one_<width>`, `position_<axis>`, `d<variable>` are names too."""
    p = ns.Program("p")
    n, t = p.width("my width"), p.axis("my axis", 3)
    x = p.data("x", axes=(t,))
    query, key, value = (p.let(name, p.matrix(f"{name} matrix", n, x) @ x) for name in ("q", "k", "v"))
    y = ns.layers.attention(query, key, value, t, causal=True)
    p.output(p.readout("r", n), y.mean(t))
    assert ns.check(ns.backprop(p)).well_typed
    assert str(ns.parse(str(ns.backprop(p)))) == str(ns.backprop(p))


@pytest.mark.parametrize(
    "name", ["relu", "elu", "tanh", "gelu'", "step", "abs", "gaussian", "exp", "rt", "torch", "Mul"]
)
def test_a_function_is_not_a_builtin_of_its_name(name: str) -> None:
    """E f(z)² of f = z³ + z is 15 + 6 + 1 = 22 at variance 1, E f′(z)² is 9·3 + 6 + 1 = 34."""
    f = ns.function(name, lambda z: z**3 + z)
    g = ns.numeric(name, lambda z: z**3 + z, derivative=lambda z: 3 * z**2 + 1, growth="polynomial", parity="odd")
    for phi in (f, g):
        p = ns.Program("p")
        n, x = p.width("n"), p.data("x")
        p.output(p.readout("v", n), phi(p.matrix("W", n, x) @ x))
        out = ns.compile(p)(np.ones((1, 3)))
        assert float(out.nngp) == pytest.approx(22, rel=1e-8)
        assert float(out.ntk) == pytest.approx(22 + 34, rel=1e-8)
        assert float(ns.v_transform(phi, np.eye(1))) == pytest.approx(22, rel=1e-8)
        assert ns.check(p).gia_valid


def test_symbols_of_inputs_do_not_meet() -> None:
    """Var(s₁ x + s₂ y) has a Gram symbol for each input, and a scalar called q1 is not one."""
    p = ns.Program("p")
    n, t = p.width("n"), p.axis("t", 1)
    parts = [p.matrix(f"W{name}", n, (x := p.data(name))) @ x for name in ("x", "y")]
    q1 = p.scalar("q1", axes=(t,), per_sample=True)
    p.output(p.readout("v", n), ns.identity(sum(parts[1:], parts[0])) * q1.at(t, 0))
    assert {s.name for s in ns.derive(p, "nngp").symbolic().nngp.free_symbols} == {
        "q12(x)", "q12(y)", "q1_1[0]", "q1_2[0]",
    }  # fmt: skip


def test_a_vector_called_like_a_term_is_not_one() -> None:
    p = ns.Program("p")
    n, x = p.width("n"), p.data("x")
    h = p.let("terms.W", p.matrix("W", n, x) @ x)
    p.output(p.readout("v", n), ns.relu(h))
    for samples in (X, [X[0], X[1]]):
        out = ns.compile(p)(samples, get=("ntk", "terms", "terms.W"))
        assert set(out.terms) == {"W", "v"} and set(out.vectors) == {"terms.W"}
        np.testing.assert_allclose(out.vectors["terms.W"], X @ X.T / 3, rtol=1e-12)
        assert [name for name, _ in out.items()] == ["ntk", "vectors.terms.W", "terms.W", "terms.v"]
        assert out["vectors.terms.W"] is list(out)[2] is out.vectors["terms.W"] and out["terms.W"] is out.terms["W"]
        assert set(ns.compile(p)(samples, get="terms.W").vectors) == {"terms.W"}


AWKWARD = [
    "step",
    "class",
    "terms.W",
    "vectors.terms.W",
    "vectors",
    "terms.",
    'a"b',
    "a'b",
    "x.y",
    "out",
    "h[0]",
    "\\n",
]


def test_results_of_awkward_names_stay_apart(tmp_path: Path) -> None:
    """Exact, sampled, on disk and read again: each result is that of its vector, which is scaled by its number."""
    p = ns.Program("p")
    n, x = p.width("n"), p.data("x")
    h = p.matrix("W", n, x) @ x
    for k, name in enumerate(AWKWARD, 1):
        p.let(name, k * h)
    p.output(p.readout("v", n), ns.relu(h))
    get, gram = ("ntk", "terms", *AWKWARD), X @ X.T / 3

    def assert_right(found: ns.KernelResult, rtol: float = 1e-12) -> None:
        assert set(found.vectors) == set(AWKWARD) and set(found.terms) == {"W", "v"}
        names = [name for name, _ in found.items()]
        assert len(set(names)) == len(names) == len(AWKWARD) + 3
        for k, name in enumerate(AWKWARD, 1):
            np.testing.assert_allclose(np.asarray(found.vectors[name][:, :]), k**2 * gram, rtol=rtol)

    kernel = ns.compile(p)
    assert_right(kernel(X, get=get))
    assert_right(kernel.gram(X, get=get, store=tmp_path / "k.zarr"))
    assert_right(ns.open_gram(tmp_path / "k.zarr").loaded())
    drawn = sampled(p, X, get=get, samples=2**12)
    assert_right(drawn, 0.1)
    assert set(drawn.errors) == {name for name, _ in drawn.items()}


def test_simulated_kernels_of_awkward_names_stay_apart() -> None:
    """Two outputs whose names have dots, a scalar and a vector called like kernels, each against its limit."""
    p = ns.Program("p")
    n, x = p.width("n"), p.data("x")
    h = p.let("nngp.a", p.matrix("W", n, x) @ x)
    c = p.let("ntk_autograd", ns.moment(h**2))
    p.returns("vectors.nngp.a", c)
    p.output(p.readout("v", n), ns.relu(h), name="a")
    p.output(p.readout("b.v", n), 3 * h, name="a.b")
    gram = torch.as_tensor(X @ X.T / 3)
    limit = {"nngp": {"a.b": 9 * gram}, "vectors": {"nngp.a": gram}, "vectors.nngp.a": gram.diagonal()}
    options: Any = {"vectors": ["nngp.a"], "scalars": ["vectors.nngp.a"], "limit": limit}
    run = ns.simulate(p, X, widths=[64], seeds=2, **options)
    wanted = ["nngp.a", 'nngp."a.b"', "output.a", 'output."a.b"', "vectors.nngp.a", "scalars.vectors.nngp.a"]
    assert [k for k in sorted(run.keys()) if not k.startswith(("terms", "ntk"))] == sorted(wanted)
    torch.testing.assert_close(run.kernel('nngp."a.b"'), 9 * run.kernel("vectors.nngp.a"))
    torch.testing.assert_close(run.kernel("scalars.vectors.nngp.a"), run.kernel("vectors.nngp.a").diagonal())
    assert sorted(run.compared()) == ['nngp."a.b"', "scalars.vectors.nngp.a", "vectors.nngp.a"]
    autograd = {f"terms_autograd.{f}.{W}" for f in ("a", '"a.b"') for W in ("W", "v", "b.v")}
    assert autograd == {k for k in sorted(run.keys()) if k.startswith("terms_")}
    assert set(run.terms) == {"a.W", "a.v", "a.b.v"}


@given(st.lists(st.tuples(st.sampled_from(("", *SIMULATED)), st.text('fW."', min_size=1)), min_size=1))
def test_keys_of_simulations_are_told_apart(parts: list[tuple[str, str]]) -> None:
    names = {a + b for a, b in parts}
    keys = [*map(of_scalar, names), *map(of_vector, names)]
    for kind in SIMULATED:
        keys += [kind, *(of_output(kind, f) for f in names), *(of_output(kind, f, W) for f in names for W in names)]
    assert len(set(keys)) == len(keys)


@given(st.lists(st.tuples(st.sampled_from(("", "terms.", "vectors.", "terms.terms.")), st.text("Wv.", min_size=1))))
def test_keys_are_told_apart_as_text(parts: list[tuple[str, str]]) -> None:
    keys = {Key(a + b, is_term) for a, b in parts for is_term in (False, True)}
    assert len({str(k) for k in keys}) == len(keys)
    assert all(Key.of_stored(k.stored) == k for k in keys)


# ---------------------------------------------------------------- what is a name


REFUSING: dict[str, Callable[[ns.Program, str], Any]] = {
    "program": lambda p, name: ns.Program(name),
    "width": lambda p, name: p.width(name),
    "axis": lambda p, name: p.axis(name),
    "axis of data": lambda p, name: p.data("y", axes=(name,)),
    "matrix": lambda p, name: p.matrix(name, p["b"], p["b"]),
    "vector": lambda p, name: p.vector(name, p["b"]),
    "data": lambda p, name: p.data(name),
    "scalar": lambda p, name: p.scalar(name, 1.0),
    "let": lambda p, name: p.let(name, p["b"] ** 2),
    "let of a line": lambda p, name: p.let(name, p.matrix("W", p["b"], p["b"]) @ p["b"]),
    "output": lambda p, name: p.output(p.readout("v", p["b"]), p["b"], name=name),
    "returns": lambda p, name: p.returns(name, ns.moment(p["b"])),
    "function": lambda p, name: ns.function(name, lambda x: x**2),
    "numeric": lambda p, name: ns.numeric(name, torch.exp),
    "moment": lambda p, name: ns.moment(p["b"], name=name),
}


@pytest.mark.parametrize("name", [*REFUSED, 3], ids=ascii)
@pytest.mark.parametrize("place", REFUSING)
def test_what_does_not_print_is_no_name(place: str, name: Any) -> None:
    p = ns.Program("p")
    p.bias("b", p.width("n"))
    with pytest.raises(ProgramError, match=r"NT104 .* is not a name for"):
        REFUSING[place](p, name)


@pytest.mark.parametrize("place", ["width", "axis", "matrix", "let", "function"])
def test_a_backquote_only_where_a_listing_quotes(place: str) -> None:
    p = ns.Program("my `net`")
    p.bias("b", p.width("n"))
    p.returns("`r`", ns.moment(p["b"] ** 2))
    assert str(ns.parse(str(p))) == str(p)
    with pytest.raises(ProgramError, match="backquote"):
        REFUSING[place](p, "a`b")


def test_a_returned_scalar_is_not_called_like_a_kernel() -> None:
    p = ns.Program("p")
    c = ns.moment(p.bias("b", p.width("n")) ** 2)
    for name in ("nngp", "ntk", "terms"):
        with pytest.raises(ProgramError, match=f"NT104 {name} is the name of a kernel"):
            p.returns(name, c)
        with pytest.raises(ProgramError, match="NT104"):
            ns.parse(f"width n\nb : G(n)\nm := moment(b^2)\nreturns {name} = m")


@pytest.mark.parametrize("name", [n for n in REFUSED if "\n" not in n and n], ids=ascii)
def test_a_listing_refuses_what_does_not_print(name: str) -> None:
    for text in (f"width `{name}`", f'program "{name}"', f"program {json.dumps(name)}"):
        with pytest.raises(ParseError, match="NT001"):
            ns.parse(text)
    for text in ('program "a\\nb"', 'program ""', 'width n\nb : G(n)\nm := moment(b)\nreturns "a\\nb" = m'):
        with pytest.raises(ParseError, match="NT001"):
            ns.parse(text)


@given(st.text(max_size=30))
@settings(max_examples=200)
def test_any_text_in_the_place_of_a_name_is_a_program_or_one_error(text: str) -> None:
    for listing in (f"program {text}\nwidth n", f"width `{text}`\nb : G(`{text}`)", f"program {json.dumps(text)}"):
        try:
            p = ns.parse(listing)
        except NetsorError:
            continue
        assert str(ns.parse(str(p))) == str(p)
