"""From the tokens of one statement to its syntax tree: the LALR parser of grammar.lark and its actions.

The actions run while the parser reduces, so nothing recurses into a stranger's text.
"""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import lark

from netsor.parser import syntax as sx
from netsor.parser.tokens import Source, Token

MAX_INTEGER = 1_000_000
MAX_TAPS = 10_000


class _FaultError(Exception):
    """An error of an action, without the source that it is in."""

    def __init__(self, token: Token, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.parts = (token, code, message, hint)


def parse_statement(source: Source, tokens: list[Token]) -> tuple[Token, Any]:
    """The first token and the statement (see `netsor.parser.syntax`)."""
    parser = _parser().parse_interactive()
    current = tokens[0]
    try:
        for current in tokens:
            parser.feed_token(lark.Token(current.type, current))
        end = tokens[-1]
        current = Token("$END", "", end.line, end.end)
        return tokens[0], parser.feed_eof()  # type: ignore[no-untyped-call]
    except lark.UnexpectedInput as error:
        raise _unexpected(source, current, _expected(error)) from None
    except sx.TooDeepError as error:
        hint = "give parts of it names"
        raise source.error(error.token, "NT005", f"an expression nested more than {sx.MAX_DEPTH} deep", hint) from None
    except _FaultError as error:
        raise source.error(*error.parts) from None


@cache
def _parser() -> lark.Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=True, transformer=_Actions())


def _expected(error: lark.UnexpectedInput) -> set[str]:
    if not isinstance(error, lark.UnexpectedToken):
        return set()
    return set(error.accepts or error.expected or ())


_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "STRING": "a name in quotes", "TRSP": ".T", "PLUS": "+", "MINUS": "-",
    "STAR": "*", "SLASH": "/", "_ASSIGN": ":=", "_DOTS": "..", "_COLON": ":", "_EQUAL": "=", "_COMMA": ",", "_AT": "@",
    "_CARET": "^", "_DOT": ".", "_PRIME": "'", "_BAR": "|", "_LPAR": "(", "_RPAR": ")", "_LSQB": "[", "_RSQB": "]",
    "_LBRACE": "{", "_RBRACE": "}", "REASON": "the reason", "$END": "the end of the line",
}  # fmt: skip


def _unexpected(source: Source, token: Token, expected: set[str]) -> Exception:
    names = sorted(_WORDS.get(e, e.strip("_").lower()) for e in expected)
    hint = f"expected {', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else f"expected {''.join(names)}"
    if token.type == "$END":
        return source.error(token, "NT002", "the statement ends too early", hint)
    return source.error(token, "NT002", f"{token.text!r} does not fit here", hint if 0 < len(names) <= 12 else None)


def _value(token: Any) -> Token:
    found: Token = token.value if isinstance(token, lark.Token) else token
    return found


def _int(token: Token, largest: int = MAX_INTEGER) -> int:
    if not token.text.isdecimal() or int(token.text) > largest:
        raise _FaultError(token, "NT006", f"{token.text} is not a whole number up to {largest}")
    return int(token.text)


def _pairs(parts: list[Any], marks: tuple[str, ...]) -> tuple[tuple[bool, Any], ...]:
    """[sign or None, part, sign, part …] as (marked, part)."""
    found = []
    for sign, part in zip(parts[::2], parts[1::2], strict=True):
        found.append((sign is not None and _value(sign).type in marks, part))
    return tuple(found)


def _start(part: Any) -> Token:
    token: Token = part.token
    return token


