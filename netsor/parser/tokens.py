"""A listing's text as logical lines of tokens.

No word is reserved. A word is a statement's keyword at the start of a line unless `:=`, `:` or `[` follows it, an
attribute after a declaration's type, and a clause right after an operand; everywhere else it is a name, and in
backquotes it always is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from netsor.errors import Location, NetsorError, ParseError

STATEMENTS = frozenset({
    "program", "width", "axis", "parameter", "data", "cov", "output", "gradient", "returns", "function", "numeric",
    "accept",
})  # fmt: skip
ATTRIBUTES = frozenset({
    "mean", "var", "multiplier", "fan_in", "limit", "axis_cov", "trainable", "frozen", "readout", "per_sample",
})  # fmt: skip
MAX_NESTING = 40
MAX_TOKENS = 20_000
MAX_DIGITS = 400
MAX_ERRORS = 100
MAX_WORDS = 300_000  # of a listing

_SYMBOLS = {
    ":=": "_ASSIGN", "..": "_DOTS", ":": "_COLON", "=": "_EQUAL", ",": "_COMMA", "@": "_AT", "+": "PLUS", "-": "MINUS",
    "**": "_CARET", "*": "STAR", "/": "SLASH", "^": "_CARET", "(": "_LPAR", ")": "_RPAR", "[": "_LSQB", "]": "_RSQB",
    "{": "_LBRACE", "}": "_RBRACE", ".": "_DOT", "'": "_PRIME", "|": "_BAR", "·": "_DOT", "−": "MINUS", "′": "_PRIME",
}  # fmt: skip
_KEPT = {
    "wrap", "drop", "parity", "growth", "kinks", "trainable", "frozen", "readout", "per_sample", "mean", "var",
    "multiplier", "fan_in", "limit", "axis_cov",
}  # fmt: skip
_SPACE = re.compile(r"[ \t\r\f\v\u00a0]+|#[^\n]*")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.(?!\.)[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUOTED = re.compile(r"`([^`\n]+)`")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_ACCEPT = re.compile(r"\s*(accept)\s+(NT\w*)\s+(because)\s+(\S.*?)\s*")
_NAMES = re.compile(r"`[^`\n]+`|[^\W\d]\w*")
_DEFINES = re.compile(r"\s*(?:`[^`\n]+`|[^\W\d]\w*)\s*(?:\[[^\]]*\]\s*)?(?::=|:\s*[A-Z]\s*(?:\W|$))")
_KEYED = r"\s*(?:{})\s+(?:[^\W\d]|[\"`])"
_BEGINS = re.compile(f"{_DEFINES.pattern}|{_KEYED.format('|'.join(sorted(STATEMENTS)))}")
_ENDS_BRACKETS = re.compile(f"{_DEFINES.pattern}|{_KEYED.format('|'.join(sorted(STATEMENTS - {'data'})))}")
_OPEN, _CLOSE = "([{", ")]}"
_OPERAND_END = frozenset({"NAME", "NUMBER", "_RPAR", "_RSQB", "TRSP", "_RBRACE"})
_VALUE_END = _OPERAND_END | {"TRAINABLE", "FROZEN", "READOUT", "PER_SAMPLE"}  # what an attribute may follow
_BRACKETS = {"_LPAR": 1, "_LSQB": 1, "_LBRACE": 1, "_RPAR": -1, "_RSQB": -1, "_RBRACE": -1}


@dataclass(frozen=True)
class Token:
    """A terminal of the grammar, its text and its place (1-based)."""

    type: str
    text: str
    line: int
    column: int

    @property
    def end(self) -> int:
        return self.column + len(self.text)


class Source:
    """The text being read; makes locations, and collects errors and the names of lines that could not be read."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.rows = text.split("\n")
        self.errors: list[NetsorError] = []
        self.words = 0
        self.lost: set[str] = set()  # names whose line is wrong, and undefined names: reported once

    @property
    def full(self) -> bool:
        """Enough errors for one reading."""
        return len(self.errors) >= MAX_ERRORS

    def lose(self, row: int) -> None:
        """Line `row` is wrong: what it would have defined is unknown, which is no second error."""
        found = [name.strip("`") for name in _NAMES.findall(self.rows[row - 1])]
        several = bool(found) and found[0] in STATEMENTS and not _DEFINES.match(self.rows[row - 1])
        self.lost.update(found if several else found[:1])

    def location(self, line: int, column: int, end: int | None = None) -> Location:
        row = self.rows[line - 1].rstrip("\r") if 0 < line <= len(self.rows) else ""
        return Location(self.file, line, column, end, row)

    def at(self, token: Token) -> Location:
        return self.location(token.line, token.column, token.end)

    def error(self, token: Token, code: str, message: str, hint: str | None = None) -> ParseError:
        return ParseError(message, code=code, location=self.at(token), hint=hint)


