"""Gram matrices by blocks, half of them in the symmetric call, which is exactly symmetric.

Quantities of single inputs are computed once for a band of inputs (`plan`); a block slices them.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from netsor.compilers.budget.plan import Plan
from netsor.compilers.budget.progress import Progress
from netsor.compilers.derive.outputs import SLOPES, Key
from netsor.compilers.evaluate.assembled import Band, Compiled, Joined, Placed, Whole, symmetrised
from netsor.compilers.evaluate.copies import copies, settled
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.evaluate.repair import repaired
from netsor.compilers.evaluate.results import KernelResult, describe_log, fields, keyed
from netsor.compilers.expectation import record
from netsor.compilers.expectation.blocks.buffers import SPARE, Buffers
from netsor.compilers.expectation.blocks.work import Work

Each = Callable[[Inputs], Any]
Pairs = Callable[[Any, Any, frozenset[str], Work], dict[str, Any]]
_Kernels = tuple[dict[Key, Tensor], dict[str, Tensor]]  # of pairs, and what single inputs have, by name


def whole(
    each: Each, pairs: Pairs, one: Inputs, two: Inputs | None, get: frozenset[str], plan: Plan | None = None,
    wide: bool = False, compiled: Compiled | None = None, progress: Progress | None = None,
) -> KernelResult:  # fmt: skip
    """All pairs of one and two (of one with itself when two is None), as a plan cuts them.

    `wide`: evaluated in float64 whatever the inputs' dtype, which the results keep. `compiled` takes bands
    of pairs in place of `pairs` where it can.
    """
    if wide and one.dtype != torch.float64:
        double = None if two is None else two.to(torch.float64)
        found = whole(each, pairs, one.to(torch.float64), double, get, plan, progress=progress)
        return found.to(one.dtype)
    two = None if two is not None and same(one, two) else two
    with record() as log, progress or Progress() as shown:
        kind = Again if plan is not None and plan.again and tracked(one, two) else Blocks
        run = kind(each, pairs, one, two, get, plan or Plan(), compiled)
        out = _assemble(run, shown)
        if not run.copies.none:
            out = settled(out, run.copies, one, run.own, min(OWN, run.plan.tile))
    result = _result(run.singles(), out)
    result.method, result.error = describe_log(log)
    return result


def same(one: Inputs, two: Inputs) -> bool:
    """Are these the same numbers, in arrays that need no gradient?"""
    pairs = [(one.arrays[k], two.arrays[k]) for k in one.arrays]
    return not tracked(one, two) and all(
        x.shape == y.shape and x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs
    )


def tracked(*batches: Inputs | None) -> bool:
    """Does a gradient flow to an array or a parameter?"""
    return torch.is_grad_enabled() and any(batch.requires_grad for batch in batches if batch is not None)


class Blocks:
    """The kernels of all blocks, one after the other.

    Pairs too close to |ρ| = 1, for float32 or a compiled block, are computed again, a band at a time.
    """

    def __init__(
        self, each: Each, pairs: Pairs, one: Inputs, two: Inputs | None, get: frozenset[str], plan: Plan,
        compiled: Compiled | None = None,
    ) -> None:  # fmt: skip
        self.each, self.pairs, self.get, self.plan = each, pairs, get, plan
        self.one, self.two, self.symmetric = one, one if two is None else two, two is None
        self.shape = self.one.samples, self.two.samples
        self.copies = copies(one, two)
        self.near: list[Tensor] = []  # numbers of the two inputs, [entries, 2]
        self.differentiable = tracked(one, two)
        self.compiled = None if self.differentiable else compiled
        self.buffers = self._new_buffers()
        self._looks_later = one.device.type not in LOOKING and not self.differentiable
        self._rows: tuple[slice, Any] | None = None
        self._single: dict[str, list[Tensor]] = {}

    def run(self, whole: Whole, shown: Progress) -> None:
        """Put every kernel of every block into `whole`; of a symmetric call those on and above the diagonal."""
        for rows, cols in self.plan.bands(*self.shape, self.symmetric):
            self.buffers = self._new_buffers()
            a = self._rows_of(rows)
            b = a if self._own(rows, cols) else self.quantities(self.two, cols)
            self._band(a, b, rows, cols, whole, shown)

    def work(self, own: bool = False, watching: bool = False) -> Work:
        """What a block of pairs is told."""
        return Work(own, watching, not self.get.isdisjoint(SLOPES), self.buffers)

    def _new_buffers(self) -> Buffers:
        return Buffers(SPARE if self.plan.spare is None else self.plan.spare)

    def singles(self) -> dict[str, Tensor]:
        """What was asked for of every input alone."""
        return {key: parts[0] if len(parts) == 1 else torch.cat(parts) for key, parts in self._single.items()}

    def own(self, some: Inputs) -> dict[Key, Tensor]:
        with torch.no_grad():
            found = whole(self.each, self.pairs, some, None, self.get, self.plan).by_key()
        pairs = {key: value for key, value in found.items() if key.is_term or key.name not in self._single}
        return {key: value.diagonal(dim1=0, dim2=1).movedim(-1, 0) for key, value in pairs.items()}

    def _own(self, rows: slice, cols: slice) -> bool:
        return self.symmetric and rows == cols

    # ------------------------------------------------------------ quantities of inputs

    def _rows_of(self, rows: slice) -> Any:
        if self._rows is None or self._rows[0] != rows:
            self._rows = None  # dropped before the next are computed
            found = self.quantities(self.one, rows)
            self._rows = rows, found
            self._keep(found)
        return self._rows[1]

    def _keep(self, a: Any) -> None:
        for key in self.get:
            value = a.results.get(key)
            if value is not None:
                self._single.setdefault(key, []).append(value)

    def quantities(self, data: Inputs, part: slice) -> Any:
        """The quantities of some inputs, `plan.chunk` at a time."""
        some = data if part == slice(0, data.samples) else data.slice(part)
        if some.samples <= self.plan.chunk:
            return self.each(some)
        starts = range(0, some.samples, self.plan.chunk)
        found = [self.each(some.slice(slice(i, min(i + self.plan.chunk, some.samples)))) for i in starts]
        return type(found[0]).joined(found, some)

    # ------------------------------------------------------------ blocks

    def _band(self, a: Any, b: Any, rows: slice, cols: slice, whole: Whole, shown: Progress) -> None:
        own = self._own(rows, cols)
        shown.ready()
        if self._direct(a, b, rows, cols, whole, shown):
            self._repaired(whole)
            return
        for i, j in self.plan.blocks(rows.stop - rows.start, cols.stop - cols.start, own):
            block = _moved(i, rows.start), _moved(j, cols.start)
            for key, value in self._block(a.rows(i), b.cols(j), *block).items():
                whole.put(key, symmetrised(value) if own and i == j else value, block)
            shown.done(_pairs(i, j, own))
        self._repaired(whole)

    def _direct(self, a: Any, b: Any, rows: slice, cols: slice, whole: Whole, shown: Progress) -> bool:
        """Has the band been written at once?"""
        if self.compiled is None or not isinstance(whole, Placed):
            return False
        own, m = self._own(rows, cols), cols.stop - cols.start

        def done(part: range) -> None:
            shown.done(sum(m - i for i in part) if own else m * len(part))

        near = self.compiled.band(a, b, Band(whole, rows, cols, own, done))
        if near is None:
            return False
        if len(near.rows):
            self.near.append(torch.stack((near.rows + rows.start, near.cols + cols.start), 1))
        return True

    def _block(self, a: Any, b: Any, rows: slice, cols: slice) -> dict[Key, Tensor]:
        if self._looks_later:
            first = replace(self.work(self._own(rows, cols)), extremes=[])
            out = keyed(self.pairs(a, b, self.get, first))
            if not first.has_near:
                return out
            self._looks_later = False  # where one block has near pairs, others have
        work = self.work(self._own(rows, cols), a.data.dtype == torch.float32 and not self.differentiable)
        out = keyed(self.pairs(a, b, self.get, work))
        if work.near is not None:
            self._mark(work.near, rows, cols)
        return out

    def _repaired(self, whole: Whole) -> None:
        if self.near:
            numbers = self.copies.left(torch.cat(self.near))
            self.near.clear()
            if len(numbers):
                repaired(self, whole, numbers)

    def _mark(self, mask: Tensor, rows: slice, cols: slice) -> None:
        found = mask.expand(rows.stop - rows.start, cols.stop - cols.start).nonzero()
        found = found + torch.tensor([rows.start, cols.start], device=found.device)
        if self.symmetric:
            found = found[found[:, 0] <= found[:, 1]]
        if len(found):
            self.near.append(found)


class Again(Blocks):
    """Blocks with gradients whose graphs are not kept: each is computed again in the backward pass."""

    def run(self, whole: Whole, shown: Progress) -> None:
        left, right = _split(self.one, self.plan.tile), _split(self.two, self.plan.tile)
        for rows, cols in self.plan.blocks(*self.shape, self.symmetric):
            a, b = left[rows.start // self.plan.tile], right[cols.start // self.plan.tile]
            kernels, singles = self._checkpointed(a, a if self._own(rows, cols) else b, rows, cols)
            for key, value in kernels.items():
                whole.put(key, value, (rows, cols))
            if cols.start == (rows.start if self.symmetric else 0):
                for name, value in singles.items():
                    self._single.setdefault(name, []).append(value)
            shown.done(_pairs(rows, cols, self.symmetric))

    def _checkpointed(self, one: Inputs, two: Inputs, rows: slice, cols: slice) -> _Kernels:
        keys: list[Key] = []
        names: list[str] = []
        context = contextvars.copy_context()  # what the call has set, such as how to sample, holds in the backward pass

        def body(*tensors: Tensor) -> tuple[Tensor, ...]:
            first = one.having(dict(zip(one.arrays, tensors, strict=False)))
            second = first if one is two else two.having(dict(zip(two.arrays, tensors[len(one.arrays) :], strict=True)))
            found = context.copy().run(self._alone, first, second, rows, cols)
            keys[:], names[:] = found[0], found[1]
            return *found[0].values(), *found[1].values()

        tensors = [*one.arrays.values(), *(() if one is two else two.arrays.values())]
        values = iter(checkpoint(body, *tensors, use_reentrant=False, preserve_rng_state=False))
        return dict(zip(keys, values, strict=False)), dict(zip(names, values, strict=True))

    def _alone(self, one: Inputs, two: Inputs, rows: slice, cols: slice) -> _Kernels:
        a = self.each(one)
        b = a if one is two else self.each(two)
        out = self._block(a.rows(ALL), b.cols(ALL), rows, cols)
        if one is two:
            out = {key: symmetrised(value) for key, value in out.items()}
        singles = {key: a.results.get(key) for key in self.get}
        return out, {key: value for key, value in singles.items() if value is not None}


LOOKING = ("cpu",)  # devices on which it costs nothing to look at a value while a block is computed
OWN = 128  # inputs of which all pairs are computed for those with themselves
ALL = slice(None)


def _split(data: Inputs, size: int) -> list[Inputs]:
    """The inputs in groups of a size; their gradients are put together once."""
    parts = {name: x.split(size) for name, x in data.arrays.items()}
    count = -(-data.samples // size)
    return [data.having({name: x[k] for name, x in parts.items()}) for k in range(count)]


def _pairs(rows: slice, cols: slice, symmetric: bool) -> int:
    """Pairs in a block, each once."""
    n, m = rows.stop - rows.start, cols.stop - cols.start
    return n * (n + 1) // 2 if symmetric and rows == cols else n * m


def _moved(s: slice, by: int) -> slice:
    return slice(s.start + by, s.stop + by)


# ---------------------------------------------------------------- putting blocks together


def _assemble(run: Blocks, shown: Progress) -> dict[Key, Tensor]:
    whole = Joined(run.shape, run.symmetric) if run.differentiable else Placed(run.shape, run.symmetric)
    run.run(whole, shown)
    return whole.all()


def _result(singles: dict[str, Tensor], out: dict[Key, Tensor]) -> KernelResult:
    result = KernelResult(**fields(out))
    result.vectors |= singles
    return result
