"""Entries and arrays at indices, aligned to the symbols of a statement: by views where that is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never, cast

from netsor import ir
from netsor.compilers.derive.entries.indices import Const, Copy, Index, Inv, Sym, Win, copy_over, index_symbols
from netsor.compilers.derive.entries.values import Access, Given, Gram, Numbers, Parameter, Position
from netsor.compilers.lowering.build.code import BOTH
from netsor.compilers.lowering.build.indices import index, pick, step
from netsor.compilers.lowering.build.scope import NOTHING, Scope
from netsor.compilers.lowering.plan import arrays as do
from netsor.compilers.lowering.plan.operands import Layout, Mark, Operand, Place
from netsor.compilers.lowering.plan.order import Read

SIDED = (Copy.FIRST, Copy.SECOND, Copy.SHORTER)  # what runs over an axis of one input or of both, among pairs


def access(scope: Scope, v: Access, order: Sequence[Sym]) -> Operand:
    """An entry, of the recurrence at hand or of before."""
    if v.entry in scope.cells:
        return _in_wave(scope, v, order) if scope.wave is not None else _in_loop(scope, v, order)
    base = scope.entry(v.entry, v.copy)
    return _read(scope, base, cast(Layout, scope.layout(base)), v.entry.dims, v.idx, order, v.copy)


def given(scope: Scope, v: Given, order: Sequence[Sym]) -> Operand:
    """What is given, or an index as a number."""
    kept, plain = scope.kept(order), Layout(0, (), NOTHING)
    match v.of:
        case ir.Var():
            sizes = [Sym(0, d.size, copy_over(d.size, v.copy), d.axis.name) for d in v.of.dims]
            array = scope.array(v.of, v.copy, sizes)
            return _given(scope, v, array, array.layout, sizes, order)
        case Numbers():
            sizes = [cast(Sym, i) for i in v.idx]
            layout = plain._replace(axes=tuple(s if isinstance(s, Sym) else None for s in v.idx))
            return _given(
                scope, v, scope.code.make(do.Numbers, layout, v.of.numbers, stem=v.of.name), layout, sizes, order
            )
        case Parameter():
            return align(scope, scope.code.make(do.Parameter, plain, v.of.name, stem=v.of.name), plain, [], kept)
        case Position():
            at = index(scope, v.idx[0], kept)
            return scope.code.make(do.Number, scope.broadcast(at) or plain, at)
        case _:
            assert_never(v.of)


def _given(
    scope: Scope, v: Given, base: Operand, layout: Layout, sizes: Sequence[Sym], order: Sequence[Sym]
) -> Operand:
    if all(isinstance(i, Sym | Const) for i in v.idx):
        return _read(scope, base, layout, sizes, v.idx, order, v.copy)
    return _take(scope, base, layout, v.idx, scope.kept(order))


def gram(scope: Scope, v: Gram, order: Sequence[Sym]) -> Operand:
    rows, cols = cast("tuple[Sym, ...]", v.idx1), cast("tuple[Sym, ...]", v.idx2)
    kept = scope.kept(order)
    found = [s for s in kept if s in rows or s in cols]
    one, two = _rows(scope, v.array[0], v.copy1, rows), _rows(scope, v.array[1], v.copy2, cols)
    of = frozenset((scope.owner(v.copy1), scope.owner(v.copy2)))
    out = scope.code.make(
        do.Gram, Layout(scope.leads, tuple(found), of), one, rows, two, cols, v.array[0] is v.array[1]
    )
    return align(scope, out, out.layout, found, kept)


def _rows(scope: Scope, var: ir.Var, copy: Copy, idx: tuple[Sym, ...]) -> Operand:
    """An array of one copy, its axes at the sizes of the symbols that they run with."""
    base = scope.array(var, copy, (*idx, FEATURE))
    other = tuple(
        (k, scope.extent(i), None) for k, i in enumerate(idx, scope.leads)
        if scope.space == "pair" and not isinstance(i.size, int) and i.copy in SIDED and i.copy != copy
    )  # fmt: skip
    if not other:
        return base
    return scope.code.make(do.Fit, base.layout, base, other, stem=scope.stem(base))


FEATURE = Sym(-2, ir.SizeOf("feature"), Copy.NONE, "feature")  # the last dimension of data


# ---------------------------------------------------------------- recurrences


def _in_loop(scope: Scope, v: Access, order: Sequence[Sym]) -> Operand:
    """An entry of the loop at integers."""
    cell, places = scope.cells[v.entry], scope.looped[v.entry]
    at = tuple(step(scope, v.idx[p]) for p in places)
    rest = [(d, i) for p, (d, i) in enumerate(zip(v.entry.dims, v.idx, strict=True)) if p not in places]
    whole = cast(Layout, cell.name.layout)
    layout = Layout(whole.leads, tuple(d for d, _ in rest), whole.of)
    base = scope.code.make(Read, layout, cell, at, stem=cell.name.stem)
    if not rest:
        return align(scope, base, layout, [], scope.kept(order))
    return _read(scope, base, layout, [d for d, _ in rest], [i for _, i in rest], order, v.copy)


def _in_wave(scope: Scope, v: Access, order: Sequence[Sym]) -> Operand:
    """This step's own values, or those of earlier ones."""
    cell, places, wave = scope.cells[v.entry], scope.looped[v.entry], cast(Sym, scope.wave)
    moved = [v.idx[p] for p in places]
    rest = [cast(Sym, i) for p, i in enumerate(v.idx) if p not in places]
    layout = Layout(scope.leads, (wave, *rest), BOTH)
    if all(isinstance(i, Sym) for i in moved):
        base = scope.current[v.entry]
        own = scope.layout(base)
        layout = own if own is not None and len(own.axes) == len(layout.axes) else layout
    else:
        base = scope.code.make(Read, layout, cell, tuple(step(scope, i) for i in moved), stem=cell.name.stem)
    return align(scope, base, layout, [wave, *rest], scope.kept(order))


