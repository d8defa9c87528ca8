"""Backward lines against autograd at width 32, float64 (issue: every layer and program to 1e-10)."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import sqrt
from typing import Any

import pytest
import torch
from interp import Interpreter

import netsor as ns
from netsor.build.program import Program
from netsor.passes.backward import backprop, forward_part


def deviations(q: Program, data: dict[str, Any], n: int = 32) -> dict[str, float]:
    """Largest |gradient line − √n_out autograd| per stated gradient, relative to its largest entry."""
    run = Interpreter(q, data, n)
    f = run.output()
    scale = sqrt(run.dimension(q.outputs[0].readout.rows))
    families = [a for o in q.outputs for a in o.vector.axes if a not in o.readout.axes]
    found: dict[str, float] = {}
    for statement in q.gradients:
        probe = run.probes[statement.of.name]
        rows = [torch.autograd.grad(x, probe, retain_graph=True, allow_unused=True)[0] for x in f.reshape(-1)]
        zero = torch.zeros_like(probe)
        right = torch.stack([scale * (zero if r is None else r) for r in rows]).reshape(*f.shape, *probe.shape)
        extra = [a for a in statement.is_.axes if a not in statement.of.axes]
        extra = [next((x for x in extra if x.name.startswith(f"{a.name}_out")), a) for a in families]
        line = run.aligned(statement.is_, (*extra, *statement.of.axes), 1)
        error = (line - right).detach().abs().max() / right.abs().max().clamp(min=1e-300)
        found[statement.of.name] = max(found.get(statement.of.name, 0.0), float(error))
    return found


def check(p: Program, data: dict[str, Any], n: int = 32) -> Program:
    q = backprop(p)
    found = deviations(q, data, n)
    assert found, "no gradient is stated"
    assert max(found.values()) < 1e-10, found
    return q


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- the spine


@pytest.mark.parametrize("phi", ["relu", "tanh", "erf", "gelu", "sigmoid", "elu", "softplus", "abs", "sin", "cube"])
def test_mlp(phi: str) -> None:
    from netsor.programs import mlp

    check(mlp(phi=phi), {"x": normal(4)})
    check(mlp(phi=phi, depth=3, tied=True), {"x": normal(4)})


def test_names_and_order() -> None:
    """The listing of Tensor Programs II, Program 1."""
    from netsor.programs import mlp

    q = backprop(mlp())
    backward = q.lines[len(mlp().lines) :]
    assert [line.out.name for line in backward] == ["dx2", "dh2", "W2t", "dx1", "dh1"]
    assert {g.of.name: g.is_.name for g in q.gradients} == {"h2": "dh2", "b2": "dh2", "h1": "dh1", "b1": "dh1"}


def test_lines_stand_where_their_forward_line_does() -> None:
    from netsor.programs import mlp

    q = backprop(mlp())
    made = {line.out.name: line for line in q.lines}
    assert made["dx1"].loc == made["h2"].loc
    assert made["dh1"].loc == made["h1"].loc


def test_backprop_leaves_its_argument_alone() -> None:
    from netsor.programs import mlp

    p = mlp()
    count = len(p.lines)
    q = backprop(p)
    assert len(p.lines) == count and not p.gradients
    assert len(forward_part(q).lines) == count
    with pytest.raises(ns.ProgramError, match="already states gradients"):
        q.backward()


def unequal() -> Program:
    p = Program("unequal widths")
    n1, n2, n3 = p.width("n1"), p.width("n2", 2), p.width("n3", Fraction(1, 2))
    x = p.data("x")
    h1 = p.let("h1", p.matrix("W1", n1, x) @ x)
    x1 = ns.tanh(h1 + p.bias("b1", n1))
    m = p.let("m", ns.moment(x1**2))
    h2 = p.let("h2", p.matrix("W2", n2, n1) @ x1)
    x2 = p.let("x2", ns.tanh(h2 * m + ns.moment(h2 * ns.tanh(m * h2))))
    h3 = p.let("h3", p.matrix("W3", n3, n2) @ x2)
    p.output(p.readout("v", n3), ns.tanh(h3) / (1 + m), scale=0.7)
    p.output(p.readout("u", n2), x2 * m, scale=1.3)
    return p


def test_unequal_widths_and_scalars() -> None:
    check(unequal(), {"x": normal(4)})


# ---------------------------------------------------------------- families and index forms


def family(build: Any, outputs: str = "mean", phi: ns.Function = ns.tanh) -> Program:
    """A small program over axes row and col around one construct."""
    p = Program("family")
    n = p.width("n")
    x = p.data("x", axes=("row", "col"))
    h = p.let("h", p.matrix("U", n, x) @ x)
    y = p.let("y", build(p, n, phi(h)))
    g = p.let("g", p.matrix("W", n, n) @ phi(y))
    z = phi(g + p.bias("b", n))
    if outputs == "flatten":
        p.output(p.readout("v", n, axes=z.axes), z)
        return p
    for axis in z.axes:
        z = z.mean(axis)
    p.output(p.readout("v", n), z)
    return p


def taps_kept(p: Program, n: ns.Width, x: ns.Expr) -> ns.Expr:
    return (p.matrix("V", n, n, axes=("k",)) @ x).sum("k")


CONSTRUCTS: dict[str, Any] = {
    "window": lambda p, n, x: x.window(("row", "col"), size=3).sum("k"),
    "window, one axis": lambda p, n, x: x.window("row", size=2, padding="valid").sum("k"),
    "asymmetric": lambda p, n, x: x.window(("row", "col"), offsets=[(0, 0), (2, -1), (-3, 1)]).sum("k"),
    "strided": lambda p, n, x: x.window(("row", "col"), size=3, stride=2).sum("k"),
    "strided valid": lambda p, n, x: x.window(("row", "col"), size=2, stride=(2, 1), padding="valid").sum("k"),
    "circular": lambda p, n, x: x.window(("row", "col"), size=3, padding="circular").sum("k"),
    "circular strided": lambda p, n, x: x.window("row", offsets=[-1, 0, 2], stride=2, padding="circular").sum("k"),
    "padding": lambda p, n, x: x.window(("row", "col"), size=3, stride=2, padding=2, dilation=(1, 2)).sum("k"),
    "taps kept": lambda p, n, x: taps_kept(p, n, x.window("row", size=3)),
    "mean": lambda p, n, x: x.mean("row"),
    "sum": lambda p, n, x: x - x.sum("col"),
    "max": lambda p, n, x: x.max("row"),
    "max pool": lambda p, n, x: x.window(("row", "col"), size=2, stride=2, outside="drop").max("k"),
    "at": lambda p, n, x: x.at("row", 1) * x.at("row", -1),
    "place": lambda p, n, x: x + x.at("row", 2).place("row", -1),
    "shift": lambda p, n, x: x.shift("row", 2) + x.shift("col", -1),
    "rename": lambda p, n, x: ns.dot(x, x.rename({"row": "key"})) * x.rename({"row": "key"}),
    "constant mix": lambda p, n, x: ns.mix([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]], x, "col"),
    "moment": lambda p, n, x: x * ns.moment(x**2).sum("row").sqrt() + ns.moment(x),
    "softmax": lambda p, n, x: (ns.softmax(ns.moment(x**2), "col") * x).sum("col"),
    "broadcast": lambda p, n, x: (p.matrix("V", n, n) @ x.mean("row")) * x + p.bias("c", n, axes=("col",)),
    "linear": lambda p, n, x: p.matrix("V", n, n) @ x,
}  # fmt: skip


@pytest.mark.parametrize("outputs", ["mean", "flatten"])
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_constructs(name: str, outputs: str) -> None:
    check(family(CONSTRUCTS[name], outputs), {"x": normal(5, 3, 4)}, n=16)


# ---------------------------------------------------------------- outputs


def embedded(axes: tuple[str, ...] = ("t",)) -> tuple[Program, ns.Width, ns.Expr]:
    p = Program("outputs")
    n = p.width("n")
    x = p.data("x", axes=axes)
    return p, n, ns.tanh(p.matrix("U", n, x) @ x)


def test_output_axes() -> None:
    """f is a family; a gradient carries an axis for the output's element."""
    p, n, x = embedded(("t", "u"))
    x = ns.tanh(p.matrix("W", n, n) @ x + x.mean("t"))
    p.output(p.readout("v", n), x)
    q = check(p, {"x": normal(3, 2, 4)})
    assert {a.name for g in q.gradients for a in g.is_.axes} >= {"t_out", "u_out"}


