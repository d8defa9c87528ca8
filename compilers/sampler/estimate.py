"""Means over independent scrambles, with standard errors, until a tolerance or a number of draws is met.

One scramble gives every quantity once, from `count` draws. Covariances are estimated from the same draws, which biases
a scramble's result by O(1/count), in proportion to the number of directions that are drawn. The standard error of the
mean over R scrambles is the scramble's deviation s/√R. For kernels the bias is about s² relative, below the error while
s ≪ 1/√R. After many steps of training it is not, and `corrected` takes it away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from netsor.compilers.budget.progress import Progress
from netsor.compilers.sampler.normals import Normals
from netsor.errors import InputError

K = TypeVar("K", bound=Hashable)  # what a quantity is called by
Sample = Callable[[Normals], dict[K, Tensor]]
Relative = Callable[[dict[K, Tensor], dict[K, Tensor]], float]  # of means and standard errors

SCRAMBLES = 16
PILOT, FIRST, MOST = 2**8, 2**11, 2**17  # draws per scramble
TOLERANCE, ROUNDS = 1e-3, 16


PER_DIRECTION = 8  # draws a scramble for every direction, so that the bias of halves is of first order


@dataclass(frozen=True)
class Change:
    """What a correction changes of a quantity."""

    of: Hashable


def corrected(sample: Sample[K]) -> Sample[K | Change]:
    """Without the bias of order 1/count: 2 q − (q₁ + q₂)/2 with q₁ and q₂ from the halves of the same draws.

    What is linear in the draws' distribution stays as it is, so the variance does not grow (Quenouille 1956).
    """

    def run(normals: Normals) -> dict[K | Change, Tensor]:
        whole = sample(normals)
        one, two = (sample(half) for half in normals.halves())
        change = {name: q - (one[name] + two[name]) / 2 for name, q in whole.items()}
        better: dict[K | Change, Tensor] = {name: q + change[name] for name, q in whole.items()}
        return better | {Change(name): c for name, c in change.items()}

    return run


@dataclass(frozen=True)
class Estimate(Generic[K]):
    """Means and standard errors; `relative` is the largest relative error; draws per scramble, scrambles."""

    mean: dict[K, Tensor]
    error: dict[K, Tensor]
    relative: float
    count: int
    scrambles: int


def estimate(
    sample: Sample[K], relative: Relative[K], stored: Callable[[], int], *, tol: float | None = None,
    samples: int | None = None, seed: int = 0, device: torch.device | None = None, memory: float = 2e9,
    announce: Announce | None = None, shown: Progress | None = None, per_direction: int = 0,
    scrambles: Callable[..., Rounds[K]] | None = None,
) -> Estimate[K]:  # fmt: skip
    """Run `sample` on growing numbers of draws until `relative` is at most `tol`, or on `samples` draws in all.

    `stored()` is how many numbers the last run kept; `memory` bounds their bytes. A scramble has `per_direction` draws
    or more for every direction. `announce` is told of the plan before the first of its draws. `scrambles` makes, from
    the arguments of `Scrambles`, what takes its place.
    """
    place = device or torch.device("cpu")
    pilot = _pilot(sample, seed, place)
    rate = _timed(lambda: sample(Normals(PILOT, pilot.used, seed, -1, place))) / PILOT if announce else 0.0
    directions = pilot.used + 8  # ranks may grow a little with the number of draws
    # with what is made of them, and on the way to Sobol points
    per_draw = 8 * (1.5 * stored() / pilot.count + 8 * directions)
    needed = power(per_direction * directions) if per_direction else 1
    least = max(PILOT, needed)
    largest = min(MOST, power(int(memory / per_draw) + 1) // 2)
    if largest < least:
        raise InputError(
            f"{least} draws at once of {directions} Gaussian variables take {per_draw * least / 1e9:.2g} GB, more than"
            f" memory={memory:.2g}", code="NT606",
            hint=f"memory={1.1 * per_draw * least:.2g}, or fewer samples, steps or layers",
        )  # fmt: skip
    with shown or Progress() as bar:
        run = (scrambles or Scrambles)(sample, relative, directions, seed, place, bar)
        if samples is not None:
            count = max(needed, min(largest, power(-(-samples // SCRAMBLES))))
            runs = max(SCRAMBLES, round(samples / count))
            if announce is not None:
                announce(Forecast(count * runs, count * runs, None, rate))
            return run(count, range(runs), {})
        goal, first = TOLERANCE if tol is None else tol, max(least, min(FIRST, largest))
        if announce is not None:
            most = max(SCRAMBLES * first, SCRAMBLES * ROUNDS * largest)
            announce(Forecast(SCRAMBLES * first, most, goal, rate))
        return _refined(run, goal, first, largest)


def _pilot(sample: Sample[K], seed: int, device: torch.device) -> Normals:
    """A run that shows the number of directions, which are fewer than its draws."""
    count = PILOT
    while True:
        normals = Normals(count, 0, seed, -1, device)
        sample(normals)
        if 2 * normals.used <= count or count >= MOST:
            return normals
        count *= 4


@dataclass(frozen=True)
class Forecast:
    """How many draws there will be, at least and at most, until the relative error is `goal`; seconds of one draw."""

    least: int
    most: int
    goal: float | None
    rate: float


Announce = Callable[[Forecast], None]
Rounds = Callable[[int, range, dict[int, dict[K, Tensor]]], Estimate[K]]  # draws a scramble, scrambles, known ones


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _refined(run: Rounds[K], goal: float, count: int, largest: int) -> Estimate[K]:
    """More draws a scramble, then more scrambles, until the error is at most the goal."""
    found = run(count, range(SCRAMBLES), {})
    while found.relative > goal and count < largest:
        count = min(largest, count * (4 if found.relative > 2 * goal else 2))
        found = run(count, range(SCRAMBLES), {})
    kept: dict[int, dict[K, Tensor]] = {}
    runs = SCRAMBLES
    while found.relative > goal and runs < SCRAMBLES * ROUNDS:
        runs *= 2
        found = run(count, range(runs), kept)
    return found


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


@dataclass
class Scrambles(Generic[K]):
    """Means over independent scrambles of so many draws each; those in `kept` are not run again."""

    sample: Sample[K]
    relative: Relative[K]
    directions: int
    seed: int
    device: torch.device
    shown: Progress

    def __call__(self, count: int, numbers: range, kept: dict[int, dict[K, Tensor]]) -> Estimate[K]:
        self.shown.goal(self.shown.count + count * sum(i not in kept for i in numbers))
        for i in numbers:
            if i not in kept:
                kept[i] = self.sample(Normals(count, self.directions, self.seed, i, self.device))
                self.shown.done(count)
        stacks = {name: torch.stack([kept[i][name] for i in numbers]) for name in kept[0]}
        changes = {name.of: stack for name, stack in stacks.items() if isinstance(name, Change)}
        names = [name for name in stacks if not isinstance(name, Change)]
        mean = {name: stacks[name].mean(0) for name in names}
        error = {name: stacks[name].std(0) / len(numbers) ** 0.5 for name in names}
        for name in names:  # half of what a correction changes is taken as its error
            if name in changes:
                error[name] = torch.hypot(error[name], changes[name].mean(0) / 2)
        return Estimate(mean, error, self.relative(mean, error), count, len(numbers))
