"""What is a program: `@ns.program` marks functions that return one, and `as_program` refuses what is none."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from netsor import facts, ir
from netsor.errors import InputError, user_location

if TYPE_CHECKING:
    from netsor.build.program import Program

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__netsor_program__"
HOLDS = "__netsor_holds__"


class Holder(Protocol):
    """What stands for a program, as a lifted module does."""

    @property
    def __netsor_holds__(self) -> Program: ...


def program(function: F) -> F:
    """Declare that a function returns a Program; the function itself is unchanged.

    >>> @ns.program
    ... def wide(depth=3):
    ...     return ns.programs.mlp(depth=depth, phi="tanh")
    >>> wide()
    <Program mlp: 14 lines>
    """
    setattr(function, _MARK, True)
    return function


def is_program(value: object) -> bool:
    """A Program, or what stands for one: not its class."""
    return hasattr(type(value), HOLDS) or hasattr(type(value), "from_parts")


def is_declared(value: Any) -> bool:
    """Was the function declared with `@ns.program`?"""
    return callable(value) and getattr(value, _MARK, False) is True


def as_program(what: str, value: Any, parameters: bool = False, abstract: bool = False) -> Program:
    """The program; InputError that says what to write instead of a name, a function or a module of torch.

    Unless `parameters`, its variances and multipliers have to be numbers; unless `abstract`, its functions have values.
    """
    value = getattr(value, HOLDS, value)
    if all(hasattr(value, name) for name in ("lines", "outputs", "gradients", "returned")):
        if not parameters:
            _refuse_parameters(what, value)
        if not abstract:
            _refuse_abstract(what, value)
        return cast("Program", value)
    raise InputError(
        f"{what} takes a Program, got {_shown(value)}", code="NT616", location=user_location(), hint=_instead(value)
    )


def _refuse_parameters(what: str, p: ir.ProgramLike) -> None:
    names = facts.parameters(p.lines)
    if names:
        wanted = ", ".join(f"{name!r}: …" for name in names)
        raise InputError(
            f"{what} takes numbers: {', '.join(names)} of {p.name} {'have no values' if names[1:] else 'has no value'}",
            code="NT604", location=user_location(), hint=f"ns.bind(p, {{{wanted}}})",
        )  # fmt: skip


def _refuse_abstract(what: str, p: ir.ProgramLike) -> None:
    names = [name for name, f in p.functions.items() if f.abstract]
    if names:
        raise InputError(
            f"{what} needs values of the abstract function {names[0]} of {p.name}", code="NT605",
            location=user_location(), hint="ns.function(name, lambda x: …) has an expression",
        )  # fmt: skip


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
        return "ns.from_torch(make, x) has the program of a module, make is a function of the width; or use ns.layers"
    return "make one with ns.Program, ns.parse or ns.programs"
