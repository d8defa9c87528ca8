"""Formulas in LaTeX, in the notation of Tensor Programs II: C for second moments, Θ for tangent kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import sympy as sp

from netsor import ir
from netsor.compilers.derive.nodes import Fun, Lin, One
from netsor.compilers.derive.values import Copy, Entry, Sym, Value
from netsor.compilers.render.symbols import PRIME, Names
from netsor.compilers.render.writer import Writer, number_text
from netsor.names import tex

Numbered = dict[Entry, int]


def name_latex(name: str) -> str:
    r"""A program's name: h1 as h^{1}, W1a as \mathrm{W1a}, a trailing bar kept apart."""
    match = re.fullmatch(r"([A-Za-z]+)(\d*)", name)
    if match is None:
        return rf"\mathrm{{{tex(name)}}}"
    letters, digits = match.groups()
    stem = letters if len(letters) == 1 else rf"\mathrm{{{letters}}}"
    return f"{stem}^{{{digits}}}" if digits else stem


def symbol_latex(name: str) -> str:
    """An axis as a symbol: k2 as k_{2}, row′ as row', a number after the prime as an index."""
    stem, prime, number = name.partition(PRIME)
    match = re.fullmatch(r"([A-Za-z]+)_?(\d*)", stem)
    letters, digits = match.groups() if match else (stem, "")
    text = letters if re.fullmatch(r"\w", letters) else rf"\mathrm{{{tex(letters)}}}"
    digits = digits + number
    return text + (f"_{{{digits}}}" if digits else "") + ("'" if prime else "")


