"""The rules by ATen operation, overloads together."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule: (lifter, *arguments) → what the operation's tensor is in the program."""

    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return add


def near(name: str) -> str:
    """Operations with rules whose names are near."""
    return ", ".join(difflib.get_close_matches(name, sorted(RULES), 3, 0.4))


__all__ = ["RULES", "Rule", "near", "rule"]
