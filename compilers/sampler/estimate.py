"""Means over independent scrambles, with standard errors, until a tolerance or a number of draws is met.

One scramble gives every quantity once, from `count` draws. Covariances are estimated from the same draws, which biases
a scramble's result by the order of its own variance, O(1/count): the standard error of the mean over R scrambles is
the scramble's deviation s/√R, the bias about s² relative, so it stays below the error while s ≪ 1/√R.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from netsor.compilers.progress import Progress
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
    announce: Announce | None = None, shown: Progress | None = None,
) -> Estimate:  # fmt: skip
    """Run `sample` on growing numbers of draws until `relative` is at most `tol`, or on `samples` draws in all.

    `stored()` is how many numbers the last run kept; `memory` bounds their bytes. `announce` is told of the plan before
    the first of its draws.
    """
    place = device or torch.device("cpu")
    pilot = Normals(PILOT, 0, seed, -1, place)
    sample(pilot)
    rate = _timed(lambda: sample(Normals(PILOT, pilot.used, seed, -1, place))) / PILOT if announce else 0.0
    directions = pilot.used + 8  # ranks may grow a little with the number of draws
    per_draw = 8 * (
        1.5 * stored() / PILOT + 8 * directions
    )  # with what is made of them, and on the way to Sobol points
    largest = max(PILOT, min(MOST, power(int(memory / per_draw) // 2)))
    with shown or Progress() as bar:
        run = Scrambles(sample, relative, directions, seed, place, bar)
        if samples is not None:
            count = min(largest, power(-(-samples // SCRAMBLES)))
            runs = max(SCRAMBLES, round(samples / count))
            if announce is not None:
                announce(Forecast(count * runs, count * runs, None, rate))
            return run(count, range(runs), {})
        goal = TOLERANCE if tol is None else tol
        if announce is not None:
            first = SCRAMBLES * min(FIRST, largest)
            announce(Forecast(first, max(first, SCRAMBLES * ROUNDS * largest), goal, rate))
        return _refined(run, goal, min(FIRST, largest), largest)


@dataclass(frozen=True)
class Forecast:
    """How many draws there will be, at least and at most, until the relative error is `goal`; seconds of one draw."""

    least: int
    most: int
    goal: float | None
    rate: float


Announce = Callable[[Forecast], None]


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _refined(run: Scrambles, goal: float, count: int, largest: int) -> Estimate:
    """More draws a scramble, then more scrambles, until the error is at most the goal."""
    found = run(count, range(SCRAMBLES), {})
    while found.relative > goal and count < largest:
        count = min(largest, count * (4 if found.relative > 2 * goal else 2))
        found = run(count, range(SCRAMBLES), {})
    kept: dict[int, Quantities] = {}
    runs = SCRAMBLES
    while found.relative > goal and runs < SCRAMBLES * ROUNDS:
        runs *= 2
        found = run(count, range(runs), kept)
    return found


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


@dataclass
class Scrambles:
    """Means over independent scrambles of so many draws each; those in `kept` are not run again."""

    sample: Sample
    relative: Relative
    directions: int
    seed: int
    device: torch.device
    shown: Progress

    def __call__(self, count: int, numbers: range, kept: dict[int, Quantities]) -> Estimate:
        self.shown.goal(self.shown.count + count * sum(i not in kept for i in numbers))
        for i in numbers:
            if i not in kept:
                kept[i] = self.sample(Normals(count, self.directions, self.seed, i, self.device))
                self.shown.done(count)
        names = kept[0]
        stacks = {name: torch.stack([kept[i][name] for i in numbers]) for name in names}
        mean = {name: stack.mean(0) for name, stack in stacks.items()}
        error = {name: stack.std(0) / len(numbers) ** 0.5 for name, stack in stacks.items()}
        return Estimate(mean, error, self.relative(mean, error), count, len(numbers))
