"""README and documentation, read by Sybil: the Python blocks of a page, run in order, are one module.

A ```text block right behind a Python block is what that prints; a block of `>>>` lines holds what they print. A comment
`<!-- invisible-code-block: python … -->` is code that readers do not see. `ns`, `np` and `torch` are imported.
"""

from __future__ import annotations

import contextlib
import doctest
import io
from pathlib import Path

from sybil import Document, Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from sybil.typing import Parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]


class Page(Document):
    """A page; `printed` by the block that ran last, which ends at the character `reached`."""

    printed, reached = "", 0


def _run(example: Example) -> None:
    page = example.document
    assert isinstance(page, Page)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        PythonEvaluator()(example)
    page.printed, page.reached = out.getvalue(), example.end


def _compare(example: Example) -> str | None:
    """What is wrong with a text that stands for what was printed; texts elsewhere are not read."""
    page = example.document
    assert isinstance(page, Page)
    behind = page.text[page.reached : example.start].isspace()
    wrong = behind and page.printed.rstrip() != example.parsed.rstrip()
    return f"printed:\n{page.printed}\nthe page says:\n{example.parsed}" if wrong else None


def _parsers() -> list[Parser]:
    python = PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS)
    python.codeblock_parser = CodeBlockParser("python", _run)
    return [python, CodeBlockParser("text", _compare)]


def read(page: Path) -> Document:
    """The page with the names that every page has; iterating gives its examples, `evaluate` runs one."""
    document = Sybil(_parsers(), document_types={None: Page}).parse(page)
    document.namespace.update(start())
    return document


def start() -> dict[str, object]:
    """The names that every page and every docstring has."""
    import numpy as np
    import torch

    import netsor as ns

    return {"__name__": "page", "ns": ns, "np": np, "torch": torch}
