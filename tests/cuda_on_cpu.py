"""CUDA text compiled as plain C: the threads of a launch one after the other, on tensors of the CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from netsor.compilers.native import compiler
from netsor.compilers.native.cuda.text import Text

PRELUDE = """
#include <math.h>
long long across_, down_;
#define CALLS(across, down) \\
  for (long long row_ = 0; row_ < down_ * (down); ++row_) for (long long col_ = 0; col_ < across_ * (across); ++col_)
#define COLUMN col_
#define ROW row_
static unsigned long long atomicAdd(unsigned long long *p, unsigned long long x) { *p += x; return *p - x; }
"""

launches: list[str] = []


def compiled(text: Text) -> Any:
    """`cuda.library.Launch` of a text, which counts in `launches`."""
    library = compiler.library(PRELUDE + text.source)[0]

    def launch(name: str, grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Any]) -> None:
        launches.append(name)
        for place, value in (("across_", grid[0]), ("down_", grid[1])):
            ctypes.c_longlong.in_dll(library, place).value = value
        getattr(library, name)(*map(_argument, args))

    return launch


def counted(text: Text) -> Any:
    """The same without computing anything, for tensors without memory."""
    return lambda name, grid, block, args: launches.append(name)


def _argument(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return ctypes.c_void_p(x.data_ptr())
    return ctypes.c_int(x) if isinstance(x, int) else ctypes.c_double(x)
