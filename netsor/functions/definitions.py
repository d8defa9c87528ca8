"""What a user gives for a function: its name or its definition, and what to write instead of another library's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import sympy as sp

from netsor.build.quantity import quantity
from netsor.errors import InputError, user_location
from netsor.functions.head import Function
from netsor.functions.table import ALIASES, builtin, builtin_names

_PLAIN = {"approximate": "none", "alpha": 1.0, "beta": 1.0}  # torch's modules whose parameters make another function
_HINT = "ns.function(name, lambda x: …) is of ns and sympy functions, ns.numeric(name, f) of torch tensors"


def refused(message: str, value: Any, hint: str) -> InputError:
    """NT616; a function of the same name is proposed where there is one."""
    same = proposed(value)
    instead = "" if same is None else f"write {same!r}; "
    if same == "leaky_relu":
        instead = f"write ns.leaky_relu({getattr(value, 'negative_slope', 0.01)}); "
    return InputError(message, code="NT616", location=user_location(), hint=instead + hint)


def proposed(value: Any) -> str | None:
    """The built-in function that a name, a function or a module of another library stands for."""
    if any(getattr(value, name, plain) != plain for name, plain in _PLAIN.items()):
        return None
    name = value if isinstance(value, str) else getattr(value, "__name__", None) or type(value).__name__
    plain = str(name).lower()
    plain = ALIASES.get(plain.replace("_", ""), plain)
    with suppress(KeyError):
        builtin(plain)
        return plain
    return None


def as_function(phi: Any) -> Function:
    """A Function from its name; InputError says what to write instead of another name or a function of torch."""
    if isinstance(phi, Function):
        return phi
    if isinstance(phi, str):
        with suppress(KeyError):
            return builtin(phi)
        raise refused(f"no function is called {phi!r}", phi, f"the names are {', '.join(builtin_names())}")
    raise refused(
        f"a nonlinearity is a name or an ns.Function, got {phi!r}", phi,
        "ns.function(name, lambda x: …) makes one of an expression, ns.numeric(name, f) of a torch function",
    )  # fmt: skip


def arity_of(name: str, definition: Any) -> int:
    """The number of arguments without a default."""
    if not callable(definition) or isinstance(definition, type):
        message = f"the definition of {name} is a function of sympy expressions, got {definition!r}"
        raise refused(message, definition, _HINT)
    try:
        parameters = inspect.signature(definition).parameters.values()
    except (TypeError, ValueError):  # a function written in C
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(p.kind in positional and p.default is inspect.Parameter.empty for p in parameters)
    return count or 1


def defined(name: str, definition: Callable[..., Any], symbols: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression that a definition gives for symbols; InputError when it gives none."""
    try:
        body = definition(*symbols)
    except Exception as problem:
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        message = f"the definition of {name} does not take sympy expressions: {reason}"
        raise refused(message, definition, _HINT) from problem
    if isinstance(body, sp.Expr) or (not isinstance(body, sp.Basic) and _is_number(body)):
        return body if isinstance(body, sp.Expr) else sp.sympify(quantity(f"the value of {name}", body))
    raise refused(f"the definition of {name} gives {body!r}, not an expression", definition, _HINT)


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) and getattr(value, "shape", ()) == () and hasattr(value, "__float__")


__all__ = ["arity_of", "as_function", "defined", "proposed", "refused"]
