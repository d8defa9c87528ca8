"""Laws of initial values, recorded from a module's own initialiser at two very large widths on the meta device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import sympy as sp
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

# Of the first width: terms of order 1/n² are below rounding after one extrapolation. The smaller ones are for modules
# whose matrices would have more bytes than torch can count.
FACTORS = ((2**21, 2**22), (2**18, 2**19), (2**15, 2**16))


@dataclass(frozen=True)
class Power:
    """c·n^k of the reference width n; k is a multiple of 1/2."""

    c: Any  # a sympy number
    k: Fraction = Fraction(0)

    def __str__(self) -> str:
        if self.k == 0 or self.c == 0:
            return str(self.c)
        exponent = "n" if self.k == 1 else f"n^{self.k}" if self.k.denominator == 1 else f"n^({self.k})"
        return exponent if self.c == 1 else f"{self.c}·{exponent}"

    def at(self, n: float) -> float:
        return float(self.c) * n ** float(self.k)

    def at_zero(self) -> Any:
        """The limit of c·n^k for k ≤ 0."""
        return self.c if self.k == 0 else sp.Integer(0)


def neat(x: float) -> Any:
    """The rational number with a small denominator, or the root of one, that x is to rounding; else x itself."""
    for square in (False, True):
        y = x * x if square else abs(x)
        near = Fraction(y).limit_denominator(10**5)
        if near and abs(float(near) - y) <= 4e-13 * y:
            root = sp.Rational(near.numerator, near.denominator)
            return (sp.sqrt(root) if square else root) * (1 if x > 0 else -1)
    return sp.Rational(repr(x))


def fit(values: Sequence[float], widths: Sequence[float], tolerance: float = 1e-9) -> Power | None:
    """c·n^k through values at two widths; None when no multiple of 1/2 fits. Terms of order 1/n are extrapolated."""
    a, b = values
    if a == b:
        return Power(neat(a) if a else sp.Integer(0))
    if a == 0 or b == 0 or (a < 0) != (b < 0) or not math.isfinite(a * b):
        return None
    k = Fraction(round(2 * math.log(b / a) / math.log(widths[1] / widths[0])), 2)
    scaled = [v / w ** float(k) for v, w in zip(values, widths, strict=True)]
    if abs(scaled[0] / scaled[1] - 1) > tolerance:
        return None
    (u, v), (m, n) = scaled, widths
    return Power(neat((n * v - m * u) / (n - m) if abs(u / v - 1) > 1e-14 else v), k)


@dataclass(frozen=True)
class Values:
    """The law of an array's i.i.d. entries at one width; kind "unknown" when it is no known one.

    `zeros` are rows that were set to 0, as (row, length).
    """

    kind: str  # "normal" | "uniform" | "constant" | "unknown"
    mean: float = 0.0
    std: float = 0.0
    zeros: frozenset[tuple[int, int]] = frozenset()

    def scaled(self, c: float) -> Values:
        return Values(self.kind, self.mean * c, self.std * abs(c), self.zeros)

    def moved(self, c: float) -> Values:
        return UNKNOWN if self.zeros else Values(self.kind, self.mean + c, self.std)


UNKNOWN = Values("unknown")


@dataclass(frozen=True)
class Law:
    """The law of a parameter's entries as the width grows; the rows `zeros` start at 0."""

    kind: str
    mean: Power
    var: Power
    zeros: frozenset[int] = frozenset()

    def __str__(self) -> str:
        if self.kind == "constant":
            return f"constant {self.mean}"
        rows = f", 0 in row {', '.join(map(str, sorted(self.zeros)))}" if self.zeros else ""
        return f"{self.kind}, mean {self.mean}, variance {self.var}{rows}"


def _argument(args: Sequence[Any], kwargs: Mapping[str, Any], place: int, name: str, default: float) -> float:
    return float(args[place] if len(args) > place else kwargs.get(name, default))


