"""The pairs of a band that were too near |ρ| = 1, again from the inputs in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from netsor.compilers.evaluate.assembled import Whole
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.evaluate.results import keyed

if TYPE_CHECKING:
    from netsor.compilers.evaluate.blocks import Blocks

MOSTLY = 8  # with more than one pair in so many near |ρ| = 1, blocks are computed again


def repaired(run: Blocks, whole: Whole, numbers: Tensor) -> None:
    """The entries at `numbers` `[entries, 2]` of the inputs: what a compiled function in float64 can tell apart by it,
    the rest by the module.
    """
    run.buffers.forget()
    (one, rows), (two, cols) = (torch.unique(k, return_inverse=True) for k in numbers.unbind(1))
    a = _wide(run, run.one, one)
    b = a if run.symmetric and torch.equal(one, two) else _wide(run, run.two, two)
    left = _compiled(run, whole, a, b, numbers, torch.stack((rows, cols), 1))
    if not len(left):
        return
    numbers, rows, cols = numbers[left], rows[left], cols[left]
    if len(numbers) * MOSTLY > len(one) * len(two):
        _blocks(run, whole, a, b, numbers, torch.stack((rows, cols), 1))
        return
    for some in torch.arange(len(numbers), device=numbers.device).split(run.plan.few):
        i, j = rows[some], cols[some]
        found = keyed(run.pairs(a.rows(i), b.cols(j, aligned=True), run.get, run.work()))
        for key, value in found.items():
            whole.put(key, value[:, 0], (numbers[some, 0], numbers[some, 1]))


def _compiled(run: Blocks, whole: Whole, a: Any, b: Any, numbers: Tensor, places: Tensor) -> Tensor:
    """Which entries are left."""
    found = None
    if run.one.dtype == torch.float32 and run.compiled is not None:
        twice = (numbers[:, 0] == numbers[:, 1]) & run.symmetric
        found = run.compiled.entries(a, b, places[:, 0], places[:, 1], twice)
    if found is None:
        return torch.arange(len(numbers), device=numbers.device)
    values, near = found
    for key, value in values.items():
        whole.put(key, value[~near], (numbers[~near, 0], numbers[~near, 1]))
    return near.nonzero().flatten()


def _blocks(run: Blocks, whole: Whole, a: Any, b: Any, numbers: Tensor, places: Tensor) -> None:
    """By blocks, in which the inputs share more than in pairs of their own; of which the near pairs are taken."""
    for rows, cols in run.plan.blocks(a.data.samples, b.data.samples, False):
        start = torch.tensor([rows.start, cols.start], device=places.device)
        end = torch.tensor([rows.stop, cols.stop], device=places.device)
        inside = ((places >= start) & (places < end)).all(1)
        if not bool(inside.any()):
            continue
        i, j = (places[inside] - start).unbind(1)
        for key, value in keyed(run.pairs(a.rows(rows), b.cols(cols), run.get, run.work())).items():
            whole.put(key, value[i, j], (numbers[inside, 0], numbers[inside, 1]))


def _wide(run: Blocks, data: Inputs, numbers: Tensor) -> Any:
    some = data.slice(numbers).to(torch.float64)
    return run.quantities(some, slice(0, some.samples))
