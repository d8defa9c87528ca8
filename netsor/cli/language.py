"""The commands that need the language only: check, show, explain. They load neither torch nor scipy."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from netsor.check.checker import check as check_program
from netsor.check.checker import type_errors
from netsor.check.report import Report
from netsor.check.verdicts import VERDICTS
from netsor.cli.load import Source, load, sources
from netsor.cli.problems import FOUND, OK, UsageError, diagnostics_of, message, status
from netsor.cli.settings import Settings, parse
from netsor.dsl import Program
from netsor.errors import Diagnostic, Location, NetsorError, ParseError, ProgramError
from netsor.names import shown


@dataclasses.dataclass(frozen=True, repr=False)
class Unread(Report):
    """The report of a program that could not be made: no verdicts, only findings."""

    source: str = ""

    @property
    def file(self) -> str:
        return self.source


def check(args: argparse.Namespace) -> int:
    """Check every program of every FILE; the worst exit status."""
    results = [result for spec in args.files for result in _reports(spec, parse(args.set), args.debug)]
    if args.strict:
        results = [(code, _strict(report)) for code, report in results]
    _print(results, args.format)
    return max(max(code, OK if report.ok else FOUND) for code, report in results)


def _print(results: Sequence[tuple[int, Report]], form: str) -> None:
    """The reports; what could not be read is also said on the error stream, for people only there."""
    from netsor.check.render import render

    for code, report in results:
        if isinstance(report, Unread) and code > FOUND and form not in ("concise", "github"):
            print("\n".join(map(message, report.diagnostics)), file=sys.stderr)
        elif isinstance(report, Unread) and form == "full":
            print("\n".join(map(message, report.diagnostics)))
        elif form == "full":
            print(render([report], form))
    text = "" if form == "full" else render([report for _, report in results], form)
    if text:
        print(text)


def _reports(spec: str, settings: Settings, debug: bool) -> Iterator[tuple[int, Report]]:
    """Exit status and report of each program of a FILE."""
    try:
        found = sources(spec, settings)
        if not found:
            raise UsageError(
                f"{spec} has no program", "a Program at module level, or a function decorated with @ns.program"
            )
    except Exception as error:
        yield _failed(spec, spec, error, debug)
        return
    for source in found:
        yield _report(source, debug)


def _report(source: Source, debug: bool) -> tuple[int, Report]:
    try:
        p = source.make()
        if not p.lines:
            place = None if source.name else Location(source.file, 1)
            raise ParseError("there is nothing in it: the program has no line", code="NT011", location=place)
        return OK, check_program(p)
    except Exception as error:
        return _failed(source.name or source.file, source.file, error, debug)


def _failed(name: str, file: str, error: Exception, debug: bool) -> tuple[int, Report]:
    if debug:
        traceback.print_exception(error)
    found = diagnostics_of(error)
    partial = error.partial if isinstance(error, NetsorError) else None
    if isinstance(partial, Program):
        found = tuple(sorted((*found, *type_errors(partial)), key=lambda d: d.location.line if d.location else 0))
    verdicts: dict[str, Any] = dict.fromkeys(VERDICTS)
    reasons: dict[str, str] = dict.fromkeys(VERDICTS, "the program could not be read")
    if isinstance(error, ProgramError):
        verdicts |= {"well_typed": False}
        reasons = {name: "the program is not well typed" for name in VERDICTS} | {"well_typed": found[0].message}
    return status(error), Unread(
        Program(shown(name) or "program"), **verdicts, reasons=reasons, diagnostics=found, source=file
    )


def _strict(report: Report) -> Report:
    """Warnings as errors."""
    return dataclasses.replace(report, diagnostics=tuple(_as_error(d) for d in report.diagnostics))


def _as_error(d: Diagnostic) -> Diagnostic:
    return dataclasses.replace(d, severity="error") if d.severity == "warning" else d


def show(args: argparse.Namespace) -> int:
    """Print the listing, Definition A.1's form, or a diagram."""
    p = load(args.file, parse(args.set))
    if args.formal:
        from netsor.formal import formal

        text = formal(p)
    elif args.mermaid:
        from netsor.graph import mermaid

        text = mermaid(p)
    else:
        text = str(p)
    print(str(text).rstrip("\n"))
    return OK


def explain(args: argparse.Namespace) -> int:
    """Print what a code means, with an example and the remedy."""
    from netsor.check.codes import CODES
    from netsor.check.codes import explain as explanation

    if args.code.upper() not in CODES:
        raise UsageError(f"no finding has the code {args.code}", f"the codes: {', '.join(sorted(CODES))}")
    print(explanation(args.code).rstrip("\n"))
    return OK
