"""Blocks of kernels compiled as one by torch.compile (`ns.compile(…, fuse=True)`).

A block's function is traced once for each shape, with the formulas of `expectation.fused` and with the functions of the
variances as inputs, and compiled. It gives the kernels and the largest |ρ| of every pair of inputs; pairs that come too
close to 1 are computed again by the ordinary route.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.evaluate.results import flat
from netsor.compilers.expectation.blocks import fast
from netsor.compilers.expectation.blocks.fused import NEAR, POINTS, Trace, Untraceable
from netsor.compilers.expectation.blocks.scratch import scratch
from netsor.compilers.expectation.report import report
from netsor.compilers.lowering.build.recursion import plan
from netsor.compilers.lowering.plan.operations import Expect1, ExpectJ, Radial
from netsor.compilers.lowering.plan.order import unguarded
from netsor.errors import NetsorWarning
from netsor.facts import parameters

OFTEN = 3  # a shape that comes so many times is compiled
MOST = 32  # shapes compiled for one kernel

Pairs = Callable[[Any, Any, frozenset[str]], dict[str, Any]]
Body = Callable[..., tuple[Tensor, ...]]
Single = tuple[str, Any, float]  # an entry of the inputs, which function of it, the noise


class FusionWarning(NetsorWarning):
    """`fuse=True` has no effect."""


@lru_cache(maxsize=4)
def available(device: str) -> bool:
    """Can torch compile here? Warns, with the reason, when it cannot."""
    x = torch.zeros(2, 2, device=device)
    try:
        torch.compile(lambda t: t + 1)(x)
    except Exception as error:  # what a missing or broken compiler raises differs with the platform
        _warn(f"torch.compile does not work here ({_first_line(error)}); it needs a C++ compiler, g++ or clang++")
        return False
    return True


def _warn(why: str) -> None:
    warnings.warn(f"fuse=True has no effect: {why}", FusionWarning, stacklevel=2)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def obstacle(recursion: Recursion) -> str | None:
    """Why the blocks of a recursion cannot be one graph, if so."""
    if parameters(recursion.program.lines):
        return "variances or multipliers are given at the call"
    statements = list(unguarded(plan(recursion).pairs.body))
    if any(s.bodies() for s in statements):
        return "recurrences between pairs are evaluated step by step"
    if any(isinstance(s, Expect1 | ExpectJ | Radial) for s in statements):
        return "expectations over batches or of several Gaussians are evaluated by quadrature"
    return None


class Fused:
    """The blocks of one module. `why`, once known, says why they are not compiled."""

    def __init__(self, pairs: Pairs, get: frozenset[str], why: str | None) -> None:
        self.pairs, self.get = pairs, get
        self.singles: list[Single] | None = None
        self._seen: Counter[Any] = Counter()
        self._compiled: dict[Any, tuple[list[str], Body]] = {}
        self.why: str | None = None
        if why is not None:
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        self.why = why
        _warn(why)

    # ------------------------------------------------------------ functions of the variances

    def extended(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Both batches with the functions of their variances that the blocks read."""
        if self.singles is None and self.why is None:
            self._look(a, b)
        return (a, b) if not self.singles else (self._with(a), self._with(a) if a is b else self._with(b))

    def _with(self, each: Any) -> Any:
        extra = {_label(s): _single(each.values[s[0]], s[1], s[2]) for s in self.singles or ()}
        return type(each)(each.data, each.constants, each.results, **each.values, **extra)

    def _look(self, a: Any, b: Any) -> None:
        """Evaluate one pair, to see which functions of the variances it reads."""
        found: dict[Single, None] = {}
        first = slice(0, 1)
        one, two = a.rows(first), b.cols(first)
        copies = iter([t.clone() for t in (*_tensors(one), *_tensors(two))])
        number = torch.zeros(1, 1, device=a.data.device)
        try:
            self._traced(_rebuilt(one, copies), _rebuilt(two, copies), number, number, found)
        except Untraceable as error:
            self._give_up(str(error))
        self.singles = list(found)

    def _traced(
        self, a: Any, b: Any, rows: Tensor, cols: Tensor, found: dict[Single, None]
    ) -> tuple[dict[str, Tensor], Tensor]:
        places = {
            t.data_ptr(): (each, name) for each in (a, b) for name, t in each.values.items() if isinstance(t, Tensor)
        }

        def home(k: Tensor) -> tuple[Any, str] | None:
            each, name = places.get(k.data_ptr(), (None, ""))
            return None if each is None or each.values[name].numel() != k.numel() else (each, name)

        def single(k: Tensor, what: Any, noise: float) -> Tensor:
            at = home(k)
            if at is None:
                return _single(k, what, noise)
            found[at[1], what, noise] = None
            known: Tensor | None = at[0].values.get(_label((at[1], what, noise)))
            return _single(k, what, noise) if known is None else known.reshape(k.shape)

        with scratch() as own:
            own.trace = Trace(rows, cols, single, lambda k: home(k) is not None)
            out = flat(self.pairs(a, b, self.get))
            nearest = own.trace.nearest
        return out, torch.zeros(len(rows), cols.shape[1], device=rows.device) if nearest is None else nearest

    # ------------------------------------------------------------ blocks

    def __call__(self, a: Any, b: Any, rows: Tensor, cols: Tensor) -> tuple[dict[str, Tensor], Tensor] | None:
        """The kernels `[n, m, …]` by name, and which pairs are near |ρ| = 1; None for a block that is not compiled.

        `rows` `[n, 1]` and `cols` `[1, m]` number the samples.
        """
        tensors = [*_tensors(a), *_tensors(b), rows, cols]
        dtype = tensors[0].dtype
        if self.why is not None or dtype not in POINTS:
            return None
        key = tuple((t.shape, t.stride(), t.dtype, t.device) for t in tensors)
        if key not in self._compiled:
            self._seen[key] += 1
            if self._seen[key] < OFTEN or len(self._compiled) >= MOST or not self._compile(key, a, b, tensors):
                return None
        names, body = self._compiled[key]
        report("closed form", 0.0)
        with torch.no_grad():
            *kernels, nearest = body(*tensors)
        return dict(zip(names, kernels, strict=True)), nearest > 1 - NEAR[dtype]

    def _compile(self, key: Any, a: Any, b: Any, tensors: list[Tensor]) -> bool:
        from torch.fx.experimental.proxy_tensor import make_fx

        names: list[str] = []

        def body(*tensors: Tensor) -> tuple[Tensor, ...]:
            parts = iter(tensors)
            one, two = _rebuilt(a, parts), _rebuilt(b, parts)
            out, nearest = self._traced(one, two, next(parts), next(parts), {})
            names[:] = list(out)
            return (*out.values(), nearest)

        try:
            with torch.no_grad():
                graph = make_fx(body)(*(t.clone() for t in tensors))
                compiled = torch.compile(graph, dynamic=False, fullgraph=True, options=_options())
                compiled(*tensors)
        except Exception as error:  # a branch on values, or what the compiler says of its own
            self._give_up(f"a block could not be traced or compiled ({_first_line(error)})")
            return False
        self._compiled[key] = names, compiled
        return True


def _options() -> dict[str, Any]:
    """A graph is called with what it was compiled for only, and need not check it."""
    options: dict[str, Any] = {"cpp.enable_floating_point_contract_flag": "fast"}
    if hasattr(torch.compiler, "skip_all_guards_unsafe"):
        options["guard_filter_fn"] = torch.compiler.skip_all_guards_unsafe
    return options


def _single(k: Tensor, what: Any, noise: float) -> Tensor:
    if what == "inverse":
        return fast.inverse_root(k, noise)
    if what == "root":
        return fast.root(k)
    f, g = what
    return fast.E11(f, g, k)


def _label(single: Single) -> str:
    name, what, noise = single
    return f"{name} {what} {noise}"


def _tensors(each: Any) -> list[Tensor]:
    return [*each.data.arrays.values(), *(v for v in each.values.values() if isinstance(v, Tensor))]


def _rebuilt(each: Any, tensors: Iterator[Tensor]) -> Any:
    """The same batch made of other tensors, in the order of `_tensors`."""
    data = copy.copy(each.data)
    data.arrays = {k: next(tensors) for k in each.data.arrays}
    values = {k: next(tensors) if isinstance(v, Tensor) else v for k, v in each.values.items()}
    return type(each)(data, each.constants, each.results, **values)
