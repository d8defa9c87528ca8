"""All that decides the numbers of a store, so that it is never continued with other ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

import netsor
from netsor.compilers.evaluate.inputs import Inputs

Identity = dict[str, Any]
DIGESTS = ("program", "x1", "x2")  # too long to be shown


def identity(kernel: Any, names: tuple[str, ...], one: Inputs, two: Inputs | None, tile: int) -> Identity:
    """By name, in the order in which differences are looked for."""
    found: Identity = versions() | {"get": list(names)}
    found |= {"dtype": str(one.dtype).removeprefix("torch."), "device": one.device.type}
    found |= {key: kernel.options[key] for key in sorted(kernel.options)}
    found |= {"assume_gia": kernel.assumed, "convention": kernel.convention}
    found |= {"backend": kernel.backends.asked}
    found |= {"samples of x1": one.samples, "samples of x2": None if two is None else two.samples, "tile": tile}
    if one.parameters:
        found |= {"params": {k: float(v) for k, v in sorted(one.parameters.items())}}
    found |= {"program": hashlib.sha256(str(kernel.program).encode()).hexdigest()}
    return found | {"x1": digest(one), "x2": None if two is None else digest(two)}


def versions() -> dict[str, str]:
    """The software whose numbers these are."""
    return {"netsor": netsor.__version__, "torch": version("torch")}


def digest(data: Inputs) -> str:
    """A hash of the arrays of a batch with their names, dtypes and shapes."""
    total = hashlib.sha256()
    for name, tensor in sorted(data.arrays.items()):
        total.update(f"{name!r} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        plain: Any = np.ascontiguousarray(tensor.numpy(force=True))
        total.update(plain)
    return total.hexdigest()


def hashed(found: Identity) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The first difference in words; None when there is none.

    Older stores name an option `fuse`, which without effect (False) is no difference.
    """
    there = {k: v for k, v in there.items() if (k, v) != ("fuse", False)}
    for key in [*here, *(k for k in there if k not in here)]:
        one, two = there.get(key), here.get(key)
        if one != two:
            unlike = key in DIGESTS and None not in (one, two)
            return f"{key} is another" if unlike else f"{key} is {_said(one)} there and {_said(two)} here"
    return None


def _said(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value[:12] if isinstance(value, str) else str(value)