# ---------------------------------------------------------------- views and gathers


def _read(
    scope: Scope, base: Operand, layout: Layout, dims: Sequence[Sym], idx: Sequence[Index], order: Sequence[Sym],
    copy: Copy,
) -> Operand:  # fmt: skip
    """base[…] aligned to `order`; plain symbols by views, everything else by gathering."""
    kept = scope.kept(order)
    found = [s for i in idx for s in index_symbols(i) if s not in scope.loops]
    if scope.wave is not None and any(s in scope.loops for i in idx for s in index_symbols(i)):
        return _at_wave(scope, base, layout, dims, idx, kept, copy)
    if len(set(found)) != len(found) or not all(isinstance(i, Sym | Const) for i in idx):
        return _take(scope, base, layout, idx, kept)
    base, layout = _fitted(scope, base, layout, list(enumerate(zip(dims, idx, strict=True))), copy)
    picks = [pick(scope, i) for i in idx]
    if any(p is not None for p in picks):
        marks: list[Mark | Place] = [*[Mark.KEEP] * layout.leads, *(Mark.KEEP if p is None else p for p in picks)]
        layout = layout._replace(axes=tuple(s for s, p in zip(layout.axes, picks, strict=True) if p is None))
        base = scope.code.make(do.Slice, layout, base, tuple(marks), stem=scope.stem(base))
    return align(scope, base, layout, found, kept)


def _at_wave(
    scope: Scope, base: Operand, layout: Layout, dims: Sequence[Sym], idx: Sequence[Index], kept: list[Sym], copy: Copy
) -> Operand:
    """An array outside the recurrence at the positions of the wave."""
    looped = [p for p, i in enumerate(idx) if any(s in scope.loops for s in index_symbols(i))]
    rest = [(p, i) for p, i in enumerate(idx) if p not in looped]
    if any(isinstance(i, Win | Inv) for i in idx) or not all(isinstance(i, Sym) for _, i in rest):
        return _take(scope, base, layout, idx, kept)
    if rest:
        base, layout = _fitted(scope, base, layout, [(p, (dims[p], i)) for p, i in rest], copy)
    at = tuple((p, step(scope, idx[p])) for p in looped)
    wave = cast(Sym, scope.wave)
    layout = layout._replace(axes=(wave, *(layout.axes[p] for p, _ in rest)))
    base = scope.code.make(do.At, layout, base, at, stem=scope.stem(base))
    return align(scope, base, layout, [wave, *(cast(Sym, i) for _, i in rest)], kept)


def _fitted(
    scope: Scope, base: Operand, layout: Layout, read: list[tuple[int, tuple[Sym, Index]]], copy: Copy
) -> tuple[Operand, Layout]:
    """Dimensions are called by the symbols that they are read at, cut or filled with zeros to the size of these."""
    fits = tuple(
        (layout.leads + p, scope.extent(i), scope.size(d.size, _side(d, copy)))
        for p, (d, i) in read if isinstance(i, Sym) and not _owned(scope, d, i, copy)
    )  # fmt: skip
    named = {p: i for p, (_, i) in read if isinstance(i, Sym)}
    axes = tuple(s if s is None else named.get(p, s) for p, s in enumerate(layout.axes))
    layout = layout._replace(axes=axes)
    if fits:
        base = scope.code.make(do.Fit, layout, base, fits, stem=scope.stem(base))
    return base, layout


def _owned(scope: Scope, d: Sym, i: Sym, copy: Copy) -> bool:
    """Does a data-sized symbol run over the same sequence as the entry's dimension?"""
    own = _side(d, copy)
    return isinstance(i.size, int) or scope.space == "input" or own not in SIDED or i.copy == own


def _side(d: Sym, copy: Copy) -> Copy:
    """Whose size an entry's dimension has, read in the given copy."""
    return d.copy if d.copy in SIDED else copy


def align(scope: Scope, base: Operand, layout: Layout | None, found: list[Sym], kept: list[Sym]) -> Operand:
    """A view with the dimensions `found` in the order of `kept`, of one element where missing."""
    if layout is None:
        return base
    whole = dict(zip(found, layout.axes, strict=True))
    wanted = [s for s in kept if s in whole]
    leads, stem = layout.leads, scope.stem(base)
    if found != wanted:
        order = (*range(leads), *(leads + found.index(s) for s in wanted))
        layout = layout._replace(axes=tuple(s if whole[s] is not None else None for s in wanted))
        base = scope.code.make(do.Permute, layout, base, order, stem=stem)
    if len(wanted) != len(kept):
        marks = [Mark.KEEP] * leads + [Mark.KEEP if s in whole else Mark.NEW for s in kept]
        while marks and marks[-1] is Mark.KEEP and Mark.NEW in marks:
            marks.pop()
        if leads == 0 and marks:
            marks = [Mark.REST] + [Mark.KEEP if s in whole else Mark.NEW for s in kept]
        layout = layout._replace(axes=tuple(s if whole.get(s) is not None else None for s in kept))
        base = scope.code.make(do.Slice, layout, base, tuple(marks), stem=stem)
    return base


def _take(scope: Scope, base: Operand, layout: Layout, idx: Sequence[Index], kept: list[Sym]) -> Operand:
    at = tuple(index(scope, i, kept) for i in idx)
    used = {s for i in idx for s in index_symbols(i)}
    own = Layout(layout.leads, tuple(s if s in used or s == scope.wave else None for s in kept), layout.of)
    return scope.code.make(do.Take, own, base, at, stem=scope.stem(base))
