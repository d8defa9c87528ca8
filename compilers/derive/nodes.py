"""The normal form of a program: every Nonlin split into linear combinations and products of functions.

    node ::= one | input vector | data | W·node | Σ cᵢ nodeᵢ (Lin) | f(nodes; scalars) (Fun) | index form | max

A Fun is one monomial: a product of factors over its nodes. Inside a function, affine combinations become nodes of
their own, so `relu(h + b)` and `relu'(h + b)` share the node h + b. Scalars stay as symbols of their C-vars.
Nodes are interned: equal expressions are one node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, assert_never

import sympy as sp

from netsor import facts, ir
from netsor.compilers.derive.entries import labels
from netsor.errors import UnsupportedError
from netsor.facts import inputs_of, merge_dims
from netsor.indexing import index_map
from netsor.signs.flips import flips


@dataclass(eq=False)
class Node:
    """A limit random variable Z; `id` follows the order of the program, `label` names its entries."""

    id: int
    name: str
    dims: tuple[ir.Dim, ...]
    label: str = field(default="", kw_only=True)

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return self.id

    @cached_property
    def symbol(self) -> sp.Symbol:
        """The node in expressions; `Normal.node` finds it again."""
        return sp.Symbol(f"z{self.id:06d}", real=True)


@dataclass(eq=False, repr=False)
class One(Node):
    """The constant 1."""


@dataclass(eq=False, repr=False)
class Atom(Node):
    """An input G-var."""

    line: ir.InputVector


@dataclass(eq=False, repr=False)
class DataNode(Node):
    """A network input, or a coordinatewise function of data (`line` a Nonlin) evaluated on the arrays."""

    line: ir.Data | ir.Nonlin


@dataclass(eq=False, repr=False)
class Product(Node):
    """W·of with W = `matrix`, or its transpose."""

    matrix: ir.InputMatrix
    transposed: bool
    of: AnyNode


@dataclass(eq=False, repr=False)
class Lin(Node):
    """Σ c·node, c an expression in C-var symbols."""

    terms: tuple[tuple[sp.Expr, AnyNode], ...]


@dataclass(eq=False, repr=False)
class Fun(Node):
    """A product of functions of nodes, `expr` in the nodes' and C-vars' symbols."""

    expr: sp.Expr
    args: tuple[AnyNode, ...]


@dataclass(eq=False, repr=False)
class Indexed(Node):
    """An index form; the `of` of a scan's Shift is bound when its line is reached."""

    line: ir.IndexForm
    of: AnyNode


@dataclass(eq=False, repr=False)
class Reduced(Node):
    line: ir.Reduce
    of: AnyNode


Source = Hashable  # what randomness a node is made of: a matrix, a block of vectors; the data
AnyNode = One | Atom | DataNode | Product | Lin | Fun | Indexed | Reduced


@dataclass
class Normal:
    """The normal form: nodes by variable, scalars' lines by symbol, and facts found by fixpoints."""

    program: ir.ProgramLike
    nodes: list[AnyNode] = field(default_factory=list)
    node: dict[sp.Symbol, AnyNode] = field(default_factory=dict)
    of_var: dict[ir.Var, AnyNode] = field(default_factory=dict)
    scalar_line: dict[ir.Var, ir.Line] = field(default_factory=dict)
    scalar_of: dict[sp.Symbol, ir.Var] = field(default_factory=dict)
    scalar_symbol: dict[ir.Var, sp.Symbol] = field(default_factory=dict)
    moment_node: dict[ir.Var, AnyNode] = field(default_factory=dict)
    line_index: dict[ir.Var, int] = field(default_factory=dict)
    gaussian: frozenset[int] = frozenset()
    sources: dict[int, frozenset[Source]] = field(default_factory=dict)
    sampled: frozenset[int] = frozenset()
    sampled_scalars: frozenset[ir.Var] = frozenset()
    blocks: dict[ir.Var, int] = field(default_factory=dict)
    zero_scalars: set[sp.Symbol] = field(default_factory=set)


