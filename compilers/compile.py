"""`ns.compile`, `ns.derive`, `ns.v_transform`: from a program to kernels."""

from __future__ import annotations

import linecache
import types
from typing import Any

import torch

from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.derive.recursion import derive as _derive
from netsor.compilers.gram import whole
from netsor.compilers.inputs import as_inputs
from netsor.compilers.lowering.module import Source, generate
from netsor.compilers.results import KernelResult


class Kernel:
    def __init__(self, program: Any, device: Any = None, dtype: Any = None) -> None:
        self.program, self.device, self.dtype = program, device, dtype
        self._modules: dict[Any, Any] = {}

    def _module(self, get: tuple[str, ...]) -> Any:
        if get not in self._modules:
            source = generate(_derive(self.program, get))
            self._modules[get] = load(source, self.program.name)
        return self._modules[get]

    def __call__(self, x1: Any, x2: Any = None, get: Any = ("nngp", "ntk")) -> KernelResult:
        wanted = (get,) if isinstance(get, str) else tuple(get)
        module = self._module(wanted)
        one = as_inputs(module.INPUTS, x1, self.dtype, self.device)
        two = None if x2 is None else as_inputs(module.INPUTS, x2, self.dtype, self.device)
        return whole(module.each, module.pairs, one, two, frozenset(wanted))

    @property
    def source(self) -> str:
        return self._module(("nngp", "ntk")).SOURCE


def load(source: Source, name: str) -> Any:
    module = types.ModuleType(f"netsor_generated_{name}")
    file = f"<netsor {name} {id(source)}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(True), file)
    module.__dict__.update(source.numeric)
    exec(compile_text(source.text, file), module.__dict__)
    module.SOURCE = source.text
    return module


compile_text = lambda text, file: __builtins__["compile"](text, file, "exec") if isinstance(__builtins__, dict) else __builtins__.compile(text, file, "exec")  # noqa


def compile(program: Any, device: Any = None, dtype: Any = None, **options: Any) -> Kernel:
    return Kernel(program, device, dtype)


def derive(program: Any, get: tuple[str, ...] = ("nngp", "ntk")) -> Recursion:
    return _derive(program, get)
