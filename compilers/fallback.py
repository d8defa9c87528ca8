"""Kernels without an exact rule are sampled; those that have one are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netsor.compilers.results import KernelResult
from netsor.errors import Diagnostic, UnsupportedError

Names = tuple[str, ...]
NO_RULE = ("NT701", "NT702")  # the codes of a function and of a limit for which there is no exact rule


def has_rule(derive: Callable[[Names], object], names: Names) -> bool:
    """Can these kernels be derived?"""
    try:
        derive(names)
    except UnsupportedError as error:
        if error.diagnostic.code not in NO_RULE:
            raise
        return False
    return True


def split(derive: Callable[[Names], object], wanted: Names) -> tuple[Names, Names]:
    """The names that have an exact rule, and those that have none."""
    if has_rule(derive, wanted):
        return wanted, ()
    exact = tuple(name for name in wanted if len(wanted) > 1 and has_rule(derive, (name,)))
    return exact, tuple(name for name in wanted if name not in exact)


def reason(derive: Callable[[Names], object], names: Names) -> Diagnostic | None:
    """Why these kernels are sampled: what has no rule first."""
    try:
        derive(names)
    except UnsupportedError as error:
        return error.diagnostic
    return None


def merged(parts: Sequence[KernelResult]) -> KernelResult:
    """One result; its error is the largest."""
    first, *others = parts
    for other in others:
        for key in ("nngp", "ntk", "terms"):
            if getattr(first, key) is None:
                setattr(first, key, getattr(other, key))
        first.vectors |= other.vectors
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