class _Actions:
    """One method per rule; terminals come as our tokens inside lark's."""

    # ------------------------------------------------------------ expressions

    def literal(self, c: list[Any]) -> sx.Literal:
        return sx.Literal(_value(c[0]))

    def reference(self, c: list[Any]) -> sx.Reference:
        return sx.Reference(_value(c[0]), c[1])

    def call(self, c: list[Any]) -> sx.Call:
        primes = tuple(p[0] for p in c[2:] if isinstance(p, list))
        args = tuple(a for a in c[2:] if a is not None and not isinstance(a, list))
        return sx.Call(_value(c[0]), c[1], primes, args)

    def prime(self, c: list[Any]) -> list[int | None]:
        return [None if c[0] is None else _int(_value(c[0]), 1000)]

    def items(self, c: list[Any]) -> tuple[Any, ...]:
        return tuple(c)

    def placed(self, c: list[Any]) -> sx.Placed:
        return sx.Placed(_value(c[0]), c[1])

    def strided(self, c: list[Any]) -> sx.Strided:
        stride, axis, _, tap = map(_value, c)
        return sx.Strided(stride, stride, axis, tap)

    def transpose(self, c: list[Any]) -> sx.Transpose:
        return sx.Transpose(_start(c[0]), c[0])

    def matmul(self, c: list[Any]) -> sx.MatMul:
        return sx.MatMul(_start(c[0]), c[0], c[1])

    def power(self, c: list[Any]) -> sx.Power:
        return sx.Power(_start(c[0]), c[0], c[1])

    def negative(self, c: list[Any]) -> sx.Sum:
        return sx.Sum(_value(c[0]), ((True, c[1]),))

    def product(self, c: list[Any]) -> Any:
        if len(c) == 1:
            return c[0]
        return sx.Product(_start(c[0]), _pairs([None, *c], ("SLASH",)))

    def sum(self, c: list[Any]) -> Any:
        if len(c) == 2 and c[0] is None:
            return c[1]
        return sx.Sum(_value(c[0]) if c[0] is not None else _start(c[1]), _pairs(c, ("MINUS",)))

    def array(self, c: list[Any]) -> tuple[Any, ...]:
        return tuple(x for x in c if x is not None)

    # ------------------------------------------------------------ the left side

    def left(self, c: list[Any]) -> sx.Left:
        return sx.Left(_value(c[0]), c[1])

    def left_axes(self, c: list[Any]) -> tuple[Any, ...]:
        return tuple(x for x in c if x is not None)

    def left_item(self, c: list[Any]) -> tuple[Token, sx.Size | None]:
        return _value(c[0]), c[1]

    def size_number(self, c: list[Any]) -> sx.Size:
        _int(_value(c[0]))
        return sx.Size(_value(c[0]))

    def size_of(self, c: list[Any]) -> sx.Size:
        return sx.Size(_value(c[0]))

    def size_change(self, c: list[Any]) -> sx.Size:
        of, sign, token = c[0], _value(c[1]), _value(c[2])
        amount = _int(token)
        if sign.type != "SLASH":
            return sx.Size(of.token, of, amount if sign.type == "MINUS" else -amount, 1)
        if amount == 0:
            raise _FaultError(token, "NT006", "a size is not divided by 0")
        if of.of is not None and of.stride == 1:
            return sx.Size(of.token, of.of, of.minus, amount)
        return sx.Size(of.token, of, 0, amount)

    def type(self, c: list[Any]) -> sx.Type:
        return sx.Type(_value(c[0]), tuple(x for x in c[1:] if x is not None))

    def dimension(self, c: list[Any]) -> tuple[Token, ...]:
        return tuple(_value(x) for x in c if x is not None)

    # ------------------------------------------------------------ clauses

    def integer(self, c: list[Any]) -> int:
        return -_int(_value(c[1])) if c[0] is not None else _int(_value(c[1]))

    def range(self, c: list[Any]) -> range:
        first, last, by = c[0], c[0] if c[1] is None else c[1], 1 if c[2] is None else c[2]
        return range(first, last + 1, max(by, 1))

    def ranges(self, c: list[Any]) -> tuple[bool, Any]:
        return True, c

    def set(self, c: list[Any]) -> tuple[bool, Any]:
        return False, c

    def tap(self, c: list[Any]) -> tuple[int, ...]:
        return tuple(c)

    def where(self, c: list[Any]) -> sx.Where:
        token, (product, taps), mode = _value(c[0]), c[1], c[2]
        count = 1
        for r in taps if product else ():
            count *= len(r)
        if not 0 < count <= MAX_TAPS or len(taps) > MAX_TAPS:
            raise _FaultError(token, "NT006", f"a window has 1 to {MAX_TAPS} taps")
        found = tuple(itertools.product(*taps)) if product else tuple(taps)
        if len({len(t) for t in found}) > 1 or len(set(found)) < len(found):
            raise _FaultError(token, "NT006", "offsets are distinct tuples of one length")
        return sx.Where(token, found, product, "zero" if mode is None else _value(mode).text)

    def over(self, c: list[Any]) -> tuple[Any, ...]:
        return tuple(c)

    # ------------------------------------------------------------ statements

    def program(self, c: list[Any]) -> sx.Program:
        return sx.Program(c[0])

    def label(self, c: list[Any]) -> Token:
        return _value(c[0])

    def width_item(self, c: list[Any]) -> tuple[Any, ...]:
        return _value(c[0]), c[1], None if c[2] is None else _value(c[2])

    def width(self, c: list[Any]) -> sx.Widths:
        return sx.Widths(tuple(c))

    def axis_item(self, c: list[Any]) -> tuple[Any, ...]:
        if c[1] is not None:
            _int(_value(c[1]))
        return _value(c[0]), None if c[1] is None else _value(c[1])

    def axis(self, c: list[Any]) -> sx.Axes:
        return sx.Axes(tuple(c))

    def parameter(self, c: list[Any]) -> sx.Parameters:
        return sx.Parameters(tuple(map(_value, c)))

    def data(self, c: list[Any]) -> sx.Data:
        return sx.Data(c[0], c[1])

    def cov(self, c: list[Any]) -> sx.Cov:
        return sx.Cov(*c)

    def output(self, c: list[Any]) -> sx.Output:
        return sx.Output(*c)

    def gradient(self, c: list[Any]) -> sx.Gradient:
        return sx.Gradient(*c)

    def returns(self, c: list[Any]) -> sx.Returns:
        return sx.Returns(*c)

    def numeric(self, c: list[Any]) -> sx.Numeric:
        return sx.Numeric(_value(c[0]))

    def accept(self, c: list[Any]) -> sx.Accept:
        return sx.Accept(*map(_value, c))

    def names(self, c: list[Any]) -> tuple[Token, ...]:
        return tuple(map(_value, c))

    def fact(self, c: list[Any]) -> tuple[Token, Any]:
        value = c[1]
        return _value(c[0]), sx.Reference(_value(value), None) if isinstance(value, lark.Token) else value

    def function(self, c: list[Any]) -> sx.Function:
        return sx.Function(_value(c[0]), c[1], c[2], tuple(c[3:]))

    def attribute(self, c: list[Any]) -> sx.Attribute:
        token, *rest = c
        axis = _value(rest[0]) if len(rest) == 2 else None
        return sx.Attribute(_value(token), axis, rest[-1] if rest else None)

    def input(self, c: list[Any]) -> sx.Input:
        return sx.Input(c[0], c[1], tuple(c[2:]))

    def line(self, c: list[Any]) -> sx.Line:
        wheres = tuple(x for x in c[3:] if isinstance(x, sx.Where))
        overs = tuple(n for x in c[3:] if isinstance(x, tuple) for n in x)
        return sx.Line(c[0], c[1], c[2], wheres, overs)
