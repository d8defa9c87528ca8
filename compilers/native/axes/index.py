"""Indices of elements: integer expressions in loop variables whose ranges are known."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Atom(NamedTuple):
    """A C expression of an integer from `low` to `high`; `lane`: it differs from lane to lane."""

    text: str
    low: int
    high: int
    lane: bool = False


@dataclass(frozen=True)
class Index:
    """const + Σ coefficient·atom."""

    const: int
    terms: tuple[tuple[Atom, int], ...] = ()

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.const + other, self.terms)
        return _made(self.const + other.const, (*self.terms, *other.terms))

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Index:
        return _made(self.const * factor, tuple((a, c * factor) for a, c in self.terms))

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest value."""
        low = high = self.const
        for a, c in self.terms:
            ends = (c * a.low, c * a.high)
            low, high = low + min(ends), high + max(ends)
        return low, high

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def of_lane(self) -> bool:
        return any(a.lane for a, _ in self.terms)

    @property
    def text(self) -> str:
        parts = [f"{c} * {a.text}" if c != 1 else a.text for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"


def _made(const: int, terms: Sequence[tuple[Atom, int]]) -> Index:
    found: dict[Atom, int] = {}
    for a, c in terms:
        found[a] = found.get(a, 0) + c
    return Index(const, tuple((a, c) for a, c in sorted(found.items()) if c))


def variable(name: str, size: int, lane: bool = False) -> Index:
    """A variable from 0 to size − 1."""
    return Index(0) if size == 1 else Index(0, ((Atom(name, 0, size - 1, lane), 1),))


def opaque(text: str, low: int, high: int) -> Index:
    return Index(low) if low == high else Index(0, ((Atom(f"({text})", low, high), 1),))


def modulo(x: Index, size: int) -> Index:
    low, high = x.range
    if low >= 0 and high < size:
        return x
    if x.is_constant:
        return Index(x.const % size)
    return opaque(f"(({x.text}) % {size} + {size}) % {size}", 0, size - 1)


def divided(x: Index, stride: int) -> Index:
    """x / stride where that is an integer of at least 0, −1 elsewhere."""
    low, high = x.range
    if stride == 1:
        return x
    if x.is_constant:
        return Index(x.const // stride if x.const >= 0 and x.const % stride == 0 else -1)
    if high < 0:
        return Index(-1)
    del low
    return opaque(f"({x.text} >= 0 && {x.text} % {stride} == 0 ? {x.text} / {stride} : -1)", -1, high // stride)


def looked_up(numbers: Sequence[int], at: Index) -> Index:
    """numbers[at]."""
    if at.is_constant:
        return Index(numbers[at.const])
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    if len(steps) == 1:
        return at * steps.pop() + numbers[0]
    listed = ", ".join(map(str, numbers))
    return opaque(f"((const int[]){{{listed}}})[{at.text}]", min(numbers), max(numbers))


Condition = tuple[Index, int]  # 0 ≤ index < size


def inside(index: Index, size: int) -> bool | str:
    """Is 0 ≤ index < size: known, or as C."""
    low, high = index.range
    if low >= 0 and high < size:
        return True
    if high < 0 or low >= size:
        return False
    parts = ([f"{index.text} >= 0"] if low < 0 else []) + ([f"{index.text} < {size}"] if high >= size else [])
    return " && ".join(parts)


def equal(one: Index, two: Index) -> bool | str:
    difference = one - two
    low, high = difference.range
    if low > 0 or high < 0:
        return False
    return True if difference.is_constant else f"{one.text} == {two.text}"


def both(*conditions: bool | str) -> bool | str:
    if any(c is False for c in conditions):
        return False
    left = dict.fromkeys(c for c in conditions if isinstance(c, str))
    return " && ".join(left) if left else True


def flat(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """The place of an element in the order of memory."""
    out = Index(0)
    for i, size in zip(index, shape, strict=True):
        out = out * size + i
    return out