class Builder:
    """Builds the normal form line by line."""

    def __init__(self, program: ir.ProgramLike) -> None:
        self.n = Normal(program)
        self._interned: dict[Hashable, AnyNode] = {}
        self._matrix = facts.matrices(program.lines)
        self._late: list[tuple[Indexed, ir.Var]] = []
        self._vanishing = vanishing_scalars(program)
        self.one = self._new(One, "1", ())

    def _new(self, kind: type, name: str, dims: tuple[ir.Dim, ...], *more: Any, label: str | None = None) -> Any:
        node = kind(len(self.n.nodes), name, dims, *more, label=label or name)
        self.n.nodes.append(node)
        self.n.node[node.symbol] = node
        return node

    def build(self) -> Normal:
        for i, line in enumerate(self.n.program.lines):
            self.n.line_index[line.out] = i
            self._line(line)
        for node, var in self._late:
            node.of = self.n.of_var[var]
        return self.n

    # ------------------------------------------------------------ lines

    def _line(self, line: ir.Line) -> None:
        out = line.out
        if out.kind == "C":
            self._scalar(line)
            return
        match line:
            case ir.InputMatrix() | ir.Trsp():
                pass  # `self._matrix` says what they are
            case ir.InputVector() | ir.Data():
                kind = Atom if isinstance(line, ir.InputVector) else DataNode
                self._set(out, self._new(kind, out.name, out.dims, line))
            case ir.MatMul():
                self._set(out, self._product(out, *self._matrix[line.matrix], self.n.of_var[line.vector]))
            case ir.Nonlin():
                self._set(out, self._nonlin(line))
            case ir.Reduce():
                of = self.n.of_var[line.of]
                label = labels.unnamed(out, f"{of.label}_{line.op}")
                self._set(out, self._new(Reduced, out.name, out.dims, line, of, label=label))
            case ir.IndexLine():
                self._set(out, self._indexed(line))
            case ir.InputScalar() | ir.Moment() | ir.Softmax():
                raise AssertionError("scalars are handled above")
            case _:
                assert_never(line)

    def _set(self, var: ir.Var, node: AnyNode) -> None:
        self.n.of_var[var] = node

    def _product(self, out: ir.Var, base: ir.InputMatrix, transposed: bool, of: AnyNode) -> AnyNode:
        key = ("W", base.out, transposed, of.id)
        if key not in self._interned:
            label = labels.unnamed(out, f"{base.out.name}{'t' if transposed else ''}_{of.label}")
            self._interned[key] = self._new(Product, out.name, out.dims, base, transposed, of, label=label)
        return self._interned[key]

    def _indexed(self, line: ir.IndexForm) -> Indexed:
        of = self.n.of_var.get(line.of)
        label = labels.unnamed(line.out, labels.of_index_form(line, line.of.name if of is None else of.label))
        node: Indexed = self._new(Indexed, line.out.name, line.out.dims, line, of, label=label)
        if of is None:
            self._late.append((node, line.of))
        return node

    def _scalar(self, line: ir.Line) -> None:
        out = line.out
        self.n.scalar_line[out] = line
        symbol = sp.Symbol(f"c{len(self.n.scalar_symbol):06d}", real=True)
        self.n.scalar_symbol[out], self.n.scalar_of[symbol] = symbol, out
        if isinstance(line, ir.Moment) and line.args:
            self.n.moment_node[out] = self.normal(self._expression(line), f"{out.name}_arg")
        if out in self._vanishing or (isinstance(line, ir.InputScalar) and not line.per_sample and line.limit == 0):
            self.n.zero_scalars.add(symbol)

    def _expression(self, line: ir.Nonlin | ir.Moment) -> sp.Expr:
        table = {ir.arg(i): self.n.of_var[v].symbol for i, v in enumerate(line.args)}
        table |= {ir.param(i): self.n.scalar_symbol[v] for i, v in enumerate(line.params)}
        return line.expr.xreplace(table)

    def _nonlin(self, line: ir.Nonlin) -> AnyNode:
        expr = self._expression(line)
        if line.out.kind == "X":
            return self._data_nonlin(line, expr)
        return self.normal(expr, line.out.name)

    def _data_nonlin(self, line: ir.Nonlin, expr: sp.Expr) -> AnyNode:
        monomials = self.monomials(expr)
        if all(len(m.free_symbols) == 1 and m.is_Symbol for m in monomials):
            return self.normal(expr, line.out.name)
        return self._new(DataNode, line.out.name, line.out.dims, line)

    # ------------------------------------------------------------ normal form of an expression

    def normal(self, expr: sp.Expr, name: str) -> AnyNode:
        """The node of an expression in node and scalar symbols."""
        expr = expr.xreplace({s: sp.Integer(0) for s in self.n.zero_scalars & expr.free_symbols})
        monomials = self.monomials(expr)
        whole = list(monomials.values()) == [1]
        terms = [(c, self._monomial(m, name, whole)) for m, c in monomials.items()]
        return self.linear(terms, name)

    def monomials(self, expr: sp.Expr) -> dict[sp.Expr, sp.Expr]:
        """Monomial over nodes → coefficient over scalars, with functions treated as opaque."""
        pieces: dict[sp.Expr, sp.Symbol] = {}
        flat = self._opaque(expr, pieces)
        back = {d: e for e, d in pieces.items()}
        found: dict[sp.Expr, sp.Expr] = {}
        for term in sp.Add.make_args(sp.expand(flat)):
            gens = [s for s in term.free_symbols if s in back or s in self.n.node]
            coefficient, rest = term.as_independent(*gens, as_Add=False) if gens else (term, sp.Integer(1))
            rest = rest.xreplace(back)
            found[rest] = found.get(rest, sp.Integer(0)) + coefficient
        return {m: c for m, c in found.items() if c != 0}

    def _opaque(self, expr: sp.Expr, pieces: dict[sp.Expr, sp.Symbol]) -> sp.Expr:
        """Maximal non-polynomial parts that involve nodes, replaced by dummies."""
        if expr.is_Symbol or self.n.node.keys().isdisjoint(expr.free_symbols):
            return expr
        if expr.is_Add:
            return expr.func(*(self._opaque(a, pieces) for a in expr.args))
        if expr.is_Mul:
            several = sum(not self.n.node.keys().isdisjoint(a.free_symbols) for a in expr.args) > 1
            return expr.func(*(self._opaque(self._grouped(a) if several else a, pieces) for a in expr.args))
        if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            return self._opaque(self._grouped(expr.base), pieces) ** expr.exp
        inner = self._affine_inside(expr)
        if inner not in pieces:
            pieces[inner] = sp.Symbol(f"z_{len(pieces)}", real=True)
        return pieces[inner]

    def _grouped(self, expr: sp.Expr) -> sp.Expr:
        """A sum of nodes that is multiplied or raised to a power is a node of its own: (x − m)², (x − m)/r."""
        if not expr.is_Add:
            return expr
        terms = self.monomials(expr)
        if len(terms) < 2 or not all(m.is_Symbol for m in terms):
            return expr
        return self.linear([(c, self.n.node[m]) for m, c in terms.items()], None).symbol

    def _affine_inside(self, expr: sp.Expr) -> sp.Expr:
        """The expression with affine combinations inside its functions replaced by nodes."""
        if expr.is_Symbol or self.n.node.keys().isdisjoint(expr.free_symbols):
            return expr
        if not (expr.is_Add or expr.is_Mul):
            return expr.func(*(self._affine_inside(a) for a in expr.args))
        affine: list[tuple[sp.Expr, sp.Expr]] = []
        rest: list[tuple[sp.Expr, sp.Expr]] = []
        for monomial, coefficient in self.monomials(expr).items():
            (affine if monomial.is_Symbol or monomial == 1 else rest).append((coefficient, monomial))
        if sum(1 for _, m in affine if m != 1) == 0 or self._plain_scale(affine):
            grouped = sp.Add(*(c * m for c, m in affine))
        else:
            node = self.linear([(c, self.one if m == 1 else self.n.node[m]) for c, m in affine], None)
            grouped = node.symbol
        return grouped + sp.Add(*(c * m for c, m in rest))

    def _plain_scale(self, affine: Sequence[tuple[sp.Expr, sp.Expr]]) -> bool:
        """c·z with a number c stays a scaled argument of the same node."""
        return len(affine) == 1 and affine[0][0].is_number

    def _monomial(self, monomial: sp.Expr, name: str, whole: bool) -> AnyNode:
        """The node of one term of a line; it carries the line's name when it is the whole line."""
        if monomial == 1:
            return self.one
        if monomial.is_Symbol:
            return self.n.node[monomial]
        if monomial not in self._interned:
            args = tuple(self.n.node[s] for s in _sorted(monomial.free_symbols) if s in self.n.node)
            scalars = [self.n.scalar_of[s] for s in _sorted(monomial.free_symbols) if s not in self.n.node]
            dims = merge_dims([*args, *scalars])
            self._interned[monomial] = self._new(Fun, name, dims, monomial, args)
            self._interned[monomial].label = self._function_label(monomial, name)
        if whole and labels.is_named(name):
            self._interned[monomial].label = name
        return self._interned[monomial]

    def _function_label(self, monomial: sp.Expr, name: str) -> str:
        table = {s: sp.Symbol(self._label_of(s), real=True) for s in _sorted(monomial.free_symbols)}
        return labels.shortened(labels.of_expression(monomial.xreplace(table)), labels.of_term(name))

    def _label_of(self, s: sp.Symbol) -> str:
        return self.n.node[s].label if s in self.n.node else self.n.scalar_of[s].name

    def linear(self, terms: Iterable[tuple[sp.Expr, AnyNode]], name: str | None) -> AnyNode:
        """Σ c·node as a node."""
        gathered: dict[AnyNode, sp.Expr] = {}
        for c, node in terms:
            gathered[node] = gathered.get(node, sp.Integer(0)) + c
        kept = tuple((c, node) for node, c in sorted(gathered.items(), key=lambda t: t[0].id) if c != 0)
        if len(kept) == 1 and kept[0][0] == 1:
            return kept[0][1]
        if kept not in self._interned:
            scalars = [self.n.scalar_of[s] for c, _ in kept for s in _sorted(c.free_symbols)]
            dims = merge_dims([*(node for _, node in kept), *scalars])
            label = name if name and labels.is_named(name) else labels.shortened(self._lin_name(kept), name or "sum")
            self._interned[kept] = self._new(Lin, name or self._lin_name(kept), dims, kept, label=label)
        return self._interned[kept]

    def _lin_name(self, kept: Sequence[tuple[sp.Expr, AnyNode]]) -> str:
        names = [n.label for _, n in kept if not isinstance(n, One)]
        return f"{names[0]}_scaled" if len(names) == 1 else "_".join(reversed(names))


