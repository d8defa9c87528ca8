"""Generated code: identifiers, strings and comments for any text, and what is executed at all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from renaming import (
    SIDE_EFFECT,
    inputs,
    names,
    swapped,
)

import netsor as ns
from netsor.build.constants import size
from netsor.compilers.lowering import checked, identifiers
from netsor.compilers.lowering.functions import Functions
from netsor.compilers.lowering.identifiers import Identifiers, docstring, literal
from netsor.names import shown

pytestmark = pytest.mark.usefixtures("nothing_runs")


@given(st.lists(st.one_of(names, st.text(max_size=8)), max_size=30, unique=True))
@settings(max_examples=100)
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
@settings(max_examples=200)
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
    "x = math.sqrt(math.sqrt(4))", "x = 1 + 2 * 3", "x = lambda y: y + 1",
    "x = 1\ny = rt.add(x[:, None], 1)",
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


def test_equal_numbers_of_different_kinds() -> None:
    """Exact numbers of an array become floats, equal offsets of a window stay integers."""
    functions = Functions()
    assert functions.table((sp.Integer(0), sp.Integer(1)), "ARRAY") == "ARRAY"
    assert functions.table((0, 1), "TAPS") == functions.table((0, 1), "TAPS") == "TAPS"
    assert functions.tables == ["ARRAY = (0.0, 1.0)", "TAPS = (0, 1)"]


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
