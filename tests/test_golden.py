"""A program, its recursion and its torch source side by side; `pytest --update-golden` rewrites them."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from netsor.compilers.derive.recursion import derive
from netsor.compilers.lowering.module import generate
from netsor.programs import BUILTIN

GOLDEN = Path(__file__).parent / "golden"
PROGRAMS = ("mlp", "rnn", "cnn", "resnet", "transformer")


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_comes_out_is_what_was_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    program = BUILTIN[name]()
    recursion = derive(program)
    files = {
        "listing.netsor": str(program).rstrip() + "\n",
        "recursion.txt": str(recursion),
        "recursion.tex": recursion.latex(),
        "kernel.py": generate(recursion).text,
    }
    folder = GOLDEN / name
    if request.config.getoption("--update-golden"):
        folder.mkdir(parents=True, exist_ok=True)
        for file, now in files.items():
            (folder / file).write_text(now, encoding="utf-8")
    for file, now in files.items():
        before = (folder / file).read_text(encoding="utf-8")
        change = "".join(difflib.unified_diff(before.splitlines(True), now.splitlines(True), "reviewed", "now"))
        assert before == now, f"{name}/{file} has changed; if that is meant, pytest --update-golden\n{change}"


def test_every_folder_is_checked() -> None:
    assert sorted(f.name for f in GOLDEN.iterdir() if f.is_dir()) == sorted(PROGRAMS)


def test_the_documentation_shows_the_reviewed_mlp() -> None:
    page = (GOLDEN.parents[1] / "docs" / "derivation.md").read_text(encoding="utf-8")
    listing, recursion = ((GOLDEN / "mlp" / f).read_text(encoding="utf-8") for f in ("listing.netsor", "recursion.txt"))
    assert f"```text\n{listing}```" in page
    assert f"```text\n{recursion[recursion.index('each input') :]}```" in page