def _sorted(symbols: Iterable[sp.Basic]) -> list[sp.Symbol]:
    return sorted(symbols, key=lambda s: s.name)


# ---------------------------------------------------------------- facts


def parents(node: AnyNode) -> tuple[AnyNode, ...]:
    """The nodes that a node is made of."""
    match node:
        case One() | Atom() | DataNode():
            return ()
        case Product() | Indexed() | Reduced():
            return (node.of,)
        case Lin():
            return tuple(n for _, n in node.terms)
        case Fun():
            return node.args
        case _:
            assert_never(node)


def normal_form(program: ir.ProgramLike) -> Normal:
    """The normal form of a program and its facts."""
    builder = Builder(program)
    n = builder.build()
    find_facts(n)
    return n


def find_facts(n: Normal) -> None:
    """Which nodes are Gaussian (greatest fixpoint), what they are made of and which depend on data (least)."""
    n.blocks = covariance_blocks(n.program)
    gaussian = {x.id for x in n.nodes if not isinstance(x, DataNode)}
    _fixpoint(n, lambda x: _not_gaussian(n, x, gaussian))
    n.gaussian = frozenset(gaussian)
    sources: dict[int, set[Source]] = {x.id: set() for x in n.nodes}
    _fixpoint(n, lambda x: _grow_sources(n, x, sources))
    n.sources = {i: frozenset(s) for i, s in sources.items()}
    _find_sampled(n)


