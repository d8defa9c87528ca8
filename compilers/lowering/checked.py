"""Generated text is executed here and nowhere else: parsed, and refused unless it is what the printers can make.

    module     ::=  docstring, `import math`, `import torch`, `from netsor.compilers import runtime as rt`, statements
    statement  ::=  name = operation, name[key] = operation, del names, for, if, def (perhaps under @rt.table), call,
                    return formula
    operation  ::=  at most one call, operator or view of names, constants, attributes of METHODS, tuples of these
    formula    ::=  constants, tuples, arithmetic, comparisons, calls, views, attributes of METHODS
    called     ::=  rt.…, torch.…, math.…, a name that the text or its numeric functions define, a method

No builtin is in reach, no attribute starts with an underscore, and no name of the three modules is assigned to.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import math
import types
from typing import Any

import torch

from netsor.compilers.derive.outputs import OUTPUTS

METHODS = frozenset({
    *OUTPUTS, "add_", "all", "amax", "at", "constant", "data", "derivative", "isdisjoint", "mean", "parameter",
    "permute", "put", "shape", "side", "size", "sum", "view",
})  # fmt: skip
"""Attributes of tensors and of the runtime's objects that the printers write."""
TORCH = frozenset({
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "clamp", "cos", "cosh", "erf", "erfc", "exp",
    "expm1", "float64", "floor", "full_like", "lgamma", "log", "maximum", "minimum", "nan", "nn", "pi", "relu",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "tensor", "where", "zeros",
})  # fmt: skip
NN = {"nn": frozenset({"functional"}), "functional": frozenset({"elu", "gelu", "leaky_relu", "logsigmoid", "silu"})}
IMPORTS = frozenset({"import math", "import torch", "from netsor.compilers import runtime as rt"})
MODULES = frozenset({"math", "torch", "rt"})
NODES = (
    ast.Module, ast.Expression, ast.Import, ast.ImportFrom, ast.alias, ast.Expr, ast.Assign, ast.Delete, ast.For,
    ast.If, ast.FunctionDef, ast.Return, ast.arguments, ast.arg, ast.Lambda, ast.Call, ast.keyword, ast.Attribute,
    ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Subscript, ast.Slice, ast.BinOp, ast.UnaryOp,
    ast.Compare, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip


class ForeignCodeError(AssertionError):
    """Generated text that is not what the printers make: a fault of this library."""


def execute(text: str, file: str, scope: dict[str, Any]) -> None:
    """Execute a generated module in a scope; tracebacks show its lines."""
    tree = ast.parse(text, file)
    _check(tree, scope)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    _run(tree, file, "exec", scope)


def evaluate(text: str, scope: dict[str, Any]) -> Any:
    """The value of a generated expression."""
    tree = ast.parse(text, "<netsor>", "eval")
    _check(tree, scope)
    return _run(tree, "<netsor>", "eval", scope)


def _run(tree: ast.Module | ast.Expression, file: str, mode: str, scope: dict[str, Any]) -> Any:
    """Run what was checked, with `import` of the three modules as the one builtin."""
    scope["__builtins__"] = {"__import__": _import}
    return eval(builtins.compile(tree, file, mode), scope)


def _import(name: str, *_: Any) -> Any:
    if name == "netsor.compilers":
        from netsor.compilers import runtime

        return types.SimpleNamespace(runtime=runtime)
    return {"math": math, "torch": torch}[name]


# ---------------------------------------------------------------- the allow-list


def _check(tree: ast.Module | ast.Expression, scope: dict[str, Any]) -> None:
    nodes = list(ast.walk(tree))
    known = _defined(nodes) | MODULES | scope.keys()
    entries = (n.keywords for n in nodes if isinstance(n, ast.Call) and _text(n.func) == "rt.Each")
    attributes = METHODS | {k.arg for keywords in entries for k in keywords if k.arg is not None}
    for node in nodes:
        if not (isinstance(node, NODES) and _is_allowed(node, known, attributes)):
            raise ForeignCodeError(f"generated code holds {type(node).__name__}: {ast.unparse(node)[:80]!r}")


def _defined(nodes: list[ast.AST]) -> set[str]:
    """The names that the text assigns, its functions and their arguments."""
    found = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    found |= {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    return found | {n.arg for n in nodes if isinstance(n, ast.arg)}


def _is_allowed(node: ast.AST, known: set[str], attributes: frozenset[str]) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom():
            return ast.unparse(node) in IMPORTS
        case ast.Name():
            return node.id in known and _is_plain(node.id) and (node.id not in MODULES or _is_read(node))
        case ast.arg() | ast.keyword():
            return node.arg is not None and _is_plain(node.arg) and node.arg not in MODULES
        case ast.arguments():
            return not (node.posonlyargs or node.kwonlyargs or node.vararg or node.kwarg)
        case ast.FunctionDef():
            return _is_plain(node.name) and node.name not in MODULES and all(map(_is_table, node.decorator_list))
        case ast.Attribute():
            return _is_read(node) and not node.attr.startswith("_") and _has(node, attributes)
        case ast.Assign():
            return all(map(_is_operand, _operands(node.value)))
        case ast.Expr():
            return isinstance(node.value, ast.Call) or isinstance(getattr(node.value, "value", None), str)
        case ast.Call():
            return isinstance(node.func, ast.Name | ast.Attribute)
        case _:
            return True


def _operands(e: ast.expr) -> list[ast.expr]:
    """What one call, operator or view reads."""
    match e:
        case ast.Call():
            return [e.func, *e.args, *(k.value for k in e.keywords)]
        case ast.BinOp():
            return [e.left, e.right]
        case ast.Subscript():
            return [e.value]
        case _:
            return [e]


def _is_operand(e: ast.expr) -> bool:
    match e:
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute():
            return _is_operand(e.value)
        case ast.Subscript():
            return isinstance(e.slice, ast.Constant) and _is_operand(e.value)
        case ast.UnaryOp():
            return _is_operand(e.operand)
        case ast.Tuple():
            return all(map(_is_operand, e.elts))
        case ast.Dict():
            return all(map(_is_operand, e.values))
        case _:
            return False


def _has(node: ast.Attribute, attributes: frozenset[str]) -> bool:
    """Is it an attribute that the printers write of what stands before it?"""
    owner = _text(node.value)
    if owner == "rt":
        from netsor.compilers import runtime

        return node.attr in vars(runtime) and not isinstance(vars(runtime)[node.attr], types.ModuleType)
    if owner == "torch":
        return node.attr in TORCH
    if owner == "math":
        return node.attr in vars(math)
    if owner in ("torch.nn", "torch.nn.functional"):
        return node.attr in NN[owner.rpartition(".")[2]]
    return node.attr in attributes


def _text(node: ast.AST) -> str:
    """A dotted name, '' for anything else."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{_text(node.value)}.{node.attr}"
        case _:
            return ""


def _is_plain(name: str) -> bool:
    return not name.startswith("__")


def _is_read(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _is_table(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _text(node.func) == "rt.table"
