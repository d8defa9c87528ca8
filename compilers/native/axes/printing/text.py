"""Nests as C: a loop for each axis, and inside a loop over the lanes of a vector for each stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import torch

from netsor.compilers.native.axes.fusion import Group, Item, grouped, in_row
from netsor.compilers.native.axes.index import Index
from netsor.compilers.native.axes.memory import places
from netsor.compilers.native.axes.nests import Buffer, Nest, Repeat, Sums
from netsor.compilers.native.axes.printing.contractions import sums_text
from netsor.compilers.native.axes.printing.reader import PLAIN, Reader, loops
from netsor.compilers.native.axes.printing.shell import HEAD, MAIN, TORUS
from netsor.compilers.native.axes.series import Coefficients, series_text
from netsor.compilers.native.axes.torus import Torus
from netsor.compilers.native.axes.walk.statements import Walk
from netsor.compilers.native.body import Ref, Side
from netsor.compilers.native.columns import Column
from netsor.compilers.native.printing.text import TYPES

Slots = dict[tuple[int, Column | Coefficients, int], int]  # copy, column, elements → which array of the side


class Text:
    """The source of the tiles of two inputs and of one input twice; `one` and `two` are the columns that they read."""

    def __init__(self, two: Walk, own: Walk, dtype: torch.dtype) -> None:
        self.dtype, self.lanes = dtype, 64 // dtype.itemsize
        self.slots: Slots = {}
        self.tables: dict[str, tuple[float, ...]] = {}
        self.torus = two.scope.torus
        self.kinds: dict[tuple[bool, ...], str] = {}
        tiles = [_Tile(self, name, walk) for name, walk in (("two", two), ("own", own))]
        texts = [tile.text() for tile in tiles]
        self.work = max(tile.total for tile in tiles)
        self.source = "\n".join(
            [self._head(two), *series_text(self.kinds), *texts, MAIN if self.torus is None else TORUS]
        )
        self.columns = {copy: [(c, n) for side, c, n in self.slots if side == copy] for copy in (1, 2, PLAIN)}

    def slot(self, side: Side, copy: int) -> int:
        key = copy, side.column, side.size
        if key not in self.slots:
            self.slots[key] = sum(own == copy for own, _, _ in self.slots)
        return self.slots[key]

    def _head(self, walk: Walk) -> str:
        suffix = "f" if self.dtype == torch.float32 else ""
        constants = {"L": f"{self.lanes}L", "RESULTS": len(walk.results), "WORK": f"{self.work * self.lanes}L"}
        if self.torus is not None:
            constants |= {"SUMS": walk.offsets.count, "LAST": f"{self.torus.sizes[-1]}L", **_offsets(self.torus)}
        sizes = ", ".join(str(b.size) for b in walk.results.values())
        tables = [f"static const T {name}[] = {{{', '.join(x.hex() for x in values)}}};"
                  for name, values in self.tables.items()]  # fmt: skip
        return "\n".join([
            f"typedef {TYPES[self.dtype]} T;", f"#define SQRT __builtin_sqrt{suffix}",
            f"#define ABS __builtin_fabs{suffix}",
            *(f"#define {k} {v}" for k, v in constants.items()), HEAD,
            f"static const long SIZES[] = {{{sizes}}};", *tables,
        ])  # fmt: skip


def _offsets(torus: Torus) -> dict[str, str]:
    """The loops over the offsets, their variables, and whether all are zero."""
    leads = [f"o{k}" for k in range(len(torus.sizes) - 1)]
    loops = [f"for (long {o} = 0; {o} < {n}; ++{o})" for o, n in zip(leads, torus.sizes, strict=False)]
    every = [*leads, "first"]
    return {
        "OFFSETS": " ".join([*loops, "for (long first = 0; first < LAST; first += L)"]),
        "HERE": ", ".join(every),
        "AT_HOME": "(" + " && ".join(f"{o} == 0" for o in every) + ")",
    }


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
        tail = "T *restrict w, T *near, const T *me, T **out"
        torus = self.of.torus
        if torus is None:
            return self._function(self.name, tail, [*body, *out])
        offsets = ", ".join(f"long {o}" for o in (*(f"o{k}" for k in range(len(torus.sizes) - 1)), "first"))
        tile = self._function(self.name, f"{offsets}, T *restrict w, T *near, const T *me, T (*acc)[L]", body)
        return tile + self._function(f"{self.name}_last", f"const T *sum, {tail}", [*last, *out])

    @property
    def has_offsets(self) -> bool:
        return self.of.torus is not None

    def slot(self, side: Side, copy: int) -> int:
        return self.of.slot(side, copy)

    def series(self, vectors: tuple[bool, ...]) -> str:
        return self.of.kinds.setdefault(vectors, f"mehler{len(self.of.kinds)}")

    def _function(self, name: str, arguments: str, body: list[str]) -> str:
        head = f"static void {name}(const Block *b, long i, long j, {arguments})"
        return "\n".join([head, "{", *map(self._pointer, self.of.slots.items()), *body, "}", "", ""])

    def _pointer(self, slot: tuple[tuple[int, Column | Coefficients, int], int]) -> str:
        """What one input has in a slot."""
        (copy, column, size), k = slot
        torus = self.of.torus
        stored = size if torus is None or copy != 2 else size // torus.sizes[-1] * torus.row
        of = f"{stored} * b->series[{column.which}].count" if isinstance(column, Coefficients) else str(stored)
        name, side, first = {1: ("a", "one", "i"), 2: ("b", "two", "j"), PLAIN: ("e", "plain", "j")}[copy]
        return f"  const T *restrict {name}{k} = b->{side}[{k}] + {first} * {of};"

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
        sizes = dict.fromkeys(x.number for x in nest.body.sizes if x.number in made)
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
            near = [k for k in sizes if stages[k] == stage]
            if near:
                lines += ["T m = near[l];", *(f"m = t{k} > m ? t{k} : m;" for k in near), "near[l] = m;"]
            if stage == last:
                lines += [f"q{n}[l] = {reader.argument(w.arg)};" for n, w in enumerate(nest.writes)]
                lines += [f"acc[{k}][l] += {reader.argument(arg)};" for k, arg in nest.sums]
            blocks += [*calls, "IVDEP", "for (long l = 0; l < L; ++l) {", *(f"  {line}" for line in lines), "}"]
        yield from reader.declared
        yield from (f"T c{k}[L];" for k in sorted(later))
        yield from (f"T *restrict q{n} = {self.address(w.buffer, w.at)};" for n, w in enumerate(nest.writes))
        yield from blocks
