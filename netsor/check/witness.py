"""Numeric witnesses against clauses 1 and 2, found by running the program at a small width and replayed from a seed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from netsor import ir
from netsor.check.evaluate import Array, NoValue
from netsor.check.finite import Values, execute, generic, pay
from netsor.check.shapes import Sizes, fitting
from netsor.check.work import Work

_TOLERANCE = 1e-7


@dataclass(frozen=True)
class Witness:
    """At this seed and width `vector` changes from `before` to `after` (one coordinate of it) in the way shown."""

    clause: int
    vector: str
    readouts: tuple[str, ...]
    seed: int
    width: int
    before: float
    after: float

    def __str__(self) -> str:
        names = ", ".join(self.readouts)
        if not self.readouts:
            return f"a coordinate of {self.vector} is {self.before:.6g}, and nothing changes its sign"
        what = f"flipping the sign of {names}" if self.clause == 1 else f"drawing {names} anew"
        return f"{what} takes a coordinate of {self.vector} from {self.before:.6g} to {self.after:.6g}"

    def replay(self, lines: Sequence[ir.Line]) -> bool:
        """Run the program again: does the witness still refute the clause?"""
        runs = Runs(lines, self.width, (self.seed,))
        by_name = {line.out.name: line.out for line in lines}
        chosen = [by_name[name] for name in self.readouts]
        vector = by_name[self.vector]
        again = runs.not_odd(vector, chosen) if self.clause == 1 else runs.depends(vector, chosen)
        return again is not None


class Runs:
    """Runs of one program in general position, kept for several questions."""

    def __init__(
        self, lines: Sequence[ir.Line], width: int = 6, seeds: Sequence[int] = (0, 1), work: Work | None = None
    ) -> None:
        self.lines = lines
        self.work = work or Work()
        self.seeds = tuple(seeds)
        self.sizes: Sizes = fitting(lines, width)
        self._changed: dict[tuple[int, str, frozenset[ir.Var]], Values | None] = {}

    @cached_property
    def inputs(self) -> dict[int, Values]:
        return {s: generic(self.lines, self.sizes, np.random.default_rng(s)) for s in self.seeds}

    def values(self, seed: int, how: str, chosen: Collection[ir.Var]) -> Values | None:
        """All variables with the chosen inputs flipped or drawn anew; None when the program has no numpy value."""
        key = (seed, how if chosen else "", frozenset(chosen))
        if key not in self._changed:
            pay(self.work, self.lines, self.sizes)  # before arrays are made
            inputs = dict(self.inputs[seed])
            rng = np.random.default_rng((seed, 1))
            for v in chosen:
                inputs[v] = np.asarray(-inputs[v] if how == "flip" else rng.standard_normal(inputs[v].shape))
            try:
                self._changed[key] = execute(self.lines, inputs, self.sizes)
            except NoValue:
                self._changed[key] = None
        return self._changed[key]

    def depends(self, v: ir.Var, chosen: Collection[ir.Var]) -> Witness | None:
        """A witness that v depends on the chosen inputs."""
        return self._compare(v, chosen, "draw", 1.0, 2)

    def not_odd(self, v: ir.Var, chosen: Collection[ir.Var]) -> Witness | None:
        """A witness that v does not change sign with the chosen inputs."""
        return self._compare(v, chosen, "flip", -1.0, 1)

    def _compare(self, v: ir.Var, chosen: Collection[ir.Var], how: str, sign: float, clause: int) -> Witness | None:
        for seed in self.seeds:
            base, changed = self.values(seed, how, ()), self.values(seed, how, chosen)
            if base is None or changed is None:
                return None
            place = _largest_difference(sign * base[v], changed[v])
            if place is not None:
                names = tuple(sorted(c.name for c in chosen))
                before, after = float(base[v][place]), float(changed[v][place])
                return Witness(clause, v.name, names, seed, self.sizes.width, before, after)
        return None


def _largest_difference(expected: Array, actual: Array) -> tuple[int, ...] | None:
    """Where two arrays differ most, if by more than rounding."""
    difference = np.abs(expected - actual)
    difference = np.where(np.isfinite(difference), difference, 0.0)
    scale = np.nanmax(np.where(np.isfinite(expected), np.abs(expected), 0.0), initial=0.0)
    if difference.size == 0 or difference.max() <= _TOLERANCE * (1.0 + scale):
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), difference.shape))
