"""What the page says of a program, section by section; what does not exist says why."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from netsor import ir, markup
from netsor.build.program import Program
from netsor.checker.checks import check
from netsor.checker.report import Report
from netsor.checker.typeset import html as conditions
from netsor.checker.typeset import html_findings, numbered
from netsor.compilers.compile import compile, derive
from netsor.compilers.experiment.figure import figure
from netsor.compilers.experiment.simulate import simulate
from netsor.compilers.kernel import Kernel
from netsor.compilers.limit import limit
from netsor.compilers.render.typeset import html
from netsor.errors import NetsorError
from netsor.facts import given
from netsor.passes.bind import bind
from netsor.text.drawing import draw

MATH = "mathematics"  # the element that MathJax reads: names elsewhere may hold dollar signs
EXAMPLE = 1000  # inputs whose cost is told when none are given


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    html: str


def sections(p: Program, x: Any, widths: Sequence[int], seeds: int, params: Mapping[str, float]) -> Iterator[Section]:
    """All sections in order; the last one only with inputs."""
    report = check(p, x=None if isinstance(x, list) else x)  # samples of different size: what holds for all data
    yield Section("check", "Check", _check(report))
    yield Section("program", "Program", markup.html(str(p)))
    yield Section("graph", "Graph", f'<div class="wide">{draw(p).svg}</div>')
    yield Section("recursion", "Recursion", _told(lambda: f'<div id="{MATH}">{html(derive(p))}</div>'))
    yield Section("cost", "Structure and cost", _told(lambda: _cost(p, x)))
    yield Section("source", "Generated source", _told(lambda: _folded(_kernel(p).source)))
    if x is not None:
        found = _told(lambda: _convergence(bind(p, params), x, report, widths, seeds))
        yield Section("convergence", "Convergence", found)


def _check(report: Report) -> str:
    lines = markup.html("\n".join(numbered(report)))
    folded = f"<details><summary>The lines as checked, numbered</summary>{lines}</details>"
    return f'<div class="wide">{conditions(report)}</div>{html_findings(report)}{folded}'


def _told(make: Any) -> str:
    """What is made, or the finding that says why there is none."""
    try:
        return str(make())
    except NetsorError as error:
        return "".join(f"<p><strong>{d.code}</strong> {escape(d.message)}</p>" for d in error.diagnostics)


def _kernel(p: Program) -> Kernel:
    return compile(p, assume_gia=True)  # the check has said on the same page whether that is allowed


def _folded(source: str) -> str:
    return f"<details><summary>{source.count(chr(10))} lines of Python</summary>{markup.html(source)}</details>"


# ---------------------------------------------------------------- cost


def _cost(p: Program, x: Any) -> str:
    parts = [markup.html(str(derive(p).structure()))]
    sizes = _sizes(p, x)
    if sizes is not None:
        count, known = sizes
        where = ", ".join(f"{axis} {size}" for axis, size in known.items())
        told = _kernel(p).cost(count, None, known)
        parts.append(f"<p>{count} inputs ({escape(where)}): {escape(str(told))}.</p>")
    return "".join(parts)


def _sizes(p: Program, x: Any) -> tuple[int, dict[str, int]] | None:
    """The number of samples and the sizes of their axes; unknown where they differ between samples."""
    data = [line for line in given(p.lines) if isinstance(line, ir.Data)]
    if x is None:
        return None if any(line.out.axes for line in data) else (EXAMPLE, {"feature": 10})
    if isinstance(x, list):
        return None
    arrays = x if isinstance(x, dict) else {data[0].out.name: x}
    shapes = [(line, np.shape(arrays[line.out.name])) for line in data if line.out.name in arrays]
    sizes = {a.name: size for line, shape in shapes for a, size in zip(line.out.axes, shape[1:-1], strict=False)}
    return shapes[0][1][0], sizes | {"feature": max(shape[-1] for _, shape in shapes)}


# ---------------------------------------------------------------- convergence


def _convergence(p: Program, x: Any, report: Report, widths: Sequence[int], seeds: int) -> str:
    """The figure and the table; where gradient independence fails the limit is that of `ns.limit`."""
    valid = report.gia_valid is True and report.simple_gia is not False
    result = simulate(p, x, widths=widths, seeds=seeds, limit=None if valid else limit(p, x))
    picture = io.StringIO()
    figure([result]).savefig(picture, format="svg", metadata={"Date": None})
    svg = re.sub(r"^.*?(?=<svg)", "", picture.getvalue(), flags=re.DOTALL)
    return f'<figure class="wide">{svg}</figure>{markup.html(str(result))}'
