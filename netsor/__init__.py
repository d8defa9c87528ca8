"""Write a network's forward and backward pass as a NETSOR⊤ program, check it, and compile its infinite-width limit.

Names load on first use: `import netsor` loads neither torch nor scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_WHERE = {
    "netsor.dsl": ("Program", "dot", "mix", "moment", "softmax"),
    "netsor.expressions": ("Expr", "Matrix"),
    "netsor.ir": ("Axis", "Width"),
    "netsor.functions": (
        "Function", "abs", "cos", "cube", "elu", "erf", "exp", "function", "gaussian", "gelu", "identity",
        "leaky_relu", "numeric", "polynomial", "relu", "sigmoid", "sign", "silu", "sin", "softplus", "square", "step",
        "tanh",
    ),
    "netsor.errors": (
        "CheckError", "Diagnostic", "InputError", "Location", "NetsorError", "ParseError", "ProgramError",
        "UnsupportedError",
    ),
    "netsor.text": ("parse",),
    "netsor.backprop": ("backprop",),
    "netsor.check": ("Report", "check"),
    "netsor.compilers.compile": ("Kernel", "KernelResult", "compile", "derive", "v_transform"),
    "netsor.compilers.finite": ("simulate",),
    "netsor.compilers.limit": ("limit",),
    "netsor.convention": ("unit_variance",),
    "netsor.declared": ("program",),
}  # fmt: skip
_HOME = {name: module for module, names in _WHERE.items() for name in names}
_MODULES = ("check", "compilers", "layers", "programs")

__all__ = sorted({*_HOME, "layers", "programs"})
__version__ = "0.1.0"

if TYPE_CHECKING:
    from netsor import layers, programs
    from netsor.backprop import backprop
    from netsor.check import Report, check
    from netsor.compilers.compile import Kernel, KernelResult, compile, derive, v_transform
    from netsor.compilers.finite import simulate
    from netsor.compilers.limit import limit
    from netsor.convention import unit_variance
    from netsor.declared import program
    from netsor.dsl import Program, dot, mix, moment, softmax
    from netsor.errors import (
        CheckError,
        Diagnostic,
        InputError,
        Location,
        NetsorError,
        ParseError,
        ProgramError,
        UnsupportedError,
    )
    from netsor.expressions import Expr, Matrix
    from netsor.functions import (
        Function,
        abs,
        cos,
        cube,
        elu,
        erf,
        exp,
        function,
        gaussian,
        gelu,
        identity,
        leaky_relu,
        numeric,
        polynomial,
        relu,
        sigmoid,
        sign,
        silu,
        sin,
        softplus,
        square,
        step,
        tanh,
    )
    from netsor.ir import Axis, Width
    from netsor.text import parse


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"netsor.{name}")
    else:
        raise AttributeError(f"module 'netsor' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
