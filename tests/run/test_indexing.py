"""Index forms mean the same wherever they are executed: element by element, in numpy, and in torch."""

from __future__ import annotations

from itertools import product
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import netsor as ns
from netsor import ir
from netsor.compilers.finite.values import Binding, Value
from netsor.indexing import sources
from netsor.parser import expressions
from netsor.run.lines import execute
from netsor.run.order import components
from netsor.run.rules import evaluate
from netsor.run.shapes import Sizes
from netsor.sizes import number
from netsor.text import notation

A, B, C, TAP = (ir.Axis(name) for name in "abck")
WIDTH = 2
SIZES: dict[str, int] = {}  # no size is open


def var(name: str, sizes: dict[ir.Axis, int]) -> ir.Var:
    return ir.Var(name, "H", ir.Width("n"), None, tuple(ir.Dim(a, s) for a, s in sizes.items()))


def windows(rng: Any, transposed: bool) -> ir.Line:
    """A window over one or two axes of three, or its adjoint."""
    whole = {A: int(rng.integers(1, 6)), B: int(rng.integers(1, 6)), C: 2}
    axes = (A, B)[: int(rng.integers(1, 3))]
    stride = tuple(int(rng.integers(1, 4)) for _ in axes)
    offsets = tuple(tuple(int(rng.integers(-7, 8)) for _ in axes) for _ in range(int(rng.integers(1, 4))))
    centres = {a: int(rng.integers(1, 5)) if a in axes else s for a, s in whole.items()}
    inner, outer = var("of", whole), var("out", {TAP: len(offsets), **centres})
    outside: Any = rng.choice(["zero", "wrap", *([] if transposed else ["drop"])])
    if transposed:
        return ir.Unwindow(inner, outer, axes, TAP, offsets, stride, outside)
    return ir.Window(outer, inner, axes, TAP, offsets, stride, outside)


def line(kind: str, rng: Any) -> Any:
    n = int(rng.integers(1, 5))
    index = int(rng.integers(-n, n))
    whole, less = var("whole", {A: n, C: 2}), var("less", {C: 2})
    match kind:
        case "window" | "unwindow":
            return windows(rng, kind == "unwindow")
        case "at":
            return ir.At(less, whole, A, index)
        case "place":
            return ir.Place(whole, less, A, index)
        case "shift":
            return ir.Shift(var("out", {A: n, C: 2}), whole, A, int(rng.integers(-n - 2, n + 3)))
        case "rename":
            return ir.Rename(var("out", {C: n, B: 2}), whole, ((A, C), (C, B)))
        case _:
            raise AssertionError(kind)


def literal(form: Any, array: Any) -> Any:  # noqa: C901
    """Every element as `netsor.ir` says it, without the maps."""
    out, of = ({d.axis: d.size for d in v.dims} for v in (form.out, form.of))
    result = np.zeros((*out.values(), WIDTH))

    def read(at: dict[ir.Axis, int]) -> Any:
        return array[tuple(at[a] for a in of)]

    def positions(at: dict[ir.Axis, int], sizes: dict[ir.Axis, int]) -> dict[ir.Axis, int]:
        shift = form.offsets[at[TAP]]
        there = {a: form.stride[i] * at[a] + shift[i] for i, a in enumerate(form.axes)}
        return {a: t % sizes[a] for a, t in there.items()} if form.outside == "wrap" else there

    for place in product(*map(range, out.values())):
        at = dict(zip(out, place, strict=True))
        match form:
            case ir.Window():
                there = positions(at, of)
                outside = any(not 0 <= t < of[a] for a, t in there.items())
                result[place] = (-np.inf if form.outside == "drop" else 0) if outside else read(at | there)
            case ir.Unwindow():
                for s in product(*map(range, of.values())):
                    other = dict(zip(of, s, strict=True))
                    there = positions(other, out)
                    if (
                        all(there[a] == at[a] for a in form.axes)
                        and other[C] == at[C]
                        and (B in form.axes or other[B] == at[B])
                    ):
                        result[place] += read(other)
            case ir.At():
                result[place] = read({**at, form.axis: form.index})
            case ir.Place():
                result[place] = read(at) if at[form.axis] == form.index % out[form.axis] else 0
            case ir.Shift():
                t = at[form.axis] - form.by
                result[place] = read({**at, form.axis: t}) if 0 <= t < of[form.axis] else 0
            case _:
                result[place] = read({old: at[new] for old, new in form.axes})
    return result


def element_by_element(form: Any, array: Any) -> Any:
    """By the indices whose elements add up to each element."""
    shape = tuple(d.size for d in form.out.dims)
    result = np.zeros((*shape, WIDTH))
    for place in product(*map(range, shape)):
        index = dict(zip((d.axis.name for d in form.out.dims), place, strict=True))
        found = sources(form, index, lambda size: number(size, SIZES.__getitem__))
        read = [] if found is None else [array[tuple(i[d.axis.name] for d in form.of.dims)] for i in found]
        result[place] = -np.inf if found is None else sum(read, np.zeros(WIDTH))
    return result


