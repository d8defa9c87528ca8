"""Every public name is documented, on a page of the reference too, and the examples of its docstring run."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns

API = Path(__file__).parents[1] / "docs" / "api"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def home(name: str) -> Any:
    """What the docstring of a public name is the docstring of: a function φ and `ns.check` have that of their class."""
    value = getattr(ns, name)
    return value if inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType) else type(value)


@pytest.mark.parametrize("name", ns.__all__)
def test_a_public_name_is_documented(name: str) -> None:
    text = inspect.getdoc(home(name)) or ""
    assert len(text.split()) >= 3, f"ns.{name} has no docstring"
    assert isinstance(home(name), ModuleType) or ">>> " in text, f"the docstring of ns.{name} has no example"


@pytest.mark.parametrize(
    "name", sorted({home(name).__qualname__ for name in ns.__all__ if callable(getattr(ns, name))})
)
def test_the_examples_of_a_docstring_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (value,) = {home(n) for n in ns.__all__ if getattr(home(n), "__qualname__", None) == name}
    names = {"ns": ns, "np": np, "torch": torch}
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in doctest.DocTestFinder(recurse=inspect.isclass(value)).find(value, name, globs=names):
        runner.run(test)
    found = runner.summarize(verbose=False)
    assert found.attempted and not found.failed


def test_every_public_name_is_in_the_reference() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in API.glob("*.md"))
    listed = set(re.findall(r"auto(?:class|function|exception|data|module):: netsor\.(\w+)(?:\(.*)?$", pages, re.M))
    listed |= set(re.findall(r"py:(?:data|function):: netsor\.(\w+)(?:\(.*)?$", pages, re.M))
    assert set(ns.__all__) - listed == set()
    assert listed - set(ns.__all__) == set()
