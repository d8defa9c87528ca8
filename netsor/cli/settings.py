"""`--set name=value`: numbers, strings, lists, dicts, true, false and none; `--param name=number`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from netsor.cli.problems import UsageError

Settings = Mapping[str, Any]
_WORDS = {"true": True, "false": False, "none": None}


def parse(items: Iterable[str]) -> dict[str, Any]:
    """The arguments of several `name=value`."""
    found: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise UsageError(f"--set takes name=value, got {item!r}", "for example --set depth=4")
        found[name] = value(name, text.strip())
    return found


def numbers(items: Iterable[str]) -> dict[str, float]:
    """The values of several `--param name=value`."""
    found: dict[str, float] = {}
    for item in items:
        name, _, text = item.rpartition("=")
        try:
            found[name] = float(text)
        except ValueError:
            raise UsageError(f"--param takes name=number, got {item!r}", "for example --param s=1.5") from None
    return found


def value(name: str, text: str) -> Any:
    """A value; a bare word is a string."""
    try:
        tree = _Words().visit(ast.parse(text, mode="eval"))
        return ast.literal_eval(tree)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(
            f"--set {name}={text}: the value is not a number, string, list, true, false or none",
            'for example --set var_w=2.0, --set phi=relu, --set \'phi=["relu", "erf"]\'',
        ) from None


class _Words(ast.NodeTransformer):
    """Bare words as constants."""

    def visit_Name(self, node: ast.Name) -> ast.Constant:
        return ast.copy_location(ast.Constant(_WORDS.get(node.id.lower(), node.id)), node)


def call(name: str, function: Callable[..., Any], settings: Settings) -> Any:
    """function(**settings), after a look at what it takes."""
    signature = inspect.signature(function)
    try:
        signature.bind(**settings)
    except TypeError:
        raise UsageError(f"{name} {_mismatch(signature, settings)}", f"it takes {_arguments(signature)}") from None
    return function(**settings)


def _mismatch(signature: inspect.Signature, settings: Settings) -> str:
    unknown = [s for s in settings if s not in signature.parameters]
    if unknown:
        return f"has no argument {', '.join(unknown)}"
    required = [p.name for p in signature.parameters.values() if p.default is p.empty and p.name not in settings]
    return f"needs --set {' --set '.join(f'{r}=…' for r in required)}"


def _arguments(signature: inspect.Signature) -> str:
    return ", ".join(
        p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in signature.parameters.values()
    ) or "no arguments"  # fmt: skip
