"""Kernels without an exact rule are sampled; those that have one are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from netsor.compilers.evaluate.results import KernelResult, fields
from netsor.errors import Diagnostic, UnsupportedError

Names = tuple[str, ...]
NO_RULE = ("NT701", "NT702")  # the codes of a function and of a limit for which there is no exact rule


@dataclass(frozen=True)
class Parts:
    """The names that have an exact rule, those that have none, and why."""

    exact: Names
    rest: Names = ()
    why: Diagnostic | None = None


def obstacle(derive: Callable[[Names], object], names: Names) -> Diagnostic | None:
    """What these kernels have no rule for; None when they can be derived."""
    try:
        derive(names)
    except UnsupportedError as error:
        if error.diagnostic.code not in NO_RULE:
            raise
        return error.diagnostic
    return None


def split(derive: Callable[[Names], object], wanted: Names) -> Parts:
    """What is derived and what is sampled."""
    why = obstacle(derive, wanted)
    if why is None:
        return Parts(wanted)
    found = {name: why if len(wanted) == 1 else obstacle(derive, (name,)) for name in wanted}
    exact = tuple(name for name, reason in found.items() if reason is None)
    rest = tuple(name for name in wanted if name not in exact)
    return Parts(exact, rest, next((found[name] for name in rest), why))


def merged(parts: Sequence[KernelResult]) -> KernelResult:
    """One result; its error is the largest."""
    first, *others = parts
    for other in others:
        first = replace(first, **fields(first.by_key() | other.by_key()))
        first.methods |= other.methods
        first.errors |= other.errors
        first.method = "+".join(dict.fromkeys([*first.method.split("+"), *other.method.split("+")]))
        errors = [e for e in (first.error, other.error) if e is not None]
        first.error = max(errors) if errors else None
    return first


def no_source(name: str, error: UnsupportedError) -> UnsupportedError:
    """What to say when the source of a program is asked for whose kernels are sampled."""
    found = error.diagnostic
    return UnsupportedError(
        Diagnostic(
            found.code,
            "error",
            f"{name} has no generated module, its kernels are sampled: {found.message}",
            location=found.location,
            hint="call the kernel; tol= and samples= of ns.compile say how precisely",
        )
    )
