"""A recursion → its plan: the quantities of each input, then the kernels of pairs."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.functions_of import of_two
from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.derive.entries.traversal import walk
from netsor.compilers.derive.entries.values import Access, Entry, Expect, Given, Gram, Law, Value
from netsor.compilers.derive.outputs import TERMS, Key
from netsor.compilers.derive.recursion import Recursion, Result, entries_in
from netsor.compilers.lowering.atoms import is_slope
from netsor.compilers.lowering.build.code import Code, Users
from netsor.compilers.lowering.build.data import DataArrays
from netsor.compilers.lowering.build.lifetimes import freed, guarded
from netsor.compilers.lowering.build.recurrences import recurrence
from netsor.compilers.lowering.build.scope import NOTHING, Scope
from netsor.compilers.lowering.build.values import emit
from netsor.compilers.lowering.plan import order as do
from netsor.compilers.lowering.plan.arrays import Full
from netsor.compilers.lowering.plan.operands import Layout, Name
from netsor.compilers.lowering.plan.operations import Variance
from netsor.compilers.lowering.schedule import Block, closure, in_order, reads_itself, scheduled
from netsor.text.printer import Listing

_PLANS: WeakKeyDictionary[Recursion, do.Plan] = WeakKeyDictionary()


def plan(recursion: Recursion) -> do.Plan:
    """The plan of a recursion, made once."""
    if recursion not in _PLANS:
        _PLANS[recursion] = _Builder(recursion).plan()
    return _PLANS[recursion]


class _Builder:
    def __init__(self, recursion: Recursion) -> None:
        self.r = recursion
        self.blocks = in_order(recursion.used)
        self.names: dict[Entry, Name] = {}
        self.single = {k: r for k, r in recursion.results.items() if is_single(r)}
        self.notes = _notes(recursion)

    def plan(self) -> do.Plan:
        return do.Plan(self._each(), self._pairs())

    # ------------------------------------------------------------ each input

    def _each(self) -> do.Each:
        code = Code(pairs=False)
        scope = Scope("input", code, self.names)
        data = DataArrays(self.r.program, scope)
        for var in dict.fromkeys(x for e in self.r.used for v in walk(e.value) for x in _arrays(v)):
            data.need(var)
        for block in self.blocks:
            if block[0].space != "pair":
                self._block(scope, block)
        for name, r in self.single.items():
            code.stem = name
            code.add(do.Result(Key(name), emit(scope, r.value, r.dims), tuple(map(scope.extent, r.dims))))
        kept = tuple(self.names[e] for e in self._read_by_pairs())
        own = {s.of for _, s in code.lines if isinstance(s, do.Result) and isinstance(s.of, Name)}
        sides = {s.out for _, s in code.lines if isinstance(s, Variance) and s.of in kept}
        body = tuple(s for _, s in freed(code.lines, {*kept, *own, *sides}))
        return do.Each(tuple(code.sizes), body, kept)

    def _read_by_pairs(self) -> list[Entry]:
        readers = [e.value for b in self.blocks for e in b if e.space == "pair"]
        readers += [r.value for r in (*self.r.results.values(), *self.r.terms.values()) if not is_single(r)]
        found: dict[Entry, None] = {}
        for v in readers:
            found.update({e: None for e in entries_in(v) if e.space != "pair"})
        return list(found)

    # ------------------------------------------------------------ pairs

    def _pairs(self) -> do.Pairs:
        """The blocks of pairs, each under the condition that one of the results that need it is asked for."""
        wanted = {name: {Key(name): r} for name, r in self.r.results.items() if name not in self.single}
        if self.r.terms:
            wanted[TERMS] = {Key(name, is_term=True): r for name, r in self.r.terms.items()}
        needs = {name: closure(results.values()) for name, results in wanted.items()}
        users = {e: tuple(n for n in needs if e in needs[n]) for e in set().union(*needs.values())}
        blocks = scheduled([b for b in self.blocks if b[0].space == "pair" and b[0] in users])
        code = Code(pairs=True)
        scope = Scope("pair", code, self.names, sloped=_sloped(blocks))
        for block in blocks:
            code.users = users[block[0]]
            self._block(scope, block)
        for name, results in wanted.items():
            code.users = (name,)
            for key, r in results.items():
                code.stem = name
                sizes = tuple(map(scope.extent, r.dims))
                code.add(do.Result(key, emit(scope, r.value, r.dims), sizes))
        names: Users = tuple(wanted)
        return do.Pairs(tuple(code.sizes), guarded(freed(code.lines), names), names)

    # ------------------------------------------------------------ blocks

    def _block(self, scope: Scope, block: Block) -> None:
        if len(block) == 1 and not reads_itself(block[0]):
            self._entry(scope, block[0])
        else:
            recurrence(scope, block, self.notes)

    def _entry(self, scope: Scope, e: Entry) -> None:
        code = scope.code
        code.stem = e.name
        code.note(self.notes.get(e))
        value = emit(scope, e.value, e.dims)
        layout = scope.layout(value)
        if not _has_samples(e.value):
            axes = () if layout is None else layout.axes
            axes = (*((None,) * (len(e.dims) - len(axes))), *axes)
            layout = Layout(0 if e.space == "const" else scope.leads, axes, NOTHING)
            value = code.make(Full, layout, value)
        self.names[e] = code.named(value, e.name, layout)


def _sloped(blocks: list[Block]) -> frozenset[Value]:
    """E f(u)g(v) for which E f′(u)g′(v) of the same variables is asked for too, outside of recurrences."""
    values = [v for b in blocks if len(b) == 1 and not reads_itself(b[0]) for v in walk(b[0].value)]
    same: dict[Law, list[tuple[Expect, tuple[sp.Expr, sp.Expr]]]] = {}
    for v in values:
        sides = of_two(v) if isinstance(v, Expect) and v.law.centred else None
        if isinstance(v, Expect) and sides is not None:
            same.setdefault(v.law, []).append((v, sides))
    return frozenset(
        v for group in same.values() for v, (f, g) in group for _, (df, dg) in group
        if is_slope(f, df) and is_slope(g, dg)
    )  # fmt: skip


def _has_samples(v: Value) -> bool:
    """Does a value read something with sample dimensions?"""
    return any(
        isinstance(x, Gram)
        or (isinstance(x, Given) and x.copy is not Copy.NONE)
        or (isinstance(x, Access) and x.entry.space != "const")
        for x in walk(v)
    )


def _arrays(v: Value) -> tuple[ir.Var, ...]:
    return v.array if isinstance(v, Gram) else ()


def is_single(r: Result) -> bool:
    """Is a result one of each input alone (a returned scalar)?"""
    spaces = {e.space for e in entries_in(r.value)}
    copies = {v.copy for v in walk(r.value) if isinstance(v, Access)}
    return r.kind == "scalar" and "pair" not in spaces and Copy.SECOND not in copies


def _notes(recursion: Recursion) -> dict[Entry, str]:
    """The listing's line of each entry, where it computes one."""
    listing, inputs = Listing(recursion.program), (ir.InputMatrix, ir.InputVector, ir.InputScalar, ir.Data)
    lines: dict[str, Any] = {x.out.name: x for x in recursion.program.lines if not isinstance(x, inputs)}
    wanted = {e: e.of[-1] for e in recursion.used if e.of and e.of[-1] in lines}
    texts = {name: listing.line(lines[name]) for name in dict.fromkeys(wanted.values())}
    return {e: texts[name] for e, name in wanted.items()}