@pytest.mark.parametrize("kind", ["window", "unwindow", "at", "place", "shift", "rename"])
def test_every_index_form(kind: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        form = line(kind, rng)
        array = rng.standard_normal((*(d.size for d in form.of.dims), WIDTH))
        wanted = literal(form, array)
        np.testing.assert_allclose(element_by_element(form, array), wanted, atol=1e-14, err_msg=str(form))
        found = execute([form], {form.of: array}, Sizes(WIDTH))[form.out]
        np.testing.assert_allclose(found, wanted, atol=1e-14, err_msg=str(form))
        names = [d.axis.name for d in form.of.dims]
        value = evaluate(form, lambda _: Value(torch.from_numpy(array)[None], tuple(names)), (), Binding(), Value.xp)  # noqa: B023
        aligned = value.aligned([d.axis.name for d in form.out.dims])[0]
        np.testing.assert_allclose(aligned.numpy(), wanted, atol=1e-14, err_msg=str(form))


@pytest.mark.parametrize("kind", ["window", "at", "shift", "rename"])
def test_the_transposed_form_is_the_adjoint(kind: str) -> None:
    """⟨L x, y⟩ = ⟨x, Lᵀ y⟩ by autograd, at random arrays; autograd's own check of the gather."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        form = line(kind, rng)
        if kind == "window" and form.outside == "drop":
            continue
        x = torch.from_numpy(rng.standard_normal((1, *(d.size for d in form.of.dims), WIDTH))).requires_grad_()
        names = tuple(d.axis.name for d in form.of.dims)
        y = evaluate(form, lambda _: Value(x, names), (), Binding(), Value.xp)  # noqa: B023
        weights = torch.from_numpy(rng.standard_normal(y.data.shape))
        (gradient,) = torch.autograd.grad((weights * y.data).sum(), x)
        match form:
            case ir.Window():
                back: Any = ir.Unwindow(form.of, form.out, form.axes, form.tap, form.offsets, form.stride, form.outside)
            case ir.At():
                back = ir.Place(form.of, form.out, form.axis, form.index)
            case ir.Shift():
                back = ir.Shift(form.of, form.out, form.axis, -form.by)
            case _:
                back = ir.Rename(form.of, form.out, tuple((b, a) for a, b in form.axes))
        adjoint = evaluate(back, lambda _: Value(weights, y.axes), (), Binding(), Value.xp)  # noqa: B023
        torch.testing.assert_close(adjoint.aligned(names), gradient, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("by", [-3, -1, 0, 2, 7])
def test_shifted_inputs_compile(by: int) -> None:
    """The kernels of shifted inputs are those of inputs that are given shifted."""
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((3, 5, 4)))
    there = np.arange(5) - by
    inside = torch.from_numpy((there >= 0) & (there < 5))[None, :, None]
    given = x[:, there.clip(0, 4)].where(inside, 0.0)

    def kernels(shifted: bool) -> Any:
        p = ns.Program()
        t, n = p.axis("t", 5), p.width("n")
        data = p.data("x", axes=(t,))
        h = p.let("h", p.matrix("U", n, data) @ (data.shift(t, by) if shifted else data))
        p.output(p.readout("v", n), ns.relu(h).mean(t))
        return ns.compile(p)(x if shifted else given)

    found, wanted = kernels(True), kernels(False)
    torch.testing.assert_close(found.nngp, wanted.nngp, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(found.ntk, wanted.ntk, rtol=1e-13, atol=1e-13)


def test_a_call_along_an_axis_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a row of the notation says is read, its axis checked, and its variable gets the axes of the map."""
    rows: dict[str, Any] = {
        "back": notation.Called(lambda out, of, axis, index: ir.Shift(out, of, axis, -1), indexed=False),
        "put": notation.Called(lambda out, of, axis, index: ir.Place(out, of, axis, index), indexed=True),
    }
    for name, row in rows.items():
        monkeypatch.setitem(notation.CALLED, name, row)
    monkeypatch.setattr(expressions, "FORMS", (*expressions.FORMS, *rows))
    text = "width n\naxis t\ndata x[t]\nU : A(n, x)\nh := U @ x\ny := back[t](h)\nz := put[s = 2](h)\n"
    lines = {x.out.name: x for x in ns.parse("axis s\n" + text).lines}
    assert isinstance(lines["y"], ir.Shift) and lines["y"].by == -1 and lines["y"].out.axes == lines["h"].out.axes
    assert isinstance(lines["z"], ir.Place) and [a.name for a in lines["z"].out.axes] == ["t", "s"]
    with pytest.raises(ns.NetsorError, match="back over s: the argument has no such axis"):
        ns.parse("axis s\n" + text + "w := back[s](h)\n")


@pytest.mark.parametrize("seed", range(20))
def test_components_in_order(seed: int) -> None:
    """As networkx has them: each after what it reads, the smallest first."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    reads = [{int(j) for j in rng.integers(0, n, int(rng.integers(0, 3)))} for _ in range(n)]
    graph = nx.DiGraph([(j, i) for i, read in enumerate(reads) for j in read])
    graph.add_nodes_from(range(n))
    whole = nx.condensation(graph)
    members = {c: sorted(whole.nodes[c]["members"]) for c in whole}
    assert components(reads) == [members[c] for c in nx.lexicographical_topological_sort(whole, key=members.get)]
