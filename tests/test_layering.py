"""The arrows between the folders, read from the import statements.

programs → netsor ← compilers        netsor/__init__.py (lazily), netsor/cli and netsor/sklearn.py know all three
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"netsor": "netsor", "compilers": "netsor.compilers", "programs": "netsor.programs"}

ARCHITECTURES = {
    "mlp", "rnn", "cnn", "cntk", "resnet", "transformer", "batchnorm_mlp", "batchnorm", "gru", "lstm", "gcn",
    "maxpool_cnn", "tied_autoencoder", "gia_counterexample",
}  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One imported module or name, absolute; `eager`: executed when the importing module is."""

    target: str
    line: int
    eager: bool
    typing_only: bool


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    tree: ast.Module

    @property
    def folder(self) -> str:
        return self.path.relative_to(ROOT).parts[0]

    @property
    def knows_all(self) -> bool:
        """The command line, the facade, and the adapters to other libraries."""
        return (
            self.name in ("netsor", "netsor.sklearn")
            or self.name == "netsor.cli"
            or self.name.startswith("netsor.cli.")
        )


@cache
def modules() -> tuple[Module, ...]:
    found: list[Module] = []
    for folder, package in FOLDERS.items():
        for directory, subfolders, files in os.walk(ROOT / folder):  # os.walk follows no links
            subfolders[:] = sorted(s for s in subfolders if s != "__pycache__")
            for file in sorted(f for f in files if f.endswith(".py")):
                path = Path(directory, file)
                parts = [package, *path.relative_to(ROOT / folder).with_suffix("").parts]
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                found.append(Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path))))
    return tuple(found)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test).endswith("TYPE_CHECKING")


def _targets(node: ast.Import | ast.ImportFrom, module: Module) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        package = module.name.split(".")
        if module.path.name != "__init__.py":
            package = package[:-1]
        package = package[: len(package) - node.level + 1]
        base = ".".join(filter(None, [*package, base]))
    return [f"{base}.{alias.name}" for alias in node.names]


def imports(module: Module) -> Iterator[Import]:
    """All imports of a module, those inside functions included."""

    def walk(nodes: list[ast.stmt], eager: bool, typing_only: bool) -> Iterator[Import]:
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for target in _targets(node, module):
                    yield Import(target, node.lineno, eager and not typing_only, typing_only)
                continue
            lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            typing = isinstance(node, ast.If) and _is_type_checking(node.test)
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                inner: list[ast.stmt] = getattr(node, field, [])
                yield from walk(inner, eager and not lazy, typing_only or (typing and field == "body"))

    yield from walk(module.tree.body, True, False)


def folder_of(target: str) -> str | None:
    """Which of the three folders an absolute import name lies in."""
    if target.split(".")[0] in ("compilers", "programs"):
        return target.split(".")[0]
    if target.split(".")[0] != "netsor":
        return None
    second = target.split(".")[1] if "." in target else ""
    return second if second in ("compilers", "programs") else "netsor"


ALLOWED = {"programs": {"programs", "netsor"}, "compilers": {"compilers", "netsor"}, "netsor": {"netsor"}}


def violations() -> list[str]:
    found: list[str] = []
    for module in modules():
        if module.knows_all:
            continue
        for item in imports(module):
            folder = folder_of(item.target)
            if folder is not None and folder not in ALLOWED[module.folder]:
                found.append(f"{module.path.relative_to(ROOT)}:{item.line}: imports {item.target}")
    return found


def test_arrows() -> None:
    assert len(modules()) > 3
    assert not violations(), "\n".join(violations())


def test_the_folders_are_not_top_level_packages() -> None:
    wrong = [
        f"{module.path.relative_to(ROOT)}:{item.line}: {item.target}"
        for module in modules()
        for item in imports(module)
        if item.target.split(".")[0] in ("compilers", "programs")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_grammar_imports_nothing_of_ours() -> None:
    grammar = next(module for module in modules() if module.name == "netsor.ir")
    ours = [item.target for item in imports(grammar) if folder_of(item.target) and not item.typing_only]
    assert not ours


def test_the_facade_is_lazy() -> None:
    facade = next(module for module in modules() if module.name == "netsor")
    eager = [i.target for i in imports(facade) if i.eager and folder_of(i.target) in ("compilers", "programs")]
    assert not eager, f"netsor/__init__.py imports {eager} when it is loaded"


def test_no_import_cycles() -> None:
    """Among imports executed when a module is loaded."""
    names = {module.name for module in modules()}
    graph: dict[str, set[str]] = {}
    for module in modules():
        eager = {item.target for item in imports(module) if item.eager}
        owners = {t if t in names else t.rpartition(".")[0] for t in eager}
        graph[module.name] = (owners & names) - {module.name, "netsor"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " → ".join(error.args[1]))


def _mentions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Identifiers and whole strings of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield node.lineno, text
            case ast.Name(id=text) | ast.Attribute(attr=text):
                yield node.lineno, text
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                yield node.lineno, text
            case _:
                pass


def architectures() -> set[str]:
    files = {module.name.rpartition(".")[2] for module in modules() if module.folder == "programs"}
    return ARCHITECTURES | (files - {"programs", "paper"})


def test_nothing_but_the_programs_knows_an_architecture() -> None:
    """A compiler with a branch for an architecture would name it; so no name, identifier or string says one."""
    names = architectures()
    found = [
        f"{module.path.relative_to(ROOT)}:{line}: {text}"
        for module in modules()
        if module.folder != "programs" and not module.knows_all
        for line, text in _mentions(module.tree)
        if text.lower() in names
    ]
    assert not found, "\n".join(found)
