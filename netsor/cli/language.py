"""The commands that need the language only: check, show, explain. They load neither torch nor scipy."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from netsor.build.declared import as_program
from netsor.build.program import Program
from netsor.checker.checks import check as check_program
from netsor.checker.checks import type_errors
from netsor.checker.report import Report
from netsor.checker.verdicts import VERDICTS
from netsor.cli import findings, outputs
from netsor.cli.arrays import inputs
from netsor.cli.findings import prefixes
from netsor.cli.load import File, Source, files_of, load, sources
from netsor.cli.problems import FOUND, OK, UsageError, diagnostics_of, message, status
from netsor.cli.settings import parse
from netsor.errors import Location, NetsorError, ParseError, ProgramError
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
    selection = findings.Selection(prefixes("--select", args.select), prefixes("--ignore", args.ignore))
    if args.output_file is not None:
        outputs.writable(args.output_file, True)  # a report replaces the last one
    results, files = _checked(args)
    results = [(code, report if code > FOUND else selection.of(report)) for code, report in results]
    if args.strict:
        results = [(code, findings.strict(report)) for code, report in results]
    findings.write(_parts(results, args.format, files), args.output_file)
    return max((code if code > FOUND else OK if report.ok else FOUND for code, report in results))


def _checked(args: argparse.Namespace) -> tuple[list[tuple[int, Report]], int]:
    """Exit status and report of every program, each FILE once, and the number of files."""
    results: list[tuple[int, Report]] = []
    files: dict[str, File] = {}
    for spec in args.files:
        try:
            files |= {file.spec: file for file in files_of(spec) if file.spec not in files}
        except UsageError as error:
            results.append(_failed(spec, spec, error, args.debug))
    results += [result for file in files.values() for result in _reports(file, args)]
    if not results:
        spec = ", ".join(args.files)
        nothing = UsageError(f"{spec} has no program", f"{len(files)} Python files import netsor and define none")
        results.append(_failed(spec, spec, nothing, args.debug))
    return results, len(files)


def _parts(results: Sequence[tuple[int, Report]], form: str, files: int) -> list[str]:
    """What is printed; what could not be read is also said on the error stream, for people only there."""
    from netsor.checker.render import count, render

    parts: list[str] = []
    for code, report in results:
        said = "\n".join(map(message, report.diagnostics))
        if isinstance(report, Unread) and code > FOUND and form not in ("concise", "github"):
            print(said, file=sys.stderr)
        elif form == "full":
            parts.append(said if isinstance(report, Unread) else render([report], form))
    reports = [report for _, report in results]
    if form != "full":
        parts.append(render(reports, form))
    if form == "full" or (form == "concise" and any(report.diagnostics for report in reports)):
        parts.append(("\n" if form == "full" else "") + count(reports, files))
    return [part for part in parts if part]


def _reports(file: File, args: argparse.Namespace) -> Iterator[tuple[int, Report]]:
    """Exit status and report of each program of a FILE."""
    spec = file.spec
    try:
        found = sources(spec, parse(args.set), args.x)
        if not found and not file.below:
            raise UsageError(
                f"{spec} has no program", "a Program at module level, or a function decorated with @ns.program"
            )
    except Exception as error:
        yield _failed(spec, spec, error, args.debug)
        return
    for source in found:
        yield _report(source, args)


def _report(source: Source, args: argparse.Namespace) -> tuple[int, Report]:
    try:
        made = source.make()
        p = as_program("check", made, parameters=True, abstract=True)
        if not p.lines:
            place = None if source.name else Location(source.file, 1)
            raise ParseError("there is nothing in it: the program has no line", code="NT011", location=place)
        report = check_program(p, x=None if args.x is None else inputs(args.x, made))
        noticed = getattr(made, "findings", ())
        return OK, dataclasses.replace(report, diagnostics=(*noticed, *report.diagnostics)) if noticed else report
    except Exception as error:
        return _failed(source.name or source.file, source.file, error, args.debug)


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


def show(args: argparse.Namespace) -> int:
    """Print the listing, Definition A.1's form, or a diagram."""
    p = as_program("show", load(args.file, parse(args.set)), parameters=True, abstract=True)
    if args.formal:
        from netsor.text.formal import formal

        text = formal(p)
    elif args.mermaid:
        from netsor.text.graph import mermaid

        text = mermaid(p)
    else:
        text = str(p)
    print(str(text).rstrip("\n"))
    return OK


def explain(args: argparse.Namespace) -> int:
    """Print what a code means, with an example and the remedy."""
    from netsor.checker.codes.table import CODES
    from netsor.checker.codes.table import explain as explanation

    if args.all == (args.code is not None):
        raise UsageError("explain takes one CODE, or --all", "for example netsor explain NT201")
    if args.all:
        print("\n\n\n".join(map(explanation, CODES)).rstrip("\n"))
        return OK
    if args.code.upper() not in CODES:
        raise UsageError(f"no finding has the code {args.code}", f"the codes: {', '.join(sorted(CODES))}")
    print(explanation(args.code).rstrip("\n"))
    return OK