class _LostError(Exception):
    """A statement that ends in an error, and the row at which reading goes on."""

    def __init__(self, error: ParseError, row: int) -> None:
        super().__init__(str(error))
        self.error, self.row = error, row


def logical_lines(source: Source) -> Iterator[list[Token]]:
    """The statements' tokens; a line goes on while a bracket is open, and after an error with the next statement."""
    row = 1
    while row <= len(source.rows) and not source.full:
        try:
            tokens, after = _statement(source, row)
        except _LostError as lost:
            source.errors.append(lost.error)
            source.lose(row)
            row = lost.row
            continue
        row = after
        source.words += len(tokens)
        if source.words > MAX_WORDS:
            source.errors.append(source.error(tokens[0], "NT005", f"a listing of more than {MAX_WORDS} words"))
            return
        if tokens:
            yield _classified(source, tokens)


def _statement(source: Source, start: int) -> tuple[list[Token], int]:
    """The tokens of the statement that begins in a row, and the row behind it."""
    current: list[Token] = []
    opened: list[Token] = []
    for number in range(start, len(source.rows) + 1):
        if opened and _ENDS_BRACKETS.match(source.rows[number - 1]):
            break
        try:
            _take(source, number, current, opened)
        except ParseError as error:
            raise _LostError(error, _next_start(source, start + 1) if number > start else number + 1) from None
        if not opened:
            return current, number + 1
    unclosed = source.error(opened[-1], "NT003", f"'{opened[-1].text}' is never closed")
    raise _LostError(unclosed, _next_start(source, start + 1))


def _take(source: Source, number: int, current: list[Token], opened: list[Token]) -> None:
    """Add the tokens of a row."""
    for token in _scan(source, number):
        _track(source, token, opened)
        current.append(token)
        if len(current) > MAX_TOKENS:
            raise source.error(token, "NT005", f"a statement of more than {MAX_TOKENS} words", "give parts of it names")


def _next_start(source: Source, row: int) -> int:
    """The first row from this one on that begins like a statement."""
    while row <= len(source.rows) and not _BEGINS.match(source.rows[row - 1]):
        row += 1
    return row


def _track(source: Source, token: Token, opened: list[Token]) -> None:
    if token.type not in _BRACKETS:
        return
    if token.text in _OPEN:
        opened.append(token)
        if len(opened) > MAX_NESTING:
            raise source.error(
                token, "NT005", f"brackets nested more than {MAX_NESTING} deep", "give parts of it names"
            )
    elif token.text in _CLOSE:
        if not opened or _OPEN.index(opened[-1].text) != _CLOSE.index(token.text):
            raise source.error(token, "NT003", f"'{token.text}' closes nothing")
        opened.pop()


def _scan(source: Source, number: int) -> Iterator[Token]:
    """The tokens of one row."""
    row, position = source.rows[number - 1], 0
    accepted = _ACCEPT.fullmatch(row)
    if accepted is not None:  # the reason is the rest of the line, as it stands
        for group, kind in enumerate(("WORD", "WORD", "WORD", "REASON"), 1):
            yield _checked(source, Token(kind, accepted[group], number, accepted.start(group) + 1))
        return
    while position < len(row):
        space = _SPACE.match(row, position)
        if space is not None:
            position = space.end()
            continue
        token, position = _next(source, number, row, position)
        yield token


