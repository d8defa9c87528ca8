"""What the instructions of a body read, and what they are called in C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, assert_never

from netsor.compilers.native.axes.index import Index
from netsor.compilers.native.axes.nests import Buffer, Cursor, Leaf
from netsor.compilers.native.body import Argument, Instruction, Ref, Side
from netsor.compilers.native.printing.text import operation

PLAIN = 3  # the copy that is the second input where all lanes are one pair
LETTERS = {1: "a", 2: "b", PLAIN: "e"}  # of the arrays of an input


class Tile(Protocol):
    """Where a tile has its buffers and what it reads of single inputs."""

    @property
    def has_offsets(self) -> bool: ...

    def address(self, buffer: Buffer, at: Index | None = None) -> str: ...

    def slot(self, side: Side, copy: int) -> int: ...

    def is_vector(self, copy: int) -> bool: ...

    def coefficients(self, which: int, copy: int, size: int) -> str: ...


def loops(domain: Sequence[int], indent: str, steps: Sequence[int] = (), name: str = "d") -> Iterator[str]:
    for k, size in enumerate(domain):
        if size > 1:
            step = steps[k] if steps else 1
            yield f"{indent}for (long {name}{k} = 0; {name}{k} < {size}; {name}{k} += {step})"


class Reader:
    """What the instructions of a body are called; `declared` are the pointers and numbers that they read."""

    def __init__(self, tile: Tile, cursor: Cursor, vectors: bool = False) -> None:
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
        if leaf.vector:
            self.declared.append(f"const T *restrict {name} = {leaf.vector};")
            return self._vector(name)
        if leaf.buffer is None and (leaf.side is None or not self._is_vector(leaf.side)):
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
        copy, at = self._copy(side), side.at
        slot = self.tile.slot(side, copy)
        assert isinstance(at, Index)
        name, torus = f"{LETTERS[copy]}{slot}", self.cursor.torus
        if not self._is_vector(side):
            return f"{name}[{at.text}]"
        return f"{name} + {at.text} * L" if torus is None else f"{name} + {torus.second(at, side.size)}"

    def series(self, k: int, made: Instruction) -> str:
        """The call that puts the sum of a series into `c{k}`."""
        r, one, two = made.args
        assert isinstance(r, Ref) and isinstance(one, Side) and isinstance(two, Side)
        which, copy, torus = made.which, self._copy(two), self.cursor.torus
        assert isinstance(one.at, Index) and isinstance(two.at, Index)
        count = f"b->series[{which}].count"
        first, second = (self.tile.coefficients(which, c, side.size) for c, side in ((1, one), (copy, two)))
        left, right = f"{first} + {one.at.text} * {count}", f"{second} + {two.at.text} * {count}"
        if copy == PLAIN:
            return f"mehler_one(b->series + {which}, {left}, {right}, 1, c{r.number}, c{k});"
        right, step = (f"{right} * L", "L") if torus is None else (
            f"{second} + {torus.second(two.at, two.size, count)}", str(torus.row)
        )  # fmt: skip
        return f"mehler(b->series + {which}, {left}, {right}, {step}, c{r.number}, c{k});"

    def _copy(self, side: Side) -> int:
        return PLAIN if side.copy == 2 and self.tile.has_offsets and self.cursor.torus is None else side.copy

    def _is_vector(self, side: Side) -> bool:
        return self.tile.is_vector(self._copy(side))

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
            is_number = not self._is_vector(side)
            kind = "T" if is_number else "T *restrict"
            self.declared.append(f"const {kind} {name} = {self._element(side)};")
            self._sides[side] = name if is_number else self._vector(name)
        return self._sides[side]

    def operation(self, made: Instruction) -> str:
        if made.op == "load":
            return self._leaf(made.which)
        if made.op == "lanes":
            return "me[l]"
        if made.op == "beyond":
            r, one, two = map(self.argument, made.args)
            return f"ABS({r}) * {one} * {two} > 1 ? 2 : 0"
        return operation(made.op, [self.argument(a) for a in made.args])
