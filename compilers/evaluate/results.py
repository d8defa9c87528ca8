"""What a compiled kernel returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from netsor.compilers.derive.outputs import OUTPUTS, TERMS, Key
from netsor.compilers.expectation.report import divergent
from netsor.errors import InputError
from netsor.markup import one_line
from netsor.text.display import Table, Tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(eq=False)
class KernelResult(Tabled):
    """Kernels `[N1, N2, *output axes, *output axes′]`; None where they were not asked for.

    `terms` is the NTK by trained array. `vectors` holds the second moments of named vectors and the limits of
    returned scalars, `[N1, *axes]`. `method` is how the expectations were taken ("closed form", "hermite",
    "quadrature", "sampled", joined by +); `error` is None for closed forms, else the largest error bound of an
    expectation relative to √(E f² E g²), or the largest standard error of a sampled kernel relative to √(K_ii K_jj).
    `methods` and `errors` are those of sampled kernels by name (as in `items`): "sampled" and the standard errors entry
    by entry. `assumed` is True when the gradient independence assumption was taken on trust (`assume_gia=True`).

    `out["ntk"]` is a kernel by name, and iteration gives what was asked for in its order: `ntk, nngp = kernel(x, x2,
    get=("ntk", "nngp"))`. As a numpy array a result is its only kernel.

    >>> ns.compile(ns.programs.mlp())([[1.0, 1.0]])
    <KernelResult: nngp [1, 1], ntk [1, 1]; closed form>
    """

    nngp: Tensor | Any = None  # `| Any` where the type depends on `get`: no reader has to assert what it asked for
    ntk: Tensor | Any = None
    terms: dict[str, Tensor] | Any = None
    vectors: dict[str, Tensor] = field(default_factory=dict)
    method: str = "closed form"
    error: float | None = None
    assumed: bool = False
    methods: dict[str, str] = field(default_factory=dict)
    errors: dict[str, Tensor] = field(default_factory=dict)
    asked: tuple[str, ...] = ()  # the names of the call, in its order

    def __iter__(self) -> Iterator[Tensor | Any]:
        found = self._named()
        return iter([found[name] for name in self.asked or found])

    def __getitem__(self, name: str) -> Tensor | Any:
        """A kernel by name (as in `items`), or the dict of the terms."""
        found = self._named() | dict(self.items())
        if not isinstance(name, str) or name not in found:
            raise InputError(
                f"no kernel {name!r} in this result", code="NT605", hint=f"it has {', '.join(found) or 'none'}"
            )
        return found[name]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The only kernel as a numpy array; NT605 when there are several."""
        found = self._named()
        if len(found) != 1 or "terms" in found:
            name = next((k for k in found if k != "terms"), "ntk")
            raise InputError(
                f"this result is no single array: it has {', '.join(found) or 'no kernels'}", code="NT605",
                hint=f'choose one: numpy.asarray(out["{name}"]), or get="{name}" in the call',
            )  # fmt: skip
        if copy is False:
            raise ValueError("an array made from a result is a copy")
        (value,) = found.values()
        return value.numpy(force=True).astype(dtype or str(value.dtype).removeprefix("torch."), copy=True)

    def _named(self) -> dict[str, Any]:
        """What can be asked for by name."""
        found = {"nngp": self.nngp, "ntk": self.ntk, **self.vectors, "terms": self.terms}
        return {k: v for k, v in found.items() if v is not None}

    def __repr__(self) -> str:
        shapes = ", ".join(f"{one_line(k)} {list(v.shape)}" for k, v in self.items()) or "nothing"
        return f"<KernelResult: {shapes}; {self.method}>"

    def table(self) -> Table:
        """Shape, type, method and error of each kernel."""
        rows = [(k, *self._cells(k, v)) for k, v in self.items()]
        return Table("kernels", ("kernel", "shape", "type", "method", "error"), tuple(rows))

    def _cells(self, name: str, v: Tensor) -> tuple[str, str, str, str]:
        error = float(self.errors[name].max()) if name in self.errors else self.error
        shown = "" if error is None else f"{error:.1e}"
        kind = str(v.dtype).removeprefix("torch.") + ("" if v.device.type == "cpu" else f", {v.device}")
        return str(list(v.shape)), kind, self.methods.get(name, self.method), shown

    def plot(self, name: str | None = None) -> Figure:
        """Heat map and spectrum of a kernel by name (as in `items`; the first one by default), a matplotlib figure."""
        from netsor.compilers.experiment.figure import kernel_figure

        found = dict(self.items())
        chosen = next(iter(found), "") if name is None else name
        return kernel_figure(chosen, self[chosen])

    def items(self) -> list[tuple[str, Tensor]]:
        """All kernels by name; terms as `terms.array`, vectors whose name begins like that as `vectors.name`."""
        return [(str(key), v) for key, v in self.by_key().items()]

    def to(self, dtype: torch.dtype) -> KernelResult:
        """The same with all kernels in another dtype."""
        return self.mapped(lambda v: v.to(dtype))

    def by_key(self) -> dict[Key, Tensor]:
        """All kernels by key, as blocks and stores have them; see `fields`."""
        return keyed(self._named())

    def mapped(self, f: Callable[[Tensor], Tensor]) -> KernelResult:
        """The same with a function applied to all kernels."""
        return replace(self, **fields({key: f(value) for key, value in self.by_key().items()}))


def describe_log(log: list[tuple[str, Any]]) -> tuple[str, float | None]:
    """Method and error of a call from the records of its expectations.

    InputError (NT603) when the error of one is no number: its integral does not converge.
    """
    order = ("closed form", "hermite", "quadrature", "sampled")
    used = {m for m, _ in log}
    method = "+".join(sorted(used, key=lambda m: order.index(m) if m in order else len(order))) or "closed form"
    bounds = [float(b) for m, b in log if m != "closed form"]
    if any(math.isnan(b) for b in bounds):
        raise divergent()
    return method, max(bounds) if bounds else None


def keyed(out: Mapping[str, Any]) -> dict[Key, Any]:
    """The kernels of a block by key; among them stand the terms of all arrays by name."""
    plain = {Key(k): v for k, v in out.items() if k != TERMS}
    return plain | {Key(k, is_term=True): v for k, v in (out.get(TERMS) or {}).items()}


def fields(out: Mapping[Key, Any]) -> dict[str, Any]:
    """The fields of a result whose kernels have these keys: the inverse of `KernelResult.by_key`."""
    terms = {k.name: v for k, v in out.items() if k.is_term}
    named = {k.name: v for k, v in out.items() if not k.is_term and not k.is_output}
    return {name: out.get(Key(name)) for name in OUTPUTS} | {TERMS: terms or None, "vectors": named}
