"""The LaTeX symbol of every entry of a recursion: one each, unique by construction.

An entry is written by its variables: C for second moments, Θ for tangent kernels, μ for means, a ring for scalars. A
variable that the program names has that name; another is what it is made of where that is short, else ζ₁, ζ₂, …,
which `Symbols.notes` defines. Entries that would come out alike are numbered.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import assert_never

import sympy as sp

from netsor import ir, markup
from netsor.compilers.derive.entries.labels import is_named, place, reading
from netsor.compilers.derive.entries.values import PART, SCALAR, SECOND_MOMENT, Entry
from netsor.compilers.derive.nodes import (
    AnyNode,
    Atom,
    DataNode,
    Fun,
    Indexed,
    Lin,
    One,
    Product,
    Reduced,
)
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.render.breaking import width
from netsor.compilers.render.symbols import PRIME
from netsor.indexing import IndexMap, Read, index_map

What = AnyNode | ir.Var  # whose kernel an entry is: a node of the normal form, or a scalar
LONGEST = 11.0  # of what names an unnamed variable, in characters


def name_latex(name: str) -> str:
    r"""A program's name: h1 as h^{1}, xi2 as \mathrm{xi}^{2}, W1a as \mathrm{W1a}; different names stay different."""
    match = re.fullmatch(r"([A-Za-z]+)([0-9]*)", name)
    if match is None:
        return markup.math(name).strip("{}") if name in markup.GREEK else rf"\mathrm{{{markup.math(name)}}}"
    letters, digits = match.groups()
    stem = letters if len(letters) == 1 else rf"\mathrm{{{letters}}}"
    return f"{stem}^{{{digits}}}" if digits else stem


def limit_latex(name: str) -> str:
    """A scalar's symbol with a ring over its letters."""
    stem = re.match(r"\\mathrm\{.*?\}(?=[\^_]|$)|\\?[A-Za-z]+", name)
    end = len(name) if stem is None else stem.end()
    return rf"\mathring{{{name[:end]}}}{name[end:]}"


def symbol_latex(name: str) -> str:
    """An axis as a symbol: k2 as k_{2}, row′ as row', the third of a name as row'', the fifth as row^{(4)}."""
    stem, prime, number = name.partition(PRIME)
    match = re.fullmatch(r"([A-Za-z]+)([0-9]*)", stem)
    letters, digits = match.groups() if match else (stem, "")
    text = letters if len(letters) == 1 and letters.isascii() else rf"\mathrm{{{markup.math(letters)}}}"
    count = int(number or 1) if prime else 0
    marks = "'" * count if count <= 3 else f"^{{({count})}}"
    return text + (f"_{{{digits}}}" if digits else "") + marks


