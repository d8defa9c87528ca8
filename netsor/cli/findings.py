"""Which findings `netsor check` tells, and where it writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from netsor.checker.codes.table import CODES
from netsor.checker.report import Report
from netsor.cli.outputs import whole
from netsor.cli.problems import UsageError
from netsor.errors import Diagnostic


@dataclasses.dataclass(frozen=True)
class Selection:
    """Findings whose code begins with one of `select` (all, when it is empty) and with none of `ignore`."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def takes(self, d: Diagnostic) -> bool:
        return (not self.select or d.code.startswith(self.select)) and not d.code.startswith(self.ignore)

    def of(self, report: Report) -> Report:
        """The report with the findings that are wanted; its verdicts stay what they are."""
        return dataclasses.replace(report, diagnostics=tuple(d for d in report.diagnostics if self.takes(d)))


def prefixes(option: str, texts: Iterable[str]) -> tuple[str, ...]:
    """`NT4,NT201` as codes and beginnings of codes; UsageError for one that no code has."""
    found = tuple(part.strip().upper() for text in texts for part in text.split(","))
    for prefix in found:
        if not prefix or not any(code.startswith(prefix) for code in CODES):
            raise UsageError(
                f"{option}: no code begins with {prefix!r}", "netsor explain --all lists them; NT4 stands for all NT4xx"
            )
    return found


def strict(report: Report) -> Report:
    """Warnings as errors."""
    return dataclasses.replace(report, diagnostics=tuple(map(_as_error, report.diagnostics)))


def _as_error(d: Diagnostic) -> Diagnostic:
    return dataclasses.replace(d, severity="error") if d.severity == "warning" else d


def write(parts: Sequence[str], path: str | None) -> None:
    """Print the parts, a line break behind each; or write them to a file, which then has all of them or stays."""
    text = "".join(f"{part}\n" for part in parts)
    if path is None:
        print(text, end="")
        return
    with whole(path) as draft:
        Path(draft).write_text(text, encoding="utf-8")
