"""Filling a store: the blocks that are missing, one after the other or by several processes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

from netsor.compilers.budget.plan import Limits
from netsor.compilers.budget.progress import Progress
from netsor.compilers.store import zarr
from netsor.compilers.store.cluster import clustered
from netsor.compilers.store.files import Store, create, located
from netsor.compilers.store.identity import difference
from netsor.compilers.store.layout import Block
from netsor.compilers.store.lazy import StoredGram, stored
from netsor.compilers.store.task import Hands, Task, one_thread
from netsor.compilers.store.workers import dealt
from netsor.errors import InputError

Sides = Callable[[Limits, int, int | None], int]  # limits, processes, the tile of a store that exists


def gram(task: Task, sides: Sides, path: str | Path, limits: Limits, hands: Hands, force: bool) -> StoredGram:
    """The store with all blocks of a call. Those that are there are not computed again.

    Every block is computed by one thread from its inputs alone (and, of a sampled kernel, the draws of all): its
    numbers depend neither on the other blocks nor on who computes them. `sides` gives the inputs per side of a block.
    """
    zarr.library()
    target = located(path)
    found = _prepared(task, sides, target, limits, hands, force)
    todo = found.missing()
    if todo:
        with found.locked():
            todo = found.missing()
            with one_thread():
                task.begin(found, todo, hands)
            _fill(task, found, todo, limits, hands)
    task.end(found)
    return stored(found)


def _prepared(task: Task, sides: Sides, path: Path, limits: Limits, hands: Hands, force: bool) -> Store:
    """The store of this very call, made when there is none, or anew by `force`."""
    old = Store(path) if path.exists() else None  # what is no store is not replaced either
    known = None if old is None or force else old.layout.tile
    tile = sides(limits, hands.processes, known)
    wanted = task.identity(tile)
    if old is None or force:
        with one_thread():
            create(path, task.kernel.program.name, task.layout(tile), wanted, old)
        old = Store(path)
    unlike = difference(old.identity, wanted)
    if unlike is not None:
        raise InputError(
            f"{path} holds the kernels of another call: {unlike}", code="NT641",
            hint="give another path, or remove this store",
        )  # fmt: skip
    return old


def _fill(task: Task, store: Store, todo: list[Block], limits: Limits, hands: Hands) -> None:
    pairs = sum(map(store.layout.pairs, todo))
    total = sum(1 for _ in store.layout.blocks())
    done = total - len(todo)

    def kept() -> str:
        return f"{done:,} of {total:,} blocks are in {store.path}; the same call goes on with the others"

    shown = Progress(task.kernel.program.name, pairs, "pairs", limits.progress, kept=kept)
    with shown, closing(_done(task, store, todo, hands, shown.ready)) as blocks:
        for block in blocks:
            done += 1
            shown.done(store.layout.pairs(block))


def _done(
    task: Task, store: Store, todo: list[Block], hands: Hands, ready: Callable[[], None]
) -> Generator[Block]:  # fmt: skip
    if hands.client is not None:
        return clustered(task, store, hands.client, todo, ready)
    return dealt(task, store, hands.processes, todo, ready)
