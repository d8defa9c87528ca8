"""What the language takes as an argument, and what it says to everything else."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
import torch.nn.functional as F
from torch import nn

import netsor as ns
from netsor import layers, programs


def refused(code: str, *words: str) -> Any:
    """A NetsorError of this code whose message and hint hold all the words."""
    return pytest.raises(ns.NetsorError, match="(?s)" + ".*".join([code, *map(re.escape, words)]))


# ---------------------------------------------------------------- numbers

Place = Callable[[ns.Program, ns.Width, ns.Expr, Any], Any]
PLACES: dict[str, Place] = {
    "var of a matrix": lambda p, n, h, a: p.matrix("A", n, n, var=a),
    "multiplier of a matrix": lambda p, n, h, a: p.matrix("A", n, n, multiplier=a),
    "fan_in": lambda p, n, h, a: p.matrix("A", n, p.data("y"), fan_in=a),
    "var of a vector": lambda p, n, h, a: p.vector("A", n, var=a),
    "mean": lambda p, n, h, a: p.vector("A", n, mean=a),
    "multiplier of a vector": lambda p, n, h, a: p.vector("A", n, multiplier=a),
    "covariance": lambda p, n, h, a: p.vector("A", n, cov={p.vector("B", n): a}),
    "axis_cov": lambda p, n, h, a: p.vector("A", n, axes=(p.axis("t", 1),), axis_cov=[[a]]),
    "limit": lambda p, n, h, a: p.scalar("A", a),
    "constant": lambda p, n, h, a: p.constant([a], (p.axis("t", 1),)),
    "ratio": lambda p, n, h, a: p.width("m", ratio=a),
    "scale": lambda p, n, h, a: p.output(p.readout("v", n), h, scale=a),
    "arithmetic": lambda p, n, h, a: p.let("A", a * h + a),
    "power": lambda p, n, h, a: p.let("A", h**a),
    "slope": lambda p, n, h, a: p.let("A", ns.leaky_relu(a)(h)),
    "coefficient": lambda p, n, h, a: p.let("A", ns.polynomial([0, a])(h)),
    "eps": lambda p, n, h, a: p.let("A", layers.layer_norm(h, a)),
    "dense": lambda p, n, h, a: layers.dense(h, n, "A", var=a, bias_var=a),
}
SCALES = {f"{what} of a {of}" for what in ("var", "multiplier") for of in ("matrix", "vector")} | {"dense"}
HALVES = [
    0.5, Fraction(1, 2), Decimal("0.5"), sp.Rational(1, 2), sp.Float(0.5), np.float64(0.5), np.float32(0.5),
    np.array(0.5), torch.tensor(0.5), torch.tensor(0.5, dtype=torch.float64),
]  # fmt: skip


def made(place: Place, value: Any) -> ns.Program:
    p = ns.Program("numbers")
    n = p.width("n")
    h = p.let("h", p.matrix("W", n, p.data("x")) @ p["x"])
    place(p, n, h, value)
    return p


@pytest.mark.parametrize("place", PLACES)
def test_every_kind_of_number_is_the_same_number(place: str) -> None:
    texts = [str(made(PLACES[place], a)).replace("1/2", "0.5") for a in HALVES]
    assert set(texts) == {texts[0]}
    assert (
        str(made(PLACES[place], np.int64(2))) == str(made(PLACES[place], 2)) == str(made(PLACES[place], sp.Integer(2)))
    )


@pytest.mark.parametrize("place", PLACES)
def test_a_gradient_a_symbol_and_what_is_no_number_are_refused_where_they_are_given(place: str) -> None:
    make = PLACES[place]
    with refused("NT108", "requires_grad"):
        made(make, torch.tensor(0.5, requires_grad=True))
    with refused("NT108"):
        made(make, "0.5")
    with refused("NT108"):
        made(make, 1j)
    with refused("NT109", "finite"):
        made(make, float("nan"))
    with refused("NT109", "finite"):
        made(make, float("inf"))
    if place in SCALES:
        assert ns.compile(made(make, sp.Symbol("sigma"))).parameters == ("sigma",)
    else:
        with refused("NT108", "sigma"):
            made(make, sp.Symbol("sigma"))


def test_an_irrational_number_is_a_variance_only_as_a_float() -> None:
    with refused("NT108", "sqrt(2)", "float"):
        made(PLACES["var of a matrix"], sp.sqrt(2))
    made(PLACES["arithmetic"], sp.sqrt(2))


def test_the_error_is_at_the_line_that_gives_the_number() -> None:
    with pytest.raises(ns.ProgramError) as caught:
        made(PLACES["var of a matrix"], torch.tensor(1.0, requires_grad=True))
    location = caught.value.diagnostic.location
    assert location is not None and location.file == __file__ and "p.matrix" in location.text


# ---------------------------------------------------------------- functions and programs

PHIS: list[tuple[Any, str]] = [
    (torch.relu, "'relu'"),
    (F.gelu, "'gelu'"),
    (np.tanh, "'tanh'"),
    (nn.GELU(), "'gelu'"),
    (nn.LeakyReLU(0.2), "ns.leaky_relu(0.2)"),
    (nn.GELU(approximate="tanh"), "ns.function"),
    ("swish", "'silu'"),
    ("ReLU", "'relu'"),
    ("rleu", "relu"),
    (3, "ns.function"),
    (None, "ns.function"),
]


@pytest.mark.parametrize(("phi", "words"), PHIS, ids=[f"{i}-{w}" for i, (_, w) in enumerate(PHIS)])
def test_a_nonlinearity_of_another_library(phi: Any, words: str) -> None:
    makers: list[Callable[[], Any]] = [lambda: programs.mlp(phi=phi), lambda: programs.rnn(phi=phi)]
    makers += [lambda: programs.mlp(depth=2, phi=["relu", phi]), lambda: ns.v_transform(phi, np.eye(2))]
    for make in makers:
        with refused("NT616", words) as caught:
            make()
        assert place(caught.value) == __file__


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (torch.relu, "'relu'"),
        (np.tanh, "'tanh'"),
        (nn.GELU(), "'gelu'"),
        ("relu", "'relu'"),
        (lambda x: np.tanh(x), "ns.numeric"),
        (lambda x: torch.relu(x), "ns.numeric"),
        (lambda x: None, "gives None"),
        (lambda x: "x", "gives 'x'"),
        (lambda x: torch.ones(3), "not an expression"),
        (lambda: 1, "ns.function"),
    ],
)
def test_a_definition_that_gives_no_expression(definition: Any, words: str) -> None:
    with refused("NT616", words) as caught:
        ns.function("f", definition)
    assert place(caught.value) == __file__


def test_definitions() -> None:
    """Defaults are no arguments, bound methods and partial functions are functions, a number is an expression."""
    assert ns.function("f", lambda x, a=2: a * x).arity == 1
    assert ns.function("g", lambda x, y: x * y).arity == 2
    assert ns.function("h", functools.partial(lambda a, x: a * x, 2)).arity == 1
    assert ns.function("k", lambda x: 2.5).definition(sp.Symbol("x")) == sp.Rational(5, 2)
    assert str(ns.function("l", ns.relu).definition(sp.Symbol("z"))) == "relu(z)"


def test_functions_of_torch_are_not_applied_to_expressions() -> None:
    p = ns.Program("torch")
    h = p.matrix("W", p.width("n"), p.data("x")) @ p["x"]
    functions: tuple[Any, ...] = (torch.relu, nn.ReLU(), F.relu)
    for f in functions:
        with refused("NT108", "ns.relu(x)"):
            f(h)
    with refused("NT108", "ns.function"):
        torch.special.i0(h)


@pytest.mark.parametrize("depth", [0, -1, "3", 2.5, None])
def test_depths(depth: Any) -> None:
    makers: dict[str, Any] = {
        "mlp": programs.mlp, "cnn": programs.cnn, "gcn": programs.gcn, "maxpool_cnn": programs.maxpool_cnn,
        "transformer": programs.transformer, "batchnorm_mlp": programs.batchnorm_mlp,
    }  # fmt: skip
    for make in makers.values():
        with refused("NT616", "depth", repr(depth)) as caught:
            make(depth=depth)
        assert place(caught.value) == __file__
    with refused("NT616", "convolutions", repr(depth)):
        programs.cntk(convolutions=depth)
    three: Any = np.int64(3)
    assert str(programs.mlp(depth=three)) == str(programs.mlp(depth=3))


def test_words_that_a_program_does_not_know() -> None:
    for make in (programs.cnn, programs.cntk, programs.gcn, programs.maxpool_cnn, programs.rnn):
        with refused("NT616", "readout", "'max'"):
            make(readout="max")  # type: ignore[arg-type]
    with refused("NT616", "kind", "'residual'"):
        programs.resnet(kind="residual")  # type: ignore[arg-type]
    with refused("NT616", "var_w has 2 entries for 3 layers"):
        programs.mlp(depth=3, var_w=[1, 2])


@pytest.mark.parametrize("name", programs.BUILTIN)
def test_a_variance_that_is_none_is_shown_in_the_callers_file(name: str) -> None:
    make: Any = programs.BUILTIN[name]
    if "var_w" in inspect.signature(make).parameters:
        for var in (-1, float("nan"), "2a"):
            with refused("NT10", "var of ") as caught:
                make(var_w=var)
            assert place(caught.value) == __file__


TAKERS: dict[str, Callable[[Any], Any]] = {
    "ns.compile": ns.compile, "ns.derive": ns.derive, "ns.check": lambda p: ns.check(p), "ns.limit": ns.limit,
    "ns.simulate": ns.simulate, "ns.backprop": ns.backprop, "ns.unit_variance": ns.unit_variance,
}  # fmt: skip


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (nn.Linear(3, 4), "ns.layers"),
        ("mlp", "ns.programs.mlp()"),
        ("program a\nwidth n\n", "ns.parse"),
        (programs.mlp, "call it: mlp"),
        (None, "ns.Program"),
        (programs, "ns.programs"),
    ],
    ids=["module", "name", "listing", "function", "None", "package"],
)
def test_what_is_no_program(taker: str, value: Any, words: str) -> None:
    with refused("NT616", taker, words) as caught:
        TAKERS[taker](value)
    assert place(caught.value) == __file__


def place(error: Any) -> str:
    """The file where the error says it is."""
    return str(error.diagnostic.location.file)


# ---------------------------------------------------------------- widths and sizes that do not fit


def towers() -> tuple[ns.Program, ns.Expr, ns.Expr]:
    p = ns.Program("towers")
    left, right = p.width("left"), p.width("right", ratio=2)
    h = p.let("h", p.matrix("W", left, p.data("x")) @ p["x"])
    u = p.let("u", p.matrix("U", right, p.data("y")) @ p["y"])
    return p, h, u


@pytest.mark.parametrize(
    "join",
    [
        lambda p, h, u: h + u,
        lambda p, h, u: ns.relu(h) * ns.tanh(u),
        lambda p, h, u: ns.dot(h, u),
        lambda p, h, u: ns.function("product", lambda a, b: a * b)(h, u),
        lambda p, h, u: p.matrix("A", p.widths[0], p.widths[0]) @ u,
        lambda p, h, u: p.output(p.readout("v", p.widths[0]), u),
        lambda p, h, u: p.output(p.vector("w", h), ns.relu(u)),
    ],
)
def test_two_towers_name_both_widths_and_the_lines(join: Any) -> None:
    p, h, u = towers()
    with refused("NT101", "left", "right", "is from line") as caught:
        join(p, h, u)
    location = caught.value.diagnostic.location
    assert location.file == __file__ and "lambda" in location.text


def test_sizes_after_a_pool_and_under_a_transposed_convolution() -> None:
    p = ns.Program("sizes")
    n = p.width("n")
    x = layers.conv(p.data("x", axes=(p.axis("row", 6), p.axis("col", 6))), n, "W", ("row", "col"))
    small = layers.avg_pool(x, {"row": 2, "col": 2})
    with refused("NT107", "axis row", "has 6", "has 3", "is from line") as caught:
        p.let("sum", x + small)
    assert place(caught.value) == __file__
    with refused("NT107", "2, 2 along row, col", "has 3, 3", "is from line") as caught:
        layers.conv_transposed(small, n, "T", ("row", "col"), like=x, stride=3)
    assert place(caught.value) == __file__
    with refused("NT107", "spans 4 positions, and the axis row has 3"):
        layers.max_pool(small, {"row": 4})
    wrong: list[Any] = [2, "row", {}]
    for windows in wrong:
        with refused("NT107", "dict from axis to size"):
            layers.avg_pool(x, windows)


# ---------------------------------------------------------------- tolerances and draws


@pytest.mark.parametrize(
    "option",
    [{"tol": -1.0}, {"tol": 0}, {"tol": "1e-3"}, {"tol": float("nan")}, {"samples": 0}, {"samples": 2.5},
     {"samples": True}, {"seed": -1}, {"seed": None}],
)  # fmt: skip
def test_draws_that_cannot_be_made_are_refused(option: dict[str, Any]) -> None:
    ((name, value),) = option.items()
    for way in (
        lambda: ns.compile(programs.gru(), **option),
        lambda: ns.limit(programs.mlp(), np.ones((1, 2)), **option),
    ):
        with pytest.raises(ns.InputError, match=f"(?s)NT616.*{name}.*{re.escape(repr(value))}"):
            way()


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, "int32", "half", np.int64])
def test_dtypes_are_float32_and_float64(dtype: Any) -> None:
    with pytest.raises(ns.InputError, match="NT609"):
        ns.compile(programs.mlp(), dtype=dtype)


def test_a_program_is_compiled_before_it_predicts() -> None:
    with pytest.raises(ns.InputError, match=r"(?s)NT616.*got Program.*ns\.compile"):
        ns.predict(programs.mlp(), np.ones((2, 2)), np.ones(2))  # type: ignore[arg-type]


@pytest.mark.parametrize("readouts", [np.ones((2, 3)), [None]])
def test_readouts_are_names_or_vectors(readouts: Any) -> None:
    with pytest.raises(ns.InputError, match=r"(?s)NT605.*is not an input vector.*x=…"):
        ns.check(programs.mlp(), readouts)


@pytest.mark.parametrize("tile", [0, -1, 2.5, True])
def test_a_block_has_inputs(tile: Any) -> None:
    with pytest.raises(ns.InputError, match=r"NT606.*tile"):
        ns.compile(programs.mlp()).gram(np.ones((2, 2)), tile=tile)
    tile = np.arange(3)[2]  # a number of numpy's is one
    assert ns.compile(programs.mlp()).gram(np.ones((2, 2)), tile=tile).nngp.shape == (2, 2)
