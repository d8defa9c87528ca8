"""Every public name is documented, on a page of the reference too; examples of all docstrings run, read by Sybil."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pages import ROOT, start
from sybil import Document
from sybil.document import PythonDocStringDocument
from sybil.parsers.rest import DocTestParser

import netsor as ns

API = ROOT / "docs" / "api"
FOLDERS = ("netsor", "compilers", "programs")
PARSER = DocTestParser(doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)


def docstrings(path: Path) -> Iterator[tuple[str, Document]]:
    """Each docstring with examples, public or not, as a document of its own, by file and line."""
    source = path.read_text(encoding="utf-8")
    for begin, _, text in PythonDocStringDocument.extract_docstrings(source):
        if ">>> " in text:
            document = Document(text, str(path))
            for region in PARSER(document):
                document.add(region)
            yield f"{path.relative_to(ROOT)}:{source.count(chr(10), 0, begin) + 1}", document


EXAMPLES = dict(
    found for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for found in docstrings(path)
)


def home(name: str) -> Any:
    """What the docstring of a public name is the docstring of: a function φ and `ns.check` have that of their class."""
    value = getattr(ns, name)
    return value if inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType) else type(value)


@pytest.mark.parametrize("name", ns.__all__)
def test_a_public_name_is_documented(name: str) -> None:
    text = inspect.getdoc(home(name)) or ""
    assert len(text.split()) >= 3, f"ns.{name} has no docstring"
    assert isinstance(home(name), ModuleType) or ">>> " in text, f"the docstring of ns.{name} has no example"


@pytest.mark.parametrize("place", EXAMPLES)
def test_the_examples_of_a_docstring_run(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = EXAMPLES[place]
    document.namespace.update(start())
    for example in document:
        example.evaluate()


def test_the_examples_of_every_public_name_are_among_them() -> None:
    run = {inspect.cleandoc(document.text) for document in EXAMPLES.values()}
    assert [
        n for n in ns.__all__ if ">>> " in (inspect.getdoc(home(n)) or "") and inspect.getdoc(home(n)) not in run
    ] == []


def test_every_public_name_is_in_the_reference() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in API.glob("*.md"))
    listed = set(re.findall(r"auto(?:class|function|exception|data|module):: netsor\.(\w+)(?:\(.*)?$", pages, re.M))
    listed |= set(re.findall(r"py:(?:data|function):: netsor\.(\w+)(?:\(.*)?$", pages, re.M))
    assert set(ns.__all__) - listed == set()
    assert listed - set(ns.__all__) == set()
