"""Entries that are only an index form of another, or a step on the way to one reader, put into their readers.

What remains is an entry for each line of the program and for what several readers share. Sums over the taps of a
window then read the window's source, and sums of products are contractions. An entry is zero where an index leaves its
axis: one whose value does not vanish there by itself is not put into a reader whose index may leave it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from netsor import ir
from netsor.compilers.derive.entries.arithmetic import factors, rebuilt, rewrite, summands
from netsor.compilers.derive.entries.indices import ComposedIndexError, Const, Copy, Index, Renaming, Sym
from netsor.compilers.derive.entries.traversal import indices, walk
from netsor.compilers.derive.entries.values import (
    Access,
    Add,
    Entry,
    FeatureDim,
    Fn,
    Given,
    Ind,
    Mul,
    Num,
    Position,
    SizeValue,
    Sum,
    Value,
)
from netsor.compilers.derive.references import Ref


class Holder(Protocol):
    """An entry or a result."""

    value: Value


PLAIN = Num | Access | Given | SizeValue | FeatureDim | Add | Mul | Ind | Fn


def inline(
    entries: Sequence[Entry], results: Sequence[Holder], lines: frozenset[str], fresh: Callable[[], int]
) -> None:
    """Inline in place; `results` have a `value`, `lines` are the names of the program's variables.

    `fresh` numbers new symbols, for the sums that are put into a reader.
    """
    holders: list[Holder] = [*entries, *results]
    uses = Counter(a.entry for holder in holders for a in walk(holder.value) if isinstance(a, Access))
    done: set[int] = set()

    def put_in(holder: Holder) -> None:
        if id(holder) not in done:
            done.add(id(holder))
            holder.value = _replaced(holder.value, lambda a: _inlined(a, uses, lines, put_in, fresh))

    for holder in holders:
        put_in(holder)


def _inlined(
    a: Access, uses: Counter[Entry], lines: frozenset[str], put_in: Callable[[Entry], None], fresh: Callable[[], int]
) -> Value:
    e = a.entry
    if not _wanted(e, uses, lines):
        return a
    put_in(e)
    value = e.value
    if not _wanted(e, uses, lines) or any(isinstance(v, Access) and v.entry is e for v in walk(value)):
        return a
    if not all(_stays_inside(d, i, a.copy) or _vanishes(value, d) for d, i in zip(e.dims, a.idx, strict=True)):
        return a
    copies = {Copy.OWN: a.copy} if e.space == "input" else {}
    sums = [v.sym for v in walk(value) if isinstance(v, Sum)]
    if sums and not all(isinstance(i, Sym) for i in a.idx):
        return a
    table: dict[Sym, Index] = dict(zip(e.dims, a.idx, strict=True))
    table |= {s: s._replace(number=fresh(), copy=copies.get(s.copy, s.copy)) for s in sums}
    try:
        return rewrite(value, Renaming(table, copies))
    except ComposedIndexError:
        return a


def _stays_inside(d: Sym, i: Index, copy: Copy) -> bool:
    """Is an index never outside the entry's axis d, where the entry is zero?"""
    return isinstance(i, Const) or (isinstance(i, Sym) and _same_axis(i, d, copy))


def _same_axis(s: Sym, d: Sym, copy: Copy) -> bool:
    """Do a symbol and an entry's dimension, read in the given copy, run over the same elements?"""
    return s.size == d.size and (isinstance(s.size, int) or s.copy == (copy if d.copy is Copy.OWN else d.copy))


def _vanishes(v: Value, d: Sym) -> bool:
    """Is a value known to be zero wherever its symbol d is outside its axis?"""
    if len(summands(v)) > 1:
        return all(_vanishes(x, d) for x in summands(v))
    return any(_is_zero_outside(x, d) for x in factors(v))


def _is_zero_outside(v: Value, d: Sym) -> bool:
    return (
        (isinstance(v, Access) and any(
            i == d and _same_axis(d, own, v.copy) for own, i in zip(v.entry.dims, v.idx, strict=True)))
        or (isinstance(v, Given) and d in v.idx and not isinstance(v.of, Position))
        or (isinstance(v, Ind) and v.left == d and v.size == d.size and (isinstance(d.size, int) or v.copy == d.copy))
    )  # fmt: skip


def _wanted(e: Entry, uses: Counter[Entry], lines: frozenset[str]) -> bool:
    if isinstance(e.value, Access) or _is_multiple(e.value):
        return True
    value = e.value
    if uses[e] != 1 or _is_line(e, lines):
        return False
    contracted = isinstance(value, Mul) and not e.recurrent
    return all(isinstance(v, PLAIN) or (contracted and _contracts(v)) for v in walk(value))


def _is_multiple(v: Value) -> bool:
    """A number times another entry."""
    return isinstance(v, Mul) and len(v.args) == 2 and isinstance(v.args[0], Num) and isinstance(v.args[1], Access)


def _contracts(v: Value) -> bool:
    """A sum of products of entries at plain indices: a factor of a contraction."""
    if not isinstance(v, Sum) or not isinstance(v.body, Mul):
        return False
    return all(_is_factor(f) and all(isinstance(i, Sym) for i in indices(f)) for f in v.body.args)


def _is_factor(v: Value) -> bool:
    return isinstance(v, Access | Num) or (isinstance(v, Given) and isinstance(v.of, ir.Var))


def _is_line(e: Entry, lines: frozenset[str]) -> bool:
    """Is the entry the kernel of one line of the program?"""
    nodes = {r.node for r in e.refs if isinstance(r, Ref)}
    return len(nodes) == 1 and nodes.pop().label in lines


def _replaced(v: Value, of: Callable[[Access], Value]) -> Value:
    """A value with every Access replaced, sums distributed again."""
    return of(v) if isinstance(v, Access) else rebuilt(v, lambda x: _replaced(x, of))
