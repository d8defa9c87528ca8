"""Is the gradient independence assumption right? (Condition 1 and the correction terms of the general rule.)

`simple_gia`: every output's readout is an input vector of mean zero, uncorrelated with all other inputs, and no
output's vector depends on it.

`gia_valid`: True when the program is BP-like or no matrix is used both as W and as Wᵀ; False when moment(Wx ⊙ z), which
equals moment(x ⊙ Wᵀz), has a nonzero limit for some pair of uses Wx and Wᵀz (independence would make it 0), shown by
sampling at two widths; otherwise None. By Stein's lemma all correction terms vanish if and only if these moments do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netsor import ir
from netsor.check.clauses import clause3, independent
from netsor.check.collapse import Collapse
from netsor.check.evaluate import Array, NoValue
from netsor.check.finite import execute, natural, pay
from netsor.check.flips import dependence
from netsor.check.flow import used_both_ways, uses
from netsor.check.scalars import data_sizes
from netsor.check.shapes import Sizes, aligned
from netsor.check.witness import Runs
from netsor.check.work import SpentError, Work
from netsor.facts import Use

Verdict = tuple[bool | None, str]


# ---------------------------------------------------------------- Condition 1


@dataclass(frozen=True)
class Simple:
    """The verdict on Condition 1; `output` is the one that fails."""

    verdict: bool | None
    reason: str
    output: ir.Output | None = None


def simple_gia(lines: Sequence[ir.Line], outputs: Sequence[ir.Output], work: Work | None = None) -> Simple:
    """Condition 1 for all outputs together."""
    try:
        return _condition(lines, outputs, work or Work())
    except SpentError as spent:
        return Simple(None, str(spent))


def _condition(lines: Sequence[ir.Line], outputs: Sequence[ir.Output], work: Work) -> Simple:
    if not outputs:
        return Simple(None, "the program has no output: Condition 1 is about a network f = v·x/√n")
    inputs = {line.out for line in lines if isinstance(line, ir.InputVector)}
    readouts = list(dict.fromkeys(o.readout for o in outputs))
    for o in outputs:
        if o.readout not in inputs:
            return Simple(False, f"the readout {o.readout} is not an input vector", o)
    wrong = next(clause3(lines, readouts), None)
    if wrong is not None:
        culprit = next(o for o in outputs if o.readout is lines[wrong.index].out)
        return Simple(False, wrong.detail, culprit)
    return _unused(lines, outputs, readouts, work)


def _unused(lines: Sequence[ir.Line], outputs: Sequence[ir.Output], readouts: Sequence[ir.Var], work: Work) -> Simple:
    depends = dependence(lines, dict.fromkeys(readouts, 1), work, Collapse(lines, work))
    names = ", ".join(v.name for v in readouts)
    for o in outputs:
        if not depends[o.vector]:
            continue
        witness = Runs(lines, work=work).depends(o.vector, readouts)
        if witness is not None:
            return Simple(False, f"{o.vector} depends on the readout {names}: {witness}", o)
        if not independent(Collapse(lines, work), o.vector, depends):
            return Simple(None, f"whether {o.vector} depends on the readout {names} is undecided", o)
    return Simple(True, f"{names}: independent of all other parameters, mean zero, not used in the forward pass")


# ---------------------------------------------------------------- gia_valid


@dataclass(frozen=True)
class Correction:
    """moment(forward ⊙ backward), normalised, is `value` ± `error`; independence of W and Wᵀ would make its limit 0."""

    matrix: str
    forward: str
    backward: str
    index: int
    value: float
    error: float
    width: int

    def __str__(self) -> str:
        return (
            f"the correlation of {self.forward} and {self.backward} is {self.value:.3f} ± {self.error:.3f} at width"
            f" {self.width} and does not vanish; with {self.matrix} and {self.matrix}.T independent it would"
        )


def gia_valid(
    lines: Sequence[ir.Line], bp_like: bool | None, data: Mapping[str, Any] | None = None, work: Work | None = None
) -> tuple[bool | None, str, Correction | None]:
    """The verdict, its reason, and the correction term that was found."""
    if bp_like:
        return True, "the program is BP-like", None
    both = used_both_ways(lines)
    if not both:
        return True, "no matrix is used both as W and as its transpose", None
    try:
        found = _search(lines, both, data, work or Work())
    except (NoValue, SpentError) as missing:
        return None, f"the program is not BP-like, and correction terms cannot be sampled: {missing}", None
    if found is None:
        return None, "the program is not BP-like, yet no correction term was found by sampling", None
    return False, str(found), found


_SEEDS = 12
_BUDGET = 2.0e9  # multiplications


def _search(
    lines: Sequence[ir.Line], both: Sequence[ir.Var], data: Mapping[str, Any] | None, work: Work
) -> Correction | None:
    """A pair whose moment is the same, and far from zero, at two widths."""
    matmuls = sum(isinstance(x, ir.MatMul) for x in lines) + 1
    for width in (64, 128, 256):
        if width > 64 and matmuls * (2 * width) ** 2 * _SEEDS > _BUDGET:
            break
        for w in (width, 2 * width):
            pay(work, lines, data_sizes(lines, w, data or {}), _SEEDS)
        small, large = (_sampled(lines, both, w, data) for w in (width, 2 * width))
        for key, (mean, error) in large.items():
            earlier, error2 = small[key]
            if abs(mean) > 8 * error and abs(mean) > 0.01 and abs(earlier) < abs(mean) * 1.4 + 4 * (error + error2):
                y, z = key
                return Correction(y.matrix.name, y.line.out.name, z.line.vector.name, max(y.index, z.index), mean,
                                  error, 2 * width)  # fmt: skip
    return None


Pairs = dict[tuple[Use, Use], tuple[float, float]]


def _sampled(lines: Sequence[ir.Line], both: Sequence[ir.Var], width: int, data: Mapping[str, Any] | None) -> Pairs:
    """Mean and standard error of the normalised moment of every pair of uses, the largest element of families."""
    by_matrix = {m: [u for u in uses(lines) if u.matrix is m] for m in both}
    pairs = [(y, z) for us in by_matrix.values() for y in us if not y.transposed for z in us if z.transposed]
    samples: list[list[Array]] = [[] for _ in pairs]
    sizes = data_sizes(lines, width, data or {})
    fixed = _fixed(lines, sizes, data)
    for seed in range(_SEEDS):
        inputs = natural(lines, sizes, np.random.default_rng(seed)) | fixed
        values = execute(lines, inputs, sizes)
        for k, (y, z) in enumerate(pairs):
            samples[k].append(_moments(values[y.line.out], values[z.line.vector], y, z))
    return {pair: _statistics(np.array(s)) for pair, s in zip(pairs, samples, strict=True)}


def _fixed(lines: Sequence[ir.Line], sizes: Sizes, data: Mapping[str, Any] | None) -> dict[ir.Var, Array]:
    """One network input for all seeds: the given one, or one in general position."""
    kinds = (ir.Data, ir.InputScalar)
    drawn = natural(lines, sizes, np.random.default_rng(1234), data)
    return {line.out: drawn[line.out] for line in lines if isinstance(line, kinds)}


def _moments(y: Array, z: Array, forward: Use, backward: Use) -> Array:
    """moment(y[α] z[β]) over √(moment(y²) moment(z²)), all elements, the matrix's own axes shared."""
    shared = forward.matrix.axes
    left = _split(y, forward.line.out.axes, shared)
    right = _split(z, backward.line.vector.axes, shared)
    inner = np.einsum("kin,kjn->kij", left, np.broadcast_to(right, (left.shape[0], *right.shape[1:])))
    norms = np.sqrt(np.einsum("kin,kin->ki", left, left)[:, :, None] * np.einsum("kjn,kjn->kj", right, right)[:, None])
    with np.errstate(all="ignore"):
        return np.where(norms > 0, inner / norms, 0.0)


def _split(value: Array, axes: Sequence[ir.Axis], shared: Sequence[ir.Axis]) -> Array:
    """`[shared, rest, n]`; an absent shared axis has length 1."""
    rest = [a for a in axes if a not in shared]
    moved = aligned(value, axes, (*shared, *rest), 1)
    lead = int(np.prod(moved.shape[: len(shared)], dtype=int))
    return moved.reshape(lead, -1, moved.shape[-1])


def _statistics(samples: Array) -> tuple[float, float]:
    """Mean and standard error over seeds of the element that stands out most."""
    mean = samples.mean(axis=0)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    ratio = np.where(np.isfinite(mean), np.abs(mean) / np.maximum(error, 1e-12), 0.0)
    place = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    value = float(mean[place])
    return (value, float(error[place])) if np.isfinite(value) else (0.0, 1.0)


__all__ = ["Correction", "Simple", "gia_valid", "simple_gia"]
