"""Views, fits and gathers of fields: other indices of the same elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from netsor.compilers.lowering.plan.operands import Mark
from netsor.compilers.native.axes.index import Index, both, inside
from netsor.compilers.native.axes.nests import Cursor, Field, Made, When
from netsor.compilers.native.body import Value
from netsor.compilers.native.expectations import Missing

Sources = Mapping[Made, bool]


@dataclass(frozen=True, eq=False)
class Places:
    """Integers of a shape, each an index."""

    shape: tuple[int, ...]
    at: Callable[[tuple[Index, ...]], Index]


def moved(of: Field) -> dict[Made, bool]:
    """The sources of a view that reads other elements than those at its index."""
    return dict.fromkeys(of.sources, False)


def joined(*fields: Field) -> dict[Made, bool]:
    """The sources of what reads all of these at the same index."""
    found: dict[Made, bool] = {}
    for f in fields:
        for made, same in f.sources.items():
            found[made] = found.get(made, True) and same
    return found


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    rank = max(map(len, shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for k, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if out[k] not in (1, size):
                    raise Missing("operands of different sizes")
                out[k] = size
    return tuple(out)


def aligned(shape: Sequence[int], index: Sequence[Index]) -> tuple[Index, ...]:
    """The index of an operand of a shape where the result's is `index`: dimensions from the right, broadcast."""
    if len(shape) > len(index):
        index = (*[Index(0)] * (len(shape) - len(index)), *index)
    own = index[len(index) - len(shape) :]
    return tuple(Index(0) if size == 1 else i for size, i in zip(shape, own, strict=True))


def read(of: Field, cursor: Cursor, index: Sequence[Index], when: When) -> Value:
    """An operand where the result's index is `index`."""
    return of.at(cursor, aligned(of.shape, index), when)


def pointwise(shape: tuple[int, ...], fields: Sequence[Field], make: Callable[[Cursor, list[Value]], Value]) -> Field:
    """A function of fields, element by element."""

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        return make(cursor, [read(f, cursor, index, when) for f in fields])

    return Field(shape, at, joined(*fields))


def number(x: float) -> Field:
    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        del index
        if isinstance(when, bool):
            return cursor.number(x if when else 0.0)
        return cursor.uniform(f"({when}) ? (T){float(x).hex()} : 0")

    return Field((), at)


# ---------------------------------------------------------------- views


def permuted(of: Field, order: Sequence[int]) -> Field:
    """Dimension k is dimension order[k] of the operand, both counted behind the samples."""
    shape = tuple(of.shape[k] for k in order)

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        given = [Index(0)] * len(order)
        for i, k in zip(index, order, strict=True):
            given[k] = i
        return of.at(cursor, tuple(given), when)

    return Field(shape, at, of.sources if list(order) == sorted(order) else moved(of))


def sliced(of: Field, marks: Sequence[Mark | Index]) -> Field:
    """Dimensions kept, added, or picked at an index; REST stands for those without a mark."""
    marks = spelt(marks, len(of.shape))
    shape, own = [], iter(of.shape)
    for m in marks:
        if m is Mark.NEW:
            shape.append(1)
        elif m is Mark.KEEP:
            shape.append(next(own))
        else:
            next(own)

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        given, left = [], iter(index)
        for m in marks:
            if isinstance(m, Index):
                given.append(m)
            else:
                i = next(left)
                if m is Mark.KEEP:
                    given.append(i)
        return of.at(cursor, tuple(given), when)

    return Field(tuple(shape), at, moved(of))


def spelt(marks: Sequence[Mark | Index], rank: int) -> list[Mark | Index]:
    used = sum(m is not Mark.NEW and m is not Mark.REST for m in marks)
    rest: list[Mark | Index] = [Mark.KEEP] * (rank - used)
    if Mark.REST in marks:
        k = list(marks).index(Mark.REST)
        return [*marks[:k], *rest, *marks[k + 1 :]]
    return [*marks, *rest]


def fitted(of: Field, dims: Sequence[tuple[int, int, int | None]]) -> Field:
    """Dimensions (dim, size, own) cut, or filled with zeros, to a size; one element for `own` > 1 equal ones stays."""
    shape, short = list(of.shape), []
    for dim, size, own in dims:
        if of.shape[dim] > size:
            shape[dim] = size
        elif of.shape[dim] < size and not (of.shape[dim] == 1 and own is not None and own > 1):
            shape[dim] = size
            short.append(dim)
    if tuple(shape) == of.shape:
        return of

    def at(cursor: Cursor, index: tuple[Index, ...], when: When) -> Value:
        found = both(when, *(inside(index[d], of.shape[d]) for d in short))
        if found is False:
            return cursor.number(0.0)
        return of.at(cursor, index, found)

    return Field(tuple(shape), at, moved(of))


def taken(of: Field, index: Sequence[Places], rank: int) -> Field:
    """of[*index]: index arrays that broadcast; zero where one is outside."""
    shape = broadcast(*(p.shape for p in index))
    shape = (*[1] * (rank - len(shape)), *shape)

    def at(cursor: Cursor, here: tuple[Index, ...], when: When) -> Value:
        return picked(of, cursor, [p.at(aligned(p.shape, here)) for p in index], when)

    return Field(shape, at, moved(of))


def picked(of: Field, cursor: Cursor, places: Sequence[Index], when: When) -> Value:
    """An element, zero where a place is outside."""
    found = both(when, *(inside(i, size) for i, size in zip(places, of.shape, strict=True)))
    return cursor.number(0.0) if found is False else of.at(cursor, tuple(places), found)


def at_positions(of: Field, index: Sequence[tuple[int, Places]]) -> Field:
    """Some dimensions at vectors of positions, which become the first dimension; zero outside."""
    looped = {d: p for d, p in index}
    rest = [d for d in range(len(of.shape)) if d not in looped]
    (length,) = broadcast(*(p.shape for p in looped.values()))

    def at(cursor: Cursor, here: tuple[Index, ...], when: When) -> Value:
        first, others = here[0], iter(here[1:])
        places = [looped[d].at(aligned(looped[d].shape, (first,))) if d in looped else next(others)
                  for d in range(len(of.shape))]  # fmt: skip
        return picked(of, cursor, places, when)

    return Field((length, *(of.shape[d] for d in rest)), at, moved(of))
