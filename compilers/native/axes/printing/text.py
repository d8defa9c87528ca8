"""Nests as C: a loop for each axis, and inside a loop over the lanes of a vector for each stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import assert_never

import torch

from netsor.compilers.native.axes.fusion import Group, Item, grouped, in_row
from netsor.compilers.native.axes.index import Index
from netsor.compilers.native.axes.memory import places
from netsor.compilers.native.axes.nests import Buffer, Nest, Repeat, Sums
from netsor.compilers.native.axes.printing import shell
from netsor.compilers.native.axes.printing.contractions import sums_text
from netsor.compilers.native.axes.printing.reader import LETTERS, PLAIN, Reader, loops
from netsor.compilers.native.axes.series import SERIES
from netsor.compilers.native.axes.torus import Torus
from netsor.compilers.native.axes.walk.statements import Walk
from netsor.compilers.native.body import Ref, Side
from netsor.compilers.native.columns import Column
from netsor.compilers.native.expectations import Missing
from netsor.compilers.native.printing.text import TYPES

Slots = dict[tuple[int, Column, int], int]  # copy, column, elements → which array of the side


class Text:
    """The source of the tiles of two inputs and of one input twice; `columns` are those that they read of each side.

    The lanes of a vector hold pairs of one first input, or, `paired`, pairs of any; with offsets those of one pair.
    `paired` are pairs in float64 for the digits of float32.
    """

    def __init__(self, two: Walk, own: Walk, dtype: torch.dtype, paired: bool = False) -> None:
        self.dtype, self.lanes = dtype, 64 // dtype.itemsize
        self.slots: Slots = {}
        self.tables: dict[str, tuple[float, ...]] = {}
        self.torus = two.scope.torus
        self.paired = paired
        self.coefficients: dict[tuple[int, int], int] = {}  # of a series and a side, the elements
        tiles = [_Tile(self, name, walk) for name, walk in (("two", two), ("own", own))]
        texts = [tile.text() for tile in tiles]
        self.work = max(tile.total for tile in tiles)
        self.columns = {copy: [(c, n) for side, c, n in self.slots if side == copy] for copy in (1, 2, PLAIN)}
        shared = [shell.GATHER, shell.MAIN, shell.ENTRIES]
        if self.torus is not None:
            shared = [shell.TORUS, shell.TORUS_MAIN, shell.TORUS_ENTRIES]
        del shared[1 if paired else 2]
        self.source = "\n".join([self._head(two), shell.MEMORY, *[SERIES][: len(self.coefficients)], *texts, *shared])

    def slot(self, side: Side, copy: int) -> int:
        key = copy, side.column, side.size
        if key not in self.slots:
            self.slots[key] = sum(own == copy for own, _, _ in self.slots)
        return self.slots[key]

    def place(self, slot: int, copy: int) -> int:
        """Where a vector's side has the array of a slot: numbers before it."""
        return sum(self._stored(size) for _, _, size in list(self._of(copy))[:slot])

    def is_vector(self, copy: int) -> bool:
        """Does a side differ from lane to lane?"""
        return copy == 2 or (copy == 1 and self.paired and self.torus is None)

    def _of(self, copy: int) -> Iterator[tuple[int, Column, int]]:
        return (key for key in self.slots if key[0] == copy)

    def _stored(self, size: int) -> int:
        return size * self.lanes if self.torus is None else size // self.torus.sizes[-1] * self.torus.row

    def _head(self, walk: Walk) -> str:
        suffix = "f" if self.dtype == torch.float32 else ""
        first, second = (sum(self._stored(size) for _, _, size in self._of(copy)) for copy in (1, 2))
        read = second + first * self.is_vector(1)
        constants = {
            "L": f"{self.lanes}L", "RESULTS": len(walk.results), "WORK": f"{self.work * self.lanes}L",
            "READ": f"{read}L", "FIRSTS": f"{first}L",
        } | {name: f"{len(self.columns[copy])}L" for name, copy in (("FIRST", 1), ("SECOND", 2))}  # fmt: skip
        if self.torus is not None:
            constants |= {"SUMS": walk.offsets.count, **_offsets(self.torus)}
        sizes = [f"static const long {name}[] = {{{', '.join(map(str, found or [0]))}}};" for name, found in (
            ("SIZES", [b.size for b in walk.results.values()]),
            *((name, [size for _, size in self.columns[copy]]) for name, copy in (("ONE", 1), ("TWO", 2))),
        )]  # fmt: skip
        tables = [f"static const T {name}[] = {{{', '.join(x.hex() for x in values)}}};"
                  for name, values in self.tables.items()]  # fmt: skip
        return "\n".join([
            f"typedef {TYPES[self.dtype]} T;", f"#define SQRT __builtin_sqrt{suffix}",
            f"#define ABS __builtin_fabs{suffix}",
            *(f"#define {k} {v}" for k, v in constants.items()), shell.HEAD, *sizes, *tables,
        ])  # fmt: skip


