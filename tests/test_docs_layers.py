"""The pages of the layers: each Python block prints the listing below it, and its backward pass is BP-like."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import netsor as ns
from netsor import layers
from netsor.build.program import Program

PAGES = sorted((Path(__file__).parents[1] / "docs" / "layers").glob("*.md"))
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<text>.*?)\n```)?", re.S)
CASES = [(page, m["code"], m["text"]) for page in PAGES for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "code", "text"), CASES, ids=[f"{p.stem}-{i}" for i, (p, _, _) in enumerate(CASES)])
def test_the_listing_is_what_the_code_prints(page: Path, code: str, text: str | None) -> None:
    names: dict[str, Any] = {"ns": ns, "layers": layers}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    assert printed.getvalue().rstrip() == (text or "")
    program = names.get("p")
    if isinstance(program, Program):
        assert ns.check(program).bp_like


def test_every_layer_has_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [name for name in layers.__all__ if f"`{name}" not in text and f".{name}(" not in text]
    assert missing == ["Concat"]
