"""The coefficients of Mehler's series for all inputs of two batches, as the compiled functions read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks import mehler
from netsor.compilers.expectation.series.hermite import ROUNDING, Coefficients
from netsor.compilers.native.columns import evaluate
from netsor.compilers.native.expectations import Series

PAD = 64  # elements behind a table, which the last vectors of a strip read
FLOOR = 1e-18  # products of coefficients smaller than this, relative to the largest, are rounding


@dataclass(frozen=True)
class Terms:
    """r^k for k = first, first + step, …, `count` of them.

    `tails` are, after each, what is left over |r|^(k + 1) divided by what may be left; the series serves |r| ≤ reach
    with a relative error of `error`.
    """

    first: int
    step: int
    count: int
    tails: Tensor
    reach: float
    error: float


def padded(rows: Sequence[Tensor]) -> Tensor:
    """Functions `[n]` of the inputs as one table `[n, rows]`, each contiguous in memory."""
    count, n = len(rows), len(rows[0])
    flat = rows[0].new_zeros(count * n + PAD)
    whole = flat[: count * n].view(count, n)
    for i, row in enumerate(rows):
        whole[i] = row
    return whole.T


def tables(series: Series, one: Sequence[Tensor], two: Sequence[Tensor], degree: int) -> tuple[Tensor, Tensor, Terms]:
    """The coefficients of both sides, from what `each` has kept of the two batches."""
    k11, k22 = evaluate(series.k11, one), evaluate(series.k22, two)
    left, right = mehler.expansion(series.f, k11, degree), mehler.expansion(series.g, k22, degree)
    found = terms(left, right, k11.dtype)
    a, b = (padded(list(c.a[found.first :: found.step][: found.count])) for c in (left, right))
    return a, b, found


def terms(left: Coefficients, right: Coefficients, dtype: torch.dtype) -> Terms:
    """Which terms Σ a_k b_k r^k has."""
    size = left.a.abs().flatten(1).amax(1) * right.a.abs().flatten(1).amax(1)
    active = (size > FLOOR * size.max()).nonzero().flatten().tolist() or [0]
    parities = {k % 2 for k in active}
    step = 2 if len(parities) == 1 else 1
    first = max(parities) if step == 2 else 0
    powers = range(first, active[-1] + 1, step)
    target = mehler.TARGET[dtype]
    tails = [left.tails[k] * right.tails[k] / target for k in powers]
    reach = 2.0 if tails[-1] == 0 else (1 / tails[-1]) ** (1 / (powers[-1] + 1))
    error = left.error + right.error + ROUNDING + target
    return Terms(first, step, len(powers), torch.tensor(tails, dtype=torch.float64), min(reach, 2.0), error)
