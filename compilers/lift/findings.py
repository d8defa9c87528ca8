"""Findings about a module: code, what, the user's file and line, the module's path, the remedy."""

from __future__ import annotations

import re
from typing import Any

from netsor.errors import Diagnostic, Location, UnsupportedError


def innermost(trace: str) -> Location | None:
    """The last frame of a stack trace that is not torch's."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    mine = [
        (file, int(line))
        for file, line in frames
        if not file.startswith("<") and "/torch/" not in file.replace("\\", "/")
    ]
    return Location(*mine[-1]) if mine else None


def location_of(node: Any) -> Location | None:
    """Where the user's code makes a node."""
    return innermost(node.meta.get("stack_trace") or "")


def path_of(node: Any) -> str:
    """The dotted path of the module that a node belongs to; '' for the module itself."""
    stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    return stack[-1] if stack else ""


def finding(code: str, message: str, hint: str, node: Any = None, severity: str = "error") -> Diagnostic:
    """A Diagnostic at a node of the exported graph."""
    where = path_of(node) if node is not None else ""
    text = f"{where}: {message}" if where else message
    location = location_of(node) if node is not None else None
    return Diagnostic(code, severity, text, location=location, hint=hint)


def refused(code: str, message: str, hint: str, node: Any = None) -> UnsupportedError:
    """The error of a module, or a part of one, that has no limit or no rule."""
    return UnsupportedError(finding(code, message, hint, node))


__all__ = ["finding", "innermost", "location_of", "path_of", "refused"]
