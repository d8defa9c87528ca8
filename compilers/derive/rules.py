"""The rules of the derivation: second moments K, tangent kernels T, means M, scalars S.

Order (it decides whether requests grow linearly or quadratically): rename, disjoint sources, joint index forms,
expand the later line, one-sided index forms, atoms, expectations. Sources: Tensor Programs II, Eq. 18-19 (K, M),
Eq. 12 and its transpose (T).
"""

from __future__ import annotations

from functools import cached_property
from typing import assert_never

import sympy as sp

from netsor import facts, ir
from netsor.compilers.derive import indexing
from netsor.compilers.derive.entries.arithmetic import add, mul, sum_over
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.entries.scalars import inverse_size, scalar_function, stated
from netsor.compilers.derive.entries.terms import UNIT, Term, Terms, collect, dense, scale, single, sum_left, swap
from netsor.compilers.derive.entries.traversal import symbols
from netsor.compilers.derive.entries.values import (
    MEAN,
    ONE,
    SCALAR,
    SECOND_MOMENT,
    TANGENT,
    ZERO,
    FeatureDim,
    Given,
    Gram,
    Kind,
    Num,
    Soft,
    Value,
)
from netsor.compilers.derive.expectations import Expectations
from netsor.compilers.derive.indexing import own_copy
from netsor.compilers.derive.nodes import (
    AnyNode,
    Atom,
    DataNode,
    Fun,
    Indexed,
    Lin,
    Normal,
    One,
    Product,
    Reduced,
    Source,
    covariance_blocks,
    parents,
    unsupported,
)
from netsor.compilers.derive.references import Ref, Refs, ScalarRef
from netsor.compilers.derive.requests import Requests
from netsor.functions import exact
from netsor.indexing import index_map


