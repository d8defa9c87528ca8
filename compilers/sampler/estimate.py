"""Means over independent scrambles, with standard errors, until a tolerance or a number of draws is met.

One scramble gives every quantity once, from `count` draws. Covariances are estimated from the same draws, which biases
a scramble's result by the order of its own variance, O(1/count): the standard error of the mean over R scrambles is
the scramble's deviation s/√R, the bias about s² relative, so it stays below the error while s ≪ 1/√R.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from netsor.compilers.sampler.normals import Normals

Quantities = dict[str, Tensor]
Sample = Callable[[Normals], Quantities]
Relative = Callable[[Quantities, Quantities], float]  # of means and standard errors

SCRAMBLES = 16
PILOT, FIRST, MOST = 2**8, 2**11, 2**17  # draws per scramble
TOLERANCE, ROUNDS = 1e-3, 16


@dataclass(frozen=True)
class Estimate:
    """Means and standard errors by name; `relative` is the largest relative error; draws per scramble, scrambles."""

    mean: Quantities
    error: Quantities
    relative: float
    count: int
    scrambles: int


def estimate(
    sample: Sample, relative: Relative, stored: Callable[[], int], *, tol: float | None = None,
    samples: int | None = None, seed: int = 0, device: torch.device | None = None, memory: float = 2e9,
) -> Estimate:  # fmt: skip
    """Run `sample` on growing numbers of draws until `relative` is at most `tol`, or on `samples` draws in all.

    `stored()` is how many numbers the last run kept; `memory` bounds their bytes.
    """
    place = device or torch.device("cpu")
    pilot = Normals(PILOT, 0, seed, -1, place)
    sample(pilot)
    directions = pilot.used + 8  # ranks may grow a little with the number of draws
    per_draw = 8 * (stored() / PILOT + directions)
    largest = max(PILOT, min(MOST, power(int(memory / per_draw) // 2)))
    if samples is not None:
        count = min(largest, power(-(-samples // SCRAMBLES)))
        runs = max(SCRAMBLES, round(samples / count))
        return _scrambles(sample, relative, count, range(runs), directions, seed, place, {})
    goal = TOLERANCE if tol is None else tol
    count = min(FIRST, largest)
    found = _scrambles(sample, relative, count, range(SCRAMBLES), directions, seed, place, {})
    while found.relative > goal and count < largest:
        count = min(largest, count * (4 if found.relative > 2 * goal else 2))
        found = _scrambles(sample, relative, count, range(SCRAMBLES), directions, seed, place, {})
    kept: dict[int, Quantities] = {}
    runs = SCRAMBLES
    while found.relative > goal and runs < SCRAMBLES * ROUNDS:
        runs *= 2
        found = _scrambles(sample, relative, count, range(runs), directions, seed, place, kept)
    return found


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def _scrambles(
    sample: Sample, relative: Relative, count: int, numbers: range, directions: int, seed: int, device: torch.device,
    kept: dict[int, Quantities],
) -> Estimate:  # fmt: skip
    for i in numbers:
        if i not in kept:
            kept[i] = sample(Normals(count, directions, seed, i, device))
    names = kept[0]
    stacks = {name: torch.stack([kept[i][name] for i in numbers]) for name in names}
    mean = {name: stack.mean(0) for name, stack in stacks.items()}
    error = {name: stack.std(0) / len(numbers) ** 0.5 for name, stack in stacks.items()}
    return Estimate(mean, error, relative(mean, error), count, len(numbers))
