"""README and documentation: every Python block runs, and prints what the page says it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import PAGES, ROOT, read

import netsor as ns
from netsor import layers

RUN = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
LAYERS = [page for page in PAGES if page.parent.name == "layers"]


@pytest.mark.parametrize("page", RUN, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs on the pages of the layers are BP-like, too."""
    monkeypatch.chdir(tmp_path)
    document = read(page)
    programs: set[ns.Program] = set()
    for example in document:
        example.evaluate()
        program = document.namespace.get("p")
        if page in LAYERS and isinstance(program, ns.Program) and program not in programs:
            assert ns.check(program).bp_like, f"{page}:{example.line}"
            programs.add(program)


def test_a_fence_that_is_not_read_is_not_there() -> None:
    """Every ```python fence of every page is a block: none is overlooked for the way it is written."""
    for page in RUN:
        document = read(page)
        fences = {m.start() for m in re.finditer(r"^ *```python$", document.text, re.M)}
        starts = {example.start for example in document}
        missed = [document.line_column(f) for f in fences - starts if ">>>" not in document.text[f : f + 20]]
        assert not missed, f"{page}: {missed}"


@pytest.mark.parametrize("said, wrong", [("2", False), ("3", True)])
def test_a_text_behind_a_block_is_compared(said: str, wrong: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"```python\nprint(2)\n```\n\n```text\n{said}\n```\n\nWords.\n\n```text\nfree\n```\n", encoding="utf-8"
    )
    block, text, free = read(page)
    block.evaluate()
    if wrong:
        with pytest.raises(AssertionError, match="the page says:\n3"):
            text.evaluate()
    else:
        text.evaluate()
    free.evaluate()


def test_every_layer_has_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in LAYERS)
    missing = [name for name in layers.__all__ if f"`{name}" not in text and f".{name}(" not in text]
    assert missing == ["Concat"]