class Rules:
    """The rules over one normal form; a tangent kernel that names no array is of all, or of `trained` alone."""

    def __init__(self, normal: Normal, trained: ir.Var | None = None) -> None:
        self.normal, self.trained = normal, trained
        self.q = Requests(normal, self._rule)
        self.expectations = Expectations(self)

    def _rule(self, kind: Kind, refs: Refs) -> Terms:
        match refs:
            case (Ref() as a, Ref() as b):
                return self._pair(kind, a, b)
            case (Ref() as a,):
                return single(self._mean(a))
            case (ScalarRef() as a,):
                return single(self._scalar(a))
            case _:
                raise AssertionError(f"no rule for {kind} of {refs}")

    # ------------------------------------------------------------ what other modules ask

    def second_moment(self, a: Ref, b: Ref) -> Terms:
        return self.q.pair(SECOND_MOMENT, a, b)

    def tangent(self, a: Ref, b: Ref, kind: Kind = TANGENT) -> Terms:
        return self.q.pair(kind, a, b)

    def mean(self, a: Ref) -> Value:
        return self.q.one(MEAN, a)

    def scalar(self, var: ir.Var, copy: Copy, table: dict[ir.Axis, Sym]) -> Value:
        own = copy if var in self.normal.sampled_scalars else Copy.NONE
        return self.q.one(SCALAR, ScalarRef(own, tuple((a, table[a]) for a in var.axes), var))

    def sources(self, node: AnyNode) -> frozenset[Source]:
        return self.normal.sources[node.id]

    def coefficient(self, expr: sp.Expr, ref: Ref, copy: Copy, more: dict[ir.Axis, Sym] | None = None) -> Value:
        """The value of an expression in scalar symbols, at the symbols of a reference."""
        if expr.is_number:
            return Num(expr)
        table = dict(ref.binding) | (more or {})
        names = sorted(expr.free_symbols, key=lambda s: s.name)
        args = [self.scalar(self.normal.scalar_of[s], copy, table) for s in names]
        return scalar_function(expr, names, args)

    # ------------------------------------------------------------ pairs

    def _pair(self, kind: Kind, a: Ref, b: Ref) -> Terms:
        for left, right, back in ((a, b, False), (b, a, True)):
            if isinstance(left.node, Indexed) and index_map(left.node.line).is_renaming:
                found = self.q.pair(kind, indexing.renamed(self.q, left), right)
                return swap(found) if back else found
        if kind != SECOND_MOMENT and (isinstance(a.node, One | DataNode) or isinstance(b.node, One | DataNode)):
            return ()
        if isinstance(a.node, One) or isinstance(b.node, One):
            return self._with_one(a, b)
        if not self.sources(a.node) & self.sources(b.node):
            return () if kind != SECOND_MOMENT else self._independent(a, b)
        atoms = self._atoms(kind, a, b)
        if atoms is not None:
            return atoms
        joint = indexing.joint(self.q, kind, a, b)
        if joint is not None:
            return joint
        return self._expand(kind, a, b)

    def _with_one(self, a: Ref, b: Ref) -> Terms:
        if isinstance(a.node, One):
            return UNIT if isinstance(b.node, One) else single(self.mean(b))
        return single(self.mean(a))

    def _independent(self, a: Ref, b: Ref) -> Terms:
        mean = self.mean(a)
        return () if mean == ZERO else single(mul(mean, self.mean(b)))

    def _expand(self, kind: Kind, a: Ref, b: Ref) -> Terms:
        """Expand the later line; functions and products wait for the other side."""
        order = sorted(
            ((self._can_expand(x, y), x.node.id, i) for i, (x, y) in enumerate(((a, b), (b, a)))), reverse=True
        )
        can, _, side = order[0]
        if not can:
            if not (isinstance(a.node, Fun) or isinstance(b.node, Fun)):
                raise unsupported(f"{kind} of {a.node.name} with {b.node.name}", a.node)
            return self.expectations.pair(kind, a, b)
        left, right = (a, b) if side == 0 else (b, a)
        found = self._expand_left(kind, left, right)
        return swap(found) if side == 1 else found

    def _can_expand(self, x: Ref, other: Ref) -> bool:
        node = x.node
        if isinstance(other.node, Fun) and node.id in self.normal.gaussian:
            return False
        if isinstance(node, Reduced):
            return node.line.op != "max"
        return isinstance(node, Lin | Indexed)

    def _expand_left(self, kind: Kind, a: Ref, b: Ref) -> Terms:
        node = a.node
        match node:
            case Lin():
                parts: list[Term] = []
                for c, child in node.terms:
                    ref = self.q.child(a, child, a.copy)
                    parts.extend(scale(self.q.pair(kind, ref, b), self.coefficient(c, a, a.copy)))
                return collect(parts)
            case Reduced():
                return self._reduce_left(kind, node, a, b)
            case Indexed():
                return indexing.one_sided(self.q, kind, a, b)
            case One() | Atom() | DataNode() | Product() | Fun():
                raise unsupported(f"{kind} of {node.name} with {b.node.name}", node)
            case _:
                assert_never(node)

    def _reduce_left(self, kind: Kind, node: Reduced, a: Ref, b: Ref) -> Terms:
        sym = self.reduced_symbol(node, a)
        ref = self.q.child(a, node.of, a.copy, {node.line.axis: sym})
        found = sum_left(self.q.pair(kind, ref, b), sym)
        return scale(found, inverse_size(sym)) if node.line.op == "mean" else found

    def reduced_symbol(self, node: Reduced, a: Ref) -> Sym:
        """A fresh symbol for the axis that a reduction removes."""
        dim = next(d for d in node.line.of.dims if d.axis == node.line.axis)
        return self.q.fresh(dim, own_copy(a))

    # ------------------------------------------------------------ atoms

    def _atoms(self, kind: Kind, a: Ref, b: Ref) -> Terms | None:
        if isinstance(a.node, Product) and isinstance(b.node, Product):
            return self._products(kind, a.node, b.node, a, b)
        if isinstance(a.node, Atom) and isinstance(b.node, Atom):
            return self._input_vectors(kind, a.node.line, b.node.line, a, b)
        if isinstance(a.node, DataNode) and isinstance(b.node, DataNode):
            idx = (tuple(a.symbols), tuple(b.symbols))
            key = (a.node.line.out, b.node.line.out)
            return single(Gram(key, a.copy, idx[0], b.copy, idx[1]))
        return None

    def _products(self, kind: Kind, left: Product, right: Product, a: Ref, b: Ref) -> Terms:
        line = left.matrix
        if line.out is not right.matrix.out or left.transposed != right.transposed:
            return ()
        m2 = exact(line.multiplier) ** 2
        variance = m2 * exact(line.var) * self._ratio(left)
        deltas, table = self._family(a, b, line.out.axes)
        x = self.q.child(a, left.of, a.copy)
        y = self.q.child(b, right.of, b.copy).renamed(table)
        k = self.q.pair(SECOND_MOMENT, x, y)
        if kind == SECOND_MOMENT:
            found = scale(k, Num(variance))
        else:
            weight = m2 * self._ratio(left) if self._trains(kind, line.out, line.trainable) else sp.Integer(0)
            found = collect([*scale(k, Num(weight)), *scale(self.q.pair(kind, x, y), Num(variance))])
            if left.transposed and weight != 0 and not self._uses_vanish:
                raise unsupported("the tangent kernel of a transposed matrix, with a readout of nonzero mean", left)
        found = scale(found, self.fan_in(line, left.of))
        return collect((d | deltas, v) for d, v in found)

    @staticmethod
    def _family(a: Ref, b: Ref, axes: tuple[ir.Axis, ...]) -> tuple[frozenset[tuple[Sym, Sym]], dict[Sym, Sym]]:
        """The deltas of a family that is independent over its axes, and right symbols to left."""
        pairs = [(a.at(x), b.at(x)) for x in axes]
        deltas = frozenset((left, right) for left, right in pairs if left != right)
        return deltas, {right: left for left, right in deltas}

    @cached_property
    def _uses_vanish(self) -> bool:
        """Are pairs of a use of W and one of Wᵀ zero? E dh ā · E x dȳ is when dh and dy are odd in the readouts."""
        return readouts_flip(self.normal.program)

    @staticmethod
    def _ratio(node: Product) -> sp.Expr:
        """rows/cols of W when Wᵀ is applied (Tensor Programs II, Appendix C)."""
        if not node.transposed:
            return sp.Integer(1)
        out = node.matrix.out
        return exact(facts.ratio(out.rows)) / exact(facts.ratio(out.cols))

    def fan_in(self, line: ir.InputMatrix, of: AnyNode) -> Value:
        """cols / fan_in, for data columns: the contraction of data is divided by its dimension already."""
        if line.fan_in == "cols":
            return ONE
        d = FeatureDim(data_of(self.normal, of))
        return d if line.fan_in is None else mul(Num(1 / exact(line.fan_in)), d)

    def _trains(self, kind: Kind, var: ir.Var, trainable: bool) -> bool:
        only = self.trained if kind.array is None else kind.array
        return trainable and (only is None or only is var)

    def _input_vectors(self, kind: Kind, left: ir.InputVector, right: ir.InputVector, a: Ref, b: Ref) -> Terms:
        m = exact(left.multiplier) * exact(right.multiplier)
        if kind != SECOND_MOMENT:
            if left is not right or not self._trains(kind, left.out, left.trainable):
                return ()
            deltas, _ = self._family(a, b, left.out.axes)
            return collect([(deltas, Num(m))])
        means = Num(m * exact(left.mean) * exact(right.mean))
        covariance = exact(facts.covariance(left, right))
        shared = tuple(x for x in left.out.axes if x in right.out.axes)
        matrices = dict(left.axis_cov) if left is right else {}
        value = Num(m * covariance)
        correlated: list[Value] = [value]
        for axis, rows in matrices.items():
            correlated.append(stated(f"{left.out.name}_{axis.name}", rows, (a.at(axis), b.at(axis))))
        deltas, _ = self._family(a, b, tuple(x for x in shared if x not in matrices))
        terms = collect([(deltas, mul(*correlated)), (frozenset(), means)])
        return terms

    # ------------------------------------------------------------ means

    def _mean(self, a: Ref) -> Value:
        node = a.node
        match node:
            case One():
                return ONE
            case Product():
                return ZERO
            case Atom():
                return Num(exact(node.line.multiplier) * exact(node.line.mean))
            case DataNode():
                raise unsupported("the mean of data", node)
            case Lin():
                return add(*(self._mean_term(c, x, a) for c, x in node.terms))
            case Reduced():
                return self._mean_reduced(a, node)
            case Indexed():
                return dense(indexing.mapped_mean(self.q, a))
            case Fun():
                return dense(self.expectations.mean(a))
            case _:
                assert_never(node)

    def _mean_term(self, c: sp.Expr, child: AnyNode, a: Ref) -> Value:
        mean = self.mean(self.q.child(a, child, a.copy))
        return ZERO if mean == ZERO else mul(self.coefficient(c, a, a.copy), mean)

    def _mean_reduced(self, a: Ref, node: Reduced) -> Value:
        if node.line.op == "max":
            raise unsupported("a maximum", node)
        sym = self.reduced_symbol(node, a)
        value = self.mean(self.q.child(a, node.of, a.copy, {node.line.axis: sym}))
        total = sum_over(sym, value)
        return mul(inverse_size(sym), total) if node.line.op == "mean" else total

    # ------------------------------------------------------------ scalars

    def _scalar(self, a: ScalarRef) -> Value:
        line = self.normal.scalar_line[a.var]
        table = dict(a.binding)
        match line:
            case ir.InputScalar():
                return given(line, a)
            case ir.Moment():
                return self._moment(line, a, table)
            case ir.Softmax():
                return self._softmax(line, a, table)
            case ir.Reduce():
                return self._scalar_reduce(line, a, table)
            case ir.IndexLine():
                return indexing.mapped_scalar(self, line, a)
            case ir.InputMatrix() | ir.InputVector() | ir.Data() | ir.Trsp() | ir.MatMul() | ir.Nonlin():
                raise AssertionError(f"{line.out} is no scalar")
            case _:
                assert_never(line)

    def _moment(self, line: ir.Moment, a: ScalarRef, table: dict[ir.Axis, Sym]) -> Value:
        node = self.normal.moment_node.get(line.out)
        if node is not None:
            return self.mean(self.q.ref(node, a.copy, lambda d: table[d.axis]))
        names = [ir.param(i) for i in range(len(line.params))]
        return scalar_function(line.expr, names, [self.scalar(v, a.copy, table) for v in line.params])

    def _softmax(self, line: ir.Softmax, a: ScalarRef, table: dict[ir.Axis, Sym]) -> Value:
        """A softmax of equal scalars is uniform."""
        value, sym = self.scalar(line.of, a.copy, table), table[line.axis]
        mask = None if line.mask is None else self.scalar(line.mask, a.copy, table)
        if mask == ZERO:
            return ZERO
        if mask is None or isinstance(mask, Num):
            return Soft(sym, value, None) if sym in symbols(value) else inverse_size(sym)
        return Soft(sym, value, mask)

    def _scalar_reduce(self, line: ir.Reduce, a: ScalarRef, table: dict[ir.Axis, Sym]) -> Value:
        if line.op == "max":
            raise unsupported("a maximum of scalars")
        dim = next(d for d in line.of.dims if d.axis == line.axis)
        sym = self.q.fresh(dim, own_copy(a))
        total = sum_over(sym, self.scalar(line.of, a.copy, table | {line.axis: sym}))
        return mul(inverse_size(sym), total) if line.op == "mean" else total


def given(line: ir.InputScalar, a: ScalarRef) -> Value:
    """The value of an input scalar."""
    if line.per_sample:
        return Given(line.out, a.copy, a.symbols)
    if line.limit is None:
        raise unsupported(f"the scalar {line.out.name}, which has no limit")
    return stated(line.out.name, line.limit, a.symbols)


def readouts_flip(program: ir.ProgramLike) -> bool:
    """Are gradients odd in the readouts: of mean zero, independent of other vectors, not used in the forward pass?"""
    inputs = facts.input_vectors(program.lines)
    block = covariance_blocks(program)
    others = {block[x.out] for x in inputs if not x.readout or x.mean != 0}
    forward = facts.forward(program)
    return not any(x.readout and (x.out in forward or block[x.out] in others) for x in inputs)


def data_of(normal: Normal, node: AnyNode) -> ir.Var:
    """The network input that a function of data is made of."""
    while not isinstance(node, DataNode):
        node = parents(node)[0]
    line = node.line
    return line.out if isinstance(line, ir.Data) else data_of(normal, normal.of_var[line.args[0]])
