"""`@ns.program` marks functions that return a Program, so that `netsor check FILE.py` finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__netsor_program__"


def program(function: F) -> F:
    """Declare that a function returns a Program; the function itself is unchanged."""
    setattr(function, _MARK, True)
    return function


def is_declared(value: Any) -> bool:
    """Was the function declared with `@ns.program`?"""
    return callable(value) and getattr(value, _MARK, False) is True
