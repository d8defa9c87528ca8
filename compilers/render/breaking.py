"""Long formulas in lines: breaks at + and −, then between factors, outermost first.

The measure of a formula is its width in characters: a letter or sign counts 1, scripts and small matrices 0.7 of what
is in them, upper and lower scripts stand above each other, spaces by their size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

WIDEST = 100.0
SMALL = 0.7
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
_SPACES = {r"\,": 0.35, r"\;": 0.55, r"\ ": 0.5, r"\quad": 2.0, r"\qquad": 4.0, r"\!": 0.0, r"\left": 0.0,
           r"\right": 0.0, r"\displaystyle": 0.0, r"\middle": 0.0}  # fmt: skip
_TRANSPARENT = frozenset((
    r"\mathrm", r"\operatorname", r"\text", r"\mathbf", r"\mathbb", r"\mathcal", r"\bar", r"\mathring", r"\mathop",
    r"\mathit", r"\texttt", r"\mathbin",
))  # fmt: skip
_UNDER = frozenset((r"\sum", r"\mathop", r"\max"))
_NAMED = frozenset((r"\sin", r"\cos", r"\exp", r"\log", r"\max", r"\dim", r"\sqrt", r"\tan", r"\bmod"))


@lru_cache(maxsize=4096)
def tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text))


# ---------------------------------------------------------------- the measure


@lru_cache(maxsize=4096)
def width(text: str) -> float:
    """The width of a formula in characters."""
    return _Measure(tokens(text)).run()


class _Measure:
    def __init__(self, found: tuple[str, ...]) -> None:
        self.found, self.at = found, 0

    def run(self, end: str = "") -> float:
        total = 0.0
        while self.at < len(self.found) and self.found[self.at] != end:
            total += self._scripted()
        self.at += 1
        return total

    def _scripted(self) -> float:
        """A nucleus with its scripts."""
        under = self.found[self.at] in _UNDER
        nucleus, scripts = self._atom(), 0.0
        while self.at < len(self.found) and self.found[self.at] in ("^", "_"):
            self.at += 1
            scripts = max(scripts, SMALL * self._atom())
        return max(nucleus, scripts) if under else nucleus + scripts

    def _atom(self) -> float:
        token = self.found[self.at]
        self.at += 1
        if token == "{":
            return self.run("}")
        if token in _TRANSPARENT:
            return self._atom()
        if token == r"\frac":
            return max(self._atom(), self._atom())
        if token == r"\sqrt":
            return 1 + self._atom()
        if token in (r"\begin", r"\end"):
            return self._environment()
        return self._plain(token)

    def _environment(self) -> float:
        """The widest row of a matrix."""
        self._atom()
        start = self.at
        depth = 1
        while depth:
            depth += {r"\begin": 1, r"\end": -1}.get(self.found[self.at], 0)
            self.at += 1
        rows = "".join(self.found[start : self.at - 1]).split(r"\\")
        self._atom()
        cells = [[width(c.strip()) for c in row.split("&")] for row in rows]
        columns = max(map(len, cells))
        return SMALL * sum(1.5 + max(row[i] for row in cells if len(row) > i) for i in range(columns))

    @staticmethod
    def _plain(token: str) -> float:
        if token in _SPACES:
            return _SPACES[token]
        if token.isspace() or token in ("&", r"\\"):
            return 0.0
        if token in "+-=<" or token in (r"\sim", r"\le", r"\in", r"\cdot", r"\mapsto"):
            return 2.0
        return float(len(token) - 1) if token in _NAMED else 1.0


# ---------------------------------------------------------------- lines


def lines(text: str, first: float = WIDEST, widest: float = WIDEST) -> list[str]:
    """The formula in lines of at most `widest`, the first one of at most `first`, where it has places to break."""
    rows = _fill(text, first, widest, RULES)
    return list(_balanced(rows))


def _fill(text: str, first: float, widest: float, rules: tuple[Callable[[str], list[str]], ...]) -> list[str]:
    if width(text) <= first or not rules:
        return [text]
    rows: list[str] = []
    for piece in rules[0](text):
        limit = first if len(rows) <= 1 else widest
        if rows and width(rows[-1] + piece) <= limit:
            rows[-1] += piece
            continue
        rows += _fill(piece, widest if rows else first, widest, rules[1:])
    return rows


Breaks = Callable[[tuple[str, ...], int], bool]
_CLOSED = {"{": 1, "}": -1, r"\begin": 1, r"\end": -1, r"\langle": 1, r"\rangle": -1}
_BRACKETS = {"[": 1, "]": -1, "(": 1, ")": -1}
_DELIMITED = (r"\left", r"\right", r"\middle")


def _pieces(text: str, breaks: Breaks, depth: int, brackets: int) -> list[str]:
    r"""The formula cut before each place where `breaks` says so, inside `depth` \left and \right and `brackets` [ ]."""
    found, pieces, level, closed, inside = tokens(text), [""], 0, 0, 0
    for i, token in enumerate(found):
        level += {r"\left": 1, r"\right": -1}.get(token, 0)
        closed += _CLOSED.get(token, 0)
        inside += 0 if i and found[i - 1] in _DELIMITED else _BRACKETS.get(token, 0)
        if level <= depth and closed <= 0 and inside <= brackets and pieces[-1].strip() and breaks(found, i):
            pieces.append("")
        pieces[-1] += token
    return pieces


def _conditions(found: tuple[str, ...], i: int) -> bool:
    return found[i] in (r"\quad", r"\qquad")


def _sums(found: tuple[str, ...], i: int) -> bool:
    return found[i] in "+-" and 0 < i < len(found) - 1 and found[i - 1].isspace() and found[i + 1].isspace()


def _factors(found: tuple[str, ...], i: int) -> bool:
    return found[i] in (r"\,", r"\cdot") and found[i - 1] != ","


def _commas(found: tuple[str, ...], i: int) -> bool:
    return found[i].isspace() and found[i - 1] == ","


def _rule(breaks: Breaks, depth: int, brackets: int = 0) -> Callable[[str], list[str]]:
    return lambda text: _pieces(text, breaks, depth, brackets)


RULES = (
    _rule(_conditions, 0),
    *(_rule(breaks, depth) for depth in range(4) for breaks in (_sums, _factors)),
    _rule(_commas, 4, 1), _rule(_commas, 4, 3),
)  # fmt: skip


def _balanced(rows: list[str]) -> Iterator[str]:
    r"""Every line with as many \left as \right; a line that begins inside a product says so."""
    opened = 0
    for row in rows:
        start = r"\left." * opened
        opened += sum({r"\left": 1, r"\right": -1}.get(t, 0) for t in tokens(row))
        text = row.strip()
        times = text.removeprefix(r"\,").removeprefix(r"\cdot").strip()
        text = text if times == text or row is rows[0] else rf"\times {times}"
        yield f"{start}{text}" + r"\right." * opened
