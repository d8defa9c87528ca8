"""Which backend takes the blocks of a call: torch, torch compiled (`fuse`), or a C function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, get_args

from netsor.compilers.budget.plan import Call
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.evaluate import fused
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.expectation.blocks.fused import NEAR
from netsor.compilers.lowering.build.recursion import plan
from netsor.compilers.lowering.functions import engine_function
from netsor.compilers.native import compiler
from netsor.compilers.native.blocks import Native
from netsor.compilers.native.expectations import Missing
from netsor.compilers.native.library import Library
from netsor.compilers.native.pairs import pairs
from netsor.errors import InputError, UnsupportedError

Backend = Literal["auto", "torch", "native"]
Names = tuple[str, ...]

FORMULA, SERIES = 4e-9, 40e-9  # seconds that torch takes for an expectation of one pair
PAYS = 2.0  # seconds in torch, of all calls so far, for which a kernel is compiled
NOTICED = 0.05  # seconds in torch below which nothing else is looked for
SERIES_ASKED = 'it has series, in which torch is about as fast; backend="native" takes them'


class Backends:
    """Of one kernel. `asked` is what `ns.compile` was given."""

    def __init__(self, asked: str, fuse: bool, device: str, threads: int | None = None) -> None:
        if asked not in get_args(Backend):
            raise InputError(f"backend is 'auto', 'torch' or 'native', got {asked!r}", code="NT605")
        if asked == "native" and compiler.current() is None:
            raise compiler.no_compiler()
        self.asked, self.fuse = asked, fuse and fused.available(device)
        self.threads = threads
        self.fused: dict[Names, fused.Fused] = {}
        self._native: dict[Names, Native | str] = {}
        self._seconds: dict[Names, float] = {}

    def blocks(
        self, module: Any, get: Names, recursion: Callable[[Names], Recursion], one: Inputs, call: Call
    ) -> fused.Fused | Native | None:  # fmt: skip
        """What evaluates the blocks of a call in place of the module's own function, if anything does."""
        if self.fuse and self.asked != "native":
            if get not in self.fused:
                self.fused[get] = fused.Fused(module.pairs, frozenset(get), fused.obstacle(recursion(get)))
            return self.fused[get]
        outside = call.tracked or one.device.type != "cpu" or one.dtype not in NEAR
        if self.asked == "torch" or outside or (self.asked == "auto" and self._is_small(get, recursion, call)):
            return None
        found = self._wanted(get, recursion)
        if isinstance(found, str):
            if self.asked == "native":
                raise _not_covered(found)
            return None
        return found if self.asked == "native" or self._pays(get, found, one, call) else None

    # ------------------------------------------------------------ the native backend

    def native(self, get: Names, recursion: Callable[[Names], Recursion]) -> Native | str:
        """The native blocks, or why there are none."""
        if get not in self._native:
            self._native[get] = (
                native(recursion(get), get, self.threads)
                if compiler.current()
                else f"no C compiler: {compiler.sought()}"
            )
        return self._native[get]

    def _wanted(self, get: Names, recursion: Callable[[Names], Recursion]) -> Native | str:
        """The native blocks; of a kernel with series, for which torch is as fast, where they are asked for."""
        found = self.native(get, recursion)
        if self.asked == "native" or isinstance(found, str):
            return found
        return SERIES_ASKED if found.has_series else found

    def _is_small(self, get: Names, recursion: Callable[[Names], Recursion], call: Call) -> bool:
        return call.pairs * len(recursion(get).used) * SERIES < NOTICED

    def _pays(self, get: Names, found: Native, one: Inputs, call: Call) -> bool:
        """Is the library there, or have the calls taken, with this one, so long that it pays?"""
        library = found.library(one.dtype)
        seconds = call.pairs * (library.pairs.formulas * FORMULA)
        self._seconds[get] = self._seconds.get(get, 0.0) + seconds
        return library.is_there or self._seconds[get] > PAYS

    def described(self, get: Names, recursion: Callable[[Names], Recursion]) -> str:
        """The backend in words."""
        if self.fuse and self.asked != "native":
            return "torch.compile"
        if self.asked == "torch":
            return "torch"
        found = self._wanted(get, recursion)
        if isinstance(found, str):
            return f"torch ({found})"
        if self.asked == "native" or found.is_there:
            return "native"
        return f"torch, and native once the calls have taken {PAYS:.0f} s or the library is there"

    def settled(self, get: Names, recursion: Callable[[Names], Recursion]) -> Backends:
        """The same with one backend for all calls, however few pairs they have."""
        covered = self.asked != "torch" and not isinstance(self._wanted(get, recursion), str)
        twin = copy.copy(self)
        twin.asked = "native" if covered else "torch"
        return twin


def native(recursion: Recursion, get: Names, threads: int | None = None) -> Native | str:
    """The native blocks of a recursion, or which of its entries has no instruction."""
    if recursion.wide:
        return "it is evaluated in float64 whatever its inputs"
    found, functions = plan(recursion), lru_cache(maxsize=None)(engine_function)

    def library(dtype: Any) -> Library:
        return Library(pairs(found, frozenset(get), functions, dtype), dtype)

    blocks = Native(library, len(dict.fromkeys(found.each.kept)), threads)
    try:
        blocks.library(next(iter(NEAR)))
    except Missing as missing:
        return str(missing)
    return blocks


def _not_covered(why: str) -> UnsupportedError:
    return UnsupportedError(
        f'backend="native" has no instruction for {why}', code="NT702",
        hint='backend="auto" takes torch where the native backend has none',
    )  # fmt: skip
