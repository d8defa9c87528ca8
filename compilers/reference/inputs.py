"""Inputs of the reference interpreter: programs unrolled at the sizes of each sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from netsor import facts, ir
from netsor.build.program import Program
from netsor.compilers.reference.values import Array
from netsor.passes.unroll import Unrolled
from netsor.run.inputs import by_name


@dataclass(frozen=True)
class Sample:
    """One sample: the program unrolled at its sizes, and the value of every data element and per-sample scalar."""

    unrolled: Unrolled
    values: Mapping[ir.Var, Any]

    def same(self, other: Sample) -> bool:
        """The same data?"""
        return self.unrolled is other.unrolled and all(
            np.array_equal(a, other.values[v]) for v, a in self.values.items()
        )


def samples_of(p: Program, x: Any, sizes: Mapping[str, int], known: dict[Any, Unrolled]) -> list[Sample]:
    """The samples of a batch; those of different size are unrolled apart, with the same random arrays."""
    return [_sample(p, one, sizes, known) for one in _split(p, x)]


def _split(p: Program, x: Any) -> list[dict[ir.Var, Array]]:
    """The arrays of each sample by input variable."""
    given = [line.out for line in facts.given(p.lines)]
    x = by_name([v.name for v in given], x)
    count = max((len(a) for a in x.values()), default=1)
    return [{v: np.asarray(x[v.name][i], dtype=np.float64) for v in given} for i in range(count)]


def _sample(p: Program, x: Mapping[ir.Var, Array], sizes: Mapping[str, int], known: dict[Any, Unrolled]) -> Sample:
    bound = dict(sizes) | {d.axis.name: n for v, a in x.items() for d, n in zip(v.dims, a.shape, strict=False)}
    key = tuple(sorted(bound.items()))
    if key not in known:
        known[key] = Unrolled(p, bound, next(reversed(known.values()), None))
    u = known[key]
    return Sample(u, {u.get(v, i): a[tuple(i.values())] for v, a in x.items() for i in u.indices(v)})
