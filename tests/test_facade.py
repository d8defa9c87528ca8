"""`import netsor as ns`: the names for people, for type checkers and at run time are the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import netsor as ns

MODULES = {"layers", "programs"}


def test_names_and_homes_agree() -> None:
    assert len(ns.__all__) == len(set(ns.__all__))
    assert set(ns.__all__) == {*ns._HOME, *MODULES}


def test_type_checkers_see_the_same_homes() -> None:
    tree = ast.parse(Path(ns.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [(node.module, alias) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.asname == alias.name for _, alias in imports)
    assert {alias.name: module for module, alias in imports} == ns._HOME | dict.fromkeys(MODULES, "netsor")


@pytest.mark.parametrize("name", ns.__all__)
def test_every_name_loads(name: str) -> None:
    assert getattr(ns, name) is not None
    assert name in dir(ns)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'netsor' has no attribute 'prove'"):
        _ = ns.prove
