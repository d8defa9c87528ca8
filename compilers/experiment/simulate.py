"""`simulate`: kernels at finite width, against their limits, over widths and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from netsor import ir
from netsor.build.declared import Holder, as_program
from netsor.build.program import Program
from netsor.compilers.budget.progress import Progress
from netsor.compilers.evaluate.arguments import Array, Arrays
from netsor.compilers.evaluate.results import KernelResult
from netsor.compilers.experiment.keys import of_output, of_scalar, of_vector
from netsor.compilers.experiment.result import Simulation
from netsor.compilers.experiment.store import Store
from netsor.compilers.finite import arrays as random_arrays
from netsor.compilers.finite import kernels
from netsor.compilers.finite.inputs import Group, bind, check_device
from netsor.compilers.finite.network import Network
from netsor.compilers.limit import LimitResult
from netsor.compilers.limit import limit as true_limit
from netsor.errors import InputError
from netsor.facts import known, lookup, trained
from netsor.passes.backward import with_backward
from netsor.run.order import Step, steps

WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
SIGNIFICANT = 5  # standard errors by which a sampled limit differs from zero
Method = Literal["backward", "autograd"]
Limit: TypeAlias = "KernelResult | LimitResult | Mapping[str, Array | Mapping[str, Array]] | Literal[False]"


def simulate(
    p: Program | Holder, x: Arrays | None = None, widths: Sequence[int] = WIDTHS,
    seeds: int | Sequence[int] = 100, *,
    limit: Limit | None = None, methods: Sequence[Method] = ("backward", "autograd"), vectors: Sequence[str] = (),
    scalars: Sequence[str] | None = None, sizes: Mapping[str, int] | None = None,
    dtype: torch.dtype = torch.float64, device: str = "cpu",
    memory: float = 8e9, progress: bool | None = None, store: str | Path | None = None,
) -> Simulation:  # fmt: skip
    """Sample the arrays, run the lines, and take the kernels, for every width and seed.

    The NNGP is the output's covariance given the last layer; the NTK is taken from the backward lines (Eq. 12 at
    finite width) and by torch autograd. `limit` is a compiled kernel's result, that of `ns.limit`, or a dict of parts;
    None compiles the program, False leaves deviations out. `vectors` names vectors whose second moments are wanted;
    `memory` bounds the bytes of the matrices; `store` is a file that keeps finished runs, which are not repeated.
    A program without outputs, as `ns.train` makes, is compared in `scalars`, all that it returns by default, with
    `ns.limit`.

    >>> result = ns.simulate(ns.programs.mlp(), np.eye(2), widths=[64, 256, 1024], seeds=10)
    >>> -0.8 < result.slope("ntk") < -0.2  # the deviation from the limit falls like n^(−1/2)
    True
    """
    p = as_program("ns.simulate", p)
    check_device(device)
    program = _with_backward(p) if "backward" in methods else p
    groups = bind(program, x, sizes, dtype, device)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    _fits(program, groups, max(widths), dtype, memory)
    returned = _returned(p, scalars)
    inputs = [value.data for group in groups for value in group.values.values()]
    kept = Store(store, str(program) if store else "", inputs, f"{methods} {vectors} {dtype}")
    if limit is None:
        with Progress(kept=kept.text):
            limit = _compiled(p, x, vectors) if p.outputs else true_limit(p, x, progress=progress)
    errors = _errors(limit, returned)
    limits = _limits(p, limit, returned, errors)
    result = Simulation(p.name, list(widths), numbers, limits, errors=errors)
    run = _Runner(program, groups, methods, vectors, returned, dtype, device)
    pairs = [(w, s) for w in widths for s in numbers]
    weights = {w: max(1, sum(random_arrays.memory(program, g.binding(program, w), 1) for g in groups)) for w in widths}
    total = sum(weights[w] for w, s in pairs if kept.get(w, s) is None)
    with Progress(f"simulate {p.name}", total, "weights", progress, kept=kept.text) as shown:
        for width, seed in pairs:
            found = kept.get(width, seed)
            if found is None:
                found = run(width, seed)
                kept.add(width, seed, found)
                shown.done(weights[width])
            result.add(width, found)
    return result


class _Runner:
    """What is compared, of one width and seed: nngp, ntk, ntk_autograd, terms.*, output.*, vectors.*, scalars."""

    def __init__(
        self, p: Program, groups: Sequence[Group], methods: Sequence[Method], vectors: Sequence[str],
        scalars: Mapping[str, ir.Var], dtype: torch.dtype, device: str,
    ) -> None:  # fmt: skip
        self.p = p
        self.groups = groups
        self.methods = methods
        self.scalars = scalars
        self.dtype = dtype
        self.device = device
        self.order: Sequence[Step] = steps(p.lines)
        self.vectors = {name: _vector(p, name) for name in vectors}

    def __call__(self, width: int, seed: int) -> kernels.Kernels:
        networks = [Network(self.p, self.order, group, width) for group in self.groups]
        arrays = self._arrays(networks, seed)
        with torch.no_grad():
            results = [network.run(arrays) for network in networks]
        found: kernels.Kernels = {}
        for name in dict.fromkeys(o.name for o in self.p.outputs):
            found |= self._output(networks, results, arrays, name)
        with torch.no_grad():
            for name, var in self.vectors.items():
                found[of_vector(name)] = kernels.second_moment(networks, results, var)
            found |= {of_scalar(name): kernels.scalar(networks, results, var) for name, var in self.scalars.items()}
        return {key: value.detach().cpu() for key, value in found.items()}

    def _arrays(self, networks: Sequence[Network], seed: int) -> random_arrays.Arrays:
        """Arrays at the largest sizes that the groups have."""
        sizes: dict[str, int] = {}
        for network in networks:
            for axis, size in network.binding.sizes.items():
                sizes[axis] = max(size, sizes.get(axis, 0))
        binding = type(networks[0].binding)(sizes, networks[0].binding.dimensions)
        return random_arrays.sample(self.p, binding, seed, self.dtype, self.device)

    def _output(
        self, networks: Sequence[Network], results: Sequence[Any], arrays: random_arrays.Arrays, name: str
    ) -> kernels.Kernels:
        own = None if len({o.name for o in self.p.outputs}) == 1 else name
        found: kernels.Kernels = {}
        with torch.no_grad():
            found[of_output("nngp", own)] = kernels.nngp(networks, results, name)
            found[of_output("output", own)] = _outputs(networks, results, name)
        for method in self.methods:
            if method == "backward" and name != self.p.outputs[0].name:
                continue  # the backward lines are those of the first output
            terms = kernels.ntk_terms(networks, results, arrays, name, method)
            key = "" if method == "backward" else "_autograd"
            found |= {of_output(f"terms{key}", own, array): value for array, value in terms.items()}
            if terms:
                found[of_output(f"ntk{key}", own)] = sum(list(terms.values())[1:], next(iter(terms.values())))
        return found


def _outputs(networks: Sequence[Network], results: Sequence[Any], name: str) -> torch.Tensor:
    values = [r.outputs[name] for r in results]
    if len({v.shape[1:] for v in values}) > 1:
        values = [v.reshape(v.shape[0], -1).sum(1) for v in values]
    total = values[0].new_zeros(sum(n.samples for n in networks), *values[0].shape[1:])
    for network, value in zip(networks, values, strict=True):
        total[list(network.group.samples)] = value
    return total


def _with_backward(p: Program) -> Program:
    """The program with its backward lines, which are added when it states no gradients."""
    return with_backward(p) if trained(p.lines) else p


def _fits(p: Program, groups: Sequence[Group], width: int, dtype: torch.dtype, limit: float) -> None:
    needed = max(random_arrays.memory(p, g.binding(p, width), dtype.itemsize) for g in groups)
    if needed > limit:
        raise InputError(
            f"the matrices at width {width} take {needed / 1e9:.1f} GB, more than memory={limit:.2g}", code="NT606",
            hint="take smaller widths, dtype=torch.float32, or raise memory=",
        )  # fmt: skip


def _vector(p: Program, name: str) -> ir.Var:
    var = lookup(p, name)
    if var is None or var.kind not in "GH":
        raise InputError(f"the program has no vector called {name} (it has {known(p)})", code="NT605")
    return var


def _compiled(p: Program, x: Any, vectors: Sequence[str]) -> Any:
    from netsor.compilers.compile import compile

    return compile(p)(x, get=("nngp", "ntk", *vectors))


def _returned(p: Program, names: Sequence[str] | None) -> dict[str, ir.Var]:
    """The scalars that are compared: those named, by default all that a program without outputs returns."""
    known = {r.name: r.value for r in p.returned}
    wanted = [name for name in known if not p.outputs] if names is None else names
    missing = [name for name in wanted if name not in known]
    if missing:
        raise InputError(
            f"the program returns no {', '.join(missing)} (it returns {', '.join(known) or 'nothing'})", code="NT605"
        )
    return {name: known[name] for name in wanted}


def _errors(limit: Any, scalars: Mapping[str, ir.Var]) -> dict[str, torch.Tensor]:
    """The standard errors of a sampled limit by the names that the runner uses."""
    errors = getattr(limit, "errors", None) or {}
    if isinstance(limit, LimitResult):
        errors = {key: limit.error(key) for key in ("nngp", "ntk") if getattr(limit, key) is not None}
        errors |= {of_scalar(name): limit.error("scalar", name) for name in scalars}
    vectors = getattr(limit, "vectors", None) or {}
    named = {of_vector(key) if key in vectors else key: value for key, value in errors.items()}
    return {key: _tensor(value) for key, value in named.items()}


def _tensor(value: Any) -> torch.Tensor:
    """In float64 on the CPU; exact rationals are rounded."""
    if isinstance(value, np.ndarray):
        value = value.astype(float)
    return torch.as_tensor(value).detach().cpu().to(torch.float64)


def _limits(
    p: Program, limit: Any, scalars: Mapping[str, ir.Var], errors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:  # fmt: skip
    """The limit by the names that the runner uses; scalars that may be zero are left out: deviations are relative."""
    if limit is False:
        return {}
    if isinstance(limit, LimitResult):
        known = {of_scalar(name): _tensor(limit.scalar(name)) for name in scalars}
    else:
        known = {
            of_scalar(name): _tensor(limit[name]) for name in scalars if isinstance(limit, Mapping) and name in limit
        }
    known = {k: v for k, v in known.items() if v.norm() > SIGNIFICANT * errors.get(k, torch.zeros(())).norm()}
    if not p.outputs:
        return known
    found: dict[str, Any] = {}
    for key in ("nngp", "ntk"):
        value = limit.get(key) if isinstance(limit, Mapping) else getattr(limit, key, None)
        if isinstance(value, Mapping):
            found |= {of_output(key, name): v for name, v in value.items()}
        elif value is not None:
            found[key] = value
    more = limit.get("vectors") if isinstance(limit, Mapping) else getattr(limit, "vectors", None)
    found |= {of_vector(name): v for name, v in (more or {}).items()}
    return known | {key: _tensor(value) for key, value in found.items()}


__all__ = ["WIDTHS", "Simulation", "simulate"]
