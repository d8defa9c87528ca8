"""Rank stability (Assumption B.7): the rank of any set of arguments of a matrix survives the limit.

Automatic where no argument depends on a C-var otherwise than through a MatMul. Otherwise the singular values of the
normalised arguments are compared at two widths, for every set of up to six arguments and, of larger families, for the
whole, the single ones and the pairs: a singular value that is not zero but vanishes refutes; all of them staying away
from zero (or being zero at every width) confirms, for the given network input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from netsor import ir
from netsor.check.evaluate import Array, NoValue
from netsor.check.finite import Values, execute, natural, pay
from netsor.check.flow import fixpoint, uses
from netsor.check.scalars import data_sizes, known_data
from netsor.check.shapes import Sizes
from netsor.check.work import SpentError, Work
from netsor.facts import Use, inputs_of

_WIDTHS = (64, 1024)
_SEEDS = 5
_ALL_SETS = 6
_BUDGET = 1.0e8  # entries of matrices


def rank_stable(
    lines: Sequence[ir.Line], data: Mapping[str, Any], work: Work | None = None
) -> tuple[bool | None, str, int | None]:
    """The verdict, its reason, and the line of the matrix's last use that fails."""
    work = work or Work()
    try:
        groups = _groups(lines, work)
    except SpentError as spent:
        return None, str(spent), None
    if not groups:
        return True, "no argument of a matrix depends on a C-var", None
    if not known_data(lines, data):
        names = ", ".join(str(us[0].matrix) for us in groups)
        return None, f"arguments of {names} depend on C-vars, whose limits depend on the data: pass x=", None
    if sum(isinstance(x, ir.InputMatrix) for x in lines) * _WIDTHS[1] ** 2 > _BUDGET:
        return None, "the program is too large to sample its arguments", None
    try:
        for width in _WIDTHS:
            pay(work, lines, data_sizes(lines, width, data), _SEEDS)
        runs = [_runs(lines, width, data) for width in _WIDTHS]
    except (NoValue, SpentError) as missing:
        return None, str(missing), None
    return _compare(groups, runs)


def _compare(groups: Sequence[Sequence[Use]], runs: Sequence[Sequence[Values]]) -> tuple[bool | None, str, int | None]:
    """All sets of arguments of all matrices."""
    undecided: str | None = None
    for us in groups:
        small, large = ([_columns(us, values) for values in r] for r in runs)
        for chosen in _sets(large[0].shape[1]):
            verdict, ratio = _set_stable(small, large, chosen)
            names = ", ".join(dict.fromkeys(us[min(i, len(us) - 1)].line.vector.name for i in chosen))
            if verdict is False:
                reason = (
                    f"a singular value of the arguments {names} of {us[0].line.matrix} shrinks to {ratio:.2g} of its"
                    f" value from width {_WIDTHS[0]} to {_WIDTHS[1]}: their rank drops in the limit only"
                )
                return False, reason, us[-1].index
            if verdict is None:
                undecided = f"whether the arguments {names} keep their rank is not clear at width {_WIDTHS[1]}"
    if undecided:
        return None, undecided, None
    return True, "the arguments of each matrix keep their rank from one width to the next", None


def _groups(lines: Sequence[ir.Line], work: Work) -> list[list[Use]]:
    """Uses of each matrix (W and Wᵀ apart) of which some argument depends on a C-var."""
    depends = _on_scalars(lines, work)
    table: dict[tuple[ir.Var, bool], list[Use]] = {}
    for use in uses(lines):
        table.setdefault((use.matrix, use.transposed), []).append(use)
    return [us for us in table.values() if any(use.line.vector in depends for use in us)]


def _on_scalars(lines: Sequence[ir.Line], work: Work) -> set[ir.Var]:
    """Variables that depend on a C-var other than a constant, MatMuls not passed."""
    found: set[ir.Var] = set()

    def update(line: ir.Line) -> bool:
        hit = _is_source(line) or (
            not isinstance(line, ir.MatMul | ir.InputVector) and any(v in found for v in _needed(line))
        )
        changed = hit and line.out not in found
        if hit:
            found.add(line.out)
        return changed

    fixpoint(lines, update, work)
    return found


def _is_source(line: ir.Line) -> bool:
    if isinstance(line, ir.Moment):
        return bool(line.args)
    return isinstance(line, ir.InputScalar) and line.limit is not None and not line.out.dims


def _needed(line: ir.Line) -> Iterator[ir.Var]:
    if isinstance(line, ir.Nonlin | ir.Moment):
        free = line.expr.free_symbols
        yield from (v for i, v in enumerate(line.args) if ir.arg(i) in free)
        yield from (c for j, c in enumerate(line.params) if ir.param(j) in free)
    else:
        yield from inputs_of(line)


# ---------------------------------------------------------------- numbers


def _runs(lines: Sequence[ir.Line], width: int, data: Mapping[str, Any]) -> list[Values]:
    sizes = data_sizes(lines, width, data)
    return [execute(lines, _drawn(lines, sizes, seed, data), sizes) for seed in range(_SEEDS)]


def _drawn(lines: Sequence[ir.Line], sizes: Sizes, seed: int, data: Mapping[str, Any]) -> Values:
    """Scalars with a limit approach it like n^{-1/2} without reaching it."""
    rng = np.random.default_rng(seed)
    values = natural(lines, sizes, rng, data)
    for line in lines:
        if isinstance(line, ir.InputScalar) and _is_source(line):
            values[line.out] = values[line.out] + rng.uniform(0.5, 1.5) / np.sqrt(sizes.width)
    return values


def _columns(us: Sequence[Use], values: Values) -> Array:
    """The arguments as columns, over √n."""
    rows = [values[u.line.vector].reshape(-1, values[u.line.vector].shape[-1]) for u in us]
    stacked = np.concatenate(rows)
    return np.asarray(stacked.T / np.sqrt(stacked.shape[1]))


def _sets(count: int) -> Iterator[tuple[int, ...]]:
    if count <= _ALL_SETS:
        for k in range(1, count + 1):
            yield from combinations(range(count), k)
        return
    yield tuple(range(count))
    yield from ((i,) for i in range(count))
    yield from combinations(range(min(count, 24)), 2)


def _set_stable(small: Sequence[Array], large: Sequence[Array], chosen: Sequence[int]) -> tuple[bool | None, float]:
    """Do the singular values of these columns vanish only in the limit? With the smallest ratio between widths."""
    if not all(np.isfinite(h).all() for h in (*small, *large)):
        return None, 1.0
    first, second = (
        np.sqrt(np.mean([np.linalg.svd(h[:, chosen], compute_uv=False) ** 2 for h in hs], axis=0))
        for hs in (small, large)
    )
    scale = max(float(np.linalg.norm(h, 2)) for h in large)
    alive = second > 1e-9 * scale
    if not alive.any():
        return True, 1.0
    ratios = second[alive] / np.maximum(first[alive], 1e-300)
    worst = float(ratios.min())
    return (False if worst < 0.42 else None if worst < 0.6 else True), worst
