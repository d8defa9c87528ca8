"""Who asked how an expectation was obtained, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from netsor.errors import InputError

Record = tuple[str, float]

_log: ContextVar[list[Record] | None] = ContextVar("netsor_expectation_log", default=None)


@contextmanager
def record() -> Generator[list[Record], None, None]:
    """Collect `(method, bound)` of every expectation taken inside the block.

    `method` is "closed form", "hermite" or "quadrature"; `bound` is the error relative to the scale
    `√(E f² · E g²)`, the largest over the entries.
    """
    log: list[Record] = []
    token = _log.set(log)
    try:
        yield log
    finally:
        _log.reset(token)


def report(method: str, bound: float | Callable[[], float]) -> None:
    """Tell the innermost `record`, if there is one; a callable bound is evaluated only then."""
    log = _log.get()
    if log is not None:
        log.append((method, bound() if callable(bound) else bound))


def divergent() -> InputError:
    """The error of an expectation whose integral does not converge."""
    return InputError(
        "an expectation does not converge: a function of the program is not finite, or grows too fast, at the"
        " variances of these inputs", code="NT603",
        hint="`netsor check` names functions of too fast growth (NT302); smaller variances or inputs may do",
    )  # fmt: skip
