"""What a type checker does not say of the code: no match, table or chain of tests forgets a class in silence.

The closed unions of the project are lines, sizes, values, indices, nodes, statements and questions about limits.
`complaints(root)` reads the sources below a root and names every place where a new member of such a union would be
answered without having been thought of.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDERS = {"netsor": "netsor", "compilers": "netsor.compilers", "programs": "netsor.programs"}
CLOSED = (
    "netsor.ir.Line", "netsor.ir.Size", "netsor.compilers.derive.entries.values.Value",
    "netsor.compilers.derive.entries.indices.Index", "netsor.compilers.derive.nodes.AnyNode",
    "netsor.compilers.lowering.plan.order.Statement", "netsor.compilers.limit.questions.Question",
)  # fmt: skip
EXEMPT = "noqa: C901"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Complaint:
    """A place in the code, `path` below the root, and what is wrong there."""

    path: str
    line: int
    text: str

    @property
    def is_chain(self) -> bool:
        return self.text.endswith("by a chain of isinstance")

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass
class Module:
    name: str
    path: str
    text: str
    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)  # what is imported, by the name it has here

    def qualified(self, e: ast.expr | None) -> str:
        """The full name of a class or an alias; '' for anything else."""
        match e:
            case ast.Name(id=name):
                return self.names.get(name, f"{self.name}.{name}")
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                return f"{self.names.get(name, name)}.{attr}"
            case _:
                return ""


def modules(root: Path) -> Iterator[Module]:
    """The modules of the three folders; links between these are not followed."""
    for folder, package in FOLDERS.items():
        for directory, subfolders, files in os.walk(root / folder):
            subfolders[:] = sorted(s for s in subfolders if s != "__pycache__")
            for file in sorted(f for f in files if f.endswith(".py")):
                path = Path(directory, file)
                parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                text = path.read_text(encoding="utf-8")
                module = Module(name, str(path.relative_to(root)), text, ast.parse(text))
                module.names = dict(_imported(module.tree))
                yield module


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            for a in node.names:
                yield a.asname or a.name, f"{node.module}.{a.name}"


class Code:
    """The modules below a root and the unions that they define."""

    def __init__(self, root: Path) -> None:
        self.modules = list(modules(root))
        self._aliases: dict[str, tuple[Module, ast.expr]] = {}
        for module in self.modules:
            for node in module.tree.body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self._aliases[f"{module.name}.{node.targets[0].id}"] = module, node.value
        self.bases: dict[str, frozenset[str]] = {}
        self.families = {name: frozenset(self.members(*self._aliases[name])) for name in CLOSED}
        self.family_of = {m: f for f in self.families.values() for m in f if "." in m and not m.endswith(".int")}
        for module in self.modules:
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and (name := f"{module.name}.{node.name}") in self.family_of:
                    for base in map(module.qualified, node.bases):
                        self.bases[base] = self.bases.get(base, frozenset()) | {name}

    def members(self, module: Module, e: ast.expr | None) -> tuple[str, ...]:
        """The classes of a union, its aliases resolved; of any other expression nothing that is in a family."""
        if isinstance(e, ast.BinOp) and isinstance(e.op, ast.BitOr):
            return self.members(module, e.left) + self.members(module, e.right)
        name = module.qualified(e)
        if name in self._aliases:
            return self.members(*self._aliases[name])
        return ("int",) if isinstance(e, ast.Name) and e.id == "int" else tuple(self.below(name))

    def below(self, name: str) -> frozenset[str]:
        """The class, or the members of a union that it is a base of: these are treated alike."""
        return self.bases.get(name, frozenset((name,)))

    # ------------------------------------------------------------ one module

    def complaints(self, module: Module) -> Iterator[Complaint]:
        for function, node in _nodes(module.tree):
            found: Iterator[tuple[int, str]] = iter(())
            if isinstance(node, ast.Match):
                found = self._match(module, function, node)
            elif isinstance(node, ast.Dict):
                found = self._table(module, node)
            elif isinstance(node, ast.Call):
                found = self._by_name(node)
            elif isinstance(node, Function):
                found = self._function(module, node)
            for line, text in found:
                yield Complaint(module.path, line, text)

    def _match(self, module: Module, function: Function | None, node: ast.Match) -> Iterator[tuple[int, str]]:
        patterns = [p for case in node.cases for p in _alternatives(case.pattern)]
        named = [m for p in patterns for m in self.below(self._class(module, p))]
        family = next((self.family_of[m] for m in named if m in self.family_of), None)
        if family is None:
            return
        last = node.cases[-1]
        if not _is_never(last):
            yield last.pattern.lineno, f"a match of {ast.unparse(node.subject)} that does not end in assert_never"
        for case in node.cases[:-1]:
            if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                yield case.pattern.lineno, "a case that takes every class, under a condition"
        covered = {
            m for case in node.cases if case.guard is None
            for p in _alternatives(case.pattern) if _takes_all(p) for m in self.below(self._class(module, p))
        }  # fmt: skip
        missing = self._domain(module, function, node.subject, family) - covered
        if missing:
            names = ", ".join(sorted(m.rpartition(".")[2] for m in missing))
            yield node.lineno, f"a match of {ast.unparse(node.subject)} without {names}"

    def _class(self, module: Module, p: ast.pattern) -> str:
        if not isinstance(p, ast.MatchClass):
            return ""
        return "int" if isinstance(p.cls, ast.Name) and p.cls.id == "int" else module.qualified(p.cls)

    def _domain(
        self, module: Module, function: Function | None, subject: ast.expr, family: frozenset[str]
    ) -> frozenset[str]:
        """The classes that the subject may be of: its parameter's union, where that is part of the family."""
        if function is not None and isinstance(subject, ast.Name):
            for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
                if a.arg == subject.id:
                    union = frozenset(self.members(module, a.annotation))
                    return union if union <= family else family
        return family

    def _table(self, module: Module, node: ast.Dict) -> Iterator[tuple[int, str]]:
        keys = {module.qualified(k) for k in node.keys}
        family = next((self.family_of[k] for k in sorted(keys) if k in self.family_of), None)
        if family is not None and keys != family:
            names = ", ".join(sorted(m.rpartition(".")[2] for m in family - keys))
            yield node.lineno, f"a table by class without {names}"

    def _by_name(self, node: ast.Call) -> Iterator[tuple[int, str]]:
        if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "hasattr", "setattr"):
            return
        name = node.args[1] if len(node.args) > 1 else None
        if any(isinstance(x, ast.Attribute) and x.attr == "__name__" for x in ast.walk(node)) or (
            isinstance(name, ast.JoinedStr) and ast.unparse(node.args[0]) == "self"
        ):
            yield node.lineno, f"dispatch by a name that is put together: {ast.unparse(node)}"
        if ast.unparse(node.args[0]) == "line" and node.func.id != "setattr":
            yield node.lineno, f"a field that a line may lack: {ast.unparse(node)}"

    # ------------------------------------------------------------ one function

    def _function(self, module: Module, node: Function) -> Iterator[tuple[int, str]]:
        if EXEMPT in module.text.splitlines()[node.lineno - 1] and not _is_dispatch(node):
            yield node.lineno, f"{node.name} is exempt from C901 and does more than one match, a statement per case"
        tested: dict[tuple[str, frozenset[str]], list[frozenset[str]]] = {}
        for owner, test in _nodes(node):
            if isinstance(test, ast.If | ast.IfExp) and owner is node:
                for subject, classes in {s: c for s, c in self._tests(module, test.test)}.items():
                    family = self._domain(module, node, subject, self.family_of[next(iter(classes))])
                    tested.setdefault((ast.unparse(subject), family), []).append(classes)
        for (subject_text, family), seen in tested.items():
            if len(set(seen)) > 1 and family in self.families.values():
                yield node.lineno, f"{node.name} tells the classes of {subject_text} apart by a chain of isinstance"

    def _tests(self, module: Module, test: ast.AST) -> Iterator[tuple[ast.expr, frozenset[str]]]:
        """The tests of one condition; those inside a comprehension are about its elements."""
        if isinstance(test, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            return
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
            classes = frozenset(m for m in self.members(module, test.args[1]) if m in self.family_of)
            if classes:
                yield test.args[0], classes
        for child in ast.iter_child_nodes(test):
            yield from self._tests(module, child)


def _nodes(tree: ast.AST, function: Function | None = None) -> Iterator[tuple[Function | None, ast.AST]]:
    """Every node with the function that it stands in; a function stands in itself."""
    if isinstance(tree, Function):
        function = tree
    yield function, tree
    for child in ast.iter_child_nodes(tree):
        yield from _nodes(child, function)


def _alternatives(p: ast.pattern) -> list[ast.pattern]:
    if isinstance(p, ast.MatchOr):
        return [q for x in p.patterns for q in _alternatives(x)]
    if isinstance(p, ast.MatchAs) and p.pattern is not None:
        return _alternatives(p.pattern)
    return [p]


def _takes_all(p: ast.pattern) -> bool:
    """A class pattern without a condition on a field."""
    inner = (*p.patterns, *p.kwd_patterns) if isinstance(p, ast.MatchClass) else ()
    return all(isinstance(x, ast.MatchAs) and x.pattern is None for x in inner)


def _is_never(case: ast.match_case) -> bool:
    body = case.body[0]
    call = body.value if isinstance(body, ast.Expr | ast.Return) else None
    wild = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None
    return wild and isinstance(call, ast.Call) and ast.unparse(call.func) == "assert_never"


def _is_dispatch(function: Function) -> bool:
    """A docstring, assignments, and one match at the end whose cases are a statement each."""
    *before, last = function.body
    plain = (ast.Expr, ast.Assign, ast.AnnAssign)
    simple = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return, ast.Raise, ast.Pass, ast.Assert)
    return (
        isinstance(last, ast.Match)
        and all(isinstance(s, plain) for s in before)
        and all(len(c.body) == 1 and isinstance(c.body[0], simple) for c in last.cases)
    )


def complaints(root: Path) -> list[Complaint]:
    """Everything wrong below a root."""
    code = Code(root)
    return [c for module in code.modules for c in code.complaints(module)]
