"""Inputs of the reference interpreter: the value of every data element, one sample at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from netsor import ir
from netsor.compilers.reference_numpy import Array
from netsor.dsl import Program
from netsor.errors import InputError
from netsor.unroll import Unrolled


def named(p: Program, x: Any) -> dict[ir.Var, Array]:
    """Arrays by input variable."""
    given = [line.out for line in p.lines if isinstance(line, ir.Data) or getattr(line, "per_sample", False)]
    if not isinstance(x, Mapping):
        x = {} if x is None else {given[0].name: x}
    if {v.name for v in given} != set(x):
        raise InputError(f"the program's inputs are {', '.join(v.name for v in given) or 'none'}", code="NT604")
    return {v: np.asarray(x[v.name], dtype=np.float64) for v in given}


def sizes_of(p: Program, x: Mapping[ir.Var, Array]) -> Mapping[str, int]:
    return {d.axis.name: size for v, a in x.items() for d, size in zip(v.dims, a.shape[1:], strict=False)}


def samples_of(unrolled: Unrolled, x: Mapping[ir.Var, Array]) -> list[dict[ir.Var, Any]]:
    """Per sample, the value of every data element and per-sample scalar of the unrolled program."""
    count = max((len(a) for a in x.values()), default=1)
    samples: list[dict[ir.Var, Any]] = [{} for _ in range(count)]
    for v, a in x.items():
        for index in unrolled.indices(v):
            element = unrolled.get(v, index)
            for i in range(count):
                samples[i][element] = a[(i, *index.values())]
    return samples
