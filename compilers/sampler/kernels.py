"""NNGP, NTK, its terms, second moments and scalars of a program from sampled limit variables (Eq. 12)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from netsor import ir
from netsor.build.program import Program
from netsor.compilers.budget.progress import STORES, Progress, outside, spoken
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.assembled import symmetrised
from netsor.compilers.evaluate.results import KernelResult, fields
from netsor.compilers.finite import kernels as finite
from netsor.compilers.finite.inputs import Group, bind
from netsor.compilers.finite.tangent import Factors, backward_factors, gram
from netsor.compilers.finite.values import axis_names
from netsor.compilers.sampler.estimate import Estimate, Forecast, estimate
from netsor.compilers.sampler.existence import existing, watch
from netsor.compilers.sampler.paths import Drawn, Paths
from netsor.errors import Diagnostic, InputError, SamplingWarning
from netsor.facts import known, lookup, ratio, trained_uses
from netsor.passes.backward import with_backward


class Of(Enum):
    """Which inputs a quantity is of."""

    PAIRS = "all pairs of both batches"
    INPUTS = "every input of the first batch alone: a scalar"
    FIRST = "the pairs of the first batch, which errors are relative to"
    SECOND = "the pairs of the second batch, which errors are relative to"


class Quantity(NamedTuple):
    """What is estimated."""

    key: Key
    of: Of = Of.PAIRS


Quantities = dict[Quantity, Tensor]
SIDES = (Of.FIRST, Of.SECOND)


def sampled(
    p: Program, x1: Any, x2: Any = None, get: Sequence[str] = ("nngp", "ntk"), *, tol: float | None = None,
    samples: int | None = None, seed: int = 0, dtype: torch.dtype | None = None, device: torch.device | None = None,
    memory: float = 2e9, progress: bool | None = None, why: Diagnostic | None = None,
) -> KernelResult:  # fmt: skip
    """The kernels asked for, each with its standard errors in `errors`; nothing is differentiable.

    All inputs of both copies are sampled jointly, so x2 = x1 gives the same numbers as x2 = None. With `why`, what has
    no exact rule, a SamplingWarning comes first.
    """
    sampling = Sampling.of(p, x1, x2, get, device)
    with torch.no_grad():
        found = estimate(
            lambda normals: sampling.request.evaluate(sampling.paths.draw(normals)), relative,
            lambda: sampling.request.stored, tol=tol, samples=samples, seed=seed, device=device, memory=memory,
            announce=None if why is None else lambda plan: warn(p.name, get, why, plan),
            shown=Progress(p.name, unit="draws", show=progress, kept=STORES),
        )  # fmt: skip
    return collected(found, dtype or floating(x1, x2), x2 is None)


@dataclass(frozen=True)
class Sampling:
    """The variables of a program for all inputs of a call, and what is asked of them."""

    paths: Paths
    request: Request

    @staticmethod
    def of(p: Program, x1: Any, x2: Any, get: Sequence[str], device: torch.device | None) -> Sampling:
        first, second = batches(p, x1, x2, device)
        program = with_backward(p) if {"ntk", "terms"} & set(get) else p
        asked = needed(program, get)
        unbounded = existing(program, dict.fromkeys(asked, 2))
        kept = asked | {w.var for w in unbounded}
        paths = Paths(program, first + second, conditioned=True, needed=kept)
        watch(paths, unbounded)
        return Sampling(paths, Request(program, tuple(get), len(first)))


def warn(name: str, get: Sequence[str], why: Diagnostic, plan: Forecast) -> None:
    """Why the kernels are sampled, from how many draws, and in which time."""
    place = "" if why.location is None else f" ({why.location})"
    times = f"{plan.least:,} draws take {spoken(plan.least * plan.rate)}"
    if plan.goal is not None:
        times += (
            f", and up to {plan.most:,} ({spoken(plan.most * plan.rate)}) are drawn until the standard error is"
            f" {plan.goal:g} of √(K_ii K_jj); tol= and samples= of ns.compile set this"
        )
    verb = "is" if len(get) == 1 else "are"
    text = f"{name}: {', '.join(get)} {verb} sampled, for want of an exact rule: {why.message}{place}. {times}"
    warnings.warn(text, SamplingWarning, stacklevel=outside())


def batches(p: Program, x1: Any, x2: Any, device: torch.device | None) -> tuple[list[Group], list[Group]]:
    """The groups of both batches; none of the second in a symmetric call."""
    place = device or torch.device("cpu")
    first = bind(p, x1, None, torch.float64, place)
    second = [] if x2 is None else bind(p, x2, None, torch.float64, place)
    if second and first[0].features != second[0].features:
        raise InputError("the two batches have different numbers of features", code="NT602")
    return first, second


def floating(*batches: Any) -> torch.dtype:
    """float32 when every array is; float64 otherwise."""
    arrays: list[Any] = []
    for x in batches:
        for part in x.values() if isinstance(x, dict) else [x]:
            arrays += part if isinstance(part, list | tuple) else [] if part is None else [part]
    single = arrays and all(str(getattr(a, "dtype", "")).removeprefix("torch.") == "float32" for a in arrays)
    return torch.float32 if single else torch.float64


# ---------------------------------------------------------------- one scramble


@dataclass
class Request:
    """What is asked of a program; `evaluate` answers it from one scramble."""

    program: Program
    get: tuple[str, ...]
    first: int  # the number of groups of the first batch
    stored: int = 0

    def evaluate(self, drawn: Drawn) -> Quantities:
        """Kernels `[sample, sample′, …]` and scalars `[sample, *axes]`; with two batches also the kernels of each."""
        self.stored = drawn.made
        one, two = drawn.groups(0, self.first), drawn.groups(self.first)
        if not two.networks:
            return self._kernels(one, one)
        found = self._kernels(one, two)
        for mark, side in zip(SIDES, (one, two), strict=True):
            found |= {Quantity(q.key, mark): k for q, k in self._kernels(side, side).items() if q.of is Of.PAIRS}
        return found

    def block(self, drawn: Drawn, rows: slice, cols: slice) -> Quantities:
        """The kernels of some pairs; every batch is one group."""
        self.stored = drawn.made
        one, two = drawn.groups(0, self.first), drawn.groups(self.first)
        first = one.some(rows)
        return self._kernels(first, two.some(cols) if two.networks else first if rows == cols else one.some(cols))

    def own(self, drawn: Drawn, second: bool, part: slice) -> Quantities:
        """The kernels of some inputs of a batch with themselves, `[sample, *axes]`."""
        side = drawn.groups(self.first) if second else drawn.groups(0, self.first)
        some = side.some(part)
        return {q: _diagonal(k) for q, k in self._kernels(some, some).items()}

    def _kernels(self, drawn: Drawn, other: Drawn) -> Quantities:
        columns = (other.networks, other.results)
        found: Quantities = {}
        for name in self.get:
            if name == "nngp":
                nngp = finite.nngp(drawn.networks, drawn.results, self.program.outputs[0].name, columns)
                found[Quantity(Key(name))] = nngp
            elif name in ("ntk", "terms"):
                found |= self._terms(drawn, other, name)
            else:
                found |= self._named(drawn, name, columns)
        return found

    def _named(self, drawn: Drawn, name: str, columns: Any) -> Quantities:
        var = lookup(self.program, name)
        if var is None or var.kind not in ("G", "H", "C"):
            names = known(self.program)
            raise InputError(f"the program has no vector or scalar called {name} (it has {names})", code="NT605")
        if var.kind == "C":
            return {Quantity(Key(name), Of.INPUTS): finite.scalar(drawn.networks, drawn.results, var)}
        moment = finite.second_moment(drawn.networks, drawn.results, var, None, columns)
        return {Quantity(Key(name)): drawn.repeats(var) * moment}

    def _terms(self, drawn: Drawn, other: Drawn, name: str) -> Quantities:
        terms = ntk_terms(drawn, other)
        if name == "terms":
            return {Quantity(Key(array, is_term=True)): value for array, value in terms.items()}
        whole = sum(list(terms.values())[1:], next(iter(terms.values()))) if terms else None
        return {} if whole is None else {Quantity(Key(name)): whole}


def needed(p: Program, get: Sequence[str]) -> frozenset[ir.Var]:
    """The variables that the kernels asked for are taken from."""
    found = {v for o in p.outputs for v in (o.readout, o.vector)}
    found |= {r.value for r in p.returned if r.name in get}
    found |= {line.out for line in p.lines if line.out.name in get}
    if {"ntk", "terms"} & set(get):
        found |= {g.is_ for g in p.gradients}
        found |= {use.line.vector for uses in trained_uses(p.lines).values() for use in uses}
    return frozenset(found)


def ntk_terms(drawn: Drawn, other: Drawn) -> dict[str, Tensor]:
    """The NTK by trained array: multiplier² · (rows/n_out) · E[Z^dy Z^dȳ] · E[Z^z Z^z̄] over all pairs of uses."""
    p = drawn.networks[0].program
    rows = factors(drawn)
    columns = rows if other.networks == drawn.networks else factors(other)

    def term(array: str) -> Tensor:
        def block(g: int, h: int) -> Tensor:
            part = gram(rows[g][array], columns[h][array])
            shape = (*output_shape(drawn.networks[g], p), *output_shape(other.networks[h], p))
            return part.reshape(*part.shape[:2], *shape)

        return finite.assembled(drawn.networks, block, other.networks)

    return {array: term(array) for array in rows[0]}


def factors(drawn: Drawn) -> list[dict[str, Factors]]:
    """The gradients of every group."""
    p = drawn.networks[0].program
    return [scaled(p, backward_factors(n, r.values)) for n, r in zip(drawn.networks, drawn.results, strict=True)]


def scaled(p: ir.ProgramLike, factors: dict[str, Factors]) -> dict[str, Factors]:
    """All widths being the number of draws, the ratio n/n_out of an array's width to the output's is put in."""
    by_name = {line.out.name: line.out for line in p.lines}
    stated = {g.of for g in p.gradients}
    n_out = p.outputs[0].readout.rows
    result = {}
    for name, f in factors.items():
        var = by_name[name]
        whole = var.kind == "A" or var in stated  # a readout without a gradient line holds ∂f/∂v itself
        result[name] = replace(f, scale=f.scale * float(ratio(var.rows)) / float(ratio(n_out))) if whole else f
    return result


def output_shape(network: Any, p: ir.ProgramLike) -> tuple[int, ...]:
    """The sizes of the axes that the first output has."""
    name = p.outputs[0].name
    sizes: dict[str, int] = {}
    for o in p.outputs:
        if o.name == name:
            own = axis_names(o.readout)
            sizes |= {d.axis.name: network.binding.size(d.size) for d in o.vector.dims if d.axis.name not in own}
    return tuple(sizes.values())


# ---------------------------------------------------------------- results


def relative(mean: Quantities, error: Quantities) -> float:
    """The largest error: of a kernel relative to √(K_ii K_jj), of a scalar relative to the largest value."""
    wanted = [q for q in mean if q.of not in SIDES]
    return max((float((error[q] / _scale(q, mean)).nan_to_num(0, 0).max()) for q in wanted), default=0.0)


def _scale(q: Quantity, mean: Quantities) -> Tensor:
    if q.of is Of.INPUTS:
        return mean[q].abs().amax()
    one, two = (_diagonal(mean.get(Quantity(q.key, side), mean[q])) for side in SIDES)
    return scales(one, two)


def scales(one: Tensor, two: Tensor) -> Tensor:
    """√(K_ii K_jj) `[sample, sample′, *axes, *axes′]` from K_ii and K_jj `[sample, *axes]`."""
    one, two = one.abs().sqrt(), two.abs().sqrt()
    shape = [*one.shape[:1], *two.shape[:1], *one.shape[1:], *two.shape[1:]]
    product = one.flatten()[:, None] * two.flatten()
    product = product.reshape(*one.shape, *two.shape).movedim(one.ndim, 1)
    return product.reshape(shape)


def _diagonal(kernel: Tensor) -> Tensor:
    """K_ii of a kernel `[sample, sample, *axes, *axes]` as `[sample, *axes]`."""
    shape = [kernel.shape[0], *kernel.shape[2 : 2 + (kernel.ndim - 2) // 2]]
    size = math.prod(shape)
    square = kernel.movedim(1, 1 + len(shape[1:])).reshape(size, size)
    return square.diagonal().reshape(shape)


def collected(found: Estimate[Quantity], dtype: torch.dtype, symmetric: bool = False) -> KernelResult:
    """A call's result; what errors are relative to is left out. Kernels of one batch are exactly symmetric."""
    kernels: dict[Key, Tensor] = {}
    errors: dict[str, Tensor] = {}
    for q, mean in found.mean.items():
        if q.of in SIDES:
            continue
        value, error = mean.to(dtype), found.error[q].to(dtype)
        if symmetric and q.of is Of.PAIRS:
            value, error = symmetrised(value), symmetrised(error)
        kernels[q.key], errors[str(q.key)] = value, error
    return KernelResult(
        **fields(kernels), method="sampled", error=found.relative, methods=dict.fromkeys(errors, "sampled"),
        errors=errors,
    )  # fmt: skip
