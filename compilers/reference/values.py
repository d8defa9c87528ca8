"""Values of sympy expressions at numpy arrays, for the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import sympy as sp
from scipy import special

from netsor.errors import UnsupportedError
from netsor.functions import Head

Array = npt.NDArray[np.float64]

_HEADS: dict[str, Callable[[Array], Any]] = {
    "step": lambda x: np.heaviside(x, 0.5),
    "sign": np.sign,
    "relu": lambda x: np.maximum(x, 0.0),
    "abs": np.abs,
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(x, 0.0),
}
_SYMPY: dict[str, Callable[..., Any]] = {
    "exp": lambda x: np.exp(np.minimum(x, 700.0)),
    "Max": lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)),
    "Min": lambda *x: np.minimum.reduce(np.broadcast_arrays(*x)),
    "Heaviside": lambda x, h: np.heaviside(x, h),
    "erf": special.erf, "Abs": np.abs, "sign": np.sign, "ceiling": np.ceil,
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "tanh", "log", "floor", "sinh", "cosh")},
}  # fmt: skip


def evaluate(e: sp.Expr, given: Mapping[sp.Symbol, Any]) -> Any:
    """The value of an expression at arrays."""
    if e in given:
        return given[e]
    if not e.free_symbols:
        return float(e) if not e.atoms(Head) else float(sp.N(e.replace(Head, lambda h: h.spec.definition(*h.args))))
    if isinstance(e, Head):
        spec = e.spec
        if spec.builtin and spec.name in _HEADS:
            return _HEADS[spec.name](evaluate(e.args[0], given))
        return evaluate(spec.definition(*e.args), given)
    parts = [evaluate(a, given) for a in e.args]
    if e.is_Add or e.is_Mul:
        total = parts[0]
        for part in parts[1:]:
            total = total + part if e.is_Add else total * part
        return total
    if e.is_Pow:
        return parts[0] ** (int(e.exp) if e.exp.is_Integer else parts[1])
    name = type(e).__name__
    if name not in _SYMPY:
        raise UnsupportedError(f"the function {name} has no numpy counterpart here", code="NT701")
    return _SYMPY[name](*parts)
