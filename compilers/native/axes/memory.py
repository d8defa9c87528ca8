"""Where buffers stand in the memory of a tile: those that are not alive at once share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from netsor.compilers.native.axes.fusion import Group, Item, accesses
from netsor.compilers.native.axes.nests import Buffer


def buffers(x: Item) -> Iterator[tuple[Buffer, int]]:
    """The buffers that an item reads, writes or has inside, and the elements that it stores of each."""
    if isinstance(x, Group):
        for nest in x.nests:
            yield from ((b, b.size // nest.loops[0] if b in x.local else b.size) for b, _ in accesses(nest))
    else:
        yield from ((b, b.size) for b, _ in accesses(x))


def places(items: list[Item], kept: Iterable[Buffer]) -> tuple[dict[Buffer, int], int]:
    """The first element of each buffer, and how many there are in all; `kept` are read at the end."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    sizes: dict[Buffer, int] = {}
    for time, item in enumerate(items):
        for buffer, size in buffers(item):
            first.setdefault(buffer, time)
            last[buffer], sizes[buffer] = time, size
    last |= dict.fromkeys(kept, len(items))
    found: dict[Buffer, int] = {}
    total = 0
    for buffer in sorted(first, key=lambda b: (first[b], -sizes[b])):
        busy = sorted(
            (found[other], found[other] + sizes[other]) for other in found
            if first[other] <= last[buffer] and first[buffer] <= last[other]
        )  # fmt: skip
        place = 0
        for start, end in busy:
            if place + sizes[buffer] <= start:
                break
            place = max(place, end)
        found[buffer] = place
        total = max(total, place + sizes[buffer])
    return found, total
