"""Definition A.1's form of a program: every H-var as one function of G-vars and scalars (Definitions B.8 and B.9).

Coordinatewise lines, `at` and `rename` are composed. Sums, maxima, windows, shifts and placed vectors over axes stand
for the unrolled lines and keep their names; so does an H-var whose function would have more than MAX_OPERATIONS
operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

import sympy as sp

from netsor import ir
from netsor.indexing import index_map
from netsor.text.expressions import Writer, normal, number
from netsor.text.notation import index_form, name_text, ref
from netsor.text.printer import Listing

MAX_OPERATIONS = 2000


@dataclass(frozen=True)
class Leaf:
    """A variable with an index per axis: the axis's own name, another one, or an element."""

    var: ir.Var
    items: tuple[str, ...]

    def indexed(self, change: Mapping[str, str]) -> Leaf:
        return Leaf(self.var, tuple(change.get(i, i) for i in self.items))

    def __str__(self) -> str:
        return name_text(self.var.name) + (f"[{', '.join(self.items)}]" if self.items else "")


def formal(p: ir.ProgramLike) -> str:
    """The collapsed program as text: its types, its inputs, one line per remaining variable, its outputs."""
    return "\n".join(_Formal(p).rows()) + "\n"


class _Formal:
    def __init__(self, p: ir.ProgramLike) -> None:
        self.p = p
        self.listing = Listing(p)
        self.order = {line.out: i for i, line in enumerate(p.lines)}
        self.leaves: dict[sp.Symbol, Leaf] = {}
        self.symbols: dict[Leaf, sp.Symbol] = {}
        self.collapsed: dict[ir.Var, sp.Expr] = {}
        self.names: dict[ir.Var, Leaf] = {}

    def rows(self) -> Iterator[str]:
        yield f"program {self.p.name}"
        yield from self.listing.functions.rows()
        for line in self.p.lines:
            text = self.line(line)
            if text:
                yield f"{_rule(line):<7} {text}"
        for o in self.p.outputs:
            scale = "" if o.scale == 1 else f"{number(o.scale)} "
            yield f"output  {o.name} = {scale}{ref(o.readout)} · {self.named(o.vector)} / √n"

    # ------------------------------------------------------------ lines

    def line(self, line: ir.Line) -> str:
        """The line in collapsed form; '' for one that is composed into later lines and has no function of its own."""
        match line:
            case ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data():
                return self.listing.line(line)
            case ir.Nonlin() | ir.Moment():
                return self._coordinatewise(line)
            case ir.IndexLine():
                return self._index(line)
            case ir.MatMul():
                return f"{ref(line.out)} := {ref(line.matrix)} {self.named(line.vector)}"
            case ir.Reduce():
                return f"{ref(line.out)} := {line.op}[{name_text(line.axis.name)}]({self.named(line.of)})"
            case ir.Softmax():
                mask = "" if line.mask is None else f", {self.named(line.mask)}"
                return f"{ref(line.out)} := softmax[{name_text(line.axis.name)}]({self.named(line.of)}{mask})"
            case ir.Trsp():
                return f"{ref(line.out)} := {ref(line.of)}ᵀ"
            case _:
                assert_never(line)

    def _coordinatewise(self, line: ir.Nonlin | ir.Moment) -> str:
        table = {ir.arg(i): self.value(v) for i, v in enumerate(line.args)}
        table |= {ir.param(j): self.value(v) for j, v in enumerate(line.params)}
        expr = normal(line.expr.xreplace(table))
        if isinstance(line, ir.Nonlin) and expr.count_ops() <= MAX_OPERATIONS:
            self.collapsed[line.out] = expr
        body = self.text(expr)
        if isinstance(line, ir.Moment) and line.args:
            return f"{ref(line.out)} := (1/n) Σ_α {body if body.isidentifier() else f'({body})'}"
        return f"{ref(line.out)} := {body}"

    def _index(self, line: ir.IndexForm) -> str:
        """An element or a family by other axes is composed with the function and with the name of its argument."""
        m = index_map(line)
        if m.transposed or m.outside != "never":
            return f"{ref(line.out)} := {index_form(line)}"
        change = {name_text(r.axis.name): str(r.offsets[0]) if r.at is None else name_text(r.at.name) for r in m.reads}
        value = self.value(line.of)
        table = {s: self.symbol(self.leaves[s].indexed(change)) for s in value.free_symbols}
        self.collapsed[line.out] = value.xreplace(table)
        self.names[line.out] = self.leaf(line.of).indexed(change)
        return ""

    # ------------------------------------------------------------ values

    def leaf(self, v: ir.Var) -> Leaf:
        return self.names.get(v) or Leaf(v, tuple(name_text(a.name) for a in v.axes))

    def named(self, v: ir.Var) -> str:
        """The variable by its name, indexed."""
        return str(self.leaf(v))

    def value(self, v: ir.Var) -> sp.Expr:
        """The variable's function of G-vars and scalars."""
        return self.collapsed[v] if v in self.collapsed else self.symbol(self.leaf(v))

    def symbol(self, leaf: Leaf) -> sp.Symbol:
        if leaf not in self.symbols:
            symbol = sp.Symbol(f"v{self.order[leaf.var]:06d}_{len(self.symbols)}", real=True)
            self.symbols[leaf], self.leaves[symbol] = symbol, leaf
        return self.symbols[leaf]

    def text(self, expr: sp.Expr) -> str:
        names = {s: str(self.leaves[s]) for s in sorted(expr.free_symbols, key=lambda s: s.name)}
        return Writer(names, self.listing.functions.text).text(expr)


def _rule(line: ir.Line) -> str:
    """The rule of the paper that makes a line; data are given."""
    match line:
        case ir.InputMatrix():
            return "A"
        case ir.InputVector():
            return "G"
        case ir.InputScalar():
            return "C"
        case ir.Data():
            return ""
        case ir.Trsp():
            return "Trsp"
        case ir.MatMul():
            return "MatMul"
        case ir.Nonlin():
            return "Nonlin"
        case ir.Moment() | ir.Softmax():
            return "Moment"
        case ir.Reduce() | ir.IndexLine():
            return "FOR"
        case _:
            assert_never(line)
