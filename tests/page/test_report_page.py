"""`netsor report`: one page that needs nothing else, says what holds and why, and shows its formulas in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import browser, read

import netsor as ns
from netsor.cli import main
from netsor.compilers.page import page

X = np.random.default_rng(0).normal(size=(3, 4))
HOSTILE = "</script><script>alert(1)</script> $$ \\evil $x$ <b> & \" '"
VOID = {"meta", "br", "input", "img"}


class Reader(HTMLParser):
    """Open tags, what refers to something, and the ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.references += [v for k, v in attrs if k in ("src", "href", "action", "data", "srcset")]
        self.ids += [v for k, v in attrs if k == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def hostile() -> ns.Program:
    p = ns.Program(HOSTILE)
    n, data = p.width("n"), p.data("x")
    h = p.let(HOSTILE, p.matrix("W", n, data) @ data)
    p.output(p.readout("v", n), ns.relu(h))
    return p


@pytest.fixture(scope="module", name="full")
def _full() -> str:
    return page(ns.programs.mlp(), X, widths=(8, 16, 32), seeds=3)


def test_a_page_has_all_sections_and_refers_to_itself_only(full: str) -> None:
    found = Reader(full)
    sections = ["check", "program", "graph", "recursion", "cost", "source", "convergence"]
    assert [i for i in found.ids if i in sections] == sections
    assert all(r.startswith("#") for r in found.references)
    assert {r[1:] for r in found.references} <= set(found.ids)
    assert found.tags.count("script") == 2 and found.tags.count("svg") == 2


def test_a_page_says_what_the_parts_say(full: str) -> None:
    p = ns.programs.mlp()
    assert "Theorem A.6 (NETSOR⊤) applies: its hypotheses hold." in full
    for text in (str(p), str(ns.derive(p).structure()), ns.compile(p).source):
        assert text.rstrip().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;"
            ).replace("'", "&#x27;") in full  # fmt: skip
    assert "relative deviation from the limit, mean over 3 seeds" in full
    assert r"\Theta^{x^{2}}" in full


def test_a_page_without_inputs_has_no_experiment() -> None:
    text = page(ns.programs.mlp())
    assert 'id="convergence"' not in text and "1000 inputs (feature 10)" in text


def test_what_fails_is_said_with_its_line_and_remedy() -> None:
    text = page(ns.programs.gia_counterexample(), np.ones((2, 3)), widths=(8, 16), seeds=2)
    assert "<strong>NT203</strong> (error): clause 3: v has mean 1, not zero<br>line 8: <code>v : G(n) mean 1" in text
    assert 'id="convergence"' in text  # with the limit of ns.limit


def test_a_sampled_program_says_why_it_has_no_recursion() -> None:
    text = page(ns.programs.gru())
    section = text[text.index('id="recursion"') : text.index('id="cost"')]
    assert re.search(r"<strong>NT\d+</strong>", section)


@pytest.mark.parametrize("name", ["cnn", "transformer", "batchnorm_mlp", "gcn", "tied_autoencoder"])
def test_programs_have_pages(name: str) -> None:
    Reader(page(ns.programs.BUILTIN[name]()))


def test_names_are_text() -> None:
    found = Reader(page(hostile()))
    assert found.tags.count("script") == 2 and "b" not in found.tags


# ---------------------------------------------------------------- the command


def test_the_command_writes_whole_files_and_replaces_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", "mlp", "-o", "r.html"]) == 0
    assert Path("r.html").read_text(encoding="utf-8") == page(ns.programs.mlp())
    assert main(["report", "mlp", "-o", "r.html"]) == 2
    assert "r.html exists already\n  hint: --force replaces it" in capsys.readouterr().err
    assert main(["report", "rnn", "-o", "r.html", "--force"]) == 0
    assert "<title>rnn</title>" in Path("r.html").read_text(encoding="utf-8")
    assert [f.name for f in tmp_path.iterdir()] == ["r.html"]


def test_the_command_reads_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    out = tmp_path / "r.html"
    assert (
        main(["report", "mlp", "--x", str(tmp_path / "X.npy"), "--widths", "8,16", "--seeds", "2", "-o", str(out)]) == 0
    )
    assert 'id="convergence"' in out.read_text(encoding="utf-8")


# ---------------------------------------------------------------- in a browser


@pytest.mark.parametrize("name", ["mlp", "cnn", "hostile"])
def test_a_browser_shows_every_formula_and_no_script_fails(name: str, full: str, tmp_path: Path) -> None:
    browser()
    text = {"mlp": lambda: full, "cnn": lambda: page(ns.programs.cnn()), "hostile": lambda: page(hostile())}[name]()
    written = re.search(r'<div id="mathematics">(.*?)\n</div>', text, flags=re.DOTALL)
    assert written is not None
    displayed, inline = written[1].count("$$") // 2, written[1].replace("$$", "").count("$")
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    found = read(file, tmp_path / "profile")
    assert found.console == () and found.errors == []
    if name == "hostile":  # dollars of names would not be paired by this count
        assert found.formulas > displayed
    else:
        assert found.formulas == displayed + inline // 2
    assert "alert(1)" in found.text or name != "hostile"


def test_parameters_are_symbols_and_finite_widths_take_their_values() -> None:
    p = ns.programs.mlp(depth=1, var_w="s")
    text = page(p, X, widths=(4, 8), seeds=2)
    assert "NT604" in text.split('id="convergence"')[1] and "NT604" not in text.split('id="convergence"')[0]
    assert r"s\,C^{x}" in text
    assert "NT604" not in page(p, X, widths=(4, 8), seeds=2, params={"s": 1.5})