class Latex(Writer):
    def __init__(self, names: Names, pair: bool, numbered: Numbered, lines: frozenset[str]) -> None:
        super().__init__(names, pair)
        self.numbered, self.lines = numbered, lines

    def number(self, value: sp.Expr) -> str:
        text = number_text(value)
        return text if re.fullmatch(r"-?[\d.]+", text) else str(sp.latex(value))

    def expression(self, value: sp.Expr) -> str:
        table = {s: re.sub(r"(\d+)$", r"_{\1}", s.name) for s in value.free_symbols}
        return str(sp.latex(value, symbol_names=table, mul_symbol=r"\,"))

    def function(self, expr: sp.Expr, args: list[str]) -> str:
        names = {ir.param(i): a if " " not in a else rf"\left({a}\right)" for i, a in enumerate(args)}
        return str(sp.latex(expr, symbol_names=names))

    def entry(self, entry: Entry, copy: Copy) -> str:
        name = self._entry_name(entry)
        return f"{name}{self._of(copy)}" if entry.space == "input" else name

    def _entry_name(self, entry: Entry) -> str:
        if entry.kind == "aux":
            return name_latex(entry.name)
        of = r",\,".join(dict.fromkeys(self._node(r.node) for r in entry.refs))
        number = self.numbered.get(entry, 1)
        of += rf"\,({number})" if number > 1 else ""
        array = entry.kind[2:]
        trained = rf"_{{{name_latex(array)}}}" if array else ""
        stem = {"K": "C", "T": rf"\Theta{trained}", "M": r"\mu", "S": r"\mathring"}[entry.kind[0]]
        return f"{stem}{{{of}}}" if stem == r"\mathring" else f"{stem}^{{{of}}}"

    def _node(self, node: Any) -> str:
        """A line by its name; sums and functions without one by what they are."""
        if isinstance(node, Lin) and node.label not in self.lines:
            parts = [self._term(c, n) for c, n in node.terms]
            return "+".join(reversed(parts)).replace("+-", "-")
        if isinstance(node, Fun) and node.label not in self.lines:
            table = {a.symbol: self._node(a) for a in node.args}
            return str(sp.latex(node.expr, symbol_names=table))
        return name_latex(getattr(node, "label", "") or node.name)

    def _term(self, c: sp.Expr, node: Any) -> str:
        if isinstance(node, One):
            return str(sp.latex(c))
        return self._node(node) if c == 1 else f"{sp.latex(c)}\\,{self._node(node)}"

    def _of(self, copy: Copy) -> str:
        if not self.pair:
            return ""
        return r"(\bar\xi)" if copy == 2 else r"(\xi)"

    def array(self, name: str, copy: Copy, barred: bool = False) -> str:
        if barred:
            return rf"\bar{{{name_latex(name)}}}" if copy == 2 else name_latex(name)
        return f"{name_latex(name)}{self._of(copy)}"

    def variable(self, name: str) -> str:
        return name_latex(name)

    def symbol(self, s: Sym) -> str:
        return symbol_latex(self.names[s])

    def constant_index(self, value: int) -> str:
        return str(value) if value >= 0 else r"\mathrm{last}" + ("" if value == -1 else f" - {-1 - value}")

    def axis_size(self, axis: str, copy: Copy) -> str:
        mark = "'" if copy == 2 else ""
        return rf"\lvert {symbol_latex(axis)}{mark}\rvert"

    def dimension(self, data: str) -> str:
        return rf"\dim {name_latex(data)}"

    def brackets(self, indices: list[str]) -> str:
        return "[" + ", ".join(indices) + "]"

    def parentheses(self, text: str) -> str:
        return rf"\left({text}\right)"

    def times(self, factors: list[str]) -> str:
        out = factors[0]
        for f in factors[1:]:
            digit = out[-1].isdigit() and f[0].isdigit()
            out += (r" \cdot " if digit else r"\,") + f
        return out

    def beside(self, factors: list[str]) -> str:
        return r"\,".join(factors)

    def total(self, symbol: str, body: str) -> str:
        return rf"\sum_{{{symbol_latex(symbol)}}} {body}"

    def softmax(self, symbol: str, value: str, mask: str | None) -> str:
        condition = "" if mask is None else rf" \;\middle|\; {mask}"
        return rf"\operatorname{{softmax}}_{{{symbol_latex(symbol)}}}\left({value}{condition}\right)"

    def inner(self, left: str, right: str, data: str) -> str:
        return rf"\langle {left}, {right}\rangle / \dim {name_latex(data)}"

    def inside(self, index: str, size: str) -> str:
        return rf"\mathbf{{1}}[0 \le {index} < {size}]"

    def delta(self, left: str, right: str) -> str:
        return rf"\delta_{{{left},\,{right}}}"

    def modulo(self, index: str, size: str) -> str:
        return rf"({index}) \bmod {size}"

    def ceiling(self, text: str, stride: int) -> str:
        return rf"\lceil {self.parentheses(text) if ' ' in text else text} / {stride} \rceil"

    def radii(self, within: bool) -> tuple[str, str]:
        return ("r", "r") if within else ("r", r"\bar r")

    def power(self, base: str, exponent: str) -> str:
        return f"{base}^{{{exponent}}}"

    def radial(self, f: str, laws: list[str], cross: str, theta: str | None) -> str:
        matrix = rf"\left(\begin{{smallmatrix}} {laws[0]} & {cross} \\ \cdot & {laws[1]} \end{{smallmatrix}}\right)"
        mean = rf"\mathop{{\mathbb{{E}}}}_{{(u, v) \sim \mathcal{{N}}(0,\, {matrix})}}\left[{f}\right]"
        return mean if theta is None else rf"\partial_{{{theta}}} {mean}"

    def expectation(self, f: str, variables: list[str], cov: list[Value], means: Sequence[Value | None]) -> str:
        """E over N(mean, covariance matrix)."""
        k = len(variables)
        entries = [self.write(v) for v in cov]
        names = [re.sub(r"(\d+)$", r"_{\1}", v) for v in variables]
        at = _square(entries, k)
        rows = r" \\ ".join(" & ".join(at[i][j] for j in range(k)) for i in range(k))
        matrix = entries[0] if k == 1 else rf"\left(\begin{{smallmatrix}} {rows} \end{{smallmatrix}}\right)"
        shift = [("0" if m is None else self.write(m)) for m in means]
        mean = "0" if all(m is None for m in means) else shift[0] if k == 1 else f"({', '.join(shift)})"
        law = names[0] if k == 1 else f"({', '.join(names)})"
        return rf"\mathop{{\mathbb{{E}}}}_{{{law} \sim \mathcal{{N}}({mean},\, {matrix})}}\left[{f}\right]"


def _square(upper: list[str], k: int) -> list[list[str]]:
    """The symmetric matrix of an upper triangle given row by row."""
    rows = [["" for _ in range(k)] for _ in range(k)]
    entries = iter(upper)
    for i in range(k):
        for j in range(i, k):
            rows[i][j] = rows[j][i] = next(entries)
    return rows
