"""The arrows between the folders, read from the import statements.

programs → netsor ← compilers        netsor/__init__.py (lazily), netsor/cli, sklearn.py and gpytorch.py know all three
"""

from __future__ import annotations

import ast
import os
from collections import Counter
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
            self.name in ("netsor", "netsor.gpytorch", "netsor.sklearn")
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


def _owner(target: str) -> str:
    """The module that an imported name is, or lies in."""
    names = {module.name for module in modules()}
    return target if target in names else target.rpartition(".")[0]


# A function-level import that closes a cycle. It only shrinks.
CYCLES = {("netsor.compilers.expectation.terms", "netsor.compilers.expectation.functions")}

# Objects that users hold: what their methods import is what they show, not what they are made of.
HELD = {"netsor.build.program": "Program", "netsor.compilers.derive.recursion": "Recursion"}


def _inside(module: Module, line: int) -> bool:
    """Does a line stand in the class of a module that users hold?"""
    classes = [n for n in module.tree.body if isinstance(n, ast.ClassDef) and n.name == HELD.get(module.name)]
    return any(c.lineno <= line <= (c.end_lineno or 0) for c in classes)


def import_graph() -> dict[str, set[str]]:
    """Who imports whom, inside functions too; methods of `HELD`, types and the lazy facade aside."""
    graph: dict[str, set[str]] = {}
    for module in modules():
        found = {_owner(i.target) for i in imports(module) if not i.typing_only and not _inside(module, i.line)}
        graph[module.name] = (found & {m.name for m in modules()}) - {module.name, "netsor"}
    graph["netsor"] = set()
    return graph


def test_no_import_cycles() -> None:
    graph = import_graph()
    for importer, imported in CYCLES:
        assert imported in graph[importer], f"{importer} imports {imported} no more: remove it from CYCLES"
        graph[importer].discard(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " → ".join(error.args[1]))


def test_imports_of_a_loading_module_have_no_cycle() -> None:
    eager = {m.name: {_owner(i.target) for i in imports(m) if i.eager} - {m.name, "netsor"} for m in modules()}
    TopologicalSorter(eager).prepare()


# ---------------------------------------------------------------- what is private


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(tree: ast.Module) -> set[str]:
    """Names of functions, classes and attributes that a module gives."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return found


FOREIGN = {"_base", "_print"}  # of torch's tensors and of sympy's printers


@cache
def all_private() -> frozenset[str]:
    return frozenset(name for m in modules() for name in _defined(m.tree) if _is_private(name))


def private_uses(module: Module) -> Iterator[str]:
    """Private names of other modules of ours that a module imports, or reads off an object."""
    others = all_private() - _defined(module.tree) - FOREIGN
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass  # of a base class
            case ast.Attribute(attr=name) if _is_private(name) and name in others:
                yield name
            case ast.ImportFrom(module=str(source), names=aliases) if source.startswith("netsor"):
                yield from (alias.name for alias in aliases if _is_private(alias.name))
            case _:
                pass


# Private names that other modules use, by file. It only shrinks.
PRIVATE = {
    "compilers/derive/chain.py": {
        "_dependent", "_expression", "_is_gaussian", "_is_radius", "_substitute", "_unified", "_variables",
    },
    "compilers/derive/normalised.py": {"_dependent", "_monomials", "_variables"},
}  # fmt: skip


def test_what_is_private_is_used_by_its_module_alone() -> None:
    found = {str(m.path.relative_to(ROOT)): set(private_uses(m)) for m in modules()}
    assert {path: names for path, names in found.items() if names} == PRIVATE


# ---------------------------------------------------------------- sizes of files and folders

LONGEST, MOST = 300, 12

# Longer files, with the lines that they may have. It only shrinks.
LONG = {
    "compilers/derive/expectations.py": 430,
    "compilers/derive/indexing.py": 320,
    "compilers/derive/nodes.py": 510,
    "compilers/derive/recursion.py": 330,
    "compilers/derive/rules.py": 377,
    "compilers/expectation/engine.py": 400,
    "compilers/reference/interpreter.py": 350,
    "compilers/runtime/__init__.py": 410,
    "netsor/build/program.py": 611,
    "netsor/ir.py": 400,
    "netsor/parser/statements.py": 330,
}

# Folders of more modules. It only shrinks.
WIDE = {
    "programs": 14,
}


def _length(module: Module) -> int:
    return len(module.path.read_text(encoding="utf-8").splitlines())


def test_files_are_short() -> None:
    lengths = {str(m.path.relative_to(ROOT)): _length(m) for m in modules()}
    over = {path: n for path, n in lengths.items() if n > LONG.get(path, LONGEST)}
    assert not over, f"longer than they may be: {over}"
    short = {path for path in LONG if lengths.get(path, 0) <= LONGEST}
    assert not short, f"remove from LONG: {short}"


def test_folders_are_narrow() -> None:
    count = Counter(str(m.path.parent.relative_to(ROOT)) for m in modules() if m.path.name != "__init__.py")
    over = {folder: n for folder, n in count.items() if n > WIDE.get(folder, MOST)}
    assert not over, f"more modules than they may have: {over}"
    narrow = {folder for folder in WIDE if count[folder] <= MOST}
    assert not narrow, f"remove from WIDE: {narrow}"


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


def _operations(module: Module) -> set[str]:
    """The operations of ATen that a module registers rules for: data, some of them called like architectures."""
    return {
        name.value
        for node in ast.walk(module.tree)
        if module.name.startswith("netsor.compilers.lift.rules.") and isinstance(node, ast.FunctionDef)
        for mark in node.decorator_list
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "rule"
        for name in mark.args
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    }


def _names(module: Module) -> Iterator[tuple[int, str]]:
    """What a module says, without strings that are operations of its rules."""
    operations = _operations(module)
    strings = {n.lineno for n in ast.walk(module.tree) if isinstance(n, ast.Constant) and n.value in operations}
    for line, text in _mentions(module.tree):
        if not (text in operations and line in strings):
            yield line, text


def test_nothing_but_the_programs_knows_an_architecture() -> None:
    """A compiler with a branch for an architecture would name it; so no name, identifier or string says one."""
    names = architectures()
    found = [
        f"{module.path.relative_to(ROOT)}:{line}: {text}"
        for module in modules()
        if module.folder != "programs" and not module.knows_all
        for line, text in _names(module)
        if text.lower() in names
    ]
    assert not found, "\n".join(found)


def test_tests_lie_in_the_folders_of_what_they_test() -> None:
    """pytest passes over folders named build."""
    known = {p.name for top in ("netsor", "compilers") for p in (ROOT / top).iterdir() if p.is_dir()} | {"builder"}
    folders = {p.parent.relative_to(ROOT / "tests") for p in (ROOT / "tests").rglob("test_*.py")} - {Path()}
    assert folders <= {Path(name) for name in known - {"build"}}
