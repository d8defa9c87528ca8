"""The pages of the layers: the backward pass of every program on them is BP-like, and every layer has its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import PAGES, blocks, start

import netsor as ns
from netsor import layers
from netsor.build.program import Program

LAYERS = [page for page in PAGES if page.parent.name == "layers"]


@pytest.mark.parametrize("page", LAYERS, ids=lambda page: page.stem)
def test_the_programs_of_a_page_are_bp_like(page: Path) -> None:
    names = start()
    for block in blocks(page):
        names.pop("p", None)
        block.run(names)
        program = names.get("p")
        if isinstance(program, Program):
            assert ns.check(program).bp_like, f"{page}:{block.line}"


def test_every_layer_has_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in LAYERS)
    missing = [name for name in layers.__all__ if f"`{name}" not in text and f".{name}(" not in text]
    assert missing == ["Concat"]
