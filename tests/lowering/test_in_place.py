"""Blocks that use the memory of dropped tensors again give what blocks that never do give."""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from compositions import each
from engine_functions import tanh
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compositions import LIBRARY

import netsor as ns
from netsor import ir, programs
from netsor.compilers import runtime
from netsor.compilers.derive.entries import values
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.expectation.blocks import buffers, fast, mehler
from netsor.compilers.expectation.blocks.law import Variance
from netsor.compilers.expectation.blocks.work import Work
from netsor.compilers.lowering.build.code import BOTH, Code
from netsor.compilers.lowering.build.scope import Scope
from netsor.compilers.lowering.build.values import emit
from netsor.compilers.lowering.plan.arrays import Fit
from netsor.compilers.lowering.plan.operands import Into, Layout, Name
from netsor.compilers.lowering.plan.operations import Add
from netsor.compilers.runtime import boxes

CPU = torch.device("cpu")


def fresh(self: Any, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory that nothing has used, so that what is not written shows."""
    return torch.full(shape, math.nan, dtype=dtype, device=device)


def agree(monkeypatch: pytest.MonkeyPatch, p: ns.Program, x: Any, x2: Any) -> None:
    """Every tensor in memory of its own, and every tensor in dropped memory however small."""
    kernel = ns.compile(p)
    monkeypatch.setattr(buffers, "SMALL", 0)
    found = kernel(x, x2)
    with monkeypatch.context() as m:
        m.setattr(buffers.Buffers, "empty", fresh)
        m.setattr(runtime, "_holds", lambda x, y: False)
        want = kernel(x, x2)
    for name in ("nngp", "ntk"):
        torch.testing.assert_close(getattr(found, name), getattr(want, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LIBRARY)
def test_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p, (_, *shape) = LIBRARY[name]
    x = np.random.default_rng(0).normal(size=(3, *shape))
    x[1] = x[0]
    agree(monkeypatch, p, x, None)
    agree(monkeypatch, p, x, x[:2] + 1.0)


def test_random_compositions(monkeypatch: pytest.MonkeyPatch) -> None:
    each(25, lambda p, x, x2: agree(monkeypatch, p, x, x2), depth=3)


VIEWS = {"fit", "at", "take", "shaped"}  # may give back the memory of what they read
WRITTEN = {"times": 0, "axpby": 1}  # which argument's memory a function of the runtime uses again


def overwritten(source: str) -> list[str]:
    """What is written in a generated module though something else may read it.

    A place that is written has to be a name that the result takes over, and its memory to have no other name.
    """
    found = []
    for function in ast.walk(ast.parse(source)):
        own: dict[str, bool] = {}
        for s in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            if not isinstance(s, ast.Assign) or not isinstance(s.targets[0], ast.Name):
                continue
            target, place = s.targets[0].id, _written(s.value)
            if place is None:
                own[target] = _is_own(s.value, target, own)
            elif not isinstance(place, ast.Name) or place.id != target or not own.get(target):
                found.append(ast.unparse(s))
    return found


def _written(e: ast.expr) -> ast.expr | None:
    if not isinstance(e, ast.Call) or not isinstance(e.func, ast.Attribute):
        return None
    if e.func.attr in ("add_", "mul_"):
        return e.func.value
    return e.args[WRITTEN[e.func.attr]] if e.func.attr in WRITTEN else None


def _is_own(e: ast.expr, target: str, own: dict[str, bool]) -> bool:
    """Has what an expression makes a memory that no other name than the target's is for?"""
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute):
        if ast.unparse(e.func.value) == "rt":
            return e.func.attr not in VIEWS
        viewed = e.func.value if e.func.attr == "permute" else None
    else:
        viewed = e.value if isinstance(e, ast.Subscript) else None
    return isinstance(viewed, ast.Name) and viewed.id == target and own.get(target, False)


def test_only_what_nothing_else_reads_is_overwritten() -> None:
    def check(p: ns.Program, x: Any = None, x2: Any = None) -> None:
        assert overwritten(ns.compile(p).source) == []

    for p, _ in LIBRARY.values():
        check(p)
    each(25, check, depth=3)


def test_a_constant_is_added_beside_what_is_only_read() -> None:
    """An entry read at the size of the other input comes as it is, or as a view of it."""
    symbols = tuple(Sym(copy, ir.SizeOf("token"), copy, "token") for copy in (Copy.SHORTER, Copy.SECOND))
    entry = values.Entry("K_h", "pair", (symbols[0],), values.ZERO)
    name = Name("K_h", Layout(2, (symbols[0],), BOTH), "entry")
    sum_ = values.Add((values.Access(entry, Copy.NONE, (symbols[1],)), values.Num(sp.Integer(1))))
    scope = Scope("pair", Code(pairs=True), {entry: name})
    emit(scope, sum_, [symbols[1]])
    fit, add = (s for _, s in scope.code.lines)
    assert isinstance(fit, Fit) and fit.of is name
    assert isinstance(add, Add) and add.x is fit.out and add.into is Into.DROPPED