def test_flattened_axis_beside_an_output_axis() -> None:
    p, n, x = embedded(("t", "u"))
    p.output(p.readout("v", n, axes=("u",)), ns.tanh(p.matrix("W", n, n) @ x.shift("t")), scale=0.5)
    check(p, {"x": normal(3, 2, 4)})


def test_output_axis_of_constant_size() -> None:
    p, n, x = embedded(())
    W = p.matrix("W", n, n, axes=(p.axis("head", 3),))
    p.output(p.readout("v", n), ns.tanh(W @ x))
    check(p, {"x": normal(4)})


def test_a_readout_in_the_forward_pass() -> None:
    p, n, x = embedded(())
    v = p.readout("v", n)
    h = p.let("h", p.matrix("W", n, n) @ (x + v))
    p.output(v, ns.tanh(h))
    q = check(p, {"x": normal(4)})
    assert "v" in {g.of.name for g in q.gradients}


def test_a_readout_that_a_matrix_makes() -> None:
    p, n, x = embedded(())
    p.output(p.let("r", p.matrix("R", n, n) @ x), ns.tanh(p.let("h", p.matrix("W", n, n) @ x)))
    check(p, {"x": normal(4)})


def test_outputs_of_one_name_add_up() -> None:
    p, n, x = embedded(())
    y = p.let("y", ns.tanh(p.matrix("W", n, n) @ x))
    p.output(p.readout("v", n), y, scale=2)
    p.output(p.readout("w", n), y * x, scale=-0.5)
    check(p, {"x": normal(4)})


