"""Errors as the command line says them: one clear message and an exit status."""

from __future__ import annotations

import dataclasses
import os
import sys
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from netsor.errors import CheckError, Diagnostic, Location, NetsorError, NetsorWarning, ProgramError, UnsupportedError

OK, FOUND, USAGE = 0, 1, 2
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + the signal's number, as shells have it


class UsageError(NetsorError, ValueError):
    """A command, a file or a setting that cannot be used (NT000)."""

    def __init__(self, message: str, hint: str | None = None, location: Location | None = None) -> None:
        super().__init__(message, code="NT000", hint=hint, location=location)


def status(error: BaseException) -> int:
    """1 when the program is wrong or a module has none (NT8xx), 2 when something could not be read or computed."""
    without = isinstance(error, UnsupportedError) and error.diagnostic.code.startswith("NT8")
    return FOUND if without or isinstance(error, ProgramError | CheckError) else USAGE


def diagnostic_of(error: Exception) -> Diagnostic:
    """What an exception says; one that is not ours is named by its type."""
    if isinstance(error, NetsorError):
        return error.diagnostic
    text = str(error).strip().partition("\n")[0]
    name = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
        return Diagnostic("NT000", "error", text)
    return Diagnostic("NT000", "error", f"{name}: {text}" if text else name, hint="--debug shows where it was raised")


def diagnostics_of(error: Exception) -> tuple[Diagnostic, ...]:
    """All that an exception says, in the order of the text that it is about."""
    return error.diagnostics if isinstance(error, NetsorError) else (diagnostic_of(error),)


def message(diagnostic: Diagnostic) -> str:
    """`file:line:column: CODE message` with the excerpt and the hint; without a place the command's name leads."""
    place = diagnostic.location
    if place is not None:
        diagnostic = dataclasses.replace(diagnostic, location=dataclasses.replace(place, file=_short(place.file)))
    text = str(diagnostic)
    if diagnostic.code == "NT000":
        text = text.replace("NT000 ", "", 1)
    return text if place else f"netsor: {text}"


def _short(file: str) -> str:
    """Relative to the working directory where the file lies below it."""
    return os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file


def show(error: Exception, debug: bool = False) -> int:
    """Print an error on the standard error stream; returns the exit status."""
    if debug:
        traceback.print_exception(error)
    for diagnostic in diagnostics_of(error):
        print(message(diagnostic), file=sys.stderr)
    return status(error)


@contextmanager
def plain_warnings() -> Generator[None, None, None]:
    """Inside, this library's warnings are lines on the standard error stream, without a place in the code."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def told(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if isinstance(message, NetsorWarning):
                print(f"netsor: warning: {message}", file=sys.stderr)
            else:
                others(message, category, *place)

        setattr(warnings, "showwarning", told)  # noqa: B010 - its declared type has the names of the arguments
        yield
