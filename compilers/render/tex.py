"""Formulas in LaTeX, in the notation of Tensor Programs II: C for second moments, Θ for tangent kernels."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

import sympy as sp

from netsor import ir, markup
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.entries.values import Access, Add, Entry, Expect, Mul, Num, Sum, Value
from netsor.compilers.render.breaking import width
from netsor.compilers.render.factors import number_text
from netsor.compilers.render.naming import Symbols, name_latex, symbol_latex
from netsor.compilers.render.symbols import Names
from netsor.compilers.render.transform import Transform, v_transform
from netsor.compilers.render.writer import Writer

LONGEST_PART = 24.0  # of an entry of a covariance matrix, in characters
_LETTER = re.compile(r"[A-Za-z]\d*")


class Latex(Writer):
    def __init__(self, names: Names, pair: bool, symbols: Symbols) -> None:
        super().__init__(names, pair)
        self.symbols = symbols
        self._asides: list[str] = []

    def asides(self) -> list[str]:
        return self._asides

    def _aside(self, v: Value) -> str:
        """The value, or κ_k where it is long, with the definition beside the equation."""
        text = self.write(v)
        if isinstance(v, Access | Num) or width(text) <= LONGEST_PART:
            return text
        name = self.symbols.part()
        self._asides.append(f"{name} = {text}")
        return name

    def number(self, value: sp.Expr) -> str:
        text = number_text(value)
        if re.fullmatch(r"-?[\d.]+", text):
            return text
        return str(sp.latex(value if text == str(value) else sp.Float(text)))

    def expression(self, value: sp.Expr) -> str:
        table = {s: re.sub(r"(\d+)$", r"_{\1}", s.name) if _LETTER.fullmatch(s.name) else s.name
                 for s in value.free_symbols}  # fmt: skip
        return str(sp.latex(value, symbol_names=table, mul_symbol=r"\,"))

    def function(self, expr: sp.Expr, args: Sequence[Value]) -> str:
        return str(sp.latex(expr, symbol_names={ir.param(i): self._argument(a) for i, a in enumerate(args)}))

    def _argument(self, v: Value) -> str:
        text = self.write(v)
        return self.parentheses(text) if isinstance(v, Add | Mul | Sum) else text

    def loose(self, function: sp.Expr, text: str) -> bool:
        return bool(function.is_Add)

    def entry(self, entry: Entry, copy: Copy) -> str:
        name = self.symbols.entry(entry)
        return name + _argument(copy) if entry.space == "input" else name

    def array(self, name: str, copy: Copy, barred: bool = False) -> str:
        if barred:
            return rf"\bar{{{name_latex(name)}}}" if copy is Copy.SECOND else name_latex(name)
        return name_latex(name) + _argument(copy)

    def variable(self, name: str) -> str:
        return name_latex(name)

    def symbol(self, s: Sym) -> str:
        return symbol_latex(self.names[s])

    def constant_index(self, value: int) -> str:
        return str(value) if value >= 0 else r"\mathrm{last}" + ("" if value == -1 else f" - {-1 - value}")

    def axis_size(self, axis: str, copy: Copy) -> str:
        mark = "'" if copy is Copy.SECOND else ""
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
        return rf"({index}) \mathbin{{\mathrm{{mod}}}} {size}"

    def ceiling(self, text: str, stride: int) -> str:
        return rf"\lceil {self.parentheses(text) if ' - ' in text or ' + ' in text else text} / {stride} \rceil"

    def radii(self, radius: str, within: bool) -> tuple[str, str]:
        return (radius, radius) if within else (radius, rf"\bar {radius}")

    def power(self, base: str, exponent: str) -> str:
        return f"{base}^{{{exponent}}}"

    def radial(self, f: str, variables: list[str], laws: list[Value], cross: Value, theta: Value | None) -> str:
        one, two, both = (self._aside(v) for v in (*laws, cross))
        matrix = rf"\left(\begin{{smallmatrix}} {one} & {both} \\ \cdot & {two} \end{{smallmatrix}}\right)"
        law = rf"({', '.join(variables)}) \sim \mathcal{{N}}(0,\, {matrix})"
        mean = rf"\mathop{{\mathbb{{E}}}}_{{{law}}}\left[{f}\right]"
        return mean if theta is None else rf"\partial_{{{self._aside(theta)}}} {mean}"

    def _expectation(self, v: Expect) -> str:
        found = v_transform(v)
        return super()._expectation(v) if found is None else self.transform(found)

    def expectation(self, f: str, variables: list[str], cov: list[Value], means: Sequence[Value | None]) -> str:
        """E over N(mean, covariance matrix)."""
        k = len(variables)
        entries = [self._aside(v) for v in cov]
        names = [re.sub(r"(\d+)$", r"_{\1}", v) for v in variables]
        at = _square(entries, k)
        rows = r" \\ ".join(" & ".join(at[i][j] for j in range(k)) for i in range(k))
        matrix = entries[0] if k == 1 else rf"\left(\begin{{smallmatrix}} {rows} \end{{smallmatrix}}\right)"
        shift = [("0" if m is None else self._aside(m)) for m in means]
        mean = "0" if all(m is None for m in means) else shift[0] if k == 1 else f"({', '.join(shift)})"
        law = names[0] if k == 1 else f"({', '.join(names)})"
        return rf"\mathop{{\mathbb{{E}}}}_{{{law} \sim \mathcal{{N}}({mean},\, {matrix})}}\left[{f}\right]"

    def transform(self, t: Transform) -> str:
        """V_φ(C) at the indices of C."""
        entry = t.kernel.entry
        factor = [] if t.factor == 1 else [self.number(t.factor)]
        inside = self.times([*factor, self.symbols.entry(entry)])
        argument = _argument(t.kernel.copy) if entry.space == "input" else ""
        return rf"\mathrm{{V}}_{{{head_latex(t.f)}}}({inside}){argument}{self.indexed(t.kernel.idx)}"

    def where(self, tap: Sym, offsets: list[tuple[int, ...]]) -> str:
        return rf"{self.symbol(tap)} \in {offsets_latex(offsets)}"


def _argument(copy: Copy) -> str:
    """The input that a quantity of one input is of."""
    return {Copy.NONE: "", Copy.SECOND: r"(\bar\xi)"}.get(copy, r"(\xi)")


def head_latex(f: sp.Expr) -> str:
    """The name of φ in φ(z)."""
    spec = getattr(f.func, "spec", None)
    if spec is None:
        return rf"\mathrm{{{markup.math(f.func.__name__)}}}"
    if spec.abstract:
        return str(spec.latex)
    stem = spec.name.rstrip("'")
    return rf"\mathrm{{{markup.math(stem)}}}" + "'" * (len(spec.name) - len(stem))


def offsets_latex(offsets: list[tuple[int, ...]]) -> str:
    """A set of positions: a product of ranges where it is one."""
    columns = [sorted({o[i] for o in offsets}) for i in range(len(offsets[0]))]
    if len(offsets) == math.prod(map(len, columns)) == len(set(offsets)):
        return r" \times ".join(map(_range, columns))
    items = [str(o[0]) if len(o) == 1 else f"({', '.join(map(str, o))})" for o in offsets]
    return rf"\{{{', '.join(items)}\}}"


def _range(values: list[int]) -> str:
    steps = {b - a for a, b in itertools.pairwise(values)}
    shown = [values[0], values[1], r"\dots", values[-1]] if len(values) > 4 and len(steps) == 1 else values
    return rf"\{{{', '.join(map(str, shown))}\}}"


def _square(upper: list[str], k: int) -> list[list[str]]:
    """The symmetric matrix of an upper triangle given row by row."""
    rows = [["" for _ in range(k)] for _ in range(k)]
    entries = iter(upper)
    for i in range(k):
        for j in range(i, k):
            rows[i][j] = rows[j][i] = next(entries)
    return rows