def test_one_of_several_outputs() -> None:
    p, n, x = embedded(())
    p.output(p.readout("v", n), ns.tanh(p.let("g", p.matrix("W", n, n) @ x)), name="first")
    p.output(p.readout("w", n), ns.tanh(p.let("h", p.matrix("V", n, n) @ x)), name="second")
    for name, mine, other in (("first", "g", "h"), ("second", "h", "g")):
        q = backprop(p, name)
        stated = {g.of.name for g in q.gradients}
        assert mine in stated and other not in stated
        run = Interpreter(q, {"x": normal(4)})
        (line,) = [g for g in q.gradients if g.of.name == mine]
        (right,) = torch.autograd.grad(run.output(name), run.probes[mine])
        assert torch.allclose(run.values[line.is_], sqrt(32) * right, rtol=1e-12)
    with pytest.raises(ns.ProgramError, match="no output 'third'; it has first, second"):
        backprop(p, "third")


def test_no_output() -> None:
    p, _, _ = embedded()
    with pytest.raises(ns.ProgramError, match="has no output"):
        p.backward()


def test_only_ancestors_of_the_output_get_lines() -> None:
    p, n, x = embedded(())
    aside = p.let("aside", p.matrix("A", n, n) @ x)
    p.returns("aside2", ns.moment(aside**2))
    p.output(p.readout("v", n), ns.tanh(p.let("h", p.matrix("W", n, n) @ x)))
    q = check(p, {"x": normal(4)})
    assert "aside" not in {g.of.name for g in q.gradients}


def test_through_a_step_there_is_no_gradient() -> None:
    p, n, x = embedded(())
    h = p.let("h", p.matrix("W", n, n) @ x)
    p.output(p.readout("v", n), ns.step(h))
    assert not backprop(p).gradients


def test_scalars_that_multiply_data_are_refused() -> None:
    p, n, x = embedded(())
    y = ns.moment(x**2) * p["x"]
    p.output(p.readout("v", n), ns.tanh(p.matrix("W", n, y) @ y))
    with pytest.raises(ns.UnsupportedError, match="passes through"):
        backprop(p)


def test_a_linear_program_of_a_mean() -> None:
    """The gradient of a moment's plain argument is a scalar: it stands beside the vector of ones."""
    p, n, x = embedded(())
    h = p.let("h", p.matrix("W", n, n) @ x)
    p.output(p.readout("v", n), x * ns.moment(h))
    check(p, {"x": normal(4)})


# ---------------------------------------------------------------- scans


def scanned(step: Any, init: Any = 0, reverse: bool = False, phi: ns.Function = ns.tanh) -> Program:
    p = Program("scan")
    n = p.width("n")
    x = p.data("x", axes=("t",))
    u = p.let("u", p.matrix("U", n, x) @ x)
    W = p.matrix("W", n, n)
    if init == "vector":
        init = p.bias("s0", n)
    s = p.scan("t", init, lambda *s: step(p, n, W, u, *s), reverse=reverse)
    end = s[0] if isinstance(s, tuple) else s
    p.output(p.readout("v", n), end.at("t", 0 if reverse else -1))
    p.output(p.readout("w", n), phi(end).mean("t"))
    return p


