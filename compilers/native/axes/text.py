"""Nests as C: a loop for each axis, and inside a loop over the lanes of a vector for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

import torch

from netsor.compilers.native.axes.contractions import sums_text
from netsor.compilers.native.axes.fusion import Group, Item, grouped, in_row
from netsor.compilers.native.axes.index import Index
from netsor.compilers.native.axes.memory import places
from netsor.compilers.native.axes.nests import Buffer, Cursor, Leaf, Nest, Repeat, Sums
from netsor.compilers.native.axes.shell import HEAD, MAIN
from netsor.compilers.native.axes.walk.statements import Walk
from netsor.compilers.native.body import Argument, Instruction, Ref, Side
from netsor.compilers.native.columns import Column
from netsor.compilers.native.text import TYPES, operation

Slots = dict[tuple[int, Column, int], int]  # copy, column, elements → which array of the side


class Text:
    """The source of the tiles of two inputs and of one input twice; `one` and `two` are the columns that they read."""

    def __init__(self, two: Walk, own: Walk | None, dtype: torch.dtype) -> None:
        self.dtype, self.lanes = dtype, 64 // dtype.itemsize
        self.slots: Slots = {}
        self.tables: dict[tuple[float, ...], str] = {}
        tiles = [_Tile(self, name, walk) for name, walk in (("two", two), ("own", own)) if walk is not None]
        texts = [tile.text() for tile in tiles]
        self.work = max(tile.total for tile in tiles)
        self.source = "\n".join([self._head(two), *texts, "" if own else NO_OWN, MAIN])
        self.columns = {copy: [(c, n) for side, c, n in self.slots if side == copy] for copy in (1, 2)}

    def slot(self, side: Side) -> int:
        key = side.copy, side.column, side.size
        if key not in self.slots:
            self.slots[key] = sum(copy == side.copy for copy, _, _ in self.slots)
        return self.slots[key]

    def _head(self, walk: Walk) -> str:
        suffix = "f" if self.dtype == torch.float32 else ""
        constants = {"L": f"{self.lanes}L", "RESULTS": len(walk.results), "WORK": f"{self.work * self.lanes}L"}
        sizes = ", ".join(str(b.size) for b in walk.results.values())
        tables = [f"static const T {name}[] = {{{', '.join(x.hex() for x in values)}}};"
                  for values, name in self.tables.items()]  # fmt: skip
        return "\n".join([
            f"typedef {TYPES[self.dtype]} T;", f"#define SQRT __builtin_sqrt{suffix}",
            f"#define ABS __builtin_fabs{suffix}",
            *(f"#define {k} {v}" for k, v in constants.items()), HEAD,
            f"static const long SIZES[] = {{{sizes}}};", *tables,
        ])  # fmt: skip


NO_OWN = """\
static void own(const Block *b, long i, long j, T *restrict w, T *near, const T *me, T **out)
{
  two(b, i, j, w, near, me, out);
}
"""


class _Tile:
    def __init__(self, text: Text, name: str, walk: Walk) -> None:
        self.of, self.name, self.walk = text, name, walk
        self.items = grouped(walk.scope, walk.results.values())
        self.local: frozenset[Buffer] = frozenset()
        self.where, self.total = places(self.items, walk.results.values())
        text.tables |= walk.tables

    def text(self) -> str:
        before = set(self.of.slots)
        body = [line for item in self.items for line in self._item(item, "  ")]
        del before
        arrays = []
        for (copy, _, size), k in self.of.slots.items():
            if copy == 1:
                arrays.append(f"  const T *restrict a{k} = b->one[{k}] + i * {size};")
            else:
                arrays.append(f"  const T *restrict b{k} = b->two[{k}] + j * {size};")
        out = [f"  out[{k}] = {self.address(b)};" for k, b in enumerate(self.walk.results.values())]
        return "\n".join([
            f"static void {self.name}(const Block *b, long i, long j, T *restrict w, T *near, const T *me, T **out)",
            "{", *arrays, *body, *out, "}", "",
        ])  # fmt: skip

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
            yield from self._nest(group.nests[0], group.nests[0].domain, indent)
            return
        yield from loops(group.nests[0].domain[:1], indent)
        yield f"{indent}{{"
        for nest in group.nests:
            yield from self._nest(nest, (1, *nest.domain[1:]), indent + "  ")
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
        used = {a.number for w in nest.writes if isinstance(a := w.arg, Ref)}
        last = max((stages[k] for k in made), default=0)
        later = {x.number for k in made for x in code[k].args if isinstance(x, Ref) and stages[x.number] < stages[k]}
        later |= {k for k in used if stages[k] < last}
        sizes = dict.fromkeys(x.number for x in nest.body.sizes if x.number in made)
        blocks = []
        for stage in range(last + 1):
            lines = [f"T t{k} = c{k}[l];" for k in sorted(later) if stages[k] < stage]
            for k in (k for k in made if stages[k] == stage):
                lines.append(f"T t{k} = {reader.operation(code[k])};")
                lines += [f"c{k}[l] = t{k};"] if k in later else []
            near = [k for k in sizes if stages[k] == stage]
            if near:
                lines += ["T m = near[l];", *(f"m = t{k} > m ? t{k} : m;" for k in near), "near[l] = m;"]
            if stage == last:
                lines += [f"q{n}[l] = {reader.argument(w.arg)};" for n, w in enumerate(nest.writes)]
            blocks += ["IVDEP", "for (long l = 0; l < L; ++l) {", *(f"  {line}" for line in lines), "}"]
        yield from reader.declared
        yield from (f"T c{k}[L];" for k in sorted(later))
        yield from (f"T *restrict q{n} = {self.address(w.buffer, w.at)};" for n, w in enumerate(nest.writes))
        yield from blocks


def loops(domain: Sequence[int], indent: str, steps: Sequence[int] = (), name: str = "d") -> Iterator[str]:
    for k, size in enumerate(domain):
        if size > 1:
            step = steps[k] if steps else 1
            yield f"{indent}for (long {name}{k} = 0; {name}{k} < {size}; {name}{k} += {step})"


class Reader:
    """What the instructions of a body are called; `declared` are the pointers and numbers that they read."""

    def __init__(self, tile: _Tile, cursor: Cursor, vectors: bool = False) -> None:
        self.tile, self.cursor, self.vectors = tile, cursor, vectors
        self.declared: list[str] = []
        self.leaves = {which: leaf for leaf, which in cursor.leaves.items()}
        self._loaded: dict[int, str] = {}
        self._sides: dict[Side, str] = {}

    def _vector(self, name: str) -> str:
        return f"*(const V *){name}" if self.vectors else f"{name}[l]"

    def _leaf(self, which: int) -> str:
        if which not in self._loaded:
            leaf, name = self.leaves[which], f"p{which}"
            self._loaded[which] = self._declare(leaf, name)
        return self._loaded[which]

    def _declare(self, leaf: Leaf, name: str) -> str:
        if leaf.buffer is None and (leaf.side is None or leaf.side.copy == 1):
            text = leaf.text if leaf.side is None else self._element(leaf.side)
            whole = text if leaf.when is True else f"({leaf.when}) ? {text} : 0"
            self.declared.append(f"const T {name} = {whole};")
            return name
        text = self._address(leaf)
        whole = text if leaf.when is True else f"({leaf.when}) ? {text} : zero"
        self.declared.append(f"const T *restrict {name} = {whole};")
        return self._vector(name)

    def _address(self, leaf: Leaf) -> str:
        if leaf.side is not None:
            return self._element(leaf.side)
        assert leaf.buffer is not None
        return self.tile.address(leaf.buffer, leaf.at)

    def _element(self, side: Side) -> str:
        slot, at = self.tile.of.slot(side), side.at
        assert isinstance(at, Index)
        return f"a{slot}[{at.text}]" if side.copy == 1 else f"b{slot} + {at.text} * L"

    def argument(self, arg: Argument) -> str:
        match arg:
            case Ref():
                return f"t{arg.number}"
            case Side():
                return self._side(arg)
            case float() | int():
                return f"(T){float(arg).hex()}"
            case _:
                assert_never(arg)

    def _side(self, side: Side) -> str:
        if side not in self._sides:
            name = f"x{len(self._sides)}"
            kind = "T" if side.copy == 1 else "T *restrict"
            self.declared.append(f"const {kind} {name} = {self._element(side)};")
            self._sides[side] = name if side.copy == 1 else self._vector(name)
        return self._sides[side]

    def operation(self, made: Instruction) -> str:
        if made.op == "load":
            return self._leaf(made.which)
        if made.op == "lanes":
            return "me[l]"
        return operation(made.op, [self.argument(a) for a in made.args])
