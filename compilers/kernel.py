"""The infinite-width kernels of a program as an object that is called."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from netsor import facts
from netsor.build.program import Program
from netsor.compilers.budget import cost as costs
from netsor.compilers.budget.plan import Call, Limits, parse_memory
from netsor.compilers.budget.planner import Planner
from netsor.compilers.budget.progress import STORES, Progress
from netsor.compilers.derive.outputs import OUTPUTS
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.evaluate import arguments, calls, fallback, ragged
from netsor.compilers.evaluate import blocks as gram
from netsor.compilers.evaluate.arguments import Arrays, Get, Params, as_device, as_dtype, known_sizes, wanted_names
from netsor.compilers.evaluate.inputs import Inputs, as_inputs
from netsor.compilers.evaluate.results import KernelResult
from netsor.compilers.expectation.quadrature.several import sampling
from netsor.compilers.lowering.load import cached_module, cached_recursion, program_for
from netsor.compilers.lowering.module import signature
from netsor.compilers.native.choice import Backends
from netsor.errors import InputError, UnsupportedError
from netsor.passes.bind import bind

if TYPE_CHECKING:  # what few calls need is loaded by the method that does
    from netsor.compilers import store as stores

DEFAULT = tuple(OUTPUTS)
SAMPLES = 2e9  # bytes of the draws of a sampled kernel when no budget is given


class Kernel:
    """The infinite-width kernels of a program, compiled to torch.

    `kernel(x1, x2=None, get=("nngp", "ntk"))` returns a `KernelResult`; x2 None is the symmetric call. `get` takes
    "nngp", "ntk", "terms", names of vectors and names of returned scalars. Arrays are `[sample, *axes, feature]`, a
    dict by name for several inputs, or a list of single samples of different size. `params` are numbers or tensors,
    to which gradients flow, for the parameters of the program's variances and multipliers.

    >>> ns.compile(ns.programs.mlp())([[1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], get="ntk").ntk.shape
    torch.Size([1, 2])
    """

    def __init__(
        self, program: Program, device: Any, dtype: Any, assumed: bool, options: dict[str, Any],
        convention: str = "omega", backend: str = "auto", threads: int | None = None,
    ) -> None:  # fmt: skip
        self.program, self.convention = program, convention  # the program in its convention
        self.device, self.dtype = as_device(device), as_dtype(dtype)
        self.assumed, self.options = assumed, options
        self.backends = Backends(backend, str(self.device or "cpu"), threads)
        self.calls = 0  # blocks evaluated so far
        self._recursions: dict[tuple[str, ...], Recursion] = {}
        self._modules: dict[tuple[str, ...], Any] = {}
        self._split: dict[tuple[str, ...], fallback.Parts] = {}
        self._planner = Planner(self._recursion)

    def __repr__(self) -> str:
        unit = ", unit convention" if self.convention == "unit" else ""
        return f"<Kernel of {self.program.name}{unit}>"

    def __reduce__(self) -> tuple[Any, ...]:
        options = (self.assumed, self.options, self.convention, self.backends.asked, self.backends.threads)
        return Kernel, (self.program, self.device, self.dtype, *options)

    @property
    def backend(self) -> str:
        """What evaluates blocks of pairs, and why not what was asked for."""
        return self.backends.described(DEFAULT, self._recursion)

    # ------------------------------------------------------------ calls

    def __call__(
        self, x1: Arrays, x2: Arrays | None = None, get: Get = DEFAULT, params: Params | None = None
    ) -> KernelResult:
        """The kernels of x1 and x2, of x1 and itself without x2."""
        if torch.compiler.is_compiling():  # the values decide what is done: there is no graph
            disable: Any = torch.compiler.disable
            out: KernelResult = disable(self._called)(x1, x2, get, Limits(), params)
            return out
        return self._called(x1, x2, get, Limits(), params)

    def _called(self, x1: Any, x2: Any, get: Get, limits: Limits, params: Params | None) -> KernelResult:
        wanted = wanted_names(get)
        if calls.is_inside(x1, x2, params):
            found = calls.call(lambda a, b, c: self._run(a, b, wanted, limits, self._given(c)), x1, x2, params)
        else:
            found = self._run(x1, x2, wanted, limits, self._given(params))
        found.asked = wanted
        return found

    def gram(
        self, x1: Arrays, x2: Arrays | None = None, memory: str | int = "2GB", get: Get = DEFAULT,
        tile: int | None = None, progress: bool | None = None, store: str | Path | None = None, processes: int = 1,
        params: Params | None = None, engine: Literal["local", "dask"] = "local", client: stores.Client | None = None,
        force: bool = False,
    ) -> KernelResult:  # fmt: skip
        """The same kernels by blocks within a memory budget (inputs, results and gradients counted).

        `tile` is the number of inputs per side of a block, instead of a budget. `progress`: whether to draw a bar;
        None draws one on a terminal when the call takes over two seconds.

        With `store`, the blocks are written to a folder in zarr's format as they are computed, by `processes` at once,
        or by the workers of a `dask.distributed.Client` with `engine="dask"`; the result (`StoredGram`) reads them
        there. The same call goes on where another was interrupted. `force` begins anew: a store that is at the path is
        removed once nothing speaks against the call.
        """
        from netsor.compilers import store as stores

        limits, hands = Limits(parse_memory(memory), tile, progress), stores.Hands.of(processes, engine, client)
        if store is not None:
            return self._stored(store, x1, x2, wanted_names(get), limits, hands, params, force)
        if hands != stores.Hands() or force:
            raise InputError("processes=, engine= and force= write to a store", code="NT640", hint="store='k.zarr'")
        return self._called(x1, x2, get, limits, params)

    def _stored(
        self, path: str | Path, x1: Any, x2: Any, get: tuple[str, ...], limits: Limits,
        hands: stores.Hands, params: Params | None, force: bool,
    ) -> stores.StoredGram:  # fmt: skip
        from netsor.compilers import store as stores

        parts, given = self._parts(get), self._given(params)
        inside = calls.is_inside(x1, x2, params)
        stores.refuse(self, get, not inside and (ragged.is_ragged(x1) or ragged.is_ragged(x2)), inside)
        wanted = signature(self._program_for(get)) if parts.rest else self._module(get).INPUTS
        one, two = self._inputs(wanted, x1, x2, given)
        stores.refuse(self, get, False, gram.tracked(one, two))
        if two is not None and gram.same(one, two):
            two = None
        kernel = copy.copy(self)
        if parts.exact:
            kernel.backends = self.backends.settled(parts.exact, self._recursion, one)  # whatever a block alone takes
        if not parts.rest:
            task = stores.Task(kernel, kernel._run, get, one, two)
            sides = partial(stores.chosen_tile, task, self._recursion(get))
            return stores.gram(task, sides, path, limits, hands, force)
        stores.refuse_cluster(self.program.name, hands, parts.why)
        program, memory = self._program_for(parts.rest, given), limits.memory or SAMPLES
        draws = stores.Draws(program, parts.rest, one, two, self.options, memory, parts.why, limits.progress)
        some = stores.SampledTask(kernel, kernel._run, get, one, two, draws)
        return stores.gram(some, some.tile, path, limits, hands, force)

    def diag(self, x: Arrays, get: Get = DEFAULT, params: Params | None = None) -> KernelResult:
        """The kernels of each input with itself, `[N, *output axes, *output axes′]`, at a cost linear in N."""
        from netsor.compilers.predict.diagonal import diagonals

        names = wanted_names(get)
        return diagonals(lambda part: self(part, get=names, params=params), x, {r.name for r in self.program.returned})

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the variances and multipliers that a call gives values."""
        return facts.parameters(self.program.lines)

    def _given(self, params: Params | None) -> dict[str, Tensor]:
        return arguments.as_parameters(self.program.name, self.parameters, params)

    def _run(
        self, x1: Any, x2: Any, get: tuple[str, ...], limits: Limits, params: Mapping[str, Tensor] | None = None
    ) -> KernelResult:
        if self._parts(get).rest:
            return self._partly(x1, x2, get, limits, params or {})
        if ragged.is_ragged(x1) or ragged.is_ragged(x2):
            return ragged.call(lambda a, b, some: self._run(a, b, get, some, params), x1, x2, self.program.name, limits)
        module = self._module(get)
        one, two = self._inputs(module.INPUTS, x1, x2, params)
        if two is not None and gram.same(one, two):
            two = None
        return self._whole(module, one, two, get, limits)

    def _partly(
        self, x1: Any, x2: Any, get: tuple[str, ...], limits: Limits, params: Mapping[str, Tensor]
    ) -> KernelResult:
        """What has an exact rule exactly, the rest sampled."""
        from netsor.compilers.sampler.kernels import sampled

        parts = self._parts(get)
        drawn = sampled(
            self._program_for(parts.rest, params), x1, x2, parts.rest, dtype=self.dtype, device=self.device,
            memory=limits.memory or SAMPLES, progress=limits.progress, why=parts.why, **self.options,
        )  # fmt: skip
        drawn.assumed = self.assumed
        return fallback.merged([self._run(x1, x2, parts.exact, limits, params), drawn]) if parts.exact else drawn

    def _parts(self, get: tuple[str, ...]) -> fallback.Parts:
        if get not in self._split:
            self._split[get] = fallback.split(self._module, get)
        return self._split[get]

    def _whole(
        self, module: Any, one: Inputs, two: Inputs | None, get: tuple[str, ...], limits: Limits
    ) -> KernelResult:
        other = one if two is None else two
        call = Call(one.samples, other.samples, two is None, gram.tracked(one, two))
        plan = self._planner.plan(get, one, call, limits)
        shown = limits.shown or Progress(
            self.program.name, call.pairs, "pairs", limits.progress, self._planner.expected(get, one, call, plan),
            kept=STORES,
        )  # fmt: skip

        def counted(*given: Any) -> dict[str, Any]:
            self.calls += 1
            out: dict[str, Any] = pairs(*given)
            return out

        pairs = module.pairs
        with sampling(**self.options):
            wide = self._recursion(get).wide
            compiled = self.backends.blocks(module, get, self._recursion, one, call)
            result = gram.whole(module.each, counted, one, two, frozenset(get), plan, wide, compiled, shown)
        result.assumed = self.assumed
        return result

    def _inputs(
        self, wanted: Any, x1: Any, x2: Any, params: Mapping[str, Tensor] | None = None
    ) -> tuple[Inputs, Inputs | None]:
        one = as_inputs(wanted, x1, self.dtype, self.device, params)
        if x2 is None:
            return one, None
        two = as_inputs(wanted, x2, self.dtype, self.device, params)
        one.same_features(two)
        if one.dtype != two.dtype and self.dtype is None:
            common = torch.promote_types(one.dtype, two.dtype)
            one, two = (
                as_inputs(wanted, one.arrays, common, None, params),
                as_inputs(wanted, two.arrays, common, None, params),
            )
        return one, two

    def cost(
        self, n1: int, n2: int | None = None, sizes: Mapping[str, int] | None = None, get: Get = DEFAULT,
        memory: str | int | None = None, gradients: bool = False,
    ) -> costs.Cost:  # fmt: skip
        """Operations, bytes, peak memory and time of n1 × n2 pairs (symmetric when n2 is None), before running.

        With `memory`, of `gram` within that budget; with `gradients`, of a call whose inputs require them.
        """
        recursion = self._recursion(wanted_names(get))
        given = known_sizes((d.size for e in recursion.used for d in e.dims), sizes)
        call = Call(n1, n1 if n2 is None else n2, n2 is None, gradients)
        budget = None if memory is None else parse_memory(memory)
        return costs.cost(recursion, call, given, self.dtype or torch.float64, budget)

    # ------------------------------------------------------------ modules

    def _program_for(self, get: tuple[str, ...], params: Mapping[str, Tensor] | None = None) -> Any:
        """The program that has what is asked for; with `params`, numbers in the place of its parameters."""
        bound = bind(self.program, arguments.numbers(params)) if params else self.program
        return program_for(bound, get)

    def _recursion(self, get: tuple[str, ...]) -> Recursion:
        if get not in self._recursions:
            self._recursions[get] = cached_recursion(self._program_for(get), get)
        return self._recursions[get]

    def _module(self, get: tuple[str, ...]) -> Any:
        if get not in self._modules:
            self._modules[get] = cached_module(self._program_for(get), get)
        return self._modules[get]

    def _printed(self) -> Any:
        """The module of all kernels; an error that says so when they are sampled."""
        try:
            return self._module(self._all())
        except UnsupportedError as error:
            raise fallback.no_source(self.program.name, error) from None

    @cached_property
    def source(self) -> str:
        """The generated module as text."""
        return str(self._printed().SOURCE)

    def _all(self) -> tuple[str, ...]:
        return (*DEFAULT, *(r.name for r in self.program.returned))

    def save(self, path: str | Path) -> Path:
        """Write the generated module; it imports torch and netsor.compilers.runtime only."""
        target = Path(path)
        module = self._printed()
        if module.NUMERIC:
            names = ", ".join(f.name for f in self.program.functions.values() if f.numeric)
            raise InputError(
                f"numeric functions ({names}) have no source to write", code="NT010",
                hint="give them as expressions with ns.function",
            )  # fmt: skip
        target.write_text(module.SOURCE)
        return target
