"""`ns.compile`, `ns.derive`, `ns.v_transform`: from a program to its kernels."""

from __future__ import annotations

import builtins
import linecache
import types
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from netsor.compilers import calls, fallback, gram, ragged, transforms
from netsor.compilers import cost as costs
from netsor.compilers import fuse as fusing
from netsor.compilers.arguments import Get, as_device, as_dtype, size_axes, wanted_names
from netsor.compilers.arrays import as_covariance
from netsor.compilers.derive.recursion import Recursion, output_axes
from netsor.compilers.derive.recursion import derive as _derive
from netsor.compilers.inputs import Inputs, as_inputs
from netsor.compilers.joint import sampling
from netsor.compilers.lowering.module import Source, generate
from netsor.compilers.results import KernelResult
from netsor.compilers.sampler.kernels import sampled
from netsor.declared import as_program
from netsor.errors import CheckError, Diagnostic, InputError, UnsupportedError
from netsor.lookup import lookup

DEFAULT = ("nngp", "ntk")


class Kernel:
    """The infinite-width kernels of a program, compiled to torch.

    `kernel(x1, x2=None, get=("nngp", "ntk"))` returns a `KernelResult`; x2 None is the symmetric call. `get` takes
    "nngp", "ntk", "terms", names of vectors and names of returned scalars. Arrays are `[sample, *axes, feature]`, a
    dict by name for several inputs, or a list of single samples of different size.
    """

    def __init__(
        self, program: Any, device: Any, dtype: Any, assumed: bool, options: dict[str, Any], fuse: bool
    ) -> None:
        self.program = program
        self.device = as_device(device)
        self.dtype = as_dtype(dtype)
        self.assumed = assumed
        self.options = options
        self.fuse = fuse and fusing.available(str(self.device or "cpu"))
        self.calls = 0  # blocks evaluated so far
        self._recursions: dict[tuple[str, ...], Recursion] = {}
        self._modules: dict[tuple[str, ...], Any] = {}
        self._fused: dict[tuple[str, ...], fusing.Fused] = {}
        self._sides: dict[Any, int] = {}

    def __repr__(self) -> str:
        return f"<Kernel of {self.program.name}>"

    # ------------------------------------------------------------ calls

    def __call__(self, x1: Any, x2: Any = None, get: Get = DEFAULT) -> KernelResult:
        if torch.compiler.is_compiling():  # the values decide what is done: there is no graph
            disable: Any = torch.compiler.disable
            out: KernelResult = disable(self._called)(x1, x2, get)
            return out
        return self._called(x1, x2, get)

    def _called(self, x1: Any, x2: Any, get: Get) -> KernelResult:
        if calls.is_inside(x1, x2):
            return calls.call(lambda a, b: self._run(a, b, get, None), x1, x2)
        return self._run(x1, x2, get, None)

    def gram(
        self, x1: Any, x2: Any = None, memory: str | int = "2GB", get: Get = DEFAULT, tile: int | None = None
    ) -> KernelResult:
        """The same kernels by blocks within a memory budget (inputs and results counted)."""
        if calls.is_inside(x1, x2):
            return calls.call(lambda a, b: self.gram(a, b, memory, get, tile), x1, x2)
        wanted = wanted_names(get)
        if fallback.split(self._module, wanted)[1]:
            return self._partly(x1, x2, wanted, tile, gram.parse_memory(memory))
        module = self._module(wanted)
        one, two = self._inputs(module, x1, x2)
        if tile is None:
            tile = self._tile(wanted, one, two, gram.parse_memory(memory))
        return self._whole(module, one, two, wanted, tile)

    def _run(self, x1: Any, x2: Any, get: Get, tile: int | None) -> KernelResult:
        wanted = wanted_names(get)
        if fallback.split(self._module, wanted)[1]:
            return self._partly(x1, x2, wanted, tile)
        if ragged.is_ragged(x1) or ragged.is_ragged(x2):
            return ragged.call(lambda a, b: self._run(a, b, wanted, tile), x1, x2)
        module = self._module(wanted)
        one, two = self._inputs(module, x1, x2)
        if tile is None:
            tile = gram.evened(self._side(wanted, one), max(one.samples, 0 if two is None else two.samples))
        return self._whole(module, one, two, wanted, tile)

    def _side(self, get: tuple[str, ...], one: Inputs) -> int:
        """Inputs per side of a block, looked up once for all calls with inputs of these sizes."""
        key = (get, tuple(one.size.items()), one.dtype.itemsize)
        if key not in self._sides:
            self._sides[key] = costs.tile(self._recursion(get), one.size | {"feature": 1}, one.dtype.itemsize)
        return self._sides[key]

    def _partly(self, x1: Any, x2: Any, get: tuple[str, ...], tile: int | None, memory: float = 2e9) -> KernelResult:
        """What has an exact rule exactly, the rest sampled."""
        exact, rest = fallback.split(self._module, get)
        options: dict[str, Any] = {"dtype": self.dtype, "device": self.device, **self.options}
        drawn = sampled(self._program_for(rest), x1, x2, rest, memory=memory, **options)
        drawn.assumed = self.assumed
        return fallback.merged([self._run(x1, x2, exact, tile), drawn]) if exact else drawn

    def _whole(self, module: Any, one: Inputs, two: Inputs | None, get: tuple[str, ...], tile: int) -> KernelResult:
        def counted(a: Any, b: Any, wanted: frozenset[str]) -> dict[str, Any]:
            self.calls += 1
            out: dict[str, Any] = pairs(a, b, wanted)
            return out

        pairs = module.pairs
        with sampling(**self.options):
            wide = self._recursion(get).wide
            fused = self._fused_blocks(module, get) if self.fuse else None
            result = gram.whole(module.each, counted, one, two, frozenset(get), tile, wide, fused)
        result.assumed = self.assumed
        return result

    def _fused_blocks(self, module: Any, get: tuple[str, ...]) -> fusing.Fused:
        if get not in self._fused:
            self._fused[get] = fusing.Fused(module.pairs, frozenset(get), fusing.obstacle(self._recursion(get)))
        return self._fused[get]

    def _inputs(self, module: Any, x1: Any, x2: Any) -> tuple[Inputs, Inputs | None]:
        one = as_inputs(module.INPUTS, x1, self.dtype, self.device)
        if x2 is None:
            return one, None
        two = as_inputs(module.INPUTS, x2, self.dtype, self.device)
        one.same_features(two)
        if one.dtype != two.dtype and self.dtype is None:
            common = torch.promote_types(one.dtype, two.dtype)
            one, two = (
                as_inputs(module.INPUTS, one.arrays, common, None),
                as_inputs(module.INPUTS, two.arrays, common, None),
            )
        return one, two

    def _tile(self, get: tuple[str, ...], one: Inputs, two: Inputs | None, budget: int) -> int:
        recursion = self._recursion(get)
        sizes = one.size | {"feature": 1}
        peak, _, _ = costs.per_pair(recursion, sizes)
        item = costs.bytes_each(recursion, one.dtype.itemsize)
        n, m = one.samples, one.samples if two is None else two.samples
        results = len(recursion.results) + len(recursion.terms)
        fixed = results * n * m * item
        fixed += sum(costs.elements(e.dims, sizes) for e in recursion.used if e.space == "input") * (n + m) * item
        return min(gram.tile_for(budget, fixed, peak * item), costs.tile(recursion, sizes, item))

    def cost(
        self, n1: int, n2: int | None = None, sizes: Mapping[str, int] | None = None, get: Get = DEFAULT
    ) -> costs.Cost:
        """Operations, bytes and peak memory of n1 × n2 pairs (symmetric when n2 is None), before running."""
        item = (self.dtype or torch.float64).itemsize
        recursion = self._recursion(wanted_names(get))
        given = {"feature": 1} | dict(sizes or {})
        needed = {s.axis for e in recursion.used for d in e.dims for s in size_axes(d.size)}
        missing = sorted(needed - given.keys())
        if missing:
            raise InputError(
                f"sizes of the axes {', '.join(missing)} are needed", code="NT602", hint="sizes={'row': 32, …}"
            )
        return costs.cost(recursion, n1, n2, given, item, None)

    # ------------------------------------------------------------ modules

    def _program_for(self, get: tuple[str, ...]) -> Any:
        return program_for(self.program, get)

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
            raise InputError(
                f"numeric functions ({', '.join(module.NUMERIC)}) have no source to write", code="NT010",
                hint="give them as expressions with ns.function",
            )  # fmt: skip
        target.write_text(module.SOURCE)
        return target


