"""Reports as text and as machine-readable formats: full, concise, json, github, sarif."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from netsor import ir
from netsor.errors import Diagnostic

if TYPE_CHECKING:
    from netsor.checker.report import Report
    from netsor.text.printer import Listing

_WORDS = {True: "yes", False: "no", None: "undecided"}


def render(reports: Sequence[Report], format: str = "full") -> str:
    """The reports in one of the formats, without a final newline."""
    return _FORMATS[format](reports)


def formats() -> tuple[str, ...]:
    return tuple(_FORMATS)


# ---------------------------------------------------------------- for people


def _full(reports: Sequence[Report]) -> str:
    return "\n\n".join(_full_report(r) for r in reports)


def _full_report(r: Report) -> str:
    listing = listing_of(r.program)
    parts = [_full_diagnostic(r, listing, d) for d in r.diagnostics]
    verdict = r.verdict
    width = max(map(len, verdict))
    words = {name: _WORDS[value].ljust(9) for name, value in verdict.items()}
    rows = [f"  {name.ljust(width)}  {word}  {r.reasons.get(name, '')}" for name, word in words.items()]
    head = f"{r.program.name}: {len(r.program.lines)} lines"
    parts.append("\n".join([head, *(row.rstrip() for row in rows)]))
    if r.theorem:
        parts[-1] += f"\n  {'theorem'.ljust(width)}  {r.theorem}"
    return "\n\n".join(parts)


def _full_diagnostic(r: Report, listing: Listing | None, d: Diagnostic) -> str:
    rows = [f"{_head(r, d)}"]
    excerpt = d.location.excerpt() if d.location else ""
    rows += ["    " + row for row in excerpt.splitlines()]
    shown = listing_line(listing, d.line)
    if shown:
        rows.append(f"  line {(d.line or 0) + 1}: {shown}")
    if d.clause:
        rows.append(f"  clause: {d.clause}")
    if d.hint:
        rows.append(f"  hint: {d.hint}")
    if d.accepted:
        rows.append(f"  accepted because {d.accepted}")
    return "\n".join(rows)


def _head(r: Report, d: Diagnostic) -> str:
    where = f"{_place(d)}: " if d.location else f"{r.program.name}: "
    return f"{where}{d.code} {word(d)}: {d.message}"


def word(d: Diagnostic) -> str:
    """error, warning or accepted."""
    return d.severity if d.accepted is None else "accepted"


def _place(d: Diagnostic) -> str:
    assert d.location is not None
    return f"{_short(d.location.file)}:{d.location.line}:{d.location.column}"


def _short(file: str) -> str:
    """Relative to the working directory where the file lies below it."""
    try:
        relative = os.path.relpath(file)
    except ValueError:
        return file
    return file if relative.startswith("..") or file.startswith("<") else relative


def listing_of(p: ir.ProgramLike) -> Listing | None:
    """The lines of a program as text; None when they have none."""
    from netsor.text.printer import Listing

    try:
        return Listing(p)
    except (AssertionError, AttributeError, KeyError, StopIteration, TypeError, ValueError):
        return None


def listing_line(listing: Listing | None, index: int | None) -> str:
    """The program line as the listing writes it."""
    if listing is None or index is None or not 0 <= index < len(listing.p.lines):
        return ""
    try:
        return listing.line(listing.p.lines[index])
    except (AssertionError, AttributeError, KeyError, StopIteration, TypeError, ValueError):
        return ""  # an ill-typed line has no listing


def _concise(reports: Sequence[Report]) -> str:
    rows = []
    for r in reports:
        found = [d for d in r.diagnostics if d.accepted is None]
        rows += [f"{_place(d) if d.location else r.program.name}: {d.code} {d.message}" for d in found]
    return "\n".join(rows)


def count(reports: Sequence[Report], files: int) -> str:
    """How many findings there are: `3 errors, 1 warning in 2 programs of 2 files`."""
    words = Counter(word(d) for r in reports for d in r.diagnostics)
    found = [_several(words[w], w) for w in ("error", "warning") if words[w]] or ["no errors"]
    found += [f"{words['accepted']} accepted"] if words["accepted"] else []
    return f"{', '.join(found)} in {_several(len(reports), 'program')} of {_several(files, 'file')}"


def _several(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


# ---------------------------------------------------------------- for machines


def _json(reports: Sequence[Report]) -> str:
    return json.dumps([r.to_json() for r in reports], indent=2, ensure_ascii=False)


def _github(reports: Sequence[Report]) -> str:
    rows = []
    for r in reports:
        for d in r.diagnostics:
            fields = [f"title={_property(d.code)}"]
            if d.location:
                fields = [f"file={_property(_short(d.location.file))}", f"line={d.location.line}",
                          f"col={d.location.column}", *fields]  # fmt: skip
            kind = "notice" if d.accepted else "error" if d.severity == "error" else "warning"
            rows.append(f"::{kind} {','.join(fields)}::{_data(d.message + (f' ({d.hint})' if d.hint else ''))}")
    return "\n".join(rows)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _sarif(reports: Sequence[Report]) -> str:
    from netsor.checker.codes.table import CODES, explain, help_uri

    found = [d for r in reports for d in r.diagnostics]
    used = sorted({d.code for d in found})
    rules = [
        {"id": c, "shortDescription": {"text": CODES[c].title}, "help": {"text": explain(c)}, "helpUri": help_uri(c)}
        for c in used
    ]
    run = {
        "tool": {"driver": {"name": "netsor", "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(d) for d in found],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run],
    }  # fmt: skip
    return json.dumps(document, indent=2, ensure_ascii=False)


def _sarif_result(d: Diagnostic) -> dict[str, Any]:
    text = d.message + (f"\nhint: {d.hint}" if d.hint else "")
    result: dict[str, Any] = {
        "ruleId": d.code, "level": "error" if d.severity == "error" else "warning", "message": {"text": text},
    }  # fmt: skip
    if d.accepted:
        result["suppressions"] = [{"kind": "inSource", "justification": d.accepted}]
    if d.location:
        region: dict[str, int] = {"startLine": d.location.line, "startColumn": d.location.column}
        if d.location.end_column and d.location.end_column > d.location.column:
            region["endColumn"] = d.location.end_column
        uri = quote(_short(d.location.file).replace(os.sep, "/"))
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}]
    return result


_FORMATS: dict[str, Callable[[Sequence[Report]], str]] = {
    "full": _full,
    "concise": _concise,
    "json": _json,
    "github": _github,
    "sarif": _sarif,
}
