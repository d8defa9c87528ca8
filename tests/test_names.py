"""Names are for people: no name runs as code, ends in a foreign error, or changes a number.

Every construct takes every name of `renaming.HOSTILE`; random renamings of all names change no kernel and rename the
keys of results. A name that were executed would set `sys.netsor_was_here`.
"""

from __future__ import annotations

import json
import math
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from compositions import compositions
from generate import programs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from renaming import HOSTILE, REFUSED, SIDE_EFFECT, Naming, names, namings, renamed

import netsor as ns
from netsor.cli import main
from netsor.cli.arrays import member
from netsor.compilers.finite import run
from netsor.compilers.lowering import checked, identifiers
from netsor.compilers.lowering.identifiers import Identifiers, docstring, literal
from netsor.constants import size
from netsor.errors import NetsorError, ParseError, ProgramError
from netsor.graph import mermaid
from netsor.names import code_span, shown, tex
from netsor.programs import BUILTIN as PROGRAMS

FAST = settings(
    max_examples=40, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
X = np.random.default_rng(0).normal(size=(2, 3))
SEQUENCES = np.random.default_rng(1).normal(size=(2, 3, 2))


@pytest.fixture(autouse=True)
def nothing_runs() -> Iterator[None]:
    """No name has been executed."""
    sys.__dict__.pop("netsor_was_here", None)
    yield
    assert not hasattr(sys, "netsor_was_here")


# ---------------------------------------------------------------- one program with every kind of name


CUBE = ns.function("cube_plus", lambda x: x**3 + x)


def recurrent(width: str = "n", program: str = "p") -> ns.Program:
    """Data, a per-sample scalar, a recurrence, a bias, a returned scalar, a function of one's own, an output."""
    p = ns.Program(program)
    n = p.width(width)
    t = p.axis("t")
    x, c = p.data("x", axes=(t,)), p.scalar("c", axes=(t,), per_sample=True)
    U, W, b = p.matrix("U", n, x, var=0.5), p.matrix("W", n, n, var=0.5), p.bias("b", n, var=0.1)
    u = p.let("u", U @ (2 * x))
    s = p.let("s", p.scan(t, 0, lambda old: ns.relu(W @ old + u) + 0.1 * CUBE(c * u + b)))
    last = p.let("y", s.at(t, -1))
    p.returns("r", p.let("m", ns.moment(last**2)))
    p.output(p.readout("v", n), last)
    return p


KINDS = [
    ("program", "p"), ("width", "n"), ("axis", "t"), ("variable", "x"), ("variable", "c"), ("variable", "U"),
    ("variable", "W"), ("variable", "b"), ("variable", "s"), ("variable", "u"), ("variable", "y"), ("variable", "m"),
    ("variable", "v"), ("function", "cube_plus"), ("output", "f"), ("returned", "r"),
]  # fmt: skip


def spread(start: int) -> Naming:
    """A naming with another hostile name in every place."""
    return lambda kind, old: HOSTILE[(start + 11 * KINDS.index((kind, old))) % len(HOSTILE)]


def inputs(naming: Naming, both: bool = True) -> Any:
    x, c = naming("variable", "x"), naming("variable", "c")
    arrays = {x: SEQUENCES, c: SEQUENCES[:, :, 0] / 2}
    return arrays if both else {k: v[:1, :2] for k, v in arrays.items()}


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
@settings(FAST, max_examples=6)
def test_all_names_at_once(plain: dict[str, Any], data: st.DataObject) -> None:
    naming = data.draw(namings())
    q = renamed(recurrent(), naming)
    assert str(ns.parse(str(q))) == str(q)
    assert_same(kernels(q, naming), plain)
    assert_same(kernels(ns.parse(str(q)), naming), plain)


@given(compositions(depth=3), namings())
@settings(FAST, max_examples=12)
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
@settings(FAST, max_examples=15)
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


# ---------------------------------------------------------------- other places that compute


def swapped(new: str) -> tuple[ns.Program, Naming]:
    """The recurrent program with a hostile name in every place."""

    def naming(kind: str, name: str) -> str:
        same = [old for k, old in KINDS if k == kind]
        number = same.index(name) if name in same else name
        return new if number == 0 else f"{new}{number}"

    return renamed(recurrent(), naming), naming


SOME = HOSTILE[::12]
FEW = (f"x if 0 else {SIDE_EFFECT} or x.x", f'""" + {SIDE_EFFECT} + """', "../../::error::$a%0A")


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


@pytest.mark.parametrize("new", SOME)
def test_what_is_printed_stands_in_its_lines(new: str) -> None:
    p, _ = swapped(new)
    found, plain = ns.derive(p), ns.derive(recurrent())
    for form in (str, lambda r: r.latex(), lambda r: r.markdown(), lambda r: r.structure()):
        assert len(form(found).splitlines()) == len(form(plain).splitlines())
    for row in found.latex().splitlines():
        if not row.startswith("%"):
            bare = re.sub(r"\\[\\{}%$#&_]", "", row)
            assert not re.search(r"[%$#]|<(?!})", bare) and bare.count("{") == bare.count("}") and bare.count("&") < 10
    report = ns.check(p)
    assert report.verdict == ns.check(recurrent()).verdict
    assert json.loads(json.dumps(report.to_json()))["program"] == new


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


SIZES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "identity": (lambda c: c, 3), "step": (lambda c: ns.step(c - 2), 1), "relu": (lambda c: ns.relu(c - 1), 2),
    "floor": (ns.function("floor", lambda z: z**2 + 1), 10), "exp": (ns.function("exp", lambda z: z + 1), 4),
    "sinh": (lambda c: type(c)(c.program, sp.Max(c.sym, 7)), 7), "tanh": (lambda c: ns.tanh(c), math.tanh(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
def test_functions_of_sizes(name: str) -> None:
    """The output c·Σ_t W x_t, W x_t = W x_0 for three equal elements, has variance (3c)²; c = f(3)."""
    f, value = SIZES[name]
    p = ns.Program("p")
    n, t = p.width("n"), p.axis("t")
    h = p.let("h", p.matrix("W", n, x := p.data("x", axes=(t,))) @ x)
    p.output(p.readout("v", n), f(size(p, h.dims[0])) * h.sum(t))
    for x1 in (np.ones((1, 3, 2)), np.ones((2, 3, 2), dtype=np.float32)):
        out = ns.compile(p, assume_gia=True)(x1, get="nngp").nngp
        np.testing.assert_allclose(out, (3 * value) ** 2, rtol=1e-6 if x1.dtype == np.float32 else 1e-12)


def test_exact_numbers_in_arrays() -> None:
    """Σ c_t² of independent elements: 1/9 + 2 + 4."""
    for of_data in (False, True):
        p = ns.Program("p")
        n, t = p.width("n"), p.axis("t", 3)
        x, c = p.data("x", axes=(t,)), p.constant([Fraction(1, 3), sp.sqrt(2), 2], (t,))
        W = p.matrix("W", n, x, axes=(t,))
        p.output(p.readout("v", n), (W @ (c * x) if of_data else c * (W @ x)).sum(t))
        out = ns.compile(p)(np.ones((1, 3, 2)), get="nngp").nngp
        assert float(out) == pytest.approx(1 / 9 + 2 + 4, rel=1e-12)


def test_a_vector_called_like_a_term_is_not_one() -> None:
    p = ns.Program("p")
    n, x = p.width("n"), p.data("x")
    h = p.let("terms.W", p.matrix("W", n, x) @ x)
    p.output(p.readout("v", n), ns.relu(h))
    for samples in (X, [X[0], X[1]]):
        out = ns.compile(p)(samples, get=("ntk", "terms", "terms.W"))
        assert set(out.terms) == {"W", "v"} and set(out.vectors) == {"terms.W"}
        np.testing.assert_allclose(out.vectors["terms.W"], X @ X.T / 3, rtol=1e-12)


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
@settings(FAST, max_examples=200)
def test_any_text_in_the_place_of_a_name_is_a_program_or_one_error(text: str) -> None:
    for listing in (f"program {text}\nwidth n", f"width `{text}`\nb : G(`{text}`)", f"program {json.dumps(text)}"):
        try:
            p = ns.parse(listing)
        except NetsorError:
            continue
        assert str(ns.parse(str(p))) == str(p)


# ---------------------------------------------------------------- generated code


@given(st.lists(st.one_of(names, st.text(max_size=8)), max_size=30, unique=True))
@settings(FAST, max_examples=100)
def test_identifiers_are_valid_different_and_stay(texts: list[str]) -> None:
    found = Identifiers()
    made = [found.of(("key", text), text) for text in texts]
    assert len(set(made)) == len(made)
    assert all(name.isidentifier() and not name.startswith("__") for name in made)
    assert not set(made) & identifiers.RESERVED
    assert made == [found.of(("key", text), "something else") for text in texts]
    scope: dict[str, Any] = {}
    for i, name in enumerate(made):  # Python reads them as different names
        exec(f"{name} = {i}", scope)
    assert [scope[name] for name in made] == list(range(len(made)))


def test_a_name_that_is_free_stays() -> None:
    found = Identifiers()
    assert [found.of(n, n) for n in ("h1", "K_h1", "relu", "größe", "_x", "a_b")] == [
        "h1", "K_h1", "relu", "größe", "_x", "a_b",
    ]  # fmt: skip
    assert [found.of(n, n) for n in ("a-b", "class", "rt", "abs", "1", "", "__init__", "µ", "μ")] == [
        "a_b_2", "class_", "rt_", "abs_", "_1", "_0", "_init__", "μ", "μ_2",
    ]  # fmt: skip


@given(st.text(max_size=40))
@settings(FAST, max_examples=200)
def test_literals_hold_any_text(text: str) -> None:
    for form in (literal, docstring):
        assert eval(form(text)) == text  # the literal alone
    assert shown(text).isprintable()


@pytest.mark.parametrize("text", [
    "import os", "from os import path", "import torch as rt", "x = open('f')", "x = rt.__dict__", "x = ().__class__",
    "x = torch.load('f')", "x = torch.nn.init", "x = rt.torch", "x = rt.math", "x = [y for y in ()]", "x = f'{1}'",
    "while True:\n    x = 1", "class x:\n    y = 1", "def f():\n    yield 1", "x = (lambda: 1)()", "rt = 1",
    "def torch(x):\n    return x", "x = math.__loader__", "x: int = 1", "try:\n    x = 1\nfinally:\n    x = 2",
    "with rt.E2 as x:\n    x = 1", "global x", "x = (y := 1)", "x = 1 if 1 else 2", "x = 1 and 2", "raise x",
    "assert 1", "x = 'a'.format", "x = data", "@torch.abs\ndef f(x):\n    return x", "rt.E2 = 1", "x = {*()}",
    "def f(*x):\n    return x", "def f(__x):\n    return __x", "x = __builtins__", "x = __import__('os')", "del rt",
    "x = rt.itertools", "x = 1\nx += 1", "x = await_", "for rt in ():\n    x = 1", "def f(rt):\n    return rt",
])  # fmt: skip
def test_only_what_the_printers_make_is_executed(text: str) -> None:
    with pytest.raises(checked.ForeignCodeError):
        checked.execute(text, "<test>", {})


@pytest.mark.parametrize("text", [SIDE_EFFECT, "(1).__class__", "[x for x in ()]", "open", "torch.load", "x or y"])
def test_only_expressions_of_the_printer_are_evaluated(text: str) -> None:
    with pytest.raises(checked.ForeignCodeError):
        checked.evaluate(text, {"torch": torch})


def test_no_builtin_is_in_reach() -> None:
    scope: dict[str, Any] = {}
    checked.execute("import math\nx = math.sqrt(4)", "<test>", scope)
    assert scope["x"] == 2
    assert set(scope["__builtins__"]) == {"__import__"}
    with pytest.raises(KeyError):
        scope["__builtins__"]["__import__"]("os")


def test_generated_code_is_executed_in_one_place() -> None:
    """`exec` and `eval` of text stand in checked.py, and where the user's own Python file is run."""
    root = Path(__file__).parents[1]
    files = [*root.glob("compilers/**/*.py"), *root.glob("programs/**/*.py"), *root.glob("netsor/*.py"),
             *(f for part in ("check", "text", "cli") for f in root.glob(f"netsor/{part}/*.py"))]  # fmt: skip
    found = {f.relative_to(root).as_posix() for f in files if re.search(r"(?<![\w.])(exec|eval)\(", _code(f))}
    assert found == {"compilers/lowering/checked.py", "netsor/cli/load.py"}


def _code(file: Path) -> str:
    """The source without comments, docstrings and definitions."""
    text = re.sub(r'"""(.|\n)*?"""|#.*', "", file.read_text(encoding="utf-8"))
    return re.sub(r"def eval\(|`eval\(", "", text)


def test_a_saved_module_runs_alone(tmp_path: Path) -> None:
    p, naming = swapped(f'""" + {SIDE_EFFECT} + """')
    scope: dict[str, Any] = {}
    exec(ns.compile(p).save(tmp_path / "module.py").read_text(encoding="utf-8"), scope)
    torch.testing.assert_close(scope["ntk"](inputs(naming)), ns.compile(p)(inputs(naming)).ntk, rtol=0, atol=0)
    assert str(ns.parse(scope["PROGRAM"])) == str(p)


# ---------------------------------------------------------------- other languages


@pytest.mark.parametrize("name", [*HOSTILE, "a`b", "``"])
def test_tex_and_markdown(name: str) -> None:
    text = tex(name)
    assert not re.search(r"(?<!\\)[$#%&]", text) and not re.search(r"<(?!})|\\\\", text.replace(r"\backslash", ""))
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    span = re.fullmatch(r"(`+)( ?)(.*)\2\1", code_span(name))
    assert span is not None and span[3] == name and span[1] not in re.findall("`+", name)


@pytest.mark.parametrize("name", SOME)
def test_mermaid(name: str) -> None:
    for row in mermaid(swapped(name)[0]).splitlines()[1:]:
        assert re.fullmatch(r'    \w+(\W+"[^"`<>]*"\W+| -\.?->? \w+| --> \w+)', row), row
        assert not re.search(r"#(?!35;|96;)", row)


@pytest.mark.parametrize("name", ["$\\frac$", "$", "_hidden", "a$b$c", "\\", "<b>", "x^{2}"])
def test_figures(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from netsor.compilers.figure import figure

    p, naming = swapped(name)
    canvas = figure([ns.simulate(p, inputs(naming), widths=[8, 16], seeds=2)])
    canvas.savefig(tmp_path / "f.svg")
    labels = [t.get_text() for t in canvas.axes[0].get_legend().get_texts()]
    assert len(labels) == 3 and labels[0].replace(r"\$", "$").strip().startswith(name)


# ---------------------------------------------------------------- the command line

COMMANDS = [
    ["check"], ["check", "--format", "concise"], ["check", "--format", "json"], ["check", "--format", "github"],
    ["check", "--format", "sarif"], ["show"], ["show", "--formal"], ["show", "--mermaid"], ["derive"],
    ["derive", "--format", "latex"], ["derive", "--format", "markdown"], ["derive", "--structure"], ["compile"],
    ["compile", "-o", "module.py"], ["kernel", "--x", "X.npz", "-o", "K.npz"], ["limit", "--x", "X.npz"],
    ["simulate", "--x", "X.npz", "--widths", "8,16", "--seeds", "2"],
    ["simulate", "--x", "X.npz", "--widths", "8,16", "--seeds", "2", "--json", "--plot", "out.png"],
]  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_every_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    p, naming = swapped(name)
    Path("net.netsor").write_text(str(p), encoding="utf-8")
    with zipfile.ZipFile("X.npz", "w") as archive:  # np.savez has arguments of its own
        for key, array in inputs(naming).items():
            with archive.open(f"{key}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(array))
    for command, *options in COMMANDS:
        code = main([command, "net.netsor", *options])
        out, err = capsys.readouterr()
        assert (code, err) == (0, ""), (command, options, err)
        if "github" in options:
            assert all(row.startswith(("::warning ", "::error ")) for row in out.splitlines())
        if "json" in options or "sarif" in options:
            json.loads(out)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["K.npz", "X.npz", "module.py", "net.netsor", "out.png"]


def test_results_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("../../x", "file", "allow_pickle", "a%b", "/etc/passwd", "h", "h²", "C:\\x"):
        p = ns.Program("p")
        n, x = p.width("n"), p.data("x")
        p.output(p.readout("v", n), ns.relu(p.let(name, p.matrix("W", n, x) @ x)))
        Path("net.netsor").write_text(str(p), encoding="utf-8")
        np.save("X.npy", X)
        assert main(["kernel", "net.netsor", "--x", "X.npy", "--get", f"ntk,terms,{name}", "-o", "K.npz"]) == 0
        with np.load("K.npz") as found:
            assert set(found) == {"ntk", "terms.W", "terms.v", member(name)}
            np.testing.assert_allclose(found[member(name)], X @ X.T / 3)
        with zipfile.ZipFile("K.npz") as archive:
            assert not any(set("/\\:") & set(member) for member in archive.namelist())


def test_what_cannot_be_read_is_said_in_lines_that_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.netsor").write_text("width n  # \x1b[31m\u202e\nwidth `a\x1b[0m`\n", encoding="utf-8")
    for form in ("full", "concise", "json", "github", "sarif"):
        assert main(["check", "net.netsor", "--format", form]) == 2
        out, err = capsys.readouterr()
        assert "NT001" in out + err and "\x1b" not in out + err
