"""The built-in functions as the expectation engine's objects: `tanh()`, `leaky_relu(0.2)`."""

from __future__ import annotations

from functools import partial
from typing import Any

from netsor.compilers.expectation import Fn
from netsor.compilers.lowering.functions import as_fn
from netsor.functions import builtin


def of(name: str, *parameters: Any) -> Fn:
    """The engine's object of a built-in function."""
    found = as_fn(builtin(name, parameters))
    assert isinstance(found, Fn)
    return found


absolute = partial(of, "abs")
elu = partial(of, "elu")
gelu = partial(of, "gelu")
leaky_relu = partial(of, "leaky_relu")
relu = partial(of, "relu")
sigmoid = partial(of, "sigmoid")
sign = partial(of, "sign")
silu = partial(of, "silu")
softplus = partial(of, "softplus")
step = partial(of, "step")
tanh = partial(of, "tanh")
