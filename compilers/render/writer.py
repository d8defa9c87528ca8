"""Values → formulas; what text and LaTeX share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import assert_never, cast

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.functions_of import Z, of_two, variable
from netsor.compilers.derive.entries.indices import Const, Copy, Index, Inv, Off, Sym, Win
from netsor.compilers.derive.entries.traversal import walk
from netsor.compilers.derive.entries.values import (
    Access,
    Add,
    Entry,
    Expect,
    FeatureDim,
    Fn,
    Given,
    Gram,
    Ind,
    Mul,
    Num,
    Numbers,
    Parameter,
    Position,
    Radial,
    SizeValue,
    Soft,
    Sum,
    Value,
)
from netsor.compilers.render.factors import merged, number_text
from netsor.compilers.render.symbols import Names
from netsor.sizes import fold


def letters(v: Value) -> tuple[str, str, str]:
    """Names of two Gaussian variables and a radius that no data or given scalar inside the value has."""
    inside = list(walk(v))
    taken = {re.sub(r"\d+$", "", x.of.name) for x in inside if isinstance(x, Given) and isinstance(x.of, ir.Var)}
    taken |= {a.name for x in inside if isinstance(x, Gram) for a in x.array[:2]}
    one, two, three, *_ = (c for c in "uvrwyzpqst" if c not in taken)
    return one, two, three


class Writer(ABC):
    """Writes the values of one equation; `pair` when it is about two inputs ξ, ξ̄."""

    def __init__(self, names: Names, pair: bool) -> None:
        self.names, self.pair = names, pair

    # ------------------------------------------------------------ values

    def write(self, v: Value) -> str:  # noqa: C901
        match v:
            case Add():
                return self._sum(v.args)
            case Mul():
                return self._product(v.args)
            case Sum():
                return self.total(self.names[v.sym], self.factor(v.body))
            case Expect():
                return self._expectation(v)
            case Fn():
                return self.function(v.expr, v.args)
            case Radial():
                return self._radial(v)
            case Soft():
                return self._softmax(v)
            case Num():
                return self.number(v.value)
            case Access():
                return self.entry(v.entry, v.copy) + self.indexed(v.idx)
            case Given():
                return self._given(v)
            case Gram():
                return self._gram(v)
            case SizeValue():
                return self.size(v.size, v.copy)
            case FeatureDim():
                return self.dimension(v.var.name)
            case Ind():
                return self._indicator(v)
            case _:
                assert_never(v)

    def _given(self, v: Given) -> str:
        match v.of:
            case ir.Var():
                return self.array(v.of.name, v.copy) + self.indexed(v.idx)
            case Numbers() | Parameter():
                return self.variable(v.of.name) + self.indexed(v.idx)
            case Position():
                return self.index(v.idx[0])
            case _:
                assert_never(v.of)

    def _softmax(self, v: Soft) -> str:
        mask = None if v.mask is None else self.write(v.mask)
        return self.softmax(self.names[v.sym], self.write(v.value), mask)

    def _sum(self, args: Sequence[Value]) -> str:
        text = ""
        for a in args:
            part = self.write(a)
            text += (f" - {part[1:]}" if part.startswith("-") else f" + {part}") if text else part
        return text

    def _product(self, args: Sequence[Value]) -> str:
        sums = [a for a in args if isinstance(a, Sum)]
        rest = merged([a for a in args if not isinstance(a, Sum)])
        if isinstance(rest[0] if rest else None, Num) and cast(Num, rest[0]).value == -1 and len(args) > 1:
            return "-" + self._product([*rest[1:], *sums])
        last = sums[-1:]
        return self.times([*(self.factor(a) for a in (*rest, *sums[:-1])), *map(self.write, last)])

    def factor(self, v: Value) -> str:
        """A value that stands inside a product."""
        text = self.write(v)
        return self.parentheses(text) if self._is_loose(v, text) else text

    def _is_loose(self, v: Value, text: str) -> bool:
        """Does a factor's text need parentheses?"""
        match v:
            case Num():
                return bool(v.value.is_Add and not v.value.is_Rational)
            case Add():
                return True
            case Sum():
                return False
            case Fn():
                return self.loose(v.expr, text) or text.startswith("-")
            case (
                Access() | Given() | Gram() | SizeValue() | FeatureDim() | Mul() | Ind() | Soft()
                | Expect() | Radial()
            ):  # fmt: skip
                return text.startswith("-")
            case _:
                assert_never(v)

    def _gram(self, v: Gram) -> str:
        left = self.array(v.array[0].name, Copy.FIRST if v.copy1 is Copy.OWN else v.copy1, barred=True) + self.indexed(
            v.idx1
        )
        right = self.array(v.array[1].name, Copy.FIRST if v.copy2 is Copy.OWN else v.copy2, barred=True) + self.indexed(
            v.idx2
        )
        return self.inner(left, right, v.array[0].name)

    def _indicator(self, v: Ind) -> str:
        if v.right is None:
            return self.inside(self.index(v.left), self.size(v.size, v.copy))
        return self.delta(self.index(v.left), self.index(v.right))

    # ------------------------------------------------------------ expectations

    def _expectation(self, v: Expect) -> str:
        one, two, _ = letters(v)
        pair, k = of_two(v), len(v.law.means)
        names = [one] if k == 1 else [one, two] if pair is not None else [f"{one}{i + 1}" for i in range(k)]
        table = {variable(i): name for i, name in enumerate(names)}
        table |= {ir.param(i): self.write(p) for i, p in enumerate(v.params)}
        parts = [(v.f, table)] if pair is None else [(f, {Z: name}) for f, name in zip(pair, names, strict=True)]
        return self.expectation(self._factors(parts), names, list(v.law.triangle), list(v.law.means))

    def _factors(self, parts: list[tuple[sp.Expr, dict[sp.Symbol, str]]]) -> str:
        texts = []
        for f, table in parts:
            renamed = f.xreplace({s: sp.Symbol(name, real=True) for s, name in table.items()})
            text = self.expression(renamed)
            texts.append(self.parentheses(text) if renamed.is_Add and len(parts) > 1 else text)
        return self.beside([t for t in texts if t != "1"] or ["1"])

    def _radial(self, v: Radial) -> str:
        """E of functions of normalised batches: r² = ‖u‖²/B + ε is the radius of a batch."""
        factors, laws = [], []
        *variables, radius = letters(v)
        for side, u, r in zip(v.sides, variables, self.radii(radius, v.within), strict=True):
            inside = sp.Symbol(u + self.brackets([self.symbol(s) for s in side.out]), real=True)
            if side.f != 1:
                factors.append(self.expression(side.f.xreplace({Z: inside})))
            factors.append(self.power(r, f"-{number_text(sp.nsimplify(2 * side.power))}"))
            laws.append(side.covariance)
        return self.radial(self.beside(factors), variables, laws, v.cross, v.theta)

    # ------------------------------------------------------------ indices

    def indexed(self, idx: Sequence[Index]) -> str:
        return self.brackets([self.index(i) for i in idx]) if idx else ""

    def index(self, i: Index) -> str:
        match i:
            case Sym():
                return self.symbol(i)
            case Const():
                return self.constant_index(i.value)
            case Win():
                stride = "" if i.stride == 1 else f"{i.stride}"
                moved = f"{stride}{self.symbol(i.s)} + {self.symbol(i.tap)}"
                return self.modulo(moved, self.size(i.wrap, i.s.copy)) if i.wrap is not None else moved
            case Inv():
                return self._inverse(i)
            case Off():
                return f"{self.symbol(i.t)} {'-' if i.by > 0 else '+'} {abs(i.by)}"
            case _:
                assert_never(i)

    def _inverse(self, i: Inv) -> str:
        moved = f"{self.symbol(i.t)} - {self.symbol(i.tap)}"
        if i.wrap is not None:
            moved = self.modulo(moved, self.size(i.wrap, i.t.copy))
        return moved if i.stride == 1 else f"({moved})/{i.stride}"

    def size(self, size: ir.Size, copy: Copy) -> str:
        return fold(size, str, lambda axis: self.axis_size(axis, copy), self._positions)

    def _positions(self, inner: str, minus: int, stride: int) -> str:
        if minus:
            inner += f" {'-' if minus > 0 else '+'} {abs(minus)}"
        return inner if stride == 1 else self.ceiling(inner, stride)

    # ------------------------------------------------------------ notation

    @abstractmethod
    def number(self, value: sp.Expr) -> str: ...
    @abstractmethod
    def expression(self, value: sp.Expr) -> str: ...
    @abstractmethod
    def function(self, expr: sp.Expr, args: Sequence[Value]) -> str: ...
    @abstractmethod
    def loose(self, function: sp.Expr, text: str) -> bool: ...
    @abstractmethod
    def entry(self, entry: Entry, copy: Copy) -> str: ...
    @abstractmethod
    def array(self, name: str, copy: Copy, barred: bool = False) -> str: ...
    @abstractmethod
    def variable(self, name: str) -> str: ...
    @abstractmethod
    def symbol(self, s: Sym) -> str: ...
    @abstractmethod
    def constant_index(self, value: int) -> str: ...
    @abstractmethod
    def axis_size(self, axis: str, copy: Copy) -> str: ...
    @abstractmethod
    def dimension(self, data: str) -> str: ...
    @abstractmethod
    def brackets(self, indices: list[str]) -> str: ...
    @abstractmethod
    def parentheses(self, text: str) -> str: ...
    @abstractmethod
    def times(self, factors: list[str]) -> str: ...
    @abstractmethod
    def beside(self, factors: list[str]) -> str: ...
    @abstractmethod
    def total(self, symbol: str, body: str) -> str: ...
    @abstractmethod
    def softmax(self, symbol: str, value: str, mask: str | None) -> str: ...
    @abstractmethod
    def inner(self, left: str, right: str, data: str) -> str: ...
    @abstractmethod
    def inside(self, index: str, size: str) -> str: ...
    @abstractmethod
    def delta(self, left: str, right: str) -> str: ...
    @abstractmethod
    def modulo(self, index: str, size: str) -> str: ...
    @abstractmethod
    def ceiling(self, text: str, stride: int) -> str: ...
    @abstractmethod
    def radii(self, radius: str, within: bool) -> tuple[str, str]: ...
    @abstractmethod
    def power(self, base: str, exponent: str) -> str: ...
    @abstractmethod
    def radial(self, f: str, variables: list[str], laws: list[Value], cross: Value, theta: Value | None) -> str: ...
    @abstractmethod
    def asides(self) -> list[str]: ...
    @abstractmethod
    def where(self, tap: Sym, offsets: list[tuple[int, ...]]) -> str: ...
    @abstractmethod
    def expectation(self, f: str, variables: list[str], cov: list[Value], means: Sequence[Value | None]) -> str: ...