def _fixpoint(n: Normal, update: Callable[[AnyNode], bool]) -> None:
    changed = True
    while changed:
        changed = False
        for node in n.nodes:
            changed |= update(node)


def _not_gaussian(n: Normal, x: AnyNode, gaussian: set[int]) -> bool:
    if x.id not in gaussian:
        return False
    match x:
        case Fun():
            out = True
        case Reduced():
            out = x.line.op == "max" or x.of.id not in gaussian
        case Lin() | Indexed():
            out = any(p.id not in gaussian for p in parents(x))
        case One() | Atom() | DataNode() | Product():
            out = False
        case _:
            assert_never(x)
    if out:
        gaussian.discard(x.id)
    return out


def _grow_sources(n: Normal, x: AnyNode, sources: dict[int, set[Source]]) -> bool:
    new: set[Source]
    match x:
        case Product():
            new = {(x.matrix.out, x.transposed)}
        case Atom():
            new = {("block", n.blocks[x.line.out])}
        case DataNode():
            new = {("data",)}
        case One() | Lin() | Fun() | Indexed() | Reduced():
            new = set().union(*(sources[p.id] for p in parents(x)))
        case _:
            assert_never(x)
    before = len(sources[x.id])
    sources[x.id] |= new
    return len(sources[x.id]) != before


