"""README and documentation: every Python block runs, and prints what the page says it prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pages import PAGES, ROOT, blocks, start

RUN = [page for page in PAGES if any(blocks(page))]


@pytest.mark.parametrize("page", RUN, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = start()
    for block in blocks(page):
        printed = block.run(names)
        if block.printed is not None:
            assert printed.rstrip() == block.printed.rstrip(), f"{page}:{block.line}"


def test_a_fence_that_is_not_read_is_not_there() -> None:
    """Every ```python fence of every page is a block: none is overlooked for the way it is written."""
    for page in RUN:
        fences = page.read_text(encoding="utf-8").count("```python" + os.linesep)
        assert fences == sum(not b.code.startswith("<!--") for b in blocks(page) if _fenced(b.page, b.line))


def _fenced(page: Path, line: int) -> bool:
    return page.read_text(encoding="utf-8").splitlines()[line - 2].strip() == "```python"
