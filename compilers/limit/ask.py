"""`ns.limit`: the true limit of a program."""

from __future__ import annotations

from collections.abc import Sequence

from netsor.build.declared import Holder, as_program
from netsor.build.program import Program
from netsor.compilers.budget.plan import parse_memory
from netsor.compilers.evaluate.arguments import Arrays, as_draws
from netsor.compilers.finite.inputs import bind
from netsor.compilers.limit.result import METHODS, LimitResult
from netsor.errors import InputError
from netsor.passes.backward import with_backward


def limit(
    p: Program | Holder, x: Arrays | None = None, tol: float | None = None, samples: int | None = None,
    seed: int = 0, methods: Sequence[str] = METHODS, memory: float | str = 2e9, progress: bool | None = None,
) -> LimitResult:  # fmt: skip
    """The true limit of a program on inputs x, by the general Master Theorem; backward lines are added for the NTK.

    Each question by the first of `methods` that answers it: exact rationals when all functions are polynomials,
    quadrature where expectations are of one or two Gaussian variables, else samples (`tol` and `samples` as in
    `ns.compile`; `memory` bounds their bytes; `progress` draws a bar, by default on a terminal). `result.gia` answers
    the same questions under the gradient independence assumption.

    >>> r = ns.limit(ns.programs.gia_counterexample(), np.zeros((1, 2)))  # section 6.3 of the paper
    >>> r.mean("dx1"), r.second_moment("dx1"), r.gia.mean("dx1")
    (array([2], dtype=object), array([[8]], dtype=object), array([0], dtype=object))
    """
    unknown = [m for m in methods if m not in METHODS]
    if unknown or not methods:
        raise InputError(f"methods are {', '.join(METHODS)}, got {', '.join(unknown) or 'none'}", code="NT605")
    program = with_backward(as_program("ns.limit", p))
    groups = bind(program, x)
    chosen = tuple(m for m in METHODS if m in methods)
    options = as_draws(tol, samples, seed) | {"memory": parse_memory(memory), "progress": progress}
    return LimitResult(program, groups, True, options, chosen)
