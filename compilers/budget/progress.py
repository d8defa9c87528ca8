"""What a long call says: how long it is expected to take, and how far it is."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from netsor.errors import SlowWarning

LONG = 10.0  # seconds beyond which a call is announced
ENOUGH = 2.0  # seconds of work by which the rest is judged
DELAY = 2.0  # seconds after which a bar is drawn
LARGE = 10**10  # operations of linear algebra whose time is worth estimating
NOTHING = "nothing is kept"
STORES = "nothing is kept: a store (store='k.zarr', -o K.zarr) keeps the blocks that are complete"


class Progress:
    """A context for `total` units of work: one SlowWarning when they take long, a bar, and what Ctrl-C leaves.

    `show`: None draws the bar on a terminal only. `expected` seconds are what is known before anything is measured;
    the first units correct them. `kept` says after Ctrl-C what is not lost; without it a context inside may say so.
    """

    def __init__(
        self, what: str = "", total: int = 0, unit: str = "pairs", show: bool | None = None, expected: float = 0.0,
        announced: bool = False, kept: str | Callable[[], str] = "",
    ) -> None:  # fmt: skip
        self.what, self.total, self.unit, self.show = what, total, unit, show
        self.expected, self.announced, self.kept = expected, announced, kept
        self.count = self._depth = 0
        self._bar: Any = None
        self._start = self._first = 0.0
        self._last = (0.0, 0.0)  # when the last step was done, and its seconds a unit

    def __enter__(self) -> Progress:
        self._depth += 1
        if self._depth > 1:
            return self
        self._start = self._first = time.monotonic()
        if self.expected > LONG:
            self._announce(self.expected)
        if self.expected > DELAY:
            self._draw(self.expected, 0.0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *place: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        if self._bar is not None:
            self._bar.close()
        if isinstance(error, KeyboardInterrupt) and (self.kept or not error.args):
            said = self.kept if isinstance(self.kept, str) else self.kept()
            raise KeyboardInterrupt(said or NOTHING) from None

    def ready(self) -> None:
        """What comes before the first unit is done."""
        if not self.count:
            self._first = time.monotonic()

    def goal(self, total: int) -> None:
        """So many units in all, as is known now."""
        self.total = total
        if self._bar is not None:
            self._bar.total = total
            self._bar.refresh()

    def done(self, count: int) -> None:
        """So many more units are done."""
        now = time.monotonic()
        before = self._last[0] if self.count else self._first
        self.count += count
        self._last = now, (now - before) / max(count, 1)
        if self._bar is not None:
            self._bar.update(count)
        elif self.count < self.total:
            self._look()

    def _look(self) -> None:
        passed = time.monotonic() - self._start
        mean = (time.monotonic() - self._first) / max(self.count, 1)
        each = min(self._last[1], mean)  # the first steps prepare what later ones share; any one may wait
        whole = passed + each * (self.total - self.count)
        if whole > LONG and passed > ENOUGH:
            self._announce(whole)
        if self.show or whole > DELAY:
            self._draw(whole, max(0.0, DELAY - passed))

    def _draw(self, seconds: float, delay: float) -> None:
        """The bar, with what the whole is expected to take."""
        if self.show or (self.show is None and terminal()):
            from tqdm import tqdm

            self._bar = tqdm(
                total=self.total, initial=self.count, desc=f"{self.what}, {spoken(seconds)}", unit=f" {self.unit}",
                unit_scale=True, leave=False, delay=0 if self.show else delay, file=sys.stderr,
            )  # fmt: skip

    def _announce(self, seconds: float) -> None:
        if not self.announced:
            self.announced = True
            text = f"{self.what}: {self.total:,} {self.unit} are expected to take {spoken(seconds)}"
            warnings.warn(text, SlowWarning, stacklevel=outside())


def outside() -> int:
    """The `stacklevel` of a warning from our caller: the first frame that is not of the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("netsor."):
        frame, level = frame.f_back, level + 1
    return level


def terminal() -> bool:
    """Is somebody looking?"""
    return sys.stderr is not None and sys.stderr.isatty()


def spoken(seconds: float) -> str:
    """Seconds to two digits."""
    if seconds < 1:
        return "less than a second"
    digits = max(0, math.floor(math.log10(seconds)) - 1)
    return f"about {round(seconds / 10**digits) * 10**digits:,} s"


@lru_cache(maxsize=8)
def rate(device: torch.device, dtype: torch.dtype) -> float:
    """Seconds of an operation (`Cost.operations`): sixty are the expectation of a pair of relu, a third of it here."""
    x = torch.linspace(-0.9, 0.9, 1 << 18, dtype=dtype, device=device)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        float((torch.acos(x) * x + (1 - x * x).sqrt()).sum())
        times.append(time.perf_counter() - start)
    return min(times) / (20 * len(x))


def dense(what: str, operations: float, device: torch.device) -> Progress:
    """Of one call of linear algebra, which cannot be looked into: as long as the rate of a product says."""
    expected = operations * product_rate(device) if operations >= LARGE else 0.0
    return Progress(what, 1, "steps", expected=expected)


@lru_cache(maxsize=8)
def product_rate(device: torch.device) -> float:
    """Seconds of an operation of a matrix product in float64."""
    x = torch.ones(384, 384, dtype=torch.float64, device=device)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        float((x @ x)[0, 0])
        times.append(time.perf_counter() - start)
    return min(times) / (2 * 384**3)