def program_for(p: Any, get: tuple[str, ...]) -> Any:
    """The program with its backward lines where gradients are asked for, by name or as terms.

    For the terms of outputs with axes there are none: they take the tangent route.
    """
    terms = "terms" in get and not output_axes(p)
    gradients = any(name.startswith("d") and lookup(p, name) is None for name in get)
    if p.gradients or not p.outputs or not (terms or gradients):
        return p
    from netsor.backprop import backprop

    return backprop(p)


_RECURSIONS: dict[Any, Recursion] = {}
_MODULES: dict[Any, Any] = {}


def _key(program: Any, get: tuple[str, ...]) -> Any:
    return (str(program), tuple(id(f) for f in program.functions.values()), get)


def cached_recursion(program: Any, get: tuple[str, ...]) -> Recursion:
    """The recursion of a program's content."""
    key = _key(program, get)
    if key not in _RECURSIONS:
        _RECURSIONS[key] = _derive(program, get)
    return _RECURSIONS[key]


def cached_module(program: Any, get: tuple[str, ...]) -> Any:
    """The generated module of a program's content."""
    key = _key(program, get)
    if key not in _MODULES:
        _MODULES[key] = load(generate(cached_recursion(program, get)), program.name)
    return _MODULES[key]


def load(source: Source, name: str) -> Any:
    """The module of a generated source; tracebacks show its lines."""
    module: Any = types.ModuleType(f"netsor_{name}")
    file = f"<netsor {name} {len(linecache.cache)}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    module.__dict__.update(source.numeric)
    exec(builtins.compile(source.text, file, "exec"), module.__dict__)  # text of our own printer
    module.SOURCE, module.NUMERIC = source.text, source.numeric
    return module