@pytest.mark.parametrize("text", [
    "y = rt.fit(K_h, (2, 3))\n    y = y.add_(1)", "y = K_h[:, None]\n    y = rt.axpby(2, y, 1, K_x)",
    "y = rt.E2(f, g, K_h)\n    z = rt.times(y, 2)", "y = rt.times(a.K_h, 2)",
    "y = rt.E2(f, g, K_h)\n    z = y.permute(1, 0)\n    z = rt.times(z, 2)",
])  # fmt: skip
def test_what_may_be_read_again_is_seen(text: str) -> None:
    assert len(overwritten(f"def pairs(a, b):\n    {text}\n")) == 1


def test_results_are_their_own() -> None:
    """A later call writes into no earlier result."""
    kernel, x = ns.compile(programs.cnn(depth=2, readout="mean")), np.random.default_rng(0).normal(size=(4, 8, 8, 2))
    first = kernel(x)
    kept = {name: getattr(first, name).clone() for name in ("nngp", "ntk")}
    kernel(x + 1)
    assert all(torch.equal(getattr(first, name), k) for name, k in kept.items())


def test_memory_with_a_reader_is_not_given_out() -> None:
    pool, shape = buffers.Buffers(), torch.Size((256, 256))
    one = pool.empty(shape, torch.float32, CPU)
    place, view = one.data_ptr(), one[3:5].T
    del one
    two = pool.empty(shape, torch.float32, CPU)
    assert two.data_ptr() != place
    del view
    assert pool.empty(shape, torch.float32, CPU).data_ptr() == place
    assert pool.empty(shape, torch.float64, CPU).data_ptr() != place
    assert pool.empty(torch.Size((2, 2)), torch.bfloat16, CPU).dtype == torch.bfloat16


def test_memory_without_readers_is_not_held_for_ever() -> None:
    pool = buffers.Buffers(10**6)
    kept = pool.empty(torch.Size((300, 300)), torch.float64, CPU)
    for n in range(300, 400):
        pool.empty(torch.Size((n, n)), torch.float64, CPU)
    assert pool._bytes < 4 * 10**6
    assert kept.data_ptr() != pool.empty(kept.shape, torch.float64, CPU).data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_of_variances_that_are_views(dtype: torch.dtype) -> None:
    """Rows, columns, places of a tensor of variances: as if they stood alone."""
    k = torch.rand(7, 5, dtype=dtype, generator=torch.Generator().manual_seed(0)) + 0.5
    every = Variance(k)
    rows = every.view(lambda t, front: t[(slice(None),) * front + (slice(2, 5),)].unsqueeze(front + 1))
    at = torch.tensor([3, 0, 3])
    views = [
        every, rows, every[:, 1:3], every[1:, None, :, None], every[..., 2], every.permute(1, 0), every[::2],
        runtime.fit(every, (1, 3)), runtime.fit(rows, (2, 7)), runtime.at(rows, 2, (0, at)),
        runtime.take(every, 1, 1, at),
    ]  # fmt: skip
    for v in views:
        own = v.k.clone(memory_format=torch.contiguous_format)
        alone = fast.inverse_root(own), fast.root(own), mehler.expansion(tanh(), own, 20).a
        both = [(x.inverse_root(), x.size(), mehler.expansion(tanh(), x, 20).a) for x in (every, v)]
        for got, want in zip(both[1], alone, strict=True):
            torch.testing.assert_close(got, want)


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], int, list[tuple[int, bool, tuple[int, ...]]]]:
    """Sizes behind two leads, taps, and for some dimensions how they move."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    taps = draw(st.integers(1, 5))
    dims = draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    offsets = st.lists(st.integers(-3, 3), min_size=taps, max_size=taps).map(tuple)
    return sizes, taps, [(d, draw(st.booleans()), draw(offsets)) for d in sorted(dims)]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(windows())
def test_windows(case: tuple[list[int], int, list[tuple[int, bool, tuple[int, ...]]]]) -> None:
    """Moved as one piece or tap by tap by index, with any offsets, forward and adjoint."""
    sizes, taps, moved = case
    x = torch.randn(2, 3, *sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moves = tuple((boxes.adjoint if back else boxes.forward)(d, o, 1, sizes[d], False) for d, back, o in moved)
    want = torch.zeros_like(x)
    for tap in range(taps):
        part = x
        for m in moves:
            d, step = 2 + m.dim, (-m.offsets[tap] if m.back else m.offsets[tap])
            place = torch.arange(m.size) + step
            inside = (place >= 0) & (place < m.size)
            shape = [-1 if i == d else 1 for i in range(x.dim())]
            part = part.index_select(d, place.clamp(0, m.size - 1)) * inside.view(shape)
        want += part
    work = Work(buffers=buffers.Buffers())
    torch.testing.assert_close(boxes.box(x, 2, *moves, work=work), want)
