"""What is known of C-vars: a range that holds them at every width, and the limit where it can be told.

Ranges: a moment of a function with values in [a, b] lies in [a, b]; a softmax in [0, 1]; an input scalar near its given
limit; index forms keep a range, sums keep its sign. Limits of input scalars are given; those of derived scalars are
sampled (one large width, several seeds) where the program has no data or the data are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, assert_never

import numpy as np
import sympy as sp

from netsor import ir
from netsor.checker.regularity.bounds import bound
from netsor.checker.regularity.growth import RangesKey, proven
from netsor.checker.regularity.intervals import INF, Bound
from netsor.facts import inputs_of
from netsor.indexing import IndexMap, index_map
from netsor.measure import MOST_NODES, written_size
from netsor.run.expressions import Array, NoValue
from netsor.run.flow import fixpoint
from netsor.run.lines import execute, is_constant, natural, pay
from netsor.run.shapes import Sizes, fitting
from netsor.run.work import SpentError, Work
from netsor.signs.collapse import Collapse

_NEAR = 1e-6  # how far a neighbourhood of a limit reaches, relatively; any positive number would do


@dataclass(frozen=True)
class Limit:
    """A limit and its standard error (0: exact); a family's limits lie between `value` and `top`."""

    value: float
    error: float = 0.0
    top: float | None = None

    @property
    def near(self) -> Bound:
        """An interval that holds the limits and neighbourhoods of them."""
        low = neighbourhood(self.value, self.error).low
        return Bound(low, neighbourhood(self.value if self.top is None else self.top, self.error).high)


def neighbourhood(limit: float, error: float = 0.0) -> Bound:
    """A small interval around a limit that is known up to a standard error."""
    radius = _NEAR * max(1.0, abs(limit)) + 6 * error
    return Bound(limit - radius, limit + radius)


def ranges(lines: Sequence[ir.Line], work: Work | None = None) -> dict[ir.Var, Bound]:
    """A range of every C-var, and of the coordinates of every H-var."""
    found: dict[ir.Var, Bound] = {}

    def update(line: ir.Line) -> bool:
        if line.out.kind == "A":
            return False
        if isinstance(line, ir.Nonlin | ir.Moment) and work and not work.affords(written_size(line.expr), line.expr):
            value = Bound()
        else:
            value = _range(line, found)
        before = found.get(line.out)
        if before is not None and (value.low < before.low or value.high > before.high):
            value = Bound()  # a scan that widens: no claim
        found[line.out] = value
        return value != before

    fixpoint(lines, update, work)
    return found


def _range(line: ir.Line, found: Mapping[ir.Var, Bound]) -> Bound:
    match line:
        case ir.InputScalar():
            return _given(line)
        case ir.Moment() | ir.Nonlin():
            table = {ir.arg(i): found.get(v, _ANY) for i, v in enumerate(line.args)}
            table |= {ir.param(j): found.get(c, _ANY) for j, c in enumerate(line.params)}
            return _of_expression(line.expr, tuple(pair for pair in table.items() if pair[1] != _ANY))
        case ir.Softmax():
            return Bound(0.0, 1.0)
        case ir.Reduce():
            of = found.get(line.of, _ANY)
            return _summed(of, line.of.size(line.axis)) if line.op == "sum" else of
        case ir.IndexLine():
            return _moved(index_map(line), found.get(line.of, _ANY))
        case ir.InputMatrix() | ir.InputVector() | ir.Data() | ir.Trsp() | ir.MatMul():
            return _ANY
        case _:
            assert_never(line)


_ANY = Bound()


def _moved(m: IndexMap, of: Bound) -> Bound:
    if m.transposed and m.tap is not None:
        return _ANY  # a sum
    return _with_zero(of) if m.transposed or m.outside != "never" else of


@lru_cache(maxsize=4096)
def _of_expression(e: sp.Expr, table: tuple[tuple[sp.Symbol, Bound], ...]) -> Bound:
    b = bound(e, dict(table))
    return Bound(b.low, b.high) if b.defined else _ANY


def _summed(of: Bound, size: ir.Size) -> Bound:
    """A sum over an axis has at least one term."""
    if isinstance(size, int):
        return Bound(of.low * size, of.high * size)
    return Bound(of.low if of.low >= 0 else -INF, of.high if of.high <= 0 else INF)


def constants(lines: Sequence[ir.Line]) -> set[ir.Var]:
    """C-vars that are the same at every width: arrays of numbers, scalars given per sample, functions of these."""
    found: set[ir.Var] = set()
    for line in lines:
        if line.out.kind == "C" and not (isinstance(line, ir.Moment) and line.args):
            given = isinstance(line, ir.InputScalar) and (line.per_sample or is_constant(line))
            if given or (not isinstance(line, ir.InputScalar) and all(v in found for v in inputs_of(line))):
                found.add(line.out)
    return found


def _given(line: ir.InputScalar) -> Bound:
    if line.limit is None:
        return Bound()
    if line.limit == "position":
        return Bound(0.0, INF)
    values = np.asarray(line.limit, dtype=float)
    if is_constant(line):
        return Bound(float(values.min()), float(values.max()))
    around = [neighbourhood(float(v)) for v in values.flat]
    return Bound(min(b.low for b in around), max(b.high for b in around))


def _with_zero(of: Bound) -> Bound:
    """Windows, places and shifts read zeros outside."""
    return Bound(min(0.0, of.low), max(0.0, of.high))


# ---------------------------------------------------------------- limits


