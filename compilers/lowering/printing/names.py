"""What the operands of a function's statements are called in its text."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import assert_never

from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.lowering.functions import Functions
from netsor.compilers.lowering.plan.operands import Array, Name, Operand, Quantity
from netsor.compilers.lowering.plan.order import Cell, Statement
from netsor.compilers.lowering.printing.rebinding import rebound

OWNER = {Copy.FIRST: "a.", Copy.SECOND: "b.", Copy.OWN: ""}


class Names:
    """Names of one function of a module: `each` (of `data`), or `pairs` (of `a` and `b`)."""

    def __init__(self, functions: Functions, pairs: bool, body: Sequence[Statement]) -> None:
        self.functions, self.pairs = functions, pairs
        self.data = "a.data" if pairs else "data"
        self._rebound = rebound(body)
        self.singles: dict[str, str] = {}
        self._found: dict[Name, str] = {}
        self._count: Counter[tuple[str, str]] = Counter()

    def name(self, n: Name) -> str:
        """An entry has its own; temporaries are numbered, those that end with a statement lend theirs to its result."""
        while n in self._rebound:
            n = self._rebound[n]
        if n not in self._found:
            self._found[n] = self._identifier(n)
        return self._found[n]

    def _identifier(self, n: Name) -> str:
        of = self.functions.identifiers.of
        if n.kind == "entry":
            return of(("entry", n.stem), n.stem)
        self._count[n.kind, n.stem] += 1
        k = self._count[n.kind, n.stem]
        return of((n.kind, n.stem, k), n.stem)

    def is_rebound(self, n: Name) -> bool:
        """Has another name taken this one over?"""
        return n in self._rebound

    def inside(self) -> Names:
        """Names of a function inside this one: they hide none of those that it reads."""
        twin = copy.copy(self)
        twin._count = self._count.copy()
        return twin

    def single(self, result: str) -> str:
        """A scalar of each input that the program returns."""
        if result not in self.singles:
            self.singles[result] = self.functions.identifiers.of(("single", result), f"{result}_result")
        return self.singles[result]

    def function(self, cell: Cell) -> str:
        """What gives the values of a cell at integer positions."""
        return self.functions.identifiers.of(("at", cell.name.stem), f"{self.name(cell.name)}_at")

    def one(self, x: Operand | None) -> str:
        """An operand."""
        match x:
            case Name():
                return self.name(x)
            case Quantity():
                return f"{OWNER[x.copy]}{'side.' if x.as_variance else ''}{self.name(x.name)}"
            case Array():
                return f"{OWNER[x.copy]}data[{x.name!r}]"
            case int() | float() | None:
                return repr(x)
            case _:
                assert_never(x)

    def all(self, xs: Iterable[Operand | None]) -> list[str]:
        return [self.one(x) for x in xs]

    def tuple(self, xs: Sequence[Operand | None]) -> str:
        return f"({', '.join(self.all(xs))}{',' if len(xs) == 1 else ''})"


def leads(n: Name) -> int:
    """Sample dimensions."""
    return 0 if n.layout is None else n.layout.leads


def behind(n: Name) -> int:
    """Dimensions behind the samples."""
    return 0 if n.layout is None else len(n.layout.axes)
