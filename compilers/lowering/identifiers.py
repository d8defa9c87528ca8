"""Text of a program in generated code: identifiers, and strings and comments that hold any text.

A name of the program becomes Python here and nowhere else. Everything else of a program's text is a string.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import keyword
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterator

from torch import Tensor

from netsor.compilers.derive.outputs import OUTPUTS
from netsor.compilers.lowering.printing.lines import WIDTH
from netsor.functions import Function
from netsor.names import shown

Call = Callable[..., Tensor]  # a numeric function
OWN = frozenset({
    "math", "torch", "rt", "netsor", "runtime", "PROGRAM", "INPUTS", "GET", "SOURCE", "NUMERIC", "each", "pairs",
    *OUTPUTS, "kernel", "data", "a", "b", "get", "out", "shorter", "terms", "x1", "x2", "z", "self", "constants",
    "results", "values", "rows", "cols",
})  # fmt: skip
"""What a generated module calls its own things; besides these the arguments z0, z1, …, c0, … and a0, … of functions."""
RESERVED = OWN | set(keyword.kwlist) | set(keyword.softkwlist) | set(dir(builtins))
_ARGUMENT = re.compile(r"[acz]\d+")


class Identifiers:
    """The identifiers of one generated text: each key has one, no two keys have the same."""

    def __init__(self) -> None:
        self._of: dict[Hashable, str] = {}
        self._taken: set[str] = set()

    def of(self, key: Hashable, wanted: str) -> str:
        """The identifier of what `key` stands for: `wanted` where that is one and free, else something like it."""
        if key not in self._of:
            name = next(n for n in _candidates(identifier(wanted)) if n not in self._taken)
            self._taken.add(name)
            self._of[key] = name
        return self._of[key]


def _candidates(stem: str) -> Iterator[str]:
    """The stem, with an underscore when it is the module's or Python's, and numbered."""
    first = f"{stem}_" if stem in RESERVED or _ARGUMENT.fullmatch(stem) else stem
    return itertools.chain((first,), (f"{stem}_{k}" for k in itertools.count(2)))


def identifier(text: str) -> str:
    """The text as Python reads an identifier (NFKC), an underscore for what it cannot hold, one at most in front."""
    plain = unicodedata.normalize("NFKC", text)
    stem = "".join(c if ("a" + c).isidentifier() else "_" for c in plain)
    stem = re.sub(r"^_+", "_", unicodedata.normalize("NFKC", stem))
    if not stem.strip("_"):
        return "_0"
    return stem if stem.isidentifier() else f"_{stem}"


class Numeric:
    """The callables of numeric functions by the identifiers that a text calls them by."""

    def __init__(self, identifiers: Identifiers | None = None) -> None:
        self.identifiers = identifiers or Identifiers()
        self.found: dict[str, Call] = {}

    def name(self, function: Function) -> str:
        """What a text calls a numeric function."""
        assert function.torch is not None
        name = self.identifiers.of(("numeric", function.torch), function.name.replace("'", "_prime"))
        self.found[name] = function.torch
        return name


# ---------------------------------------------------------------- strings


def literal(text: str) -> str:
    """The literal of a text of several lines, a line each where that reads back as the text."""
    return _triple(text, "\\\n")


def docstring(text: str) -> str:
    """The literal of a text of one line, in three quotes where that reads back as the text."""
    return _triple(text, "")


def _folded(row: str) -> str:
    """A row of a literal, continued behind a backslash at spaces where it is longer than a line may be."""
    out, rest = "", row
    while len(rest) > WIDTH and (cut := rest.rfind(" ", 0, WIDTH - 1) + 1):
        out, rest = f"{out}{rest[:cut]}\\\n", rest[cut:]
    return out + rest


def _triple(text: str, start: str) -> str:
    rows = [shown(row.replace("\\", "\\\\")).replace('"""', r"\"\"\"") for row in text.split("\n")]
    found = f'"""{start}' + "\n".join(map(_folded, rows)) + '"""'
    try:
        same = ast.literal_eval(found) == text
    except (SyntaxError, ValueError):
        same = False
    return found if same else repr(text)
