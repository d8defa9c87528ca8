"""A plan is straight-line: one operation a statement, nothing read after it is free or written; layouts are true."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from budget.test_memory import NETWORKS, inputs
from compositions import each
from test_compositions import LIBRARY

import netsor as ns
from netsor.compilers import runtime
from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.derive.recursion import derive
from netsor.compilers.evaluate.inputs import as_inputs
from netsor.compilers.expectation.blocks.work import Work
from netsor.compilers.lowering.build.recursion import plan
from netsor.compilers.lowering.load import load
from netsor.compilers.lowering.module import generate, printed
from netsor.compilers.lowering.plan import order
from netsor.compilers.lowering.plan.operands import Layout, Name
from netsor.compilers.lowering.plan.operations import Law, Radial, Square
from netsor.compilers.lowering.plan.uses import into, parts, reads, view_of
from netsor.compilers.lowering.printing.lines import WIDTH
from netsor.compilers.lowering.printing.order import lines
from netsor.programs import BUILTIN
from netsor.sizes import number

PROGRAMS: dict[str, Callable[[], ns.Program]] = {
    **{name: make for name, make in BUILTIN.items() if name not in ("gru", "lstm", "maxpool_cnn")},  # these are sampled
    **{name: make for name, (make, _) in NETWORKS.items()},
}
GET = ("nngp", "ntk", "terms")


def sources(name: str) -> Iterator[str]:
    yield generate(derive(PROGRAMS[name]())).text
    if name not in ("gia_counterexample", "tied_autoencoder"):
        yield generate(derive(PROGRAMS[name](), GET)).text


# ---------------------------------------------------------------- the text


def is_operand(e: ast.expr) -> bool:
    """A name, a number, a field or an item of these by a constant, a tuple of these."""
    match e:
        case ast.Name() | ast.Constant():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Attribute(value=owner):
            return is_operand(owner)
        case ast.Subscript(value=owner, slice=ast.Constant()):
            return is_operand(owner)
        case ast.Tuple(elts=items):
            return all(map(is_operand, items))
        case _:
            return False


def is_one_operation(e: ast.expr) -> bool:
    """At most one call, one operator or one view, of operands."""
    match e:
        case ast.Call(func=function, args=args, keywords=keywords):
            return all(map(is_operand, [function, *args, *(k.value for k in keywords)]))
        case ast.BinOp(left=left, right=right):
            return is_operand(left) and is_operand(right)
        case ast.Subscript(value=owner, slice=ast.Tuple(elts=items)):
            return is_operand(owner) and all(isinstance(i, ast.Slice) or is_operand(i) for i in items)
        case ast.Subscript(value=owner, slice=index):
            return is_operand(owner) and (isinstance(index, ast.Slice) or is_operand(index))
        case ast.Dict(values=values):
            return all(map(is_operand, values))
        case _:
            return is_operand(e)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_are_short_and_statements_are_single_operations(name: str) -> None:
    for text in sources(name):
        assert max(map(len, text.splitlines())) <= WIDTH
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign | ast.Expr):
                assert is_one_operation(node.value), ast.unparse(node)
            elif isinstance(node, ast.For):
                assert is_one_operation(node.iter), ast.unparse(node.iter)


def test_more_operations_are_seen() -> None:
    for text in ("f(g(x))", "x + y * z", "rt.add(x[:, None], y)", "x.view(1)[0]", "-x", "f(x + 1)", "[x]", "x and y"):
        assert not is_one_operation(ast.parse(text, mode="eval").body), text


# ---------------------------------------------------------------- names and memory

Line = tuple[tuple[str, ...], order.Statement]


def flat(body: tuple[order.Statement, ...], results: tuple[str, ...]) -> Iterator[Line]:
    """The statements of a function with the results under which each is reached."""
    for s in body:
        if isinstance(s, order.Guard):
            yield from flat(s.body, s.results)
        else:
            yield results, s


def assert_straight(found: list[Line], known: set[Name], kept: tuple[Name, ...] = ()) -> None:
    """Everything read is there, under every condition, and neither free nor written since."""
    made: dict[Name, tuple[str, ...]] = {}
    memory: dict[Name, Name] = {}  # name -> the name that its memory was made for
    gone: set[Name] = set()
    for results, s in found:
        inner = {x for body in s.bodies() for t in body for x in t.made()} | positions(s)
        for x in reads(s):
            if x not in inner and x not in known:
                assert x in made and set(made[x]) >= set(results), (x.stem, s)
                assert x not in gone, (x.stem, s)
        written, viewed = into(s), view_of(s)
        if written is not None:
            gone |= {x for x, home in memory.items() if home is memory[written]}
        for x in s.made():
            assert x not in made
            made[x] = results
            base = written or viewed
            memory[x] = memory.get(base, base) if base is not None else x
        if isinstance(s, order.Free):
            gone.update(s.names)
        for body in s.bodies():
            assert_straight([(results, t) for t in body], known | set(made) | positions(s) - gone)
    assert not gone & set(kept)


def positions(s: order.Statement) -> set[Name]:
    """What a recurrence itself defines for its body."""
    if isinstance(s, order.Loop):
        return {x for step in s.steps for x in (*step.at, *s.made())}
    return {*s.at, *s.made()} if isinstance(s, order.Wave) else set()


def assert_plan(p: ns.Program, x: Any = None, x2: Any = None) -> None:
    del x, x2
    found = plan(derive(p))
    own = {s.out for s in found.each.sizes}
    assert_straight(list(flat(found.each.body, ())), own, found.each.kept)
    known = {s.out for s in found.pairs.sizes} | set(found.each.kept)
    assert_straight(list(flat(found.pairs.body, found.pairs.results)), known)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_read_after_it_is_free_or_written(name: str) -> None:
    assert_plan(PROGRAMS[name]())


def test_nothing_is_read_after_it_is_free_or_written_in_compositions() -> None:
    each(25, assert_plan, depth=3)


# ---------------------------------------------------------------- layouts


class Run:
    """Runs a plan statement by statement, each as it is printed, and compares what it makes with its layout."""

    def __init__(self, p: ns.Program, x: Any, x2: Any) -> None:
        recursion = derive(p)
        source = generate(recursion)
        self.scope = dict(vars(load(source, "plan")))
        self.plan, self.each_names, self.pair_names = printed(recursion)
        one, two = (as_inputs(self.scope["INPUTS"], v, None, None) for v in (x, x2))
        self.sizes: dict[Copy, dict[str, int]] = {}
        self.samples: dict[Copy, int] = {}
        batches = [self.each(data) for data in (one, two)]
        a, b = batches[0].rows(slice(None)), batches[1].cols(slice(None))
        self.sizes = {Copy.FIRST: one.features(), Copy.SECOND: two.features(), Copy.NONE: one.features()}
        self.sizes[Copy.SHORTER] = {k: min(n, self.sizes[Copy.SECOND][k]) for k, n in self.sizes[Copy.FIRST].items()}
        self.samples = {Copy.FIRST: one.samples, Copy.SECOND: two.samples}
        out: dict[str, Any] = {}
        found = self.plan.pairs
        given = {"a": a, "b": b, "out": out, "terms": {}, "shorter": runtime.shorter(a.data, b.data), "work": Work()}
        self.run(self.pair_names, (*found.sizes, *(s for _, s in flat(found.body, found.results))), given)
        self.out = out

    def each(self, data: Any) -> Any:
        features: dict[str, int] = data.features()
        self.sizes = {Copy.OWN: features, Copy.NONE: features}
        self.samples = {Copy.OWN: data.samples}
        found, scope = self.plan.each, {"data": data}
        self.run(self.each_names, (*found.sizes, *found.body), scope)
        kept = {self.each_names.name(n): n for n in found.kept}
        constants = tuple(k for k, n in kept.items() if n.layout is not None and not n.layout.leads)
        return runtime.Each(data, constants, None, **{k: scope[k] for k in kept})

    def run(self, names: Any, statements: tuple[order.Statement, ...], scope: dict[str, Any]) -> None:
        scope |= {k: v for k, v in self.scope.items() if k not in scope}
        for s in statements:
            exec("\n".join(lines(names, (s,), "")), scope)
            for x in s.made():
                if x.layout is not None and not isinstance(s, Square | Radial | Law):
                    self.check(scope[names.name(x)], x.layout, s)

    def check(self, value: torch.Tensor, layout: Layout, s: order.Statement) -> None:
        leads = [
            c if c in layout.of else None for c in ((Copy.FIRST, Copy.SECOND) if layout.leads == 2 else (Copy.OWN,))
        ][: layout.leads]
        sizes = [1 if c is None else self.samples[c] for c in leads]
        sizes += [1 if q is None else number(q.size, self.sizes[q.copy].__getitem__) for q in layout.axes]
        assert list(value.shape) == sizes, s


@pytest.mark.parametrize("name", NETWORKS)
def test_layouts_are_what_is_computed(name: str) -> None:
    make, shape = NETWORKS[name]
    x = inputs(shape)
    one = {k: v[:2] for k, v in x.items()} if isinstance(x, dict) else x[:2]
    two = {k: v[1:] for k, v in x.items()} if isinstance(x, dict) else x[1:]
    out, want = Run(make(), one, two).out, ns.compile(make())(one, two)
    for key in ("nngp", "ntk"):
        torch.testing.assert_close(out[key], getattr(want, key), rtol=1e-12, atol=1e-12)


def test_layouts_in_compositions() -> None:
    def check(p: ns.Program, x: Any, x2: Any) -> None:
        Run(p, np.concatenate([x, x + 1]), np.concatenate([x, x - 1, 2 * x]) if x2 is None else x2)

    each(25, check, depth=3)


def test_a_plan_holds_no_text_of_a_language() -> None:
    """Strings are names and the program's lines."""
    for p, _ in LIBRARY.values():
        found = plan(derive(p))
        statements = [*found.each.body, *(s for _, s in flat(found.pairs.body, ()))]
        inside = [t for s in statements for body in s.bodies() for t in body]
        for s in (*statements, *inside):
            plain = not s.bodies() and not isinstance(s, order.Note)
            assert not any(c in x for x in parts(s) if isinstance(x, str) and plain for c in "()[]=,"), s
            assert all(not isinstance(x, float) or math.isfinite(x) for x in parts(s))
