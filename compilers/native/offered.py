"""The native blocks of a kernel: for pairs of numbers, or for pairs of arrays with axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.expectation.blocks.fused import NEAR
from netsor.compilers.lowering.build.recursion import plan
from netsor.compilers.lowering.functions import engine_function
from netsor.compilers.lowering.plan.operands import Name
from netsor.compilers.lowering.plan.order import Plan
from netsor.compilers.lowering.plan.uses import parts
from netsor.compilers.native.axes import library as axes
from netsor.compilers.native.axes.blocks import Tiles
from netsor.compilers.native.axes.sides import sides
from netsor.compilers.native.blocks import Native
from netsor.compilers.native.cuda.library import Library as CudaLibrary
from netsor.compilers.native.expectations import Missing
from netsor.compilers.native.library import Library
from netsor.compilers.native.pairs import Pairs, pairs

Names = tuple[str, ...]

LIBRARIES: dict[str, Callable[[Pairs, torch.dtype], Any]] = {"cpu": Library, "cuda": CudaLibrary}


def native(
    recursion: Recursion, get: Names, kind: str = "cpu", threads: int | None = None, needed: bool = False
) -> Native | Tiles | str:  # fmt: skip
    """The native blocks of a recursion, or which of its entries has no instruction."""
    if recursion.wide:
        return "it is evaluated in float64 whatever its inputs"
    found, functions = plan(recursion), lru_cache(maxsize=None)(engine_function)

    def library(dtype: torch.dtype) -> Any:
        return LIBRARIES[kind](pairs(found, frozenset(get), functions, dtype), dtype)

    blocks = Native(library, len(dict.fromkeys(found.each.kept)), threads, needed)
    try:
        blocks.library(next(iter(NEAR)))
    except Missing as missing:
        covered = kind == "cpu" and _has_axes(found)
        return _tiles(found, get, functions, threads, needed) if covered else str(missing)
    return blocks


def _has_axes(plan: Plan) -> bool:
    return any(
        isinstance(x, Name) and x.layout is not None and x.layout.axes for s in plan.pairs.body for x in parts(s)
    )


def _tiles(plan: Plan, get: Names, functions: Any, threads: int | None, needed: bool) -> Tiles | str:
    known = sides(plan)
    found = Tiles(
        known, lambda dtype, shapes: axes.Library(plan, known, frozenset(get), functions, dtype, shapes), threads,
        needed,
    )  # fmt: skip
    return found.obstacle() or found