class Symbols:
    """`entry(e)` is an entry's symbol without its argument; `notes` says what symbols inside it stand for."""

    def __init__(self, r: Recursion, taken: Iterable[str]) -> None:
        self.normal = r.normal
        self.notes: dict[str, str] = {}
        self.lines: dict[str, str] = {}  # the unnamed scalars that occur, by their lines
        self._variables = _variables(r)
        self._gradients = _gradients(r)
        self._nodes: dict[AnyNode, str] = {}
        self._open: set[AnyNode] = set()
        self._short = itertools.count(1)
        self._taken: set[tuple[bool, str]] = {(False, t) for t in taken}
        self._aux, self._parts_count = itertools.count(1), itertools.count(1)
        self._entries = {e: self._symbol(e) for e in r.used}

    def entry(self, e: Entry) -> str:
        return self._entries[e]

    def part(self) -> str:
        """A symbol for a part of an equation that is too long to stand in it."""
        return rf"\kappa_{{{next(self._parts_count)}}}"

    # ------------------------------------------------------------ entries

    def _symbol(self, e: Entry) -> str:
        """The first of C^x, C^x_{(2)}, … that is free among the entries with the same argument."""
        stem, upper, lower = self._parts(e)
        for k in itertools.count(1):
            index = [*lower, f"({k})"] if k > 1 else lower
            text = stem + (f"^{{{upper}}}" if upper else "") + (f"_{{{','.join(index)}}}" if index else "")
            if (e.space == "input", text) not in self._taken:
                self._taken.add((e.space == "input", text))
                return text
        raise AssertionError

    def _parts(self, e: Entry) -> tuple[str, str, list[str]]:
        if e.kind == PART:
            return "A", "", [str(next(self._aux))]
        nodes = list(dict.fromkeys(r.what for r in e.refs))
        names = [self.variable(n) for n in nodes]
        if e.kind == SCALAR:
            return limit_latex(names[0]), "", []
        trained = [] if e.kind.array is None else [name_latex(e.kind.array.name)]
        if e.kind == SECOND_MOMENT and len(nodes) == 1 and nodes[0] in self._gradients:
            return "D", self.variable(self._gradients[nodes[0]]), []
        return {"K": "C", "T": r"\Theta", "M": r"\mu"}[e.kind.letter], r",\,".join(names), trained

    # ------------------------------------------------------------ variables

    def variable(self, node: What) -> str:
        """A node of the normal form, or a scalar of the program."""
        if isinstance(node, ir.Var):
            return self._scalar(node.name)
        if node in self._variables:
            return name_latex(self._variables[node].name)
        if node not in self._nodes and node in self._open:
            self._nodes[node] = self._abbreviation()  # a recurrence reads itself
        if node not in self._nodes:
            self._describe(node)
        return self._nodes[node]

    def _scalar(self, name: str) -> str:
        if is_named(name):
            return name_latex(name)
        return self.lines.setdefault(name, f"c_{{{name[1:]}}}")

    def _abbreviation(self) -> str:
        return rf"\zeta_{{{next(self._short)}}}"

    def _describe(self, node: AnyNode) -> None:
        self._open.add(node)
        text = self._description(node)
        self._open.discard(node)
        if node not in self._nodes:
            short = width(text) <= LONGEST and text not in self._nodes.values()
            self._nodes[node] = text if short else self._abbreviation()
        if self._nodes[node] != text:
            self.notes[self._nodes[node]] = text

    def _description(self, node: AnyNode) -> str:
        match node:
            case One():
                return "1"
            case Atom() | DataNode():
                return name_latex(node.line.out.name)
            case Product():
                mark = r"^{\top}" if node.transposed else ""
                return rf"{name_latex(node.matrix.out.name)}{mark}\,{self._factor(node.of)}"
            case Lin():
                return "+".join(self._term(c, n) for c, n in reversed(node.terms)).replace("+-", "-")
            case Fun():
                return self._expression(node.expr)
            case Indexed():
                return self._indexed(node.line, self._factor(node.of))
            case Reduced():
                axis = symbol_latex(node.line.axis.name)
                return rf"\operatorname{{{node.line.op}}}_{{{axis}}}{self._factor(node.of)}"
            case _:
                assert_never(node)

    def _factor(self, node: What) -> str:
        text = self.variable(node)
        return rf"({text})" if isinstance(node, Lin) and node not in self._variables else text

    def _term(self, c: sp.Expr, node: AnyNode) -> str:
        if isinstance(node, One):
            return self._expression(c)
        number = self._expression(c)
        before = {1: "", -1: "-"}.get(c, rf"({number})\," if c.is_Add else rf"{number}\,")
        return before + self._factor(node)

    def _expression(self, expr: sp.Expr) -> str:
        inside = {a for f in expr.atoms(sp.Function) for a in f.args}  # in brackets already
        table = {}
        for s in expr.free_symbols:
            node = self.normal.node.get(s) or self.normal.scalar_of[s]
            text = self.variable(node) if s in inside else self._factor(node)
            table[s] = text if s in self.normal.node else limit_latex(text)
        return str(sp.latex(expr, symbol_names=table, mul_symbol=r"\,"))

    @staticmethod
    def _indexed(line: ir.IndexForm, of: str) -> str:
        m = index_map(line)
        return rf"{of}[{', '.join(_read(r, m) for r in m.reads)}]"


def _read(r: Read, m: IndexMap) -> str:
    """What stands for an axis: a position, another axis, or the axis moved by a tap or a number."""
    named = {"axis": r.axis, "at": r.at, "tap": m.tap}
    words = {k: symbol_latex(axis.name) for k, axis in named.items() if axis is not None}
    return reading(r, m).latex.format(**words, place=place(r.offsets[0]).latex, by=abs(r.offsets[0]))


def _variables(r: Recursion) -> dict[AnyNode, ir.Var]:
    """The first named variable of every node."""
    out: dict[AnyNode, ir.Var] = {}
    for var, node in r.normal.of_var.items():
        if is_named(var.name):
            out.setdefault(node, var)
    return out


def _gradients(r: Recursion) -> dict[AnyNode, AnyNode]:
    """The variable whose gradient a node is: a product where biases share it."""
    out: dict[AnyNode, AnyNode] = {}
    for g in r.program.gradients:
        of, is_ = r.normal.of_var[g.of], r.normal.of_var[g.is_]
        if is_ not in out or isinstance(out[is_], Atom):
            out[is_] = of
    return out
