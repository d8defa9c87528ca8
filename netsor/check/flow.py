"""The order in which lines are evaluated: scans are ranges of lines that read themselves through a shift."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from netsor import ir
from netsor.facts import Use, inputs_of
from netsor.facts import uses as all_uses

if TYPE_CHECKING:
    from netsor.check.work import Work


def spans(lines: Sequence[ir.Line]) -> list[tuple[int, int]]:
    """Ranges [start, end) in program order; one that is longer than a line is a scan: it reads itself."""
    place = {line.out: i for i, line in enumerate(lines)}
    loops: list[tuple[int, int]] = []
    for i, line in enumerate(lines):
        end = place.get(line.of, -1) if isinstance(line, ir.Shift) else -1
        if end >= i:
            loops.append((i, end + 1))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(loops):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    result: list[tuple[int, int]] = []
    at = 0
    for start, end in merged:
        result.extend((i, i + 1) for i in range(at, start))
        result.append((start, end))
        at = end
    result.extend((i, i + 1) for i in range(at, len(lines)))
    return result


def fixpoint(lines: Sequence[ir.Line], update: Callable[[ir.Line], bool], work: Work | None = None) -> None:
    """Run `update` over all lines, over a scan's lines until none reports a change."""
    for start, end in spans(lines):
        changed = True
        while changed:
            if work is not None:
                work.take(end - start)
            changed = any([update(line) for line in lines[start:end]])
            if end - start == 1 and not _reads_itself(lines[start]):
                break


def _reads_itself(line: ir.Line) -> bool:
    return line.out in inputs_of(line)


def uses(lines: Sequence[ir.Line]) -> Iterator[Use]:
    """The MatMuls between widths, in program order (embeddings of data are not among them)."""
    return (use for use in all_uses(lines) if not isinstance(use.matrix.cols, ir.Feature))


def used_both_ways(lines: Sequence[ir.Line]) -> tuple[ir.Var, ...]:
    """Input matrices that are applied both as W and as Wᵀ."""
    ways: dict[ir.Var, set[bool]] = {}
    for use in uses(lines):
        ways.setdefault(use.matrix, set()).add(use.transposed)
    return tuple(m for m, w in ways.items() if len(w) == 2)