def _uniform(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values:
    low, high = _argument(args, kwargs, 1, "from", 0.0), _argument(args, kwargs, 2, "to", 1.0)
    return Values("uniform", (low + high) / 2, (high - low) / math.sqrt(12))


def _normal(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values:
    return Values("normal", _argument(args, kwargs, 1, "mean", 0.0), _argument(args, kwargs, 2, "std", 1.0))


def _filled(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values:
    value = args[1] if len(args) > 1 else kwargs.get("fill_value")
    return Values("constant", float(value)) if isinstance(value, int | float) else UNKNOWN


_Maker = Callable[[Sequence[Any], Mapping[str, Any]], Values]
MADE: dict[str, _Maker] = {
    "uniform_": _uniform,
    "normal_": _normal,
    **dict.fromkeys(("fill_", "full", "full_like", "new_full"), _filled),
    **dict.fromkeys(("zero_", "zeros", "zeros_like", "new_zeros"), lambda a, k: Values("constant", 0.0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda a, k: Values("constant", 1.0)),
    **dict.fromkeys(("randn", "randn_like"), lambda a, k: Values("normal", 0.0, 1.0)),
    **dict.fromkeys(("rand", "rand_like"), lambda a, k: Values("uniform", 0.5, 1 / math.sqrt(12))),
}
CHANGED: dict[str, Callable[[Values, float], Values]] = {
    "mul": lambda v, c: v.scaled(c),
    "div": lambda v, c: v.scaled(1 / c),
    "add": lambda v, c: v.moved(c),
    "sub": lambda v, c: v.moved(-c),
    "neg": lambda v, c: v.scaled(-1.0),
}
VIEWS = frozenset({
    "empty", "empty_strided", "empty_like", "new_empty", "detach", "view", "t", "transpose", "alias", "slice",
    "select", "lift_fresh", "permute", "expand", "unsqueeze", "squeeze", "split", "chunk", "as_strided",
    "_reshape_alias", "detach_",
})  # fmt: skip


class Recorder(TorchDispatchMode):
    """Which law was written to which storage while a module was made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.laws: dict[int, Values] = {}
        self.alive: list[Any] = []  # a storage's address is not given away again

    def of(self, t: torch.Tensor) -> Values:
        return self.laws.get(t.untyped_storage()._cdata, UNKNOWN)

    def _write(self, t: torch.Tensor, law: Values) -> None:
        storage = t.untyped_storage()
        self.alive.append(storage)
        whole = t.numel() * t.element_size() >= storage.nbytes()
        old = self.laws.get(storage._cdata, UNKNOWN)
        if law == Values("constant") and not whole and old != law and t.ndim == 1 and t.is_contiguous():
            row, rest = divmod(int(t.storage_offset()), len(t))
            law = replace(old, zeros=old.zeros | {(row, len(t))}) if rest == 0 else UNKNOWN
        elif not whole and old != law:
            law = UNKNOWN
        self.laws[storage._cdata] = law

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if isinstance(out, torch.Tensor) and out.is_floating_point() and name not in VIEWS:
            self._write(out, self._law(name, args, kwargs))
        return out

    def _law(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values:
        if name in MADE:
            return MADE[name](args, kwargs)
        if name == "copy_":
            return self.of(args[1])
        if name in ("clone", "_to_copy"):
            return self.of(args[0])
        change, other = CHANGED.get(name.rstrip("_")), (args[1] if len(args) > 1 else 0.0)
        if change is None or not isinstance(args[0], torch.Tensor) or not isinstance(other, int | float):
            return UNKNOWN
        return change(self.of(args[0]), float(other))


def _recorded(make: Callable[[int], nn.Module], width: int, device: str) -> dict[str, Values]:
    with torch.device(device), Recorder() as recorder:
        module = make(width)
    return {name: _by_rows(recorder.of(p), p) for name, p in module.named_parameters(remove_duplicate=False)}


def _by_rows(law: Values, p: torch.Tensor) -> Values:
    """Rows are those of a table."""
    return law if all(p.ndim == 2 and length == p.shape[1] for _, length in law.zeros) else UNKNOWN


def laws(make: Callable[[int], nn.Module], width: int) -> dict[str, Law]:
    """The laws of a module's parameters by name; what has no recorded law is left out.

    An initialiser may treat the meta device differently: the kind must be the one recorded at the width itself.
    """
    widths: list[int] = []
    found: list[dict[str, Values]] = []
    for factors in FACTORS:
        if not found:
            widths = [width * factor for factor in factors]
            with suppress(Exception):  # an initialiser that reads values, which a meta tensor has not: no law is known
                found = [_recorded(make, n, "meta") for n in widths]
    if not found:
        return {}
    real = _recorded(make, width, "cpu")
    same = {name: v for name, v in found[0].items() if v.kind == real.get(name, UNKNOWN).kind}
    return dict(_fitted([same, found[1]], [float(n) for n in widths]))


def _fitted(found: Sequence[Mapping[str, Values]], widths: Sequence[float]) -> Iterator[tuple[str, Law]]:
    for name, first in found[0].items():
        second = found[1].get(name, UNKNOWN)
        rows = frozenset(row for row, _ in first.zeros)
        if first.kind != second.kind or first.kind == "unknown" or rows != {row for row, _ in second.zeros}:
            continue
        mean, var = (fit(v, widths, 1e-3) for v in ((first.mean, second.mean), (first.std**2, second.std**2)))
        if mean is not None and var is not None:
            yield name, Law(first.kind, mean, var, rows)


__all__ = ["Law", "Power", "fit", "laws", "neat"]
