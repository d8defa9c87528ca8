"""Formulas in plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.entries.values import Entry, Value
from netsor.compilers.render.factors import number_text
from netsor.compilers.render.writer import Writer
from netsor.text.notation import taps_text


def entry_text(entry: Entry) -> str:
    """Tangent entries are written Θ."""
    return "Θ" + entry.name[1:] if entry.kind.letter == "T" else entry.name


class Text(Writer):
    def number(self, value: sp.Expr) -> str:
        return number_text(value)

    def expression(self, value: sp.Expr) -> str:
        return re.sub(r"\*\*", "^", str(value)).replace("*", "·")

    def function(self, expr: sp.Expr, args: Sequence[Value]) -> str:
        texts = map(self.write, args)
        table = {ir.param(i): sp.Symbol(a if _atomic(a) else f"({a})") for i, a in enumerate(texts)}
        return self.expression(expr.xreplace(table))

    def loose(self, function: sp.Expr, text: str) -> bool:
        return " " in text

    def entry(self, entry: Entry, copy: Copy) -> str:
        name = entry_text(entry)
        return f"{name}{self._of(copy)}" if entry.space == "input" else name

    def _of(self, copy: Copy) -> str:
        if not self.pair or copy is Copy.NONE:
            return ""
        return "(ξ̄)" if copy is Copy.SECOND else "(ξ)"

    def array(self, name: str, copy: Copy, barred: bool = False) -> str:
        if barred:
            return f"{name}̄" if copy is Copy.SECOND else name
        return f"{name}{self._of(copy)}"

    def variable(self, name: str) -> str:
        return name

    def symbol(self, s: Sym) -> str:
        return self.names[s]

    def constant_index(self, value: int) -> str:
        return str(value) if value >= 0 else "last" if value == -1 else f"last - {-1 - value}"

    def axis_size(self, axis: str, copy: Copy) -> str:
        return f"|{axis}{'′' if copy is Copy.SECOND else ''}|"

    def dimension(self, data: str) -> str:
        return f"dim({data})"

    def brackets(self, indices: list[str]) -> str:
        return f"[{', '.join(indices)}]"

    def parentheses(self, text: str) -> str:
        return f"({text})"

    def times(self, factors: list[str]) -> str:
        return "·".join(factors)

    def beside(self, factors: list[str]) -> str:
        return " ".join(factors)

    def total(self, symbol: str, body: str) -> str:
        return f"Σ_{symbol} {body}"

    def softmax(self, symbol: str, value: str, mask: str | None) -> str:
        return f"softmax_{symbol}({value}{'' if mask is None else f' where {mask}'})"

    def inner(self, left: str, right: str, data: str) -> str:
        return f"⟨{left}, {right}⟩/dim({data})"

    def inside(self, index: str, size: str) -> str:
        return f"[0 ≤ {index} < {size}]"

    def delta(self, left: str, right: str) -> str:
        return f"δ({left}, {right})"

    def modulo(self, index: str, size: str) -> str:
        return f"({index}) mod {size}"

    def ceiling(self, text: str, stride: int) -> str:
        return f"⌈{self.parentheses(text) if ' ' in text else text}/{stride}⌉"

    def radii(self, radius: str, within: bool) -> tuple[str, str]:
        return (radius, radius) if within else (radius, f"{radius}̄")

    def power(self, base: str, exponent: str) -> str:
        return f"{base}^{exponent}"

    def asides(self) -> list[str]:
        return []

    def radial(self, f: str, variables: list[str], laws: list[Value], cross: Value, theta: Value | None) -> str:
        """E[F r^-a](Cov u, Cov v, Cov(u, v)), r² = ‖u‖²/B + ε; ∂_Θ is the derivative in the direction of Θ."""
        mean = f"E[{f}]({'; '.join(map(self.write, [*laws, cross]))})"
        return mean if theta is None else f"∂_{{{self.write(theta)}}} {mean}"

    def where(self, tap: Sym, offsets: list[tuple[int, ...]]) -> str:
        return f"{self.symbol(tap)} in {taps_text(offsets)}"

    def expectation(self, f: str, variables: list[str], cov: list[Value], means: Sequence[Value | None]) -> str:
        """E[f(u)](Var u), E[f(u) g(v)](Var u, Var v, Cov), E[F](covariance matrix); `; means` when not zero."""
        entries = [self.write(k) for k in cov]
        if len(variables) == 2:
            entries = [entries[0], entries[2], entries[1]]
        centres = ["0" if m is None else self.write(m) for m in means]
        shift = "" if all(m is None for m in means) else f"; mean {', '.join(centres)}"
        return f"E[{f}]({', '.join(entries)}{shift})"


def _atomic(text: str) -> bool:
    return re.fullmatch(r"[\w′]+(\(ξ̄?\))?(\[[^\[\]]*\])?|\|[\w′]+\||⌈.*⌉", text) is not None
