"""What fills a store: a kernel, its inputs, and the call that gives a block of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netsor.compilers.budget import cost as costs
from netsor.compilers.budget.memory import needed
from netsor.compilers.budget.plan import Call, Limits
from netsor.compilers.budget.progress import Progress
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.evaluate.results import KernelResult, flat
from netsor.compilers.store.files import Report
from netsor.compilers.store.layout import Array, Layout, folders
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

    def block(self, rows: slice, cols: slice) -> tuple[dict[str, Any], Report]:
        """A block as numpy arrays by key, and how it was computed: the kernel's call on these inputs alone."""
        own = self.two is None and rows == cols
        one = _some(self.one, rows)
        found = self.run(one, None if own else _some(self.other, cols), self.names, Limits(shown=Progress()))
        return {k: v.numpy(force=True) for k, v in kernels(found).items()}, (found.method, found.error)

    def layout(self, tile: int) -> Layout:
        """Dtypes and output axes as one pair has them."""
        found, _ = self.block(slice(0, 1), slice(0, 1))
        places = zip(found.items(), folders(list(found)), strict=True)
        arrays = tuple(Array(k, path, v.dtype.name, v.shape[2:]) for (k, v), path in places)
        return Layout(self.one.samples, self.other.samples, tile, self.two is None, arrays)


def _some(data: Inputs, part: slice) -> Inputs:
    """Copied, so that where a block begins in memory does not depend on where it stands among the inputs."""
    return data.having({k: v[part].clone() for k, v in data.arrays.items()})


def kernels(result: KernelResult) -> dict[str, Any]:
    found = {"nngp": result.nngp, "ntk": result.ntk, **result.vectors, "terms": result.terms}
    return flat({k: v for k, v in found.items() if v is not None})


# ---------------------------------------------------------------- what has no store


def refuse_sampled(name: str, why: Diagnostic | None) -> UnsupportedError:
    """All inputs of a sampled kernel share their draws, and a block would be computed from draws of its inputs."""
    reason = "" if why is None else f" ({why.message})"
    return UnsupportedError(
        f"{name} has no store: its kernels are sampled{reason}, with draws of all inputs together; blocks with draws of"
        " their inputs alone would be no positive semidefinite matrix",
        code="NT702", severity="error", hint="kernel.gram without store= draws them together",
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


def processes_of(number: Any) -> int:
    """NT640 unless a positive whole number."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InputError(f"processes is a positive whole number, got {number!r}", code="NT640")
    return number
