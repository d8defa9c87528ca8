"""What is a program: `@ns.program` marks functions that return one, and `as_program` refuses what is none."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from netsor.errors import InputError, user_location

if TYPE_CHECKING:
    from netsor.build.program import Program

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__netsor_program__"
HOLDS = "__netsor_holds__"  # what an object that stands for a program has it under


class Holds(Protocol):
    """An object that stands for a program."""

    @property
    def __netsor_holds__(self) -> Program: ...


def program(function: F) -> F:
    """Declare that a function returns a Program; the function itself is unchanged."""
    setattr(function, _MARK, True)
    return function


def is_declared(value: Any) -> bool:
    """Was the function declared with `@ns.program`?"""
    return callable(value) and getattr(value, _MARK, False) is True


def as_program(what: str, value: Any) -> Any:
    """The program; InputError that says what to write instead of a name, a function or a module of torch."""
    value = getattr(value, HOLDS, value)
    if all(hasattr(value, name) for name in ("lines", "outputs", "gradients", "returned")):
        return value
    raise InputError(
        f"{what} takes a Program, got {_shown(value)}", code="NT616", location=user_location(), hint=_instead(value)
    )


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:60]}…"


def _instead(value: Any) -> str:
    if isinstance(value, str):
        is_text = "\n" in value or ":=" in value
        return "ns.parse(text) reads a listing" if is_text else f"ns.programs.{value}() makes a built-in program"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__code__")):
        return f"call it: {getattr(value, '__name__', 'f')}(…) returns the program"
    if any(c.__module__.startswith("torch.nn") for c in inspect.getmro(type(value))):
        return "ns.from_torch(make, x).program is the program of a module; make is a function of the width"
    return "make one with ns.Program, ns.parse or ns.programs"
