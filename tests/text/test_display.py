"""What notebooks and consoles show: short representations, HTML, Markdown and LaTeX with names as text."""

from __future__ import annotations

import itertools
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor.compilers.derive.recursion import derive
from netsor.facts import inputs_of

HOSTILE = "<script>alert(1)</script> | `x` $y$ **b** \\end{verbatim} # head"
X = np.random.default_rng(0).normal(size=(3, 4))


def small() -> ns.Program:
    return ns.programs.mlp(depth=1)


def hostile() -> ns.Program:
    p = ns.Program(HOSTILE)
    n, data = p.width("n"), p.data("x", axes=("a",))
    h = p.let("h_1", p.matrix("W", n, data) @ data)
    p.returns(HOSTILE, ns.moment(h.mean("a") ** 2))
    p.output(p.readout("v", n), h.mean("a"))
    return p


def shown() -> dict[str, Any]:
    kernel = ns.compile(small())
    limit = ns.limit(ns.programs.gia_counterexample(), np.zeros((1, 2)))
    limit.mean("dx1")
    return {
        "program": small(),
        "report": ns.check(small()),
        "recursion": derive(small()),
        "kernels": kernel(X, get=("nngp", "ntk", "terms")),
        "limit": limit,
        "simulation": ns.simulate(small(), X, widths=[8, 16], seeds=2),
    }


@pytest.fixture(scope="module", name="everything")
def _everything() -> dict[str, Any]:
    return shown()


