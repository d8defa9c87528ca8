"""Which backend takes the blocks of a call: torch, or a function compiled for its kernel."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from netsor.compilers.budget.plan import Call
from netsor.compilers.budget.progress import outside
from netsor.compilers.budget.statements import elements
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.evaluate.inputs import Inputs
from netsor.compilers.expectation.blocks.fused import NEAR
from netsor.compilers.native import compiler
from netsor.errors import InputError, NetsorWarning, UnsupportedError

if TYPE_CHECKING:  # a call that is small loads nothing that prints C
    from netsor.compilers.native.axes.blocks import Tiles
    from netsor.compilers.native.blocks import Native

Backend = Literal["auto", "torch", "native"]
Names = tuple[str, ...]

FORMULA, SERIES = 4e-9, 120e-9  # seconds that torch takes for an expectation of one pair
PAYS = 2.0  # seconds in torch, of all calls so far, for which a kernel is compiled
NOTICED = 0.05  # seconds in torch below which nothing else is looked for
CUDA = "on CUDA it has been checked through the CPU target only"
ON_CUDA = f'{CUDA}; backend="native" takes it'
KINDS = ("cpu", "cuda")  # of devices that have native blocks


class Backends:
    """Of one kernel. `asked` is what `ns.compile` was given."""

    def __init__(self, asked: str, device: str, threads: int | None = None) -> None:
        if asked not in get_args(Backend):
            raise InputError(f"backend is 'auto', 'torch' or 'native', got {asked!r}", code="NT605")
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise InputError(f"threads is a positive number, got {threads!r}", code="NT605")
        self.kind = torch.device(device).type
        if asked == "native" and self.kind == "cpu" and compiler.current() is None:
            raise compiler.no_compiler()
        self.asked, self.threads = asked, threads
        self._native: dict[tuple[Names, str], Native | Tiles | str] = {}
        self._seconds: dict[Names, float] = {}
        self._refused: dict[Names, str] = {}  # why the last inputs were torch's

    def blocks(
        self, module: Any, get: Names, recursion: Callable[[Names], Recursion], one: Inputs, call: Call
    ) -> Native | Tiles | None:  # fmt: skip
        """What evaluates the blocks of a call in place of the module's own function, if anything does."""
        kind = one.device.type
        outside = call.tracked or not call.pairs or kind not in KINDS or one.dtype not in NEAR
        if self.asked == "torch" or outside or (self._weighs and self._is_small(get, recursion, one, call)):
            return None
        found = self._fitting(get, self._wanted(get, recursion, kind), one)
        if isinstance(found, str):
            if self.asked == "native":
                raise _not_covered(found)
            return None
        if self._weighs and not self._pays(get, found, one, call):
            return None
        return found if self._loads(get, found, one, kind) else None

    @property
    def _weighs(self) -> bool:
        """Is torch taken where compiling may not pay?"""
        return self.asked == "auto"

    # ------------------------------------------------------------ the native backend

    def native(self, get: Names, recursion: Callable[[Names], Recursion], kind: str = "cpu") -> Native | Tiles | str:
        """The native blocks on a kind of device, or why there are none."""
        key = get, kind
        if key not in self._native:
            if kind == "cpu" and compiler.current() is None:
                self._native[key] = f"no C compiler: {compiler.sought()}"
            else:
                from netsor.compilers.native.offered import native

                self._native[key] = native(recursion(get), get, kind, self.threads, self.asked == "native")
        return self._native[key]

    def _wanted(self, get: Names, recursion: Callable[[Names], Recursion], kind: str) -> Native | Tiles | str:
        """The native blocks; on CUDA where asked for."""
        found = self.native(get, recursion, kind)
        return ON_CUDA if self._weighs and kind == "cuda" and not isinstance(found, str) else found

    def _fitting(self, get: Names, found: Native | Tiles | str, one: Inputs) -> Native | Tiles | str:
        """The blocks where they serve inputs of these sizes; why they do not is what `described` says next."""
        if isinstance(found, str):
            return found
        serving = found.usual(one)
        self._refused[get] = serving if isinstance(serving, str) else ""
        return serving if isinstance(serving, str) else found

    def _is_small(self, get: Names, recursion: Callable[[Names], Recursion], one: Inputs, call: Call) -> bool:
        sizes = one.features()
        numbers = sum(elements(e.dims, sizes) for e in recursion(get).used if e.space == "pair")
        return call.pairs * numbers * SERIES < NOTICED

    def _pays(self, get: Names, found: Native | Tiles, one: Inputs, call: Call) -> bool:
        """Is the library there, or have the calls taken, with this one, so long that it pays?"""
        library: Any = found.usual(one)
        seconds = call.pairs * (library.formulas * FORMULA + library.summed * SERIES)
        self._seconds[get] = self._seconds.get(get, 0.0) + seconds
        return library.is_there or self._seconds[get] > PAYS

    def _loads(self, get: Names, found: Native | Tiles, one: Inputs, kind: str) -> bool:
        """Is there a library now? Where the compiler fails, torch is taken unless native blocks were asked for."""
        library: Any = found.usual(one)
        try:
            library.load()
        except UnsupportedError as error:
            if self.asked == "native":
                raise
            self._native[get, kind] = error.diagnostic.message
            return False
        return True

    def described(self, get: Names, recursion: Callable[[Names], Recursion]) -> str:
        """The backend in words."""
        if self.asked == "torch":
            return "torch"
        found = self._wanted(get, recursion, self.kind)
        if self._refused.get(get):
            return f"torch ({self._refused[get]})"
        if isinstance(found, str):
            return f"torch ({found})"
        if not self._weighs or found.is_there:
            return f"native ({CUDA})" if self.kind == "cuda" else "native"
        return f"torch, and native once the calls have taken {PAYS:.0f} s or the library is there"

    def settled(self, get: Names, recursion: Callable[[Names], Recursion], one: Inputs) -> Backends:
        """The same with one backend for all calls on such inputs, however few pairs they have."""
        twin = copy.copy(self)
        twin._native = {}
        if self.asked == "auto":
            twin.asked = "native" if self._takes(get, recursion, one) else "torch"
        return twin

    def _takes(self, get: Names, recursion: Callable[[Names], Recursion], one: Inputs) -> bool:
        """Are there native blocks of such inputs? A warning where the compiler fails."""
        if one.dtype not in NEAR:
            return False
        found = self._fitting(get, self._wanted(get, recursion, one.device.type), one)
        if isinstance(found, str):
            return False
        library: Any = found.usual(one)
        try:
            library.load()
        except UnsupportedError as error:
            said = f"{error.diagnostic.message}: torch computes all blocks"
            warnings.warn(said, NetsorWarning, stacklevel=outside())
            return False
        return True


def of_fuse(backend: Backend) -> Backend:
    """The backend that fuse=True names."""
    warnings.warn(
        'fuse=True is the older name of backend="native", which refuses a kernel that it does not cover',
        NetsorWarning, stacklevel=outside(),
    )  # fmt: skip
    return "native" if backend == "auto" else backend


def _not_covered(why: str) -> UnsupportedError:
    return UnsupportedError(
        f'backend="native" has no instruction for {why}', code="NT702",
        hint='backend="auto" takes torch where the native backend has none',
    )  # fmt: skip
