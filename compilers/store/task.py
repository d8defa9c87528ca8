"""What fills a store: a kernel, its inputs, and the call that gives a block of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol

import torch

from netsor.compilers.budget import cost as costs
from netsor.compilers.budget.memory import needed
from netsor.compilers.budget.plan import Call, Limits
from netsor.compilers.budget.progress import Progress
from netsor.compilers.derive.outputs import Key
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.evaluate.results import KernelResult
from netsor.compilers.store.files import Report, Store
from netsor.compilers.store.identity import Identity, identity
from netsor.compilers.store.layout import Array, Block, Layout, folders
from netsor.errors import Diagnostic, InputError, UnsupportedError

Run = Callable[[Any, Any, tuple[str, ...], Limits], KernelResult]
LARGEST = 1024  # inputs per side of a block when nothing is said
OPERATIONS = {"cpu": 2000 * costs.SECOND, "cuda": 200_000 * costs.SECOND}  # of a block: minutes


@dataclass(frozen=True)
class Task:
    """The kernels `names` of one with two (with itself when None); `run` is the kernel's call."""

    kernel: Any
    run: Run
    names: tuple[str, ...]
    one: Inputs
    two: Inputs | None

    @property
    def other(self) -> Inputs:
        return self.one if self.two is None else self.two

    def begin(self, store: Store, todo: list[Block], hands: Hands) -> None:
        """What comes before the blocks to do."""

    def having(self, one: Inputs, two: Inputs | None) -> Task:
        """The same of other inputs."""
        return replace(self, one=one, two=two)

    def end(self, store: Store) -> None:
        """What is not needed once all blocks are there."""

    def write(self, store: Store, what: Block) -> None:
        """A block computed and written."""
        with one_thread():
            store.write(what, *self.block(*store.layout.slices(what)))

    def block(self, rows: slice, cols: slice) -> tuple[dict[Key, Any], Report]:
        """A block as numpy arrays by key, and how it was computed."""
        return self.computed(self.names, rows, cols)

    def computed(self, names: tuple[str, ...], rows: slice, cols: slice) -> tuple[dict[Key, Any], Report]:
        """The kernel's call on these inputs alone."""
        own = self.two is None and rows == cols
        one = _some(self.one, rows)
        found = self.run(one, None if own else _some(self.other, cols), names, Limits(shown=Progress()))
        if "sampled" in found.method:
            raise refuse_pairs(self.kernel.program.name)
        return {k: v.numpy(force=True) for k, v in kernels(found).items()}, (found.method, found.error)

    def probe(self) -> dict[Key, Any]:
        """The kernels of few pairs, or numbers like them."""
        return self.block(slice(0, 2), slice(0, 2))[0]

    def identity(self, tile: int) -> Identity:
        """What decides the numbers of the store."""
        return identity(self.kernel, self.names, self.one, self.two, tile)

    def layout(self, tile: int) -> Layout:
        """Dtypes and output axes as one pair has them."""
        found = self.probe()
        places = zip(found.items(), folders(list(found)), strict=True)
        arrays = tuple(Array(k, path, v.dtype.name, v.shape[2:]) for (k, v), path in places)
        return Layout(self.one.samples, self.other.samples, tile, self.two is None, arrays)


def _some(data: Inputs, part: slice) -> Inputs:
    """Copied, so that where a block begins in memory does not depend on where it stands among the inputs."""
    return data.having({k: v[part].clone() for k, v in data.arrays.items()})


