"""Source locations, diagnostics and the exceptions that carry them."""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Unpack

_HERE = str(Path(__file__).parent)

if TYPE_CHECKING:
    from netsor.build.hints import Fields


@dataclass(frozen=True)
class Location:
    """A place in the user's source; lines and columns are 1-based. `source` is the line when no file has it.

    >>> print(ns.Location("net.netsor", 3, 5))
    net.netsor:3:5
    """

    file: str
    line: int
    column: int = 1
    end_column: int | None = None
    source: str | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        """The source line, or '' when the file cannot be read."""
        if self.source is not None:
            return self.source
        return linecache.getline(self.file, self.line).rstrip("\n")

    def excerpt(self) -> str:
        """The source line with a caret line below it ('' when there is no source)."""
        text = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in self.text)
        if not text.strip():
            return ""
        end = self.end_column if self.end_column and self.end_column > self.column else self.column + 1
        carets = " " * (self.column - 1) + "^" * max(1, min(end, len(text) + 1) - self.column)
        return f"{text}\n{carets}"


@dataclass(frozen=True)
class Diagnostic:
    """One finding of the checker: what, where, which clause of which definition, and the remedy.

    >>> print(ns.Diagnostic("NT104", "error", "the name 'x' is already taken", hint="every variable has its own name"))
    NT104 the name 'x' is already taken
      hint: every variable has its own name
    """

    code: str
    severity: str  # "error" | "warning"
    message: str
    variable: str | None = None
    line: int | None = None  # 0-based index of the program line
    clause: str | None = None
    location: Location | None = None
    hint: str | None = None
    accepted: str | None = None  # the author's reason why it does not count

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        text = f"{where}{self.code} {self.message}"
        excerpt = self.location.excerpt() if self.location else ""
        if excerpt:
            text += "\n" + "\n".join("    " + row for row in excerpt.splitlines())
        if self.hint:
            text += f"\n  hint: {self.hint}"
        return text


class NetsorWarning(UserWarning):
    """Base of this library's warnings: what is computed as it stands and may not be meant, or takes long.

    >>> import warnings
    >>> warnings.simplefilter("error", ns.NetsorWarning)  # what may not be meant stops the program
    """


class SlowWarning(NetsorWarning):
    """A call is expected to take more than ten seconds."""


class SamplingWarning(NetsorWarning):
    """A kernel has no exact rule and is sampled."""


class NetsorError(Exception):
    """Base of all errors of this library; `diagnostic` says what, where, why and the remedy.

    `diagnostics` holds all that is wrong with a text, in its order, where several things are.

    >>> try:
    ...     ns.compile("mlp")
    ... except ns.NetsorError as error:
    ...     print(error.diagnostic.code, error.diagnostic.hint)
    NT616 ns.programs.mlp() makes a built-in program
    """

    def __init__(
        self, diagnostic: Diagnostic | str, others: Sequence[Diagnostic] = (), **fields: Unpack[Fields]
    ) -> None:
        if isinstance(diagnostic, str):
            diagnostic = replace(Diagnostic("NT100", "error", diagnostic), **fields)
        found: Diagnostic = diagnostic
        self.diagnostic: Diagnostic = found
        self.diagnostics: tuple[Diagnostic, ...] = tuple(others) or (found,)
        self.partial: object = None  # a text's lines that could be read
        super().__init__("\n".join(map(str, self.diagnostics)))


class ProgramError(NetsorError, TypeError):
    """A line that the language does not allow (NT1xx).

    >>> p = ns.programs.mlp()
    >>> p.let("x1", p["x2"])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    netsor.errors.ProgramError: NT104
    """


class ParseError(NetsorError, ValueError):
    """Text that is not a listing (NT0xx).

    >>> ns.parse("h := W @")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    netsor.errors.ParseError: NT002
    """


class TooLargeError(NetsorError, ValueError):
    """An expression that would grow beyond what can be worked with (NT005)."""

    def __init__(self, message: str, **fields: Unpack[Fields]) -> None:
        fields.setdefault("code", "NT005")
        fields.setdefault("hint", "give parts of it names")
        super().__init__(message, (), **fields)


class CheckError(NetsorError, ValueError):
    """A program whose limit is not guaranteed (NT2xx-NT5xx).

    >>> ns.compile(ns.programs.tied_autoencoder())  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    netsor.errors.CheckError: NT207
    """


class InputError(NetsorError, ValueError):
    """Arrays that do not fit the program (NT6xx).

    >>> ns.compile(ns.programs.mlp())([1.0, 2.0])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    netsor.errors.InputError: NT601
    """


class UnsupportedError(NetsorError, NotImplementedError):
    """A limit that exists but that this version has no rule for (NT7xx).

    >>> ns.compile(ns.programs.gru()).source  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    netsor.errors.UnsupportedError: NT702
    """


def warn(diagnostic: Diagnostic) -> None:
    """A NetsorWarning at the first line of the stack outside this library."""
    depth = 2
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_inside(frame):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(NetsorWarning(str(diagnostic)), stacklevel=depth)


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name == "netsor" or (name.startswith("netsor.") and not name.startswith("netsor.programs"))


def caller_location() -> Location | None:
    """The first frame on the stack outside the language; positions are of the call being made."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:
        return None
    return _frame_location(frame)


def user_location() -> Location | None:
    """As `caller_location`, but outside the built-in programs too: where their arguments are given."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_inside(frame):
        frame = frame.f_back
    return None if frame is None else _frame_location(frame)


def _is_inside(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).split(".")[0] == "netsor"


def _frame_location(frame: FrameType) -> Location:
    code, instruction = frame.f_code, frame.f_lasti // 2
    line, end_line, column, end_column = next(
        (p for i, p in enumerate(code.co_positions()) if i == instruction), (None, None, None, None)
    )
    line = line or frame.f_lineno
    if column is None:
        return Location(code.co_filename, line)
    start = _characters(code.co_filename, line, column)
    end = _characters(code.co_filename, line, end_column) if end_column and end_line == line else None
    return Location(code.co_filename, line, start + 1, None if end is None else end + 1)


def _characters(file: str, line: int, offset: int) -> int:
    """Characters before a UTF-8 byte offset (co_positions counts bytes)."""
    text = linecache.getline(file, line)
    return len(text.encode()[:offset].decode(errors="ignore")) if text else offset
