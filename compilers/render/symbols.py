"""Names of index symbols inside one equation, and the order of the equations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import cast

from netsor.compilers.derive.entries.indices import Copy, Index, Inv, Sym, Win, index_symbols
from netsor.compilers.derive.entries.traversal import indices, own_symbols, walk
from netsor.compilers.derive.entries.values import Entry, Value
from netsor.compilers.derive.recursion import entries_in
from netsor.run.order import components

PRIME = "′"


class Names:
    """A name for every symbol of an equation: its axis, with a prime for the second copy."""

    def __init__(self, dims: Sequence[Sym], value: Value) -> None:
        self.table: dict[Sym, str] = {}
        for s in (*dims, *found(value)):
            if s not in self.table:
                self.table[s] = self._free(s)

    def _free(self, s: Sym) -> str:
        base, taken = s.label.rstrip(PRIME) or "i", self.table.values()
        second = s.copy is Copy.SECOND or s.label.endswith(PRIME)
        tried = itertools.chain(
            [] if second else [base], [base + PRIME], (f"{base}{PRIME}{k}" for k in itertools.count(2))
        )
        return next(name for name in tried if name not in taken)

    def __getitem__(self, s: Sym) -> str:
        return self.table[s]


def found(value: Value) -> list[Sym]:
    """The symbols of a value, bound ones included, in order of appearance."""
    out: dict[Sym, None] = {}
    for v in walk(value):
        for group in own_symbols(v):
            out.update(dict.fromkeys(group))
        for i in indices(v):
            out.update(dict.fromkeys(index_symbols(i)))
    return list(out)


def taps(value: Value) -> dict[Sym, list[tuple[int, ...]]]:
    """The offsets that each tap of a window in a value runs over, one tuple per position."""
    columns: dict[Sym, dict[str, tuple[int, ...]]] = {}
    for v in walk(value):
        for i in indices(v):
            if isinstance(i, Win | Inv):
                columns.setdefault(i.tap, {}).setdefault(_axis(i), i.offsets)
    return {tap: list(zip(*rows.values(), strict=True)) for tap, rows in columns.items()}


def _axis(i: Index) -> str:
    s = i.s if isinstance(i, Win) else cast(Inv, i).t
    return s.label.rstrip(PRIME)


Block = list[Entry]


def blocks(entries: Iterable[Entry]) -> list[tuple[Block, bool]]:
    """Strongly connected components, everything read before its reader; True for recurrences."""
    entries = list(entries)
    place = {e: i for i, e in enumerate(entries)}
    order = components([{place[x] for x in entries_in(e.value) if x in place} for e in entries])
    found_blocks = [[entries[i] for i in group] for group in order]
    return [(b, len(b) > 1 or b[0] in entries_in(b[0].value)) for b in found_blocks]
