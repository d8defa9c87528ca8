"""Write a network's forward and backward pass as a NETSOR⊤ program, check it, and compile its infinite-width limit.

Names load on first use: `import netsor` loads neither torch nor scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_WHERE = {
    "netsor.build.moments": ("dot", "mix", "moment", "softmax"),
    "netsor.build.program": ("Program",),
    "netsor.build.expressions": ("Expr", "Matrix"),
    "netsor.ir": ("Axis", "Width"),
    "netsor.functions": (
        "Function", "abs", "cos", "cube", "elu", "erf", "exp", "function", "gaussian", "gelu", "identity",
        "leaky_relu", "numeric", "polynomial", "relu", "sigmoid", "sign", "silu", "sin", "softplus", "square", "step",
        "tanh",
    ),
    "netsor.errors": (
        "CheckError", "Diagnostic", "InputError", "Location", "NetsorError", "NetsorWarning", "ParseError",
        "ProgramError", "UnsupportedError",
    ),
    "netsor.text": ("parse",),
    "netsor.passes.backward": ("backprop", "forward_part"),
    "netsor.checker": ("Report", "check"),
    "netsor.compilers.compile": ("compile", "derive", "v_transform"),
    "netsor.compilers.kernel": ("Kernel",),
    "netsor.compilers.experiment.figure": ("plot",),
    "netsor.compilers.experiment.empirical": ("empirical_ntk",),
    "netsor.compilers.experiment.simulate": ("simulate",),
    "netsor.compilers.lift": ("Lifted", "from_torch"),
    "netsor.compilers.limit": ("limit",),
    "netsor.compilers.predict": ("predict",),
    "netsor.compilers.evaluate.results": ("KernelResult",),
    "netsor.passes.bind": ("bind",),
    "netsor.passes.unit_variance": ("unit_variance",),
    "netsor.build.declared": ("program",),
    "netsor.passes.train": ("train",),
    "netsor.compilers.store": ("open_gram",),
}  # fmt: skip
_HOME = {name: module for module, names in _WHERE.items() for name in names}
_MODULES = ("compilers", "layers", "programs")

__all__ = [
    "Axis", "Expr", "Matrix", "Program", "Width", "dot", "mix", "moment", "parse", "program", "softmax",
    "Function", "abs", "cos", "cube", "elu", "erf", "exp", "function", "gaussian", "gelu", "identity", "leaky_relu",
    "numeric", "polynomial", "relu", "sigmoid", "sign", "silu", "sin", "softplus", "square", "step", "tanh",
    "backprop", "bind", "forward_part", "train", "unit_variance", "Report", "check",
    "Kernel", "KernelResult", "compile", "derive", "empirical_ntk", "limit", "open_gram", "plot", "predict", "simulate",
    "v_transform",
    "Lifted", "from_torch",
    "CheckError", "Diagnostic", "InputError", "Location", "NetsorError", "NetsorWarning", "ParseError", "ProgramError",
    "UnsupportedError",
    "layers", "programs",
]  # fmt: skip
__version__ = "0.1.0"

if TYPE_CHECKING:
    from netsor import layers as layers
    from netsor import programs as programs
    from netsor.build.declared import program as program
    from netsor.build.expressions import Expr as Expr
    from netsor.build.expressions import Matrix as Matrix
    from netsor.build.moments import dot as dot
    from netsor.build.moments import mix as mix
    from netsor.build.moments import moment as moment
    from netsor.build.moments import softmax as softmax
    from netsor.build.program import Program as Program
    from netsor.checker import Report as Report
    from netsor.checker import check as check
    from netsor.compilers.compile import compile as compile
    from netsor.compilers.compile import derive as derive
    from netsor.compilers.compile import v_transform as v_transform
    from netsor.compilers.evaluate.results import KernelResult as KernelResult
    from netsor.compilers.experiment.empirical import empirical_ntk as empirical_ntk
    from netsor.compilers.experiment.figure import plot as plot
    from netsor.compilers.experiment.simulate import simulate as simulate
    from netsor.compilers.kernel import Kernel as Kernel
    from netsor.compilers.lift import Lifted as Lifted
    from netsor.compilers.lift import from_torch as from_torch
    from netsor.compilers.limit import limit as limit
    from netsor.compilers.predict import predict as predict
    from netsor.compilers.store import open_gram as open_gram
    from netsor.errors import CheckError as CheckError
    from netsor.errors import Diagnostic as Diagnostic
    from netsor.errors import InputError as InputError
    from netsor.errors import Location as Location
    from netsor.errors import NetsorError as NetsorError
    from netsor.errors import NetsorWarning as NetsorWarning
    from netsor.errors import ParseError as ParseError
    from netsor.errors import ProgramError as ProgramError
    from netsor.errors import UnsupportedError as UnsupportedError
    from netsor.functions import Function as Function
    from netsor.functions import abs as abs
    from netsor.functions import cos as cos
    from netsor.functions import cube as cube
    from netsor.functions import elu as elu
    from netsor.functions import erf as erf
    from netsor.functions import exp as exp
    from netsor.functions import function as function
    from netsor.functions import gaussian as gaussian
    from netsor.functions import gelu as gelu
    from netsor.functions import identity as identity
    from netsor.functions import leaky_relu as leaky_relu
    from netsor.functions import numeric as numeric
    from netsor.functions import polynomial as polynomial
    from netsor.functions import relu as relu
    from netsor.functions import sigmoid as sigmoid
    from netsor.functions import sign as sign
    from netsor.functions import silu as silu
    from netsor.functions import sin as sin
    from netsor.functions import softplus as softplus
    from netsor.functions import square as square
    from netsor.functions import step as step
    from netsor.functions import tanh as tanh
    from netsor.ir import Axis as Axis
    from netsor.ir import Width as Width
    from netsor.passes.backward import backprop as backprop
    from netsor.passes.backward import forward_part as forward_part
    from netsor.passes.bind import bind as bind
    from netsor.passes.train import train as train
    from netsor.passes.unit_variance import unit_variance as unit_variance
    from netsor.text import parse as parse


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