def _find_sampled(n: Normal) -> None:
    nodes: set[int] = set()
    scalars: set[ir.Var] = set()

    def scalar_sampled(var: ir.Var) -> bool:
        line, node = n.scalar_line[var], n.moment_node.get(var)
        if isinstance(line, ir.InputScalar):
            return line.per_sample
        symbols = inputs_of(line) if node is None else _scalars_in(n, node)
        return (node is not None and node.id in nodes) or _consumes_size(line) or any(v in scalars for v in symbols)

    def node_sampled(x: AnyNode) -> bool:
        if isinstance(x, DataNode) or (isinstance(x, Reduced | Indexed) and _consumes_size(x.line)):
            return True
        return any(p.id in nodes for p in parents(x)) or any(v in scalars for v in _scalars_in(n, x))

    size = -1
    while size != len(nodes) + len(scalars):
        size = len(nodes) + len(scalars)
        nodes |= {x.id for x in n.nodes if x.id not in nodes and node_sampled(x)}
        scalars |= {v for v in n.scalar_line if v not in scalars and scalar_sampled(v)}
    n.sampled, n.sampled_scalars = frozenset(nodes), frozenset(scalars)


def _consumes_size(line: ir.Line) -> bool:
    """Does the result depend on the size of an axis, which each sample has its own?"""
    match line:
        case ir.Reduce():
            return not isinstance(line.of.size(line.axis), int)
        case ir.IndexLine():
            m = index_map(line)
            return any(not isinstance(m.ends(line)[1].size(r.axis), int) for r in m.fixed)
        case (
            ir.InputMatrix() | ir.InputVector() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul() | ir.Nonlin()
            | ir.Moment() | ir.Softmax()
        ):  # fmt: skip
            return False
        case _:
            assert_never(line)


def _scalars_in(n: Normal, x: AnyNode) -> list[ir.Var]:
    match x:
        case Lin():
            found = {s for c, _ in x.terms for s in c.free_symbols}
        case Fun():
            found = {s for s in x.expr.free_symbols if s not in n.node}
        case One() | Atom() | DataNode() | Product() | Indexed() | Reduced():
            return []
        case _:
            assert_never(x)
    return [n.scalar_of[s] for s in _sorted(found)]


def vanishing_scalars(program: ir.ProgramLike) -> frozenset[ir.Var]:
    """C-vars that change sign with the readouts, a flip that leaves the program's law: their limit is 0.

    These are the gradients of scalars; without them a backward vector does not depend on the forward pass around it.
    """
    block = covariance_blocks(program)
    inputs = facts.input_vectors(program.lines)
    fixed = {block[x.out] for x in inputs if not x.readout or x.mean != 0}
    readouts = {x.out: 1 for x in inputs if x.readout and block[x.out] not in fixed}
    if not any(v in readouts for x in program.lines for v in inputs_of(x)):
        return frozenset()
    found = flips(program.lines, readouts)
    return frozenset(v for v, s in found.items() if v.kind == "C" and (s.zero or (s.form and not s.equations)))


def covariance_blocks(program: ir.ProgramLike) -> dict[ir.Var, int]:
    """Input vectors joined by declared covariances, numbered."""
    return {x.out: i for i, block in enumerate(facts.covariance_blocks(program.lines)) for x in block}


def unsupported(what: str, node: Node | None = None) -> UnsupportedError:
    """A limit that exists but has no rule here."""
    where = f" (at {node.name})" if node is not None and node.name not in what else ""
    return UnsupportedError(
        f"no exact rule for {what}{where}", code="NT702", variable=None if node is None else node.name,
        hint="ns.compile samples it: tol=…, samples=…",
    )  # fmt: skip