@contextmanager
def one_thread() -> Generator[None]:
    """Sums of several threads depend on how many they are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def kernels(result: KernelResult) -> dict[Key, Any]:
    return result.by_key()


# ---------------------------------------------------------------- what has no store


def refuse_pairs(name: str) -> UnsupportedError:
    """Expectations of several variables that no quadrature takes are sampled pair by pair."""
    return UnsupportedError(
        f"{name} has no store: expectations of several Gaussian variables are sampled, for each pair and block anew,"
        " and their errors would make the matrix indefinite", code="NT702", severity="error",
        hint="kernel.gram without store=, whose error says how far",
    )  # fmt: skip


def refuse_cluster(name: str, hands: Hands, why: Diagnostic | None) -> None:
    """UnsupportedError when a sampled kernel is to be computed by the workers of a cluster."""
    if hands.client is not None:
        reason = "" if why is None else f" ({why.message})"
        raise UnsupportedError(
            f"{name} is sampled{reason}, with draws of all inputs together, which the processes of one machine make",
            code="NT702", severity="error", hint="processes= in the place of engine= and client=",
        )  # fmt: skip


def refuse(kernel: Any, names: tuple[str, ...], ragged: bool, tracked: bool) -> None:
    """InputError or UnsupportedError for what a store cannot keep."""
    p = kernel.program
    alone = [r.name for r in p.returned if r.name in names]
    numeric = [f.name for f in p.functions.values() if f.numeric]
    found = {
        "samples of different size have no blocks of one shape": (ragged, "a store for each pair of sizes"),
        "a store keeps numbers, and the inputs require gradients": (tracked, "x.detach()"),
        f"{', '.join(alone)}: limits of single inputs are no kernels of pairs": (alone, f"kernel(x, get={alone!r})"),
        f"the content of numeric functions ({', '.join(numeric)}) cannot be compared when the store is continued": (
            numeric, "give them as expressions with ns.function",
        ),
    }  # fmt: skip
    for message, (wrong, hint) in found.items():
        if wrong:
            raise InputError(f"{p.name} has no store: {message}", code="NT640", hint=hint)


# ---------------------------------------------------------------- sizes of blocks


def chosen_tile(task: Task, r: Recursion, limits: Limits, processes: int, known: int | None) -> int:
    """Inputs per side of a block: as said, as in the store, or the most that the budget and some minutes hold.

    Raises InputError (NT606) when all processes together exceed the budget.
    """
    tile = limits.tile or known
    longest = max(task.one.samples, task.other.samples, 1)
    if tile is None:
        tile = _largest(task, r, limits.memory, processes, longest)
    need = _bytes(task, r, min(tile, longest), processes)
    if limits.memory is not None and need > limits.memory:
        raise InputError(
            f"the budget is {limits.memory:,} bytes; blocks of {tile} × {tile} pairs need {need:,} in"
            f" {processes} process{'es' if processes > 1 else ''}",
            code="NT606", hint=f"give at least memory={need}, or a smaller tile",
        )  # fmt: skip
    return tile


def _largest(task: Task, r: Recursion, memory: int | None, processes: int, longest: int) -> int:
    """A power of two."""
    operations = max(1, sum(costs.operations(r, task.one.features())))
    tile = LARGEST
    most = OPERATIONS.get(task.one.device.type, OPERATIONS["cpu"])
    while tile > 1 and tile * tile > most // operations:
        tile //= 2
    while tile > 1 and memory is not None and _bytes(task, r, min(tile, longest), processes) > memory:
        tile //= 2
    return tile


def _bytes(task: Task, r: Recursion, tile: int, processes: int) -> int:
    """The inputs, and the blocks of all processes."""
    sizes, item = task.one.features(), task.one.dtype.itemsize
    call = Call(tile, tile, False)
    block = call.peak(needed(r, sizes, item), costs.plan(r, call, sizes, item, None))
    data = sum(t.numel() * t.element_size() for t in _all(task))
    return data + processes * block


def _all(task: Task) -> list[Any]:
    return [*task.one.arrays.values(), *(() if task.two is None else task.two.arrays.values())]


class Client(Protocol):
    """What is asked of a `dask.distributed.Client`."""

    @property
    def submit(self) -> Callable[..., Any]: ...
    @property
    def cancel(self) -> Callable[..., Any]: ...
    @property
    def scheduler_info(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Hands:
    """Who computes the blocks of a store: so many processes, or the workers of a Dask cluster."""

    processes: int = 1
    client: Client | None = None

    @staticmethod
    def of(processes: Any, engine: Any, client: Any) -> Hands:
        """As a call says it; NT640 for what does not go together."""
        if isinstance(processes, bool) or not isinstance(processes, Integral) or processes < 1:
            raise InputError(f"processes is a positive whole number, got {processes!r}", code="NT640")
        if engine not in ("local", "dask"):
            raise InputError(f"engine is 'local' or 'dask', got {engine!r}", code="NT640")
        if (engine == "dask") != (client is not None):
            raise InputError(
                "engine='dask' and client= go together", code="NT640",
                hint="kernel.gram(x, store=…, engine='dask', client=dask.distributed.Client(…))",
            )  # fmt: skip
        if client is not None and (not hasattr(client, "scheduler_info") or getattr(client, "asynchronous", False)):
            raise InputError(
                f"client is a dask.distributed.Client that is not asynchronous, got {type(client).__name__}",
                code="NT640",
            )
        if client is not None and processes != 1:
            raise InputError("the workers of a cluster are its processes: leave out processes=", code="NT640")
        return Hands(int(processes), client)
