"""Unrolled programs: the same values for the same arrays as the rolled form, no axes, no index forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from generate import programs as generated
from hypothesis import given, settings
from hypothesis import strategies as st

import netsor as ns
from netsor import ir, programs
from netsor.compilers.finite import run
from netsor.compilers.finite.arrays import sample
from netsor.compilers.finite.inputs import bind, input_lines
from netsor.errors import ProgramError
from netsor.layers import attention, avg_pool, conv, max_pool
from netsor.passes.unroll import Unrolled

PLAIN = (ir.InputMatrix, ir.InputVector, ir.InputScalar, ir.Data, ir.Trsp, ir.MatMul, ir.Nonlin, ir.Moment)


def inputs(p: ns.Program, size: int = 4, samples: int = 2, seed: int = 0) -> tuple[dict[str, Any], dict[str, int]]:
    """Random arrays for every input, and the sizes of the axes that they decide."""
    rng = np.random.default_rng(seed)
    sizes = {a.name: size if a.size is None else a.size for a in p.axes}
    x = {}
    for line in input_lines(p):
        shape = [sizes[a.name] for a in line.out.axes] + ([3] if line.out.kind == "X" else [])
        x[line.out.name] = rng.normal(size=(samples, *shape))
    return x, sizes


def assert_same(p: ns.Program, x: dict[str, Any], sizes: dict[str, int]) -> Unrolled:
    """Every element of every vector and scalar has the value that the unrolled program gives it."""
    rolled = run(p, x, width=6, sizes=sizes)
    unrolled = Unrolled(p, sizes)
    group = bind(p, x, sizes)[0]
    arrays = unrolled.arrays(sample(p, group.binding(p, 6), 0))
    plain = run(unrolled.program, unrolled.inputs(x), width=6, seed=1, arrays=arrays)
    assert all(isinstance(line, PLAIN) and not line.out.dims for line in unrolled.program.lines)
    for (var, index), element in unrolled.elements.items():
        if var.kind == "A" or element is None:
            continue
        expected = rolled[var]
        for i in index:
            expected = expected[:, i]
        actual = plain[element] if isinstance(element, ir.Var) else torch.tensor(float(element), dtype=expected.dtype)
        actual, expected = torch.broadcast_tensors(actual, expected)
        scale = max(1.0, float(expected.abs().max()))
        assert torch.allclose(actual, expected, rtol=1e-9, atol=1e-11 * scale, equal_nan=True), (var, index)
    return unrolled


def image_program() -> ns.Program:
    p = ns.Program("image")
    n = p.width("n")
    x = ns.relu(conv(p.data("x", axes=("row", "col")), n, "W1", ("row", "col"), size=3, stride=2))
    x = max_pool(x, {"row": 2})
    x = ns.tanh(conv(x, n, "W2", ("row", "col"), size=(1, 2), padding="circular", bias_var=0.1))
    p.output(p.readout("v", n, axes=("row", "col")), avg_pool(x, {"col": 1}))
    return p.backward()


def token_program() -> ns.Program:
    p = ns.Program("tokens")
    n = p.width("n")
    x = p.data("x", axes=("token",))
    position = p.vector("position", n, axes=("token",), axis_cov=[[1.0, 0.5, 0.1], [0.5, 1.0, 0.5], [0.1, 0.5, 2.0]])
    h = p.matrix("U", n, x) @ x + position
    y = attention(h, p.matrix("V", n, n) @ h, h, "token", causal=True)
    states = p.scan("token", p.bias("start", n), lambda s: ns.erf(s + y))
    p.output(p.readout("v", n), states)
    return p.backward()


NETWORKS: dict[str, tuple[Any, int]] = {
    "rnn": (lambda: programs.rnn().backward(), 4),
    "rnn_mean": (lambda: programs.rnn(readout="mean").backward(), 3),
    "cnn": (lambda: programs.cnn(depth=2).backward(), 3),
    "gcn": (lambda: programs.gcn().backward(), 3),
    "transformer": (lambda: programs.transformer().backward(), 3),
    "batchnorm": (lambda: programs.batchnorm_mlp(depth=1).backward(), 3),
    "gru": (lambda: programs.gru().backward(), 3),
    "image": (image_program, 5),
    "tokens": (token_program, 3),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_same_values_as_rolled(name: str) -> None:
    make, size = NETWORKS[name]
    p = make()
    x, sizes = inputs(p, size)
    assert_same(p, x, sizes)


@settings(max_examples=25)
@given(st.data())
def test_generated_programs(data: st.DataObject) -> None:
    p = data.draw(generated())
    x, sizes = inputs(p, 3)
    assert_same(p, x, sizes)


def test_names_sums_and_shared_arrays() -> None:
    p = ns.Program("net")
    n = p.width("n")
    x = p.data("x", axes=("t",))
    W, b = p.matrix("W", n, x, axes=("t",)), p.bias("b", n)
    p.let("y", ns.relu(W @ x + b).sum("t"))
    q = p.unroll({"t": 3})
    names = [line.out.name for line in q.lines]
    assert {"x_0", "x_1", "x_2", "W_0", "W_1", "W_2", "b", "y"} <= set(names)
    y = next(line for line in q.lines if line.out.name == "y")
    assert isinstance(y, ir.Nonlin) and len(y.args) == 3


def test_zero_vectors_vanish() -> None:
    """The first step of a recurrence makes no line, and windows read nothing outside."""
    p = programs.rnn()
    products = [x for x in p.unroll({"time": 4}).lines if isinstance(x, ir.MatMul) and x.matrix.name == "W"]
    assert len(products) == 3
    c = programs.cnn(depth=1, axes=("t",))
    taps = [x for x in c.unroll({"t": 4}).lines if isinstance(x, ir.MatMul)]
    assert len(taps) == 3 * 4 - 2


def test_outputs_and_gradients() -> None:
    p = ns.Program("net")
    n, x = p.width("n"), p.data("x", axes=("t",))
    h = p.let("h", p.matrix("W", n, x) @ x)
    v = p.readout("v", n, axes=("t",))
    p.output(v, h)
    q = p.backward().unroll({"t": 4})
    assert [(o.name, o.scale) for o in q.outputs] == [("f", 0.5)] * 4
    assert [g.of.name for g in q.gradients] == ["h_0", "h_1", "h_2", "h_3"]
    r = ns.Program("net")
    n, x = r.width("n"), r.data("x", axes=("t",))
    r.output(r.readout("v", n), r.matrix("W", n, x) @ x)
    assert [o.name for o in r.unroll({"t": 2}).outputs] == ["f_0", "f_1"]


def test_unknown_size_is_refused() -> None:
    with pytest.raises(ProgramError, match="the size of the axis time is not known"):
        programs.rnn().unroll()
