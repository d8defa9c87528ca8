"""Sums over axes: box sums dimension by dimension, contractions, totals, and inner products of data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from netsor.compilers.native.axes.index import Index, both, divided, inside, modulo
from netsor.compilers.native.axes.nests import Cursor, Field, Made, Scope, Sums, When
from netsor.compilers.native.axes.walk.fields import joined, moved, read
from netsor.compilers.native.body import Value
from netsor.compilers.runtime.boxes import Move, separated

FEW = 8  # terms that are written one by one


def summed(
    scope: Scope, shape: tuple[int, ...], over: tuple[int, ...], sources: dict[Made, bool],
    term: Callable[[Cursor, tuple[Index, ...], tuple[Index, ...]], Value], factor: float = 1.0,
) -> Field:  # fmt: skip
    """factor·Σ term over further variables, stored for each element."""
    nest = Sums(scope, scope.level(None, sources), shape, over)
    nest.term, nest.factor = term(nest, nest.index, nest.inner).arg, factor
    scope.sums.append(nest)
    return stored(nest.out)


def stored(made: Made) -> Field:
    return Field(made.shape, made.at, {made: True})


def inner_product(scope: Scope, x: Field, rows: Sequence[int], y: Field, cols: Sequence[int], rank: int) -> Field:
    """Σ over the last dimension of both; `rows` and `cols` are the result's dimensions of the others, in order."""
    shape = [1] * rank
    for of, places in ((x, rows), (y, cols)):
        for size, k in zip(of.shape, places, strict=False):
            shape[k] = max(shape[k], size)
    features = x.shape[-1]

    def term(cursor: Cursor, index: tuple[Index, ...], d: Index, when: When) -> Value:
        one, two = ((*(index[k] for k in places), d) for places in (rows, cols))
        return read(x, cursor, one, when) * read(y, cursor, two, when)

    sources = dict.fromkeys((*x.sources, *y.sources), False)
    if features > FEW and not scope.is_torus(tuple(shape)):
        return summed(
            scope, tuple(shape), (features,), sources, lambda c, i, k: term(c, i, k[0], True), 1 / features
        )  # fmt: skip

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        total = cursor.number(0.0)
        for d in range(features):
            total = total + term(cursor, index, Index(d), when)
        return total * (1 / features)

    return Field(tuple(shape), at, sources)


# ---------------------------------------------------------------- box sums


def boxed(of: Field, moves: Sequence[Move], keep: Callable[[Field], Field]) -> Field:
    """Σ over taps of the operand moved; groups of dimensions that move by themselves are summed one after the other."""
    for group in reversed(separated(tuple(moves))):  # the innermost axis first, together with what makes the operand
        of = keep(_moved(of, group))
    return of


def _moved(of: Field, group: Sequence[Move]) -> Field:
    shape = list(of.shape)
    for m in group:
        shape[m.dim] = m.size
    count = len(group[0].offsets)

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        total = cursor.number(0.0)
        for tap in range(count):
            places, found, cut = list(index), when, None
            for m in group:
                places[m.dim], here = _source(m, tap, index[m.dim], of.shape[m.dim])
                if isinstance(here, str) and cursor.torus is not None and index[m.dim].of_lane:
                    cut, here = places[m.dim] - index[m.dim], True
                found = both(found, here)
            if found is not False:
                value = of.at(cursor, tuple(places), found)
                total = total + (value if cut is None else value * cursor.cut(cut.const))
        return total

    return Field(tuple(shape), at, moved(of))


def _source(m: Move, tap: int, at: Index, size: int) -> tuple[Index, bool | str]:
    """Where an output reads the input for a tap, and when it does."""
    if not m.back:
        place = at * m.stride + m.offsets[tap]
        place = modulo(place, size) if m.wrap else place
    else:
        place = at - m.offsets[tap]
        place = divided(modulo(place, m.size) if m.wrap else place, m.stride)
    return place, inside(place, size)


# ---------------------------------------------------------------- contractions


def contracted(
    scope: Scope, operands: Sequence[Field], axes: Sequence[Sequence[int]], rank: int, sizes: Sequence[int]
) -> Field:
    """The product of operands summed over letters ≥ rank; `axes` are letters, `sizes` those of all letters.

    A letter that no operand depends on counts as often as its size.
    """
    present = [1] * len(sizes)
    aligned_shapes = [(1,) * (len(own) - len(x.shape)) + x.shape[max(0, len(x.shape) - len(own)) :]
                      for own, x in zip(axes, operands, strict=True)]  # fmt: skip
    for own, shape in zip(axes, aligned_shapes, strict=True):
        for letter, size in zip(own, shape, strict=True):
            present[letter] = max(present[letter], size)
    factor = math.prod(size for size, have in zip(sizes[rank:], present[rank:], strict=True) if have == 1)
    shape = tuple(sizes[:rank])
    over = tuple(present[rank:])

    def term(cursor: Cursor, index: tuple[Index, ...], inner: tuple[Index, ...]) -> Value:
        every = (*index, *inner)
        total = cursor.number(1.0)
        for x, own in zip(operands, axes, strict=True):
            total = total * read(x, cursor, [every[letter] for letter in own], True)
        return total

    sources = dict.fromkeys(joined(*operands), False)
    return summed(scope, shape, over, sources, term, float(factor))


def total(scope: Scope, of: Field, size: int) -> Field:
    """The sum over the last dimension."""
    if of.shape[-1] != size or size == 1:

        def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
            return of.at(cursor, (*index, Index(0)), when) * float(size)

        return Field(of.shape[:-1], at, moved(of))
    return summed(scope, of.shape[:-1], (size,), moved(of), lambda c, i, k: of.at(c, (*i, *k), True))
