"""Arguments of `ns.compile` and of kernels, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from netsor import ir
from netsor.build import hints
from netsor.errors import InputError, UnsupportedError

Array: TypeAlias = hints.ArrayLike
Arrays: TypeAlias = hints.Inputs
Device: TypeAlias = torch.device | str | None
Dtype: TypeAlias = torch.dtype | type[np.generic] | np.dtype[Any] | str | None
Get: TypeAlias = str | Sequence[str]
Params: TypeAlias = Mapping[str, hints.Real]


def wanted_names(get: Get) -> tuple[str, ...]:
    """The names, each once; InputError (NT605) for nothing, and for what is no name and no sequence of names."""
    names = [get] if isinstance(get, str) else list(get) if isinstance(get, Iterable) else [get]
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"get is a name or several, got {get!r}", code="NT605", hint='get="ntk" or ("nngp", "ntk")')
    return tuple(dict.fromkeys(names))


def as_dtype(dtype: Dtype) -> torch.dtype | None:
    if dtype is None:
        return dtype
    known = {"float32": torch.float32, "float64": torch.float64, "float": torch.float64, "double": torch.float64}
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, str | torch.dtype) else np.dtype(dtype).name
    if name not in known:
        raise InputError(f"dtype is float32 or float64, got {dtype!r}", code="NT609")
    return known[name]


def as_draws(tol: float | None, samples: int | None, seed: int) -> dict[str, Any]:
    """How sampled kernels draw; InputError (NT616) for a tolerance or a number of draws that is not positive."""
    if tol is not None and not (isinstance(tol, Real) and not isinstance(tol, bool) and 0 < tol < math.inf):
        hint = "tol=1e-3: the standard error, relative to √(K_ii K_jj)"
        raise InputError(f"tol is a positive number, got {tol!r}", code="NT616", hint=hint)
    if samples is not None and not (_is_whole(samples) and samples > 0):
        raise InputError(f"samples is a positive whole number, got {samples!r}", code="NT616", hint="samples=4096")
    if not (_is_whole(seed) and seed >= 0):
        raise InputError(f"seed is a whole number from 0, got {seed!r}", code="NT616", hint="seed=0")
    return {"tol": tol, "samples": samples, "seed": seed}


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def as_device(device: Device) -> torch.device | None:
    if device is None:
        return None
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(f"the device {device!r} cannot be used: {reason}", code="NT609", hint="device='cpu'") from None
    return found


def known_sizes(sizes: Iterable[Any], given: Mapping[str, int] | None) -> dict[str, int]:
    """The sizes that are given, one feature by default; InputError (NT602) for an axis of `sizes` that is not."""
    known = {"feature": 1} | dict(given or {})
    missing = sorted({s.axis for size in sizes for s in _axes(size)} - known.keys())
    if missing:
        raise InputError(
            f"sizes of the axes {', '.join(missing)} are needed", code="NT602", hint="sizes={'row': 32, …}"
        )
    return known


def _axes(size: Any) -> list[Any]:
    while isinstance(size, ir.Strided):
        size = size.of
    return [size] if isinstance(size, ir.SizeOf) else []


def as_parameters(
    name: str, known: Sequence[str], params: Params | None, call: str = "kernel(x, params=…)"
) -> dict[str, Tensor]:
    """A tensor without axes in float64 for each parameter of a program; gradients flow to those that are given.

    InputError (NT604) for one that is missing or unknown, or is no positive finite number; its hint is the `call`.
    """
    if params is not None and not isinstance(params, Mapping):
        raise InputError(f"params are values by name, got {type(params).__name__}", code="NT604", hint='{"s": 1.5}')
    given = {str(k): value for k, value in (params or {}).items()}
    unknown = [k for k in given if k not in known]
    if unknown:
        raise InputError(
            f"{name} has no parameter {unknown[0]!r}", code="NT604", hint=f"it has {', '.join(known) or 'none'}"
        )
    missing = [k for k in known if k not in given]
    if missing:
        wanted = ", ".join(f"{k!r}: …" for k in known)
        raise InputError(
            f"the parameter{'s' if missing[1:] else ''} {', '.join(missing)} of {name} "
            f"{'have no values' if missing[1:] else 'has no value'}", code="NT604",
            hint=call.replace("…", f"{{{wanted}}}"),
        )  # fmt: skip
    return {k: _number(k, given[k]) for k in known}


def numbers(params: Mapping[str, Tensor]) -> dict[str, float]:
    """The values alone, for a sampled kernel, which has no gradient in them (NT702)."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in params.values()):
        raise UnsupportedError(
            "a sampled kernel has no gradient in its parameters", code="NT702", hint="finite differences with one seed"
        )
    return {k: float(v) for k, v in params.items()}


def _number(name: str, value: Any) -> Tensor:
    try:
        found = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"the parameter {name} is {value!r}, not a number", code="NT604") from None
    if found.numel() != 1 or found.is_complex():
        raise InputError(f"the parameter {name} is one real number, got shape {tuple(found.shape)}", code="NT604")
    found = found.reshape(()).to(torch.float64)
    if not 0 < float(found.detach()) < float("inf"):
        raise InputError(
            f"the parameter {name} is {float(found.detach()):g}: parameters are positive numbers", code="NT604",
            hint="a variance that is 0 is written in the program: var=0",
        )  # fmt: skip
    return found
