"""The page on PyTorch: its Python blocks run in turn and print the text below them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "from-torch.md"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<text>.*?)\n```)?", re.S)


def test_the_blocks_print_what_is_below_them() -> None:
    names: dict[str, Any] = {}
    blocks = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(blocks) == 11
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block["code"], names)
        assert printed.getvalue().rstrip() == (block["text"] or ""), block["code"]