def data_sizes(lines: Sequence[ir.Line], width: int, data: Mapping[str, Any]) -> Sizes:
    """All sizes, those of axes and features read off the given data."""
    if not data:
        return fitting(lines, width)
    axes: dict[str, int] = {}
    features: dict[str, int] = {}
    for line in lines:
        if line.out.name not in data or not isinstance(line, ir.Data | ir.InputScalar):
            continue
        array = np.asarray(data[line.out.name])
        axes |= {d.axis.name: s for d, s in zip(line.out.dims, array.shape, strict=False)}
        if isinstance(line, ir.Data):
            features[line.out.name] = array.shape[-1]
    return Sizes(width, axes, features)


def known_data(lines: Sequence[ir.Line], data: Mapping[str, Any]) -> bool:
    """Every network input is given, so that limits are those of one network."""
    return all(
        line.out.name in data
        for line in lines
        if isinstance(line, ir.Data) or (isinstance(line, ir.InputScalar) and line.limit is None)
    )


_WIDTH, _SEEDS, _BUDGET = 256, 8, 2.0e9


def limits(lines: Sequence[ir.Line], data: Mapping[str, Any], work: Work | None = None) -> dict[ir.Var, Limit]:
    """Limits of C-vars: given, or sampled with a standard error; only the given ones where sampling costs too much."""
    found = {
        line.out: Limit(float(line.limit))
        for line in lines
        if isinstance(line, ir.InputScalar) and line.limit is not None and not line.out.dims
    }
    derived = [line.out for line in lines if line.out.kind == "C" and not isinstance(line, ir.InputScalar)]
    cost = sum(isinstance(line, ir.MatMul) for line in lines) * _WIDTH**2 * _SEEDS
    if not derived or not known_data(lines, data) or cost > _BUDGET:
        return found
    sizes = data_sizes(lines, _WIDTH, data)
    samples: dict[ir.Var, list[Array]] = {v: [] for v in derived}
    try:
        pay(work or Work(), lines, sizes, _SEEDS)
        for seed in range(_SEEDS):
            values = execute(lines, natural(lines, sizes, np.random.default_rng(seed), data), sizes)
            for v in derived:
                samples[v].append(values[v])
    except (NoValue, SpentError):
        return found
    return found | {v: _summary(np.array(s)) for v, s in samples.items()}


def _summary(samples: Array) -> Limit:
    """Mean and standard error over seeds, to which the finite width adds 1/n; the hull over a family."""
    mean, error = samples.mean(axis=0), samples.std(axis=0, ddof=1) / np.sqrt(_SEEDS) + 1.0 / _WIDTH
    return Limit(float(mean.min()), float(error.max()), float(mean.max()))


# ---------------------------------------------------------------- of the lines of a program


class Scalars:
    """Ranges and limits of the parameters of lines; limits are computed when first asked for."""

    def __init__(self, lines: Sequence[ir.Line], data: Mapping[str, Any], work: Work) -> None:
        self.lines, self.data = lines, data
        self.work = work
        self.ranges = ranges(lines, work)
        self.constants = constants(lines)
        self.given = {x.out: float(x.limit) for x in lines if isinstance(x, ir.InputScalar) and is_number(x)}
        self.collapse = Collapse(lines, work)
        self._limits: dict[ir.Var, Limit] | None = None

    @property
    def limits(self) -> dict[ir.Var, Limit]:
        if self._limits is None:
            self._limits = limits(self.lines, self.data, self.work)
        return self._limits

    def proven(self, e: sp.Expr, table: Mapping[sp.Symbol, Bound]) -> bool:
        """Bounds show that e is polynomially bounded, its symbols in these ranges."""
        key = ranges_key(table, e)
        return self.work.affords(min(written_size(e), MOST_NODES), ("bound", e, key)) and proven(e, key)

    def table(self, line: ir.Nonlin | ir.Moment) -> dict[sp.Symbol, Bound]:
        """Ranges of the parameters, and of those arguments that do not take all real values."""
        found = {ir.param(j): self.ranges.get(c, Bound()) for j, c in enumerate(line.params)}
        found |= {ir.arg(i): self.ranges.get(v, Bound()) for i, v in enumerate(line.args)}
        return {s: b for s, b in found.items() if b != Bound() or s.name.startswith("c")}

    def near_limit(self, line: ir.Nonlin | ir.Moment) -> tuple[dict[sp.Symbol, Bound], dict[sp.Symbol, float]]:
        """Ranges narrowed to the limits that are known, and the limits."""
        table, values = self.near({ir.param(j): c for j, c in enumerate(line.params)})
        return self.table(line) | table, values

    def near(self, symbols: Mapping[sp.Symbol, ir.Var]) -> tuple[dict[sp.Symbol, Bound], dict[sp.Symbol, float]]:
        """Ranges of what symbols stand for, those of scalars near their limits, and the limits that are known."""
        table, values = {s: self.ranges.get(v, Bound()) for s, v in symbols.items()}, {}
        for s, c in symbols.items():
            limit = self.limits.get(c) if c.kind == "C" else None
            if limit is None:
                continue
            table[s] = Bound(max(limit.near.low, table[s].low), min(limit.near.high, table[s].high))
            if limit.error == 0 and not c.dims:
                values[s] = limit.value
        return table, values


def ranges_key(table: Mapping[sp.Symbol, Bound], e: sp.Expr) -> RangesKey:
    """The ranges of what occurs in e, hashable."""
    return tuple(sorted(((c, b) for c, b in table.items() if c in e.free_symbols), key=lambda pair: pair[0].name))


def is_number(line: ir.Line) -> bool:
    """A scalar with a given limit."""
    return isinstance(line, ir.InputScalar) and line.limit is not None and not line.out.dims
