"""The Python blocks of Markdown pages, run in order: each page is one module.

A block that a ```text block follows prints that text. A comment `<!-- setup … -->` is code that readers do not see.
Blocks of one page share their names; `ns`, `np` and `torch` are imported.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]

_BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^ *```\n(?:\n *```text\n(?P<text>.*?)^ *```\n)?"
    r"|^<!-- setup\n(?P<setup>.*?)^-->\n",
    re.S | re.M,
)


@dataclass(frozen=True)
class Block:
    """Code of a page from a line on (from 1), and what it prints, if the page says it."""

    page: Path
    line: int
    code: str
    printed: str | None

    def run(self, names: dict[str, Any]) -> str:
        """Execute the code with the page's names; what it printed."""
        if self.code.startswith(">>>"):
            return self._examples(names)
        out = io.StringIO()
        code = compile("\n" * (self.line - 1) + self.code, str(self.page), "exec")
        with contextlib.redirect_stdout(out):
            exec(code, names)
        return out.getvalue()

    def _examples(self, names: dict[str, Any]) -> str:
        """A block of `>>>` lines holds what they print."""
        test = doctest.DocTestParser().get_doctest(self.code, names, str(self.page), str(self.page), self.line - 1)
        doctest.DebugRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
        names.update(test.globs)
        return ""


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in order, setups included."""
    text = page.read_text(encoding="utf-8")
    for m in _BLOCK.finditer(text):
        group = "setup" if m["setup"] is not None else "code"
        printed = None if m["text"] is None else textwrap.dedent(m["text"])
        yield Block(page, text.count("\n", 0, m.start(group)) + 1, textwrap.dedent(m[group]), printed)


def start() -> dict[str, Any]:
    """The names that every page has."""
    import numpy as np
    import torch

    import netsor as ns

    return {"__name__": "page", "ns": ns, "np": np, "torch": torch}
