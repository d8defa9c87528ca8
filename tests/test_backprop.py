"""Backward lines against autograd at width 32, float64 (issue: every layer and program to 1e-10)."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from typing import Any

import pytest
import torch
from interp import Interpreter

import netsor as ns
from netsor.backprop import backprop, forward_part
from netsor.dsl import Program


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