# ---------------------------------------------------------------- public functions


def compile(
    p: Any, device: Any = None, dtype: Any = None, assume_gia: bool = False, fuse: bool = False,
    tol: float | None = None, samples: int | None = None, seed: int = 0, output: str | None = None,
) -> Kernel:  # fmt: skip
    """The infinite-width kernels of a program; see Kernel. `output` chooses one of several named outputs.

    Raises CheckError when the gradient independence assumption is not known to be valid (`ns.check(p).gia_valid`),
    unless `assume_gia=True`; the results then say so. Kernels without an exact rule are sampled (`result.method`,
    `result.errors`) from `samples` draws, or until the standard error is at most `tol` relative to √(K_ii K_jj) (1e-3
    by default, or as near as 2 GB and 2²¹ draws allow).

    `fuse=True` compiles the blocks of a kernel matrix by torch.compile, once a shape of blocks has come a few times;
    where that is not possible, a FusionWarning says why and nothing else changes.
    """
    p = as_program("ns.compile", p)
    if output is not None:
        p = with_output(p, output)
    if not assume_gia:
        refuse_unless_valid(p)
    return Kernel(p, device, dtype, assume_gia, {"tol": tol, "samples": samples, "seed": seed}, fuse)


def with_output(p: Any, name: str) -> Any:
    """The program with the outputs of one name; its backward pass is made anew."""
    names = list(dict.fromkeys(o.name for o in p.outputs))
    if name not in names:
        raise InputError(f"{p.name} has no output {name!r} (it has {', '.join(names)})", code="NT605")
    if len(names) == 1:
        return p
    from netsor.backprop import forward_part

    forward = forward_part(p) if p.gradients else p
    outputs = [o for o in forward.outputs if o.name == name]
    return type(p).from_parts(p.name, forward.widths, forward.lines, outputs, (), forward.returned, forward.functions)


def refuse_unless_valid(p: Any) -> None:
    """CheckError with the checker's first finding when gia_valid is not True."""
    from netsor.check.checker import check

    report = check(p)
    if report.gia_valid is True and report.simple_gia is not False:
        return
    errors = [d for d in report.diagnostics if d.severity == "error" and d.code.startswith("NT2")]
    reason = report.reasons.get("gia_valid", "")
    first = errors[0] if errors else Diagnostic("NT201", "error", f"{p.name}: {reason}")
    raise CheckError(
        Diagnostic(
            first.code, "error", f"{p.name} is not compiled: {first.message}", first.variable, first.line, first.clause,
            first.location, "assume_gia=True compiles it all the same; ns.limit gives the true limit",
        )
    )  # fmt: skip


def derive(p: Any, get: Get = DEFAULT) -> Recursion:
    """The recursion of the kernels asked for: entries, `str`, `.latex()`, `.markdown()`, `.symbolic(…)`."""
    wanted = wanted_names(get)
    return _derive(program_for(as_program("ns.derive", p), wanted), wanted)


def v_transform(phi: Any, K: Any, psi: Any = None) -> Tensor:
    """V_φ(K) = E φ(z)ψ(z)ᵀ for z ~ N(0, K), ψ = φ by default (Tensor Programs II, Definition E.1).

    K is a covariance matrix, or a batch of them `[…, k, k]`; the result has its shape. `phi.prime` is the derivative.
    """
    from netsor.compilers.expectation import v_transform as transform
    from netsor.compilers.lowering.functions import as_fn
    from netsor.functions import as_function

    if transforms.inside(K):
        return transforms.transformed(lambda k: (v_transform(phi, k, psi),), [K])[0]
    second = None if psi is None else as_fn(as_function(psi))
    return transform(as_fn(as_function(phi)), as_covariance(K), second)