SCANS: dict[str, Any] = {
    "simple": (lambda p, n, W, u, s: ns.tanh(W @ s + u), 0),
    "residual": (lambda p, n, W, u, s: s + ns.erf(W @ s + u), 0),
    "init": (lambda p, n, W, u, s: ns.tanh(W @ s + u), "vector"),
    "two states": (lambda p, n, W, u, s, r: (ns.tanh(W @ r + u), ns.tanh(W @ s + s * u)), (0, 0)),
    "scalars inside": (lambda p, n, W, u, s: ns.tanh(W @ s + u * ns.moment((s + u) ** 2)), 0),
    "state unused": (lambda p, n, W, u, s: ns.tanh(u) + 0 * s, 0),
    "gated": (lambda p, n, W, u, s: s * ns.sigmoid(u) + ns.tanh(W @ s), 0),
    "a step": (lambda p, n, W, u, s: ns.step(W @ s) + ns.tanh(u), 0),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str, reverse: bool) -> None:
    step, init = SCANS[name]
    check(scanned(step, init, reverse), {"x": normal(4, 3)})


def test_bidirectional_two_layers() -> None:
    p = Program("bidirectional")
    n = p.width("n")
    x = p.data("x", axes=("t",))
    s = x

    def step(W: ns.Matrix, u: ns.Expr, r: ns.Expr) -> ns.Expr:
        return ns.tanh(W @ r + u)

    for l in (1, 2):
        U, V, W = (p.matrix(f"{name}{l}", n, cols) for name, cols in (("U", s), ("V", n), ("W", n)))
        u = U @ s
        forth = p.scan("t", 0, partial(step, W, u))
        back = p.scan("t", 0, partial(step, V, u), reverse=True)
        s = forth + back
    p.output(p.readout("v", n), s.mean("t"))
    check(p, {"x": normal(4, 3)})


def test_depth_as_a_scan() -> None:
    """W[layer] over a constant axis; the gradient of the last layer's state starts from `at`."""
    p = Program("depth")
    n = p.width("n")
    x = p.data("x")
    layer = p.axis("layer", 4)
    W = p.matrix("W", n, n, axes=(layer,))
    s = p.scan(layer, ns.tanh(p.matrix("U", n, x) @ x), lambda s: ns.tanh(W @ s))
    p.output(p.readout("v", n), s.at(layer, -1))
    check(p, {"x": normal(4)})


def test_a_scan_with_an_output_axis() -> None:
    p = Program("per step")
    n = p.width("n")
    x = p.data("x", axes=("t",))
    u = p.matrix("U", n, x) @ x
    W = p.matrix("W", n, n)
    p.output(p.readout("v", n), p.scan("t", 0, lambda s: ns.tanh(W @ s + u)))
    check(p, {"x": normal(4, 3)}, n=8)


# ---------------------------------------------------------------- programs


GRAPH = [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]
IMAGE = normal(5, 6, 3)
PROGRAMS: dict[str, tuple[dict[str, Any], Any]] = {
    "mlp": ({}, normal(4)),
    "rnn": ({"readout": "mean"}, normal(4, 3)),
    "cnn": ({"stride": (1, 2), "var_b": 0.2, "fan_in": "channels*kernel"}, IMAGE),
    "cntk": ({"convolutions": 2, "readout": "flatten", "train_ends": True}, IMAGE),
    "resnet": ({"kind": "pre", "scale": 0.8, "final_phi": "erf", "var_b": 0.3}, normal(4)),
    "transformer": ({"depth": 2}, normal(4, 3)),
    "batchnorm_mlp": ({}, normal(4, 3)),
    "gru": ({}, normal(3, 3)),
    "lstm": ({}, normal(3, 3)),
    "gcn": ({"var_b": 0.2}, normal(4, 3)),
    "maxpool_cnn": ({"readout": "flatten", "pool": [2, None], "var_b": 0.1, "phi": "tanh"}, IMAGE),
    "tied_autoencoder": ({}, normal(4)),
    "gia_counterexample": ({}, normal(4)),
}


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, changed: bool) -> None:
    from netsor.programs import BUILTIN

    keywords, x = PROGRAMS[name]
    p = BUILTIN[name](**keywords) if changed else BUILTIN[name]()
    inputs = [line.out.name for line in p.lines if line.out.kind == "X"]
    check(p, {inputs[0]: x} | ({"A": GRAPH} if name == "gcn" else {}))


def test_every_program_is_tried() -> None:
    from netsor.programs import BUILTIN

    assert set(PROGRAMS) == set(BUILTIN)