def _offsets(torus: Torus) -> dict[str, str]:
    """The sizes of an image, the loops over the offsets, their variables, and whether all are zero."""
    leads = [f"o{k}" for k in range(len(torus.sizes) - 1)]
    loops = [f"for (long {o} = 0; {o} < {n}; ++{o})" for o, n in zip(leads, torus.sizes, strict=False)]
    every = [*leads, "first"]
    return {
        "LAST": f"{torus.sizes[-1]}L",
        "LEADS": f"{math.prod(torus.sizes[:-1])}L",
        "ROW": f"{torus.row}L",
        "OFFSETS": " ".join([*loops, "for (long first = 0; first < LAST; first += L)"]),
        "HERE": ", ".join(every),
        "AT_HOME": "(" + " && ".join(f"{o} == 0" for o in every) + ")",
    }


SECOND, OWN = "const T *x", "T *restrict w, T *near, const T *me"  # arguments of the functions of tiles


class _Tile:
    """The functions of a tile."""

    def __init__(self, text: Text, name: str, walk: Walk) -> None:
        self.of, self.name, self.walk = text, name, walk
        self.items = grouped(walk.scope, walk.results.values())
        self.last = grouped(walk.last, walk.results.values()) if walk.last is not walk.scope else []
        self.local: frozenset[Buffer] = frozenset()
        self.where, self.total = places([*self.items, *self.last], walk.results.values())
        text.tables |= {name: values for values, name in walk.tables.items()}
        for nest in walk.scope.nests.values():
            text.tables |= nest.masks

    def text(self) -> str:
        body = [line for item in self.items for line in self._item(item, "  ")]
        last = [line for item in self.last for line in self._item(item, "  ")]
        out = [f"  out[{k}] = {self.address(b)};" for k, b in enumerate(self.walk.results.values())]
        torus = self.of.torus
        if torus is None:
            return self._function(self.name, f"const T *a, {SECOND}, {OWN}, T **out", [*body, *out])
        offsets = ", ".join(f"long {o}" for o in (*(f"o{k}" for k in range(len(torus.sizes) - 1)), "first"))
        tile = self._function(self.name, f"{offsets}, {SECOND}, {OWN}, T (*acc)[L]", body)
        return tile + self._function(f"{self.name}_last", f"const T *sum, {OWN}, T **out", [*last, *out], (1, PLAIN))

    @property
    def has_offsets(self) -> bool:
        return self.of.torus is not None

    def slot(self, side: Side, copy: int) -> int:
        return self.of.slot(side, copy)

    def is_vector(self, copy: int) -> bool:
        return self.of.is_vector(copy)

    def coefficients(self, which: int, copy: int, size: int) -> str:
        """The first of the coefficients that one input, or a vector of second ones, has in a series."""
        if self.of.coefficients.setdefault((which, copy), size) != size:
            raise Missing("a series of arrays of two sizes")
        of, count = f"b->series[{which}]", f"b->series[{which}].count"
        if copy == 1:
            return f"{of}.one + i * {size} * {count}"
        if copy == PLAIN:
            return f"{of}.plain + j * {size} * {count}"
        torus = self.of.torus
        if torus is None:
            return f"{of}.two + (j + b->pad) * {size} * {count}"
        return f"{of}.two + j * {size // torus.sizes[-1] * torus.row} * {count}"

    def _function(self, name: str, arguments: str, body: list[str], sides: Sequence[int] = (1, 2, PLAIN)) -> str:
        head = f"static void {name}(const Block *b, long i, long j, {arguments})"
        pointers = [self._pointer(*slot) for slot in self.of.slots.items() if slot[0][0] in sides]
        return "\n".join([head, "{", *pointers, *body, "}", "", ""])

    def _pointer(self, key: tuple[int, Column, int], k: int) -> str:
        """What one input has in a slot."""
        copy, _, size = key
        letter = LETTERS[copy]
        if self.of.is_vector(copy):
            return f"  const T *restrict {letter}{k} = {'a' if copy == 1 else 'x'} + {self.of.place(k, copy)};"
        side, number = ("one", "i") if copy == 1 else ("plain", "j")
        return f"  const T *restrict {letter}{k} = b->{side}[{k}] + {number} * {size};"

    def address(self, buffer: Buffer, at: Index | None = None) -> str:
        """A vector of a buffer."""
        at = Index(0) if at is None else in_row(at) if buffer in self.local else at
        place = at + self.where[buffer]
        return f"w + {place.text} * L"

    # ------------------------------------------------------------ items

    def _item(self, item: Item, indent: str) -> Iterator[str]:
        match item:
            case Group():
                self.local = item.local
                yield from self._group(item, indent)
                self.local = frozenset()
            case Sums():
                yield from sums_text(self, item, indent)
            case Repeat():
                yield from self._repeat(item, indent)
            case _:
                assert_never(item)

    def _repeat(self, item: Repeat, indent: str) -> Iterator[str]:
        inside = indent
        for name, size in zip(item.variables, item.sizes, strict=True):
            start = (
                f"long {name} = {size - 1}; {name} >= 0; --{name}"
                if item.reverse
                else f"long {name} = 0; {name} < {size}; ++{name}"
            )
            yield f"{inside}for ({start}) {{"
            inside += "  "
        for inner in grouped(item.body, item.cells):
            yield from self._item(inner, inside)
        yield indent + "}" * len(item.variables)

    def _group(self, group: Group, indent: str) -> Iterator[str]:
        if len(group.nests) == 1:
            yield from self._nest(group.nests[0], group.nests[0].loops, indent)
            return
        yield from loops(group.nests[0].loops[:1], indent)
        yield f"{indent}{{"
        for nest in group.nests:
            yield from self._nest(nest, (1, *nest.loops[1:]), indent + "  ")
        yield f"{indent}}}"

    def _nest(self, nest: Nest, domain: tuple[int, ...], indent: str) -> Iterator[str]:
        made = sorted(nest.alive())
        body = list(self._element(nest, made))
        yield from loops(domain, indent)
        yield f"{indent}{{"
        yield from (f"{indent}  {line}" for line in body)
        yield f"{indent}}}"

    def _element(self, nest: Nest, made: list[int]) -> Iterator[str]:
        """What is computed at an element."""
        reader = Reader(self, nest)
        code, stages = nest.body.code, nest.body.stages
        given = [*(w.arg for w in nest.writes), *(arg for _, arg in nest.sums)]
        used = {a.number for a in given if isinstance(a, Ref)}
        last = max((stages[k] for k in made), default=0)
        later = {x.number for k in made for x in code[k].args if isinstance(x, Ref) and stages[x.number] < stages[k]}
        later |= {k for k in used if stages[k] < last} | {k for k in made if code[k].op == "series"}
        near = nest.body.steep if self.of.paired else nest.body.sizes
        sizes = dict.fromkeys(x.number for x in near if x.number in made)
        blocks = []
        for stage in range(last + 1):
            lines = [f"T t{k} = c{k}[l];" for k in sorted(later) if stages[k] < stage]
            calls = []
            for k in (k for k in made if stages[k] == stage):
                if code[k].op == "series":
                    calls.append(reader.series(k, code[k]))
                    lines.append(f"T t{k} = c{k}[l];")
                    continue
                lines.append(f"T t{k} = {reader.operation(code[k])};")
                lines += [f"c{k}[l] = t{k};"] if k in later else []
            some = [k for k in sizes if stages[k] == stage]
            if some:
                lines += ["T m = near[l];", *(f"m = t{k} > m ? t{k} : m;" for k in some), "near[l] = m;"]
            if stage == last:
                lines += [f"q{n}[l] = {reader.argument(w.arg)};" for n, w in enumerate(nest.writes)]
                lines += [f"acc[{k}][l] += {reader.argument(arg)};" for k, arg in nest.sums]
            blocks += [*calls, "IVDEP", "for (long l = 0; l < L; ++l) {", *(f"  {line}" for line in lines), "}"]
        yield from reader.declared
        yield from (f"T c{k}[L];" for k in sorted(later))
        yield from (f"T *restrict q{n} = {self.address(w.buffer, w.at)};" for n, w in enumerate(nest.writes))
        yield from blocks