def _next(source: Source, number: int, row: str, position: int) -> tuple[Token, int]:
    column = position + 1
    if _is_transpose(row, position):
        return Token("TRSP", ".T", number, column), position + 2
    for kind, pattern in (("NUMBER", _NUMBER), ("NAME", _QUOTED), ("STRING", _STRING)):
        found = pattern.match(row, position)
        if found is not None:
            token = Token(kind, found[0], number, column)
            return _checked(source, token), found.end()
    for length in (2, 1):
        text = row[position : position + length]
        if text in _SYMBOLS:
            return Token(_SYMBOLS[text], text, number, column), position + length
    if not text.isidentifier():
        raise source.error(Token("", text, number, column), "NT001", f"the character {text!r} means nothing here")
    end = position + 1
    while _continues(row[end : end + 1]):
        end += 1
    return Token("WORD", row[position:end], number, column), end


def _is_transpose(row: str, position: int) -> bool:
    """`.T` right after an operand; with a space before it, T is a name."""
    touches = position > 0 and not row[position - 1].isspace()
    return touches and row.startswith(".T", position) and not _continues(row[position + 2 : position + 3])


def _continues(character: str) -> bool:
    return bool(character) and ("a" + character).isidentifier()


def _checked(source: Source, token: Token) -> Token:
    """A number literal of bounded length and exponent; a name in quotes whose characters print."""
    if token.type != "NUMBER":
        odd = next((c for c in token.text if not c.isprintable()), None)
        if odd is not None:
            raise source.error(token, "NT001", f"{odd!r} does not print: no name holds it")
        return token
    mantissa, _, exponent = token.text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > MAX_DIGITS:
        raise source.error(token, "NT005", f"a number of more than {MAX_DIGITS} digits")
    return token


# ---------------------------------------------------------------- words


def _classified(source: Source, tokens: list[Token]) -> list[Token]:
    """Words become keywords where the context says so, else names."""
    first, follower = tokens[0], tokens[1].type if len(tokens) > 1 else ""
    if first.type == "WORD" and first.text in STATEMENTS and follower not in ("_ASSIGN", "_COLON", "_LSQB"):
        return [_keyword(first), *_clauses(tokens[1:], _CLAUSES.get(first.text, {}))]
    kinds = [t.type for t in tokens]
    if "_ASSIGN" in kinds:
        return _clauses(tokens, _CLAUSES["line"])
    return _attributes(tokens)


_CLAUSES: dict[str, dict[str, frozenset[str]]] = {
    "accept": {"because": frozenset()},
    "output": {"scale": frozenset()},
    "function": {"parity": frozenset(), "growth": frozenset(), "kinks": frozenset()},
    "line": {"where": frozenset({"in", "by", "wrap", "drop"}), "over": frozenset()},
}


def _name(token: Token) -> Token:
    return Token("NAME", token.text, token.line, token.column) if token.type == "WORD" else token


def _keyword(token: Token) -> Token:
    kind = token.text.upper() if token.text in _KEPT else f"_{token.text.upper()}"
    return Token(kind, token.text, token.line, token.column)


def _clauses(tokens: list[Token], clauses: dict[str, frozenset[str]]) -> list[Token]:
    """A word after an operand outside brackets is a clause, or one of the words that the last clause takes."""
    out: list[Token] = []
    more: frozenset[str] = frozenset()
    depth = 0
    for token in tokens:
        depth += _BRACKETS.get(token.type, 0)
        after = bool(out) and out[-1].type in _OPERAND_END and depth == 0
        if token.type != "WORD" or not after or token.text not in (clauses.keys() | more):
            out.append(_name(token))
            continue
        more = clauses.get(token.text, more)
        out.append(_keyword(token))
    return out


def _attributes(tokens: list[Token]) -> list[Token]:
    """After the type of a declaration, words outside brackets that name attributes are attributes."""
    out: list[Token] = []
    depth, typed = 0, False
    for token in tokens:
        depth += _BRACKETS.get(token.type, 0)
        attribute = token.type == "WORD" and typed and depth == 0 and token.text in ATTRIBUTES
        out.append(_keyword(token) if attribute and out[-1].type in _VALUE_END else _name(token))
        typed = typed or (token.type == "_COLON" and depth == 0)
    return out
