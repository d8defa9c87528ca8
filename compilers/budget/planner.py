"""Which blocks the calls of a kernel take, and what is known of their time before they run."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from netsor.compilers.budget import cost as costs
from netsor.compilers.budget.plan import ALL, Call, Limits, Plan, evened
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.evaluate.inputs import Inputs


class Planner:
    """The plans of the calls of one kernel; what depends on the sizes of axes alone is looked up once.

    `recursion` gives the recursion of the kernels of some names; the inputs of a call are `Inputs`.
    """

    def __init__(self, recursion: Callable[[tuple[str, ...]], Recursion]) -> None:
        self._recursion = recursion
        self._sides: dict[Hashable, tuple[Plan, int]] = {}

    def plan(self, get: tuple[str, ...], one: Inputs, call: Call, limits: Limits) -> Plan:
        if limits.tile is not None:
            return Plan(limits.tile)
        if limits.memory is not None:
            sizes, kind = one.features(), one.device.type
            return costs.plan(self._recursion(get), call, sizes, one.dtype.itemsize, limits.memory, kind)
        usual = self._usual(get, one)[0]
        return replace(usual, tile=evened(usual.tile, call.longest))

    def _usual(self, get: tuple[str, ...], one: Inputs) -> tuple[Plan, int]:
        """Blocks for inputs of these sizes, and the operations of one pair."""
        key = (get, tuple(one.features().items()), one.dtype.itemsize, one.device.type)
        if key not in self._sides:
            sizes, r = one.features(), self._recursion(get)
            found = costs.plan(r, Call(ALL, ALL, False), sizes, one.dtype.itemsize, None, one.device.type)
            self._sides[key] = found, sum(costs.operations(r, sizes))
        return self._sides[key]

    def expected(self, get: tuple[str, ...], one: Inputs, call: Call, plan: Plan) -> float:
        """Seconds, of calls of more than a few seconds: to measure the machine's rate takes some milliseconds too."""
        if call.pairs * self._usual(get, one)[1] < 5 * costs.SECOND:
            return 0.0
        return costs.seconds(self._recursion(get), call, one.features(), plan, one.dtype, one.device)