class Tags(HTMLParser):
    """The tags that are open at the end, and all that were seen."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_representations_are_one_short_line(everything: dict[str, Any]) -> None:
    found = {name: repr(value) for name, value in everything.items()}
    assert all("\n" not in text and len(text) < 200 for text in found.values() if "Report" not in text)
    assert found["program"] == "<Program mlp: 6 lines>"
    assert found["recursion"] == "<Recursion of mlp: 6 entries; nngp, ntk>"
    assert found["kernels"].startswith("<KernelResult: nngp [3, 3], ntk [3, 3], terms.b1 [3, 3]")
    assert found["kernels"].endswith("; closed form>")
    assert found["simulation"].startswith("<Simulation of mlp: widths 8 to 16, 2 seeds; ")
    assert found["limit"].startswith("<Limit of gia_counterexample: ")
    assert "bp_like yes" in found["report"]


def test_every_result_has_all_three_forms(everything: dict[str, Any]) -> None:
    for name, value in everything.items():
        tags = Tags(value._repr_html_())
        assert tags.open == [] and tags.seen <= {
            "table", "caption", "thead", "tbody", "tr", "th", "td", "pre", "h4", "p", "div", "code", "details",
            "summary", "ul", "li",
        }, name  # fmt: skip
        assert value._repr_markdown_().strip(), name
        latex = value._repr_latex_()
        assert latex.count(r"\begin{") == latex.count(r"\end{"), name


def test_a_program_is_its_listing(everything: dict[str, Any]) -> None:
    p = everything["program"]
    assert p._repr_markdown_() == f"```text\n{str(p).rstrip()}\n```"
    assert r"\texttt{W1 : A(n, x) var 1}" in p._repr_latex_()


def test_tables_have_the_numbers(everything: dict[str, Any]) -> None:
    assert "| ntk | \\[3, 3\\] | float64 | closed form |" in everything["kernels"]._repr_markdown_()
    assert "<td>E dx1</td><td>2</td><td>exact" in everything["limit"]._repr_html_()  # section 6.3: the mean is 2
    simulation = everything["simulation"]
    assert f"{simulation.mean('ntk', 16):.3e}" in simulation._repr_html_()


def test_names_are_text() -> None:
    p = hostile()
    x = np.ones((2, 3, 2))
    kernels = ns.KernelResult(vectors={HOSTILE: torch.ones(2)})
    values: list[Any] = [p, ns.check(p), derive(p), kernels, ns.simulate(p, x, widths=[4], seeds=1)]
    for value in values:
        html = value._repr_html_()
        assert "<script" not in html and "script" not in Tags(html).seen
        markdown = re.sub(r"(`+).*?(?<!`)\1(?!`)", "", value._repr_markdown_(), flags=re.DOTALL)
        assert not re.search(r"(?<!\\)<script|^# head|(?<!\\)\*\*b", markdown, flags=re.MULTILINE)
        assert r"\end{verbatim}" not in value._repr_latex_()


# ---------------------------------------------------------------- the report of the conditions


def test_the_report_names_the_theorem_and_its_hypotheses() -> None:
    text = ns.check(small()).markdown()
    assert "Theorem A.6 (NETSOR⊤) applies: its hypotheses hold." in text
    assert "| **BP-like (Definition A.3)** | yes |" in text
    assert "| **polynomially bounded functions** | yes |" in text
    assert "| rank stability (B.7) | yes |" in text  # no hypothesis of Theorem A.6


def test_the_report_says_where_a_hypothesis_fails() -> None:
    report = ns.check(ns.programs.gia_counterexample())
    text = report.markdown()
    assert "Theorem A.6 (NETSOR⊤) asks for BP-like (Definition A.3): no." in text
    assert "line 8: `v : G(n) mean 1 var 0 readout frozen`" in text
    assert "line 12: `dx1 := W2t @ dh2`" in text
    assert " 8  v : G(n) mean 1 var 0 readout frozen" in text
    assert r"\item \textbf{NT203} clause 3: v has mean 1, not zero." in report.latex()


def test_lines_of_a_report_are_those_that_decide() -> None:
    """h1 := W1 x, h2 := W2 x1, dx1 := W2ᵀ dh2 and the readout, counted by hand in the listing."""
    p = ns.programs.mlp()
    p.backward()
    rows = str(p).splitlines()
    first = next(i for i, row in enumerate(rows) if row.startswith("data"))
    uses = [i - first + 1 for i, row in enumerate(rows[:-1]) if "@" in row or row.startswith("v :")]
    before = [u - sum(r.startswith("output") for r in rows[first : first + u]) for u in uses]
    row = next(r for r in ns.check(p).markdown().splitlines() if "BP-like" in r and r.startswith("|"))
    assert re.findall(r"\d+", row.split("|")[-2]) == [str(b) for b in before]


def test_an_undecided_hypothesis_and_scalars() -> None:
    text = ns.check(ns.programs.transformer()).markdown()
    assert "Theorem B.2 (NETSOR⊤⁺) asks for" in text
    assert "| **rank stability (B.7)** | undecided |" in text


def test_reports_of_all_programs_are_tables() -> None:
    for make in ns.programs.BUILTIN.values():
        report = ns.check(make())
        rows = [r for r in report.markdown().splitlines() if r.startswith("|")]
        assert len(rows) == 10
        assert all(len(re.findall(r"(?<!\\)\|", r)) == 5 for r in rows)
        assert report.latex().count(r"\item[") == 8


# ---------------------------------------------------------------- pictures


def test_a_drawing_has_a_box_for_each_line_and_an_arrow_for_each_argument() -> None:
    p = ns.programs.rnn()
    drawing = p.draw()
    root = ET.fromstring(drawing.svg)
    tags = [e.tag.rsplit("}")[-1] for e in root.iter()]
    assert tags.count("rect") == len(p.lines) + 1
    assert tags.count("line") == sum(len(set(inputs_of(line))) for line in p.lines) + 2
    dashed = [e for e in root.iter() if e.get("stroke-dasharray")]
    assert len(dashed) == 1  # the state of the step before
    texts = [e.text for e in root.iter() if e.tag.endswith("text")]
    listed = [r for r in str(p).splitlines() if ":" in r or r.startswith("data")]
    assert sorted(t or "" for t in texts) == sorted([*listed, "output f"])


def test_boxes_do_not_overlap_and_arrows_point_down() -> None:
    for make in ns.programs.BUILTIN.values():
        root = ET.fromstring(make().draw().svg)
        boxes = [[float(e.get(k, "nan")) for k in ("x", "y", "width")] for e in root.iter() if e.tag.endswith("rect")]
        for level in {y for _, y, _ in boxes}:
            row = sorted((x, x + w) for x, y, w in boxes if y == level)
            assert all(a[1] < b[0] for a, b in itertools.pairwise(row))
        arrows = [e for e in root.iter() if e.tag.endswith("line") and not e.get("stroke-dasharray")]
        assert all(float(e.get("y1", "nan")) < float(e.get("y2", "nan")) for e in arrows)


def test_a_drawing_of_hostile_names_is_xml(tmp_path: Path) -> None:
    drawing = hostile().draw()
    assert ET.fromstring(drawing.svg) is not None and "<script" not in drawing.svg
    drawing.save(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == drawing.svg == drawing._repr_svg_()


def test_a_kernel_is_plotted_with_its_spectrum() -> None:
    matrix = torch.tensor([[2.0, 1.0], [1.0, 2.0]])  # eigenvalues 3 and 1
    figure: Any = ns.KernelResult(ntk=matrix).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")  # a notebook shows it, whether pyplot is loaded or not
    left, right, *_ = figure.axes
    assert np.array_equal(np.asarray(left.images[0].get_array()), matrix.numpy())
    assert right.lines[0].get_ydata() == pytest.approx([3.0, 1.0])
    rectangle = ns.KernelResult(nngp=torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])).plot("nngp")
    assert rectangle.axes[1].lines[0].get_ydata() == pytest.approx([4.0, 3.0])


def test_plots_of_what_is_not_there_say_what_is() -> None:
    result = ns.KernelResult(ntk=torch.ones(2, 2, 3, 3))
    with pytest.raises(ns.InputError, match="no kernel 'nngp'"):
        result.plot("nngp")
    with pytest.raises(ns.InputError, match="no matrix"):
        result.plot()


def test_convergence_is_plotted(everything: dict[str, Any]) -> None:
    axes = ns.plot(everything["simulation"], keys=["ntk"]).axes[0]
    assert axes.get_xlabel() == "width n"


def test_figures_without_matplotlib_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "netsor.compilers.experiment.canvas", raising=False)
    with pytest.raises(ImportError, match=r"\.\[plot\]"):
        ns.KernelResult(ntk=torch.eye(2)).plot()
