"""What is asked of trained programs by step: `f[3]`, `loss[3]`, `ntk[3]`, …"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from netsor import ir
from netsor.errors import InputError

OF_STEP = re.compile(r"(\w+)\[(\d+)\]")
KERNELS = ("features", "ntk", "features_alignment", "ntk_alignment", "features_cosine", "ntk_cosine")


def by_step(p: ir.ProgramLike, name: str) -> dict[str, ir.Var]:
    """All scalars that a program returns by step, when this is one of them: they are had from the same draws."""
    found = {r.name: r.value for r in p.returned if OF_STEP.fullmatch(r.name)}
    return found if name in found else {}


def converged(name: str, values: Mapping[str, Any]) -> None:
    """InputError with the first step whose outputs or losses are not finite, when this value is not."""
    if not finite(values[name]):
        first = next((n for n, value in values.items() if n.split("[")[0] in ("f", "loss") and not finite(value)), None)
        if first is not None:
            raise InputError(f"training diverged: {first} is not finite", code="NT633", hint="a smaller learning rate")


def finite(value: Any) -> bool:
    return bool(np.isfinite(np.asarray(value, dtype=float)).all())


def remedy(name: str) -> str | None:
    """How kernels of a step are had."""
    found = OF_STEP.fullmatch(name)
    if found is None or found[1] not in KERNELS:
        return None
    return f"ns.train(…, kernels=({found[2]},)) writes them; targets of zero have no alignment"
