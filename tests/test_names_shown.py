"""Names in other languages: formulas, Markdown, diagrams, figures, archives, and what every command prints."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from renaming import (
    FEW,
    HOSTILE,
    SOME,
    inputs,
    recurrent,
    swapped,
)

import netsor as ns
from netsor.cli import main
from netsor.cli.arrays import member
from netsor.markup import code, math
from netsor.text.graph import mermaid

pytestmark = pytest.mark.usefixtures("nothing_runs")
X = np.random.default_rng(0).normal(size=(2, 3))


@pytest.mark.parametrize("new", SOME)
def test_what_is_printed_stands_in_its_lines(new: str) -> None:
    p, _ = swapped(new)
    found, plain = ns.derive(p), ns.derive(recurrent())
    for form in (str, lambda r: r.structure()):  # typeset equations are broken by their widths
        assert len(form(found).splitlines()) == len(form(plain).splitlines())
    for row in found.latex().splitlines():
        if not row.startswith("%"):
            bare = re.sub(r"\\[\\{}%$#&_]", "", row)
            assert not re.search(r"[%#]|<(?!})", bare) and bare.count("$") % 2 == 0
            assert bare.count("{") == bare.count("}")
    report = ns.check(p)
    assert report.verdict == ns.check(recurrent()).verdict
    assert json.loads(json.dumps(report.to_json()))["program"] == new


@pytest.mark.parametrize("name", [*HOSTILE, "a`b", "``"])
def test_tex_and_markdown(name: str) -> None:
    text = math(name)
    assert not re.search(r"(?<!\\)[$#%&]", text) and not re.search(r"<(?!})|\\\\", text.replace(r"\backslash", ""))
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    span = re.fullmatch(r"(`+)( ?)(.*)\2\1", code(name))
    assert span is not None and span[3] == name and span[1] not in re.findall("`+", name)


@pytest.mark.parametrize("name", SOME)
def test_mermaid(name: str) -> None:
    for row in mermaid(swapped(name)[0]).splitlines()[1:]:
        assert re.fullmatch(r'    \w+(\W+"[^"`<>]*"\W+| -\.?->? \w+| --> \w+)', row), row
        assert not re.search(r"#(?!35;|96;)", row)


@pytest.mark.parametrize("name", ["$\\frac$", "$", "_hidden", "a$b$c", "\\", "<b>", "x^{2}"])
def test_figures(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from netsor.compilers.experiment.figure import figure

    p, naming = swapped(name)
    canvas = figure([ns.simulate(p, inputs(naming), widths=[8, 16], seeds=2)])
    canvas.savefig(tmp_path / "f.svg")
    legend = canvas.axes[0].get_legend()
    assert legend is not None
    labels = [t.get_text() for t in legend.get_texts()]
    assert len(labels) == 3 and labels[0].replace(r"\$", "$").strip().startswith(name)


# ---------------------------------------------------------------- the command line

COMMANDS = [
    ["check"], ["check", "--format", "concise"], ["check", "--format", "json"], ["check", "--format", "github"],
    ["check", "--format", "sarif"], ["show"], ["show", "--formal"], ["show", "--mermaid"], ["derive"],
    ["derive", "--format", "latex"], ["derive", "--format", "markdown"], ["derive", "--structure"], ["compile"],
    ["compile", "-o", "module.py"], ["kernel", "--x", "X.npz", "-o", "K.npz"], ["limit", "--x", "X.npz"],
    ["simulate", "--x", "X.npz", "--widths", "8,16", "--seeds", "2"],
    ["simulate", "--x", "X.npz", "--widths", "8,16", "--seeds", "2", "--json", "--plot", "out.png"],
]  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_every_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    p, naming = swapped(name)
    Path("net.netsor").write_text(str(p), encoding="utf-8")
    with zipfile.ZipFile("X.npz", "w") as archive:  # np.savez has arguments of its own
        for key, array in inputs(naming).items():
            with archive.open(f"{key}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(array))
    for command, *options in COMMANDS:
        code = main([command, "net.netsor", *options])
        out, err = capsys.readouterr()
        assert (code, err) == (0, ""), (command, options, err)
        if "github" in options:
            assert all(row.startswith(("::warning ", "::error ")) for row in out.splitlines())
        if "json" in options or "sarif" in options:
            json.loads(out)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["K.npz", "X.npz", "module.py", "net.netsor", "out.png"]


def test_results_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("../../x", "file", "allow_pickle", "a%b", "/etc/passwd", "h", "h²", "C:\\x"):
        p = ns.Program("p")
        n, x = p.width("n"), p.data("x")
        p.output(p.readout("v", n), ns.relu(p.let(name, p.matrix("W", n, x) @ x)))
        Path("net.netsor").write_text(str(p), encoding="utf-8")
        np.save("X.npy", X)
        assert (
            main(["kernel", "net.netsor", "--x", "X.npy", "--get", f"ntk,terms,{name}", "-o", "K.npz", "--force"]) == 0
        )
        with np.load("K.npz") as found:
            assert set(found) == {"ntk", "terms.W", "terms.v", member(name)}
            np.testing.assert_allclose(found[member(name)], X @ X.T / 3)
        with zipfile.ZipFile("K.npz") as archive:
            assert not any(set("/\\:") & set(member) for member in archive.namelist())


def test_what_cannot_be_read_is_said_in_lines_that_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.netsor").write_text("width n  # \x1b[31m\u202e\nwidth `a\x1b[0m`\n", encoding="utf-8")
    for form in ("full", "concise", "json", "github", "sarif"):
        assert main(["check", "net.netsor", "--format", form]) == 2
        out, err = capsys.readouterr()
        assert "NT001" in out + err and "\x1b" not in out + err
