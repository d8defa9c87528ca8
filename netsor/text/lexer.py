"""Listings for Pygments, which asks for this lexer by the name `netsor` (entry point `pygments.lexers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace

from netsor.functions import builtin_names
from netsor.parser.tokens import ATTRIBUTES, STATEMENTS

_CLAUSES = ("where", "in", "by", "wrap", "drop", "over", "scale", "parity", "growth", "kinks")
_NAME = r"`[^`\n]+`|[^\W\d]\w*"


class NetsorLexer(RegexLexer):
    """Statements, types, attributes, clauses and functions of a listing; colours only, no errors."""

    name = "netsor"
    aliases: ClassVar[Sequence[str]] = ["netsor"]
    filenames: ClassVar[Sequence[str]] = ["*.netsor"]
    url = ""

    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"#.*", Comment.Single),
            (
                r"(accept)(\s+)(NT\w*)(\s+)(because)(\s+)(.*)",
                bygroups(Keyword, Whitespace, Name.Label, Whitespace, Keyword, Whitespace, String),
            ),
            (rf"({'|'.join(sorted(STATEMENTS))})\b(?!\s*(?::|\[))", Keyword.Declaration),
            (rf"({_NAME})(\s*)(:=)", bygroups(Name.Variable, Whitespace, Operator)),
            (
                rf"({_NAME})(\s*)(:)(\s*)([AGHCX])\b",
                bygroups(Name.Variable, Whitespace, Punctuation, Whitespace, Keyword.Type),
            ),
            (r"(:)(\s*)([AGHCX])\b", bygroups(Punctuation, Whitespace, Keyword.Type)),
            (words(tuple(sorted(ATTRIBUTES)), prefix=r"\b", suffix=r"\b(?=\s|$)"), Keyword.Pseudo),
            (words(_CLAUSES, prefix=r"\b", suffix=r"\b(?=\s|$)"), Keyword),
            (words(tuple(builtin_names()), prefix=r"\b", suffix=r"(?=[(\['′])"), Name.Builtin),
            (r'"(?:[^"\\\n]|\\.)*"', String),
            (r"(?:[0-9]+(?:\.(?!\.)[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", Number),
            (r"\.T\b", Operator),
            (_NAME, Name),
            (r":=|\.\.|\*\*|[-+*/^@=·−]", Operator),
            (r"[()\[\]{},:.|'′]", Punctuation),
            (r".", Text),
        ]
    }
