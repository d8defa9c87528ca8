"""Values of the recursion → statements: sums in the memory of a term, products in that of a factor, box sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never, cast

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.arithmetic import mul, split
from netsor.compilers.derive.entries.functions_of import of_two
from netsor.compilers.derive.entries.indices import Copy, Inv, Sym, Win
from netsor.compilers.derive.entries.traversal import symbols
from netsor.compilers.derive.entries.values import (
    Access,
    Add,
    Expect,
    FeatureDim,
    Fn,
    Given,
    Gram,
    Ind,
    Mul,
    Num,
    Radial,
    SizeValue,
    Soft,
    Sum,
    Value,
)
from netsor.compilers.lowering.atoms import nearest
from netsor.compilers.lowering.build.expectations import expectation, radial
from netsor.compilers.lowering.build.indices import index
from netsor.compilers.lowering.build.reads import access, align, given, gram
from netsor.compilers.lowering.build.scope import Scope
from netsor.compilers.lowering.plan import arrays, positions
from netsor.compilers.lowering.plan import operations as do
from netsor.compilers.lowering.plan.operands import Into, Layout, Mark, Name, Operand

WIDE = 32  # terms of a sum that are added one after the other; more are added by halves


def emit(scope: Scope, v: Value, order: Sequence[Sym]) -> Operand:  # noqa: C901
    """What holds a value: its sample dimensions, then one for each symbol of the order that has one here."""
    match v:
        case Num():
            return number(v.value)
        case SizeValue():
            return scope.size(v.size, v.copy)
        case FeatureDim():
            return scope.code.make(
                positions.Features, None, scope.array(v.var, Copy.FIRST, ()), stem=f"{v.var.name}_features", of="size"
            )
        case Add():
            return _sum(scope, v, order)
        case Mul():
            return _product(scope, v, order)
        case Sum():
            return _reduce(scope, v, order)
        case Fn():
            return _function(scope, v, order)
        case Soft():
            return _softmax(scope, v, order)
        case Access():
            return access(scope, v, order)
        case Given():
            return given(scope, v, order)
        case Gram():
            return gram(scope, v, order)
        case Ind():
            return _indicator(scope, v, order)
        case Expect():
            return expectation(scope, v, order, emit)
        case Radial():
            return radial(scope, v, order, emit)
        case _:
            assert_never(v)


def number(e: sp.Expr) -> int | float:
    """The integer, or the float nearest to an exact number."""
    return int(e) if e.is_Integer else nearest(e)


# ---------------------------------------------------------------- sums and products


def _sum(scope: Scope, v: Add, order: Sequence[Sym]) -> Operand:
    if len(v.args) > WIDE:
        half = len(v.args) // 2
        one, two = (_sum(scope, Add(part), order) for part in (v.args[:half], v.args[half:]))
        return _plus(scope, one, two, Into.DROPPED if scope.space == "pair" else Into.NEW)
    return _one_pass(scope, v, order) if scope.space == "pair" else _added(scope, v, order)


def _plus(scope: Scope, x: Operand, y: Operand, into: Into, alpha: float = 1, beta: float = 1) -> Operand:
    return scope.code.make(do.Add, scope.broadcast(x, y), x, y, into, alpha, beta)


def _times(scope: Scope, x: Operand, y: Operand, into: Into) -> Operand:
    return scope.code.make(do.Mul, scope.broadcast(x, y), x, y, into)


def _added(scope: Scope, v: Add, order: Sequence[Sym]) -> Operand:
    """A sum from left to right."""
    total = emit(scope, v.args[0], order)
    for a in v.args[1:]:
        total = _plus(scope, total, emit(scope, a, order), Into.NEW)
    return total


def _one_pass(scope: Scope, v: Add, order: Sequence[Sym]) -> Operand:
    """A sum over pairs, one pass for each term, in the memory of a term that nothing else reads."""
    terms = [split(a) for a in v.args if not isinstance(a, Num)]
    if not any(_is_tensor(scope, rest) for _, rest in terms):
        return _added(scope, v, order)
    c, first = min(terms, key=lambda p: (not _is_fresh(scope, p[1]), not _is_tensor(scope, p[1]), p[0] != 1))
    rest = [p for p in terms if p != (c, first)]
    total, own = emit(scope, first, order), _is_fresh(scope, first)
    if not own and c != 1:
        total, c, own = emit(scope, mul(Num(c), first), order), sp.Integer(1), True
    elif not own and rest:
        d, other = rest.pop(0)
        total, own = _plus(scope, total, emit(scope, other, order), Into.DROPPED, 1, number(d)), True
    for d, other in rest:
        total = _plus(scope, total, emit(scope, other, order), Into.FIRST, number(c), number(d))
        c = sp.Integer(1)
    if c != 1:
        total = _times(scope, total, number(c), Into.FIRST)
    for a in v.args:
        if isinstance(a, Num):
            total = _plus(scope, total, number(a.value), Into.FIRST if own else Into.DROPPED)
    return total


def _product(scope: Scope, v: Mul, order: Sequence[Sym]) -> Operand:
    """A product, of pairs in the memory of a factor that nothing else reads, or in that of a dropped tensor."""
    first = next((a for a in v.args if _is_fresh(scope, a)), None)
    first = first or next((a for a in v.args if _is_tensor(scope, a)), None)
    if scope.space != "pair" or first is None:
        total = emit(scope, v.args[0], order)
        for a in v.args[1:]:
            total = _times(scope, total, emit(scope, a, order), Into.NEW)
        return total
    rest = list(v.args)
    rest.remove(first)
    into = Into.FIRST if _is_fresh(scope, first) else Into.DROPPED
    total = emit(scope, first, order)
    for a in rest:
        total, into = _times(scope, total, emit(scope, a, order), into), Into.FIRST
    return total


def _is_fresh(scope: Scope, v: Value) -> bool:
    """Is what holds a value a tensor of pairs that nothing else reads?"""
    return isinstance(v, Expect | Sum | Mul) and _is_tensor(scope, v)


def _is_tensor(scope: Scope, v: Value) -> bool:
    """Is what holds a value a tensor of pairs for certain?"""
    match v:
        case Access():
            return v.entry.space == "pair" and v.entry not in scope.cells
        case Sum():
            return _is_tensor(scope, v.body)
        case Mul():
            return any(_is_tensor(scope, a) for a in v.args)
        case Expect():
            return of_two(v) is not None
        case (
            Num() | Given() | Gram() | SizeValue() | FeatureDim() | Add() | Ind() | Fn() | Soft()
            | Radial()
        ):  # fmt: skip
            return False
        case _:
            assert_never(v)


# ---------------------------------------------------------------- sums over a symbol


def _reduce(scope: Scope, v: Sum, order: Sequence[Sym]) -> Operand:
    kept = scope.kept(order)
    if _is_box(scope, v, kept):
        return _box(scope, v, kept)
    factors = _contracted(scope, v)
    if factors is not None:
        return _contraction(scope, v, factors, kept)
    body = emit(scope, v.body, [*kept, v.sym])
    layout = scope.broadcast(body)
    own = None if layout is None else layout._replace(axes=layout.axes[:-1])
    return scope.code.make(do.Total, own, body, scope.extent(v.sym))


def _is_box(scope: Scope, v: Sum, kept: list[Sym]) -> bool:
    """Σ_κ X[s + κ, s̄ + κ]: a box sum, never held for each offset."""
    body = v.body
    if not isinstance(body, Access) or body.entry in scope.cells or scope.loops:
        return False
    moved = [i for i in body.idx if isinstance(i, Win | Inv)]
    plain = [i for i in body.idx if isinstance(i, Sym)]
    outs = [*(_moving(i) for i in moved), *plain]
    if len(moved) + len(plain) != len(body.idx) or any(i.tap != v.sym for i in moved) or v.sym in plain:
        return False
    return len(set(outs)) == len(body.idx) and all(s in kept for s in outs)


def _moving(i: Win | Inv) -> Sym:
    return i.s if isinstance(i, Win) else i.t


def _box(scope: Scope, v: Sum, kept: list[Sym]) -> Operand:
    body = cast(Access, v.body)
    moves = []
    for p, i in enumerate(body.idx):
        if isinstance(i, Win | Inv):
            s = _moving(i)
            size = scope.extent(s) if i.wrap is None else scope.whole(s.size, s.copy)
            fields = (p, i.offsets, i.stride, size, i.wrap is not None, isinstance(i, Inv))
            moves.append(scope.code.make(positions.Move, None, *fields, stem=f"{s.label}_move", of="move"))
    base = scope.entry(body.entry, body.copy)
    found = [_moving(i) if isinstance(i, Win | Inv) else cast(Sym, i) for i in body.idx]
    layout = cast(Layout, scope.layout(base))._replace(axes=tuple(found))
    out = scope.code.make(do.Box, layout, base, tuple(moves))
    return align(scope, out, layout, found, kept)


def _contracted(scope: Scope, v: Sum) -> list[Value] | None:
    """The factors of Σ_t of a product that is one contraction."""
    if scope.loops or not isinstance(v.body, Mul):
        return None
    factors = [f for f in v.body.args if v.sym in symbols(f)]
    return factors if 2 <= len(factors) == len(v.body.args) else None


def _contraction(scope: Scope, v: Sum, factors: list[Value], kept: list[Sym]) -> Operand:
    axes = tuple(tuple(sorted(symbols(f), key=lambda s: (s == v.sym, s))) for f in factors)
    operands = tuple(emit(scope, f, own) for f, own in zip(factors, axes, strict=True))
    used = list(dict.fromkeys(s for own in axes for s in own))
    present = tuple(s for s in kept if s in used and s != v.sym)
    whole = scope.broadcast(*operands)
    layout = Layout(scope.leads, present, frozenset() if whole is None else whole.of)
    sizes = tuple((s, scope.extent(s)) for s in used)
    out = scope.code.make(do.Contract, layout, operands, axes, present, sizes)
    return align(scope, out, layout, list(present), kept)


# ---------------------------------------------------------------- functions


def _indicator(scope: Scope, v: Ind, order: Sequence[Sym]) -> Operand:
    kept = scope.kept(order)
    left = index(scope, v.left, kept)
    right = None if v.right is None else index(scope, v.right, kept)
    size = scope.size(v.size, v.copy)
    return scope.code.make(positions.Indicator, scope.broadcast(left, right), left, right, size)


PLAIN = sp.Add | sp.Mul | sp.Pow | sp.Number | sp.Symbol


def _function(scope: Scope, v: Fn, order: Sequence[Sym]) -> Operand:
    args = [emit(scope, a, order) for a in v.args]
    table = tuple(ir.param(i) for i in range(len(args)))
    if all(isinstance(a, SizeValue) for a in v.args) and not all(
        isinstance(x, PLAIN) for x in sp.preorder_traversal(v.expr)
    ):
        args = [scope.code.make(arrays.Number, Layout(0, (), frozenset()), a) for a in args]
    return scope.code.make(do.Apply, scope.broadcast(*args), v.expr, tuple(args), table)


def _softmax(scope: Scope, v: Soft, order: Sequence[Sym]) -> Operand:
    kept = scope.kept(order)
    if v.sym not in kept:  # value and mask do not depend on it
        whole = cast(Name, _softmax(scope, v, [*order, v.sym]))
        layout = cast(Layout, whole.layout)
        return scope.code.make(arrays.Slice, layout._replace(axes=layout.axes[:-1]), whole, (Mark.REST, 0))
    dim = kept.index(v.sym) - len(kept)
    mask = None if v.mask is None else emit(scope, v.mask, order)
    x = emit(scope, v.value, order)
    own = scope.broadcast(x, mask) or Layout(0, (None,) * len(kept), frozenset())
    axes = (*((None,) * (len(kept) - len(own.axes))), *own.axes)
    layout = own._replace(axes=tuple(v.sym if s == v.sym else a for s, a in zip(kept, axes, strict=True)))
    return scope.code.make(do.Softmax, layout, x, dim, scope.extent(v.sym), mask)
