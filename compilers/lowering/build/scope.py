"""Where statements are made: in which function, inside which recurrence, with which names of entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from netsor import ir
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.entries.values import Entry, Value
from netsor.compilers.lowering.build.code import Code
from netsor.compilers.lowering.plan.operands import Array, Extent, Layout, Name, Operand, Quantity
from netsor.compilers.lowering.plan.order import Cell
from netsor.compilers.lowering.plan.positions import SameSize, Size, Strided
from netsor.sizes import fold

SIDES = {Copy.FIRST: "_a", Copy.SECOND: "_b", Copy.SHORTER: "", Copy.NONE: "_a", Copy.OWN: ""}
NOTHING: frozenset[Copy] = frozenset()


@dataclass(frozen=True)
class Scope:
    """`names` of the entries made so far; in a recurrence `loops` are positions, integers or, of a wave, vectors."""

    space: Literal["input", "pair"]
    code: Code
    names: dict[Entry, Name]
    loops: Mapping[Sym, Name] = field(default_factory=dict)
    cells: Mapping[Entry, Cell] = field(default_factory=dict)  # the entries of the recurrence
    looped: Mapping[Entry, tuple[int, ...]] = field(default_factory=dict)  # entry -> positions of its loop dimensions
    wave: Sym | None = None
    current: Mapping[Entry, Operand] = field(default_factory=dict)  # the values of this step of the wave
    sided: bool = False  # quantities of inputs are read as variances
    sloped: frozenset[Value] = frozenset()  # expectations after which those of the derivatives are asked for

    @property
    def leads(self) -> int:
        return 2 if self.space == "pair" else 1

    def inside(self, **changes: Any) -> Scope:
        return replace(self, **changes)

    def kept(self, order: Sequence[Sym]) -> list[Sym]:
        """The symbols that have a dimension here."""
        open_dims = [s for s in order if s not in self.loops and s != self.wave]
        return open_dims if self.wave is None else [self.wave, *open_dims]

    # ------------------------------------------------------------ operands

    def owner(self, copy: Copy) -> Copy:
        """The input that a copy means."""
        if self.space == "input":
            return Copy.OWN
        return copy if copy in (Copy.SECOND, Copy.SHORTER) else Copy.FIRST

    def entry(self, e: Entry, copy: Copy) -> Name | Quantity:
        """An entry as a statement reads it, of the input that the copy means."""
        name = self.names[e]
        if self.space == "input" or e.space == "pair":
            return name
        return Quantity(name, self.owner(copy), self.sided and e.space == "input")

    def array(self, var: ir.Var, copy: Copy, axes: Sequence[Sym]) -> Array:
        """An array of the inputs, its dimensions called by symbols."""
        whose = self.owner(copy)
        return Array(var.name, whose, Layout(self.leads, tuple(axes), frozenset((whose,))))

    def layout(self, x: Operand) -> Layout | None:
        """The layout of an operand, None for a number."""
        if isinstance(x, Quantity):
            own = x.name.layout
            copies = frozenset((x.copy,)) if own is not None and own.leads else NOTHING
            if own is None:
                return None
            axes = (s._replace(copy=x.copy) if s is not None and s.copy is Copy.OWN else s for s in own.axes)
            return Layout(2 * own.leads, tuple(axes), copies)
        return x.layout if isinstance(x, Name | Array) else None

    def broadcast(self, *operands: Operand | None) -> Layout | None:
        """The layout of arithmetic: dimensions aligned from the right."""
        found = [own for x in operands if x is not None and (own := self.layout(x)) is not None]
        if not found:
            return None
        rank = max(len(x.axes) for x in found)
        padded = [(None,) * (rank - len(x.axes)) + x.axes for x in found]
        axes = tuple(next((s for s in column if s is not None), None) for column in zip(*padded, strict=True))
        return Layout(max(x.leads for x in found), axes, frozenset().union(*(x.of for x in found)))

    def stem(self, x: Operand) -> str:
        """What a view of an operand is called after."""
        match x:
            case Name():
                return x.stem
            case Quantity() | Array():
                own = x.name.stem if isinstance(x, Quantity) else x.name
                return own + SIDES[x.copy]
            case _:
                return self.code.stem

    # ------------------------------------------------------------ sizes

    def size(self, size: ir.Size, copy: Copy) -> Extent:
        whose = self.owner(copy)
        suffix = SIDES[whose]

        def axis(name: str) -> Extent:
            return self.code.measure(Size, name, whose, stem=f"{name}_size{suffix}")

        def strided(inner: Extent, minus: int, stride: int) -> Extent:
            stem = inner.stem if isinstance(inner, Name) else "size"
            return self.code.measure(Strided, inner, minus, stride, stem=stem)

        return fold(size, int, axis, strided)

    def extent(self, s: Sym) -> Extent:
        """The size of a symbol."""
        return self.size(s.size, s.copy)

    def whole(self, size: ir.Size, copy: Copy) -> Extent:
        """The size of an axis whose positions wrap, which is that of both inputs when both are indexed at once."""
        if self.owner(copy) is not Copy.SHORTER:
            return self.size(size, copy)
        one, two = self.size(size, Copy.FIRST), self.size(size, Copy.SECOND)
        if isinstance(one, int):
            return one
        return self.code.make(SameSize, None, one, two, stem=one.stem.removesuffix("_a"), of="size")
