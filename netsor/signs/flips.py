"""How each variable behaves when blocks of input vectors change sign, and which blocks it depends on.

A block is a set of input vectors whose signs change together. For a choice s of blocks (bits) a variable is
(−1)^{form·s} times itself for every s that satisfies its linear equations; dependence is a set of blocks. Both are
propagated through derived G-vars, C-vars, families and scans (least fixpoints through the shift, starting from zero).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import assert_never

import sympy as sp

from netsor import ir
from netsor.facts import inputs_of
from netsor.measure import tree_size
from netsor.run.flow import fixpoint, uses
from netsor.run.work import Work
from netsor.signs import gf2
from netsor.signs.collapse import Collapse
from netsor.signs.parity import (
    ZERO,
    Signature,
    bit,
    refined,
    refining_steps,
    signature,
    signature_of,
    steps_as_signs,
)

Blocks = Mapping[ir.Var, int]  # input vector or embedding matrix -> bit of its block


def dependence(
    lines: Sequence[ir.Line], blocks: Blocks, work: Work | None = None, collapse: Collapse | None = None
) -> dict[ir.Var, int]:
    """For each variable, the blocks it may depend on: an upper bound.

    With `collapse`, arguments of matrices W (not Wᵀ) are written in G-vars, so that what cancels in them is passed on.
    """
    forward = {u.line.out for u in uses(lines) if not u.transposed} if collapse is not None else set()
    found: dict[ir.Var, int] = {}

    def update(line: ir.Line) -> bool:
        value = blocks.get(line.out, 0)
        for v in _read(line):
            value |= found.get(v, 0)
        if value and collapse is not None and line.out in forward and isinstance(line, ir.MatMul):
            value = _cancelled(collapse, line.vector, found, value)
        changed = found.get(line.out, -1) != value
        found[line.out] = value
        return changed

    fixpoint(lines, update, work)
    return found


def _cancelled(collapse: Collapse, z: ir.Var, found: Mapping[ir.Var, int], value: int) -> int:
    """The blocks of those G-vars and C-vars that are left in z."""
    expr = None if z in collapse.intact else collapse.of(z)
    if expr is None:
        return value
    left = 0
    for s in expr.free_symbols:
        left |= found.get(collapse.variables[s], 0)
    return value & left


def _read(line: ir.Line) -> Sequence[ir.Var]:
    """The variables whose values matter: symbols that are still in the expression."""
    match line:
        case ir.InputVector():
            return ()  # covariances are the blocks' affair
        case ir.Nonlin() | ir.Moment():
            free = _free(line.expr)
            named = [v for i, v in enumerate(line.args) if ir.arg(i) in free]
            return [*named, *(c for j, c in enumerate(line.params) if ir.param(j) in free)]
        case (
            ir.InputMatrix() | ir.InputScalar() | ir.Data() | ir.Trsp() | ir.MatMul() | ir.IndexLine() | ir.Reduce()
            | ir.Softmax()
        ):  # fmt: skip
            return inputs_of(line)
        case _:
            assert_never(line)


@lru_cache(maxsize=4096)
def _free(expr: sp.Expr) -> frozenset[sp.Symbol]:
    return frozenset(expr.free_symbols)


def flips(
    lines: Sequence[ir.Line], blocks: Blocks, refine: bool = False, work: Work | None = None
) -> dict[ir.Var, Signature]:
    """The signature of each variable, over the bits of the blocks."""
    found: dict[ir.Var, Signature] = {}

    def update(line: ir.Line) -> bool:
        if work is not None and isinstance(line, ir.Nonlin | ir.Moment):
            work.take(refining_steps(line.expr) if refine else tree_size(line.expr), (refine, line.expr))
        value = _line(line, found, blocks, refined if refine else signature)
        before = found.get(line.out)
        if before is not None:
            value = _join(before, value)
        found[line.out] = value
        return value != before

    fixpoint(lines, update, work)
    return found


def _join(a: Signature, b: Signature) -> Signature:
    """What both allow; the zero vector has every sign."""
    if a.zero:
        return b
    if b.zero:
        return a
    return Signature(a.form, gf2.extend(a.equations, (*b.equations, a.form ^ b.form)))


_EVEN = Signature(0)
Rule = Callable[[sp.Expr], Signature]


def _line(line: ir.Line, found: Mapping[ir.Var, Signature], blocks: Blocks, rule: Rule) -> Signature:
    match line:
        case ir.InputVector() | ir.InputMatrix():
            return Signature(blocks.get(line.out, 0))
        case ir.InputScalar() | ir.Data():
            return _EVEN
        case ir.MatMul():
            return _times(found[line.matrix], found[line.vector])
        case ir.Nonlin() | ir.Moment():
            return _coordinatewise(line, found, rule)
        case ir.Softmax():
            return _softmax(line, found)
        case ir.Reduce():
            return _largest(found[line.of]) if line.op == "max" else found.get(line.of, ZERO)
        case ir.Trsp() | ir.IndexLine():
            return found.get(line.of, ZERO)  # linear in one argument; before a scan's first element it is zero
        case _:
            assert_never(line)


def _largest(of: Signature) -> Signature:
    return of if of.zero else Signature(0, gf2.extend(of.equations, (of.form,)))


def _times(a: Signature, b: Signature) -> Signature:
    if a.zero or b.zero:
        return ZERO
    return Signature(a.form ^ b.form, gf2.extend(a.equations, b.equations))


def _softmax(line: ir.Softmax, found: Mapping[ir.Var, Signature]) -> Signature:
    equations: gf2.Basis = ()
    for v in inputs_of(line):
        equations = gf2.extend(equations, (*found[v].equations, found[v].form))
    return Signature(0, equations)


_MANY = 12  # symbols: beyond, the signature is not first found in the symbols' own bits


def _coordinatewise(line: ir.Nonlin | ir.Moment, found: Mapping[ir.Var, Signature], rule: Rule) -> Signature:
    values = {ir.arg(i): found[v] for i, v in enumerate(line.args)}
    values |= {ir.param(j): found[c] for j, c in enumerate(line.params)}
    free = _free(line.expr)
    if len(free) > _MANY:
        return signature_of(line.expr, lambda s: values[s])
    zeros = frozenset(s for s, v in values.items() if v.zero and s in free)
    expr = steps_as_signs(line.expr)
    outer = _with_zeros(expr, zeros, rule)
    if outer.zero:
        return ZERO
    inner = {bit(s): v for s, v in values.items() if s in free and s not in zeros}
    return _compose(outer, inner)


@lru_cache(maxsize=4096)
def _with_zeros(expr: sp.Expr, zeros: frozenset[sp.Symbol], rule: Rule) -> Signature:
    if zeros:
        reduced = expr.xreplace({s: sp.Integer(0) for s in zeros})
        if not reduced.has(sp.zoo, sp.nan, sp.oo):
            expr = reduced
    return rule(expr)


def _compose(outer: Signature, inner: Mapping[int, Signature]) -> Signature:
    equations: gf2.Basis = ()
    for p in inner.values():
        if p.equations and p.equations is not equations:
            equations = gf2.extend(equations, p.equations)
    forms = {b: p.form for b, p in inner.items() if p.form}
    if forms and outer.equations:
        equations = gf2.extend(equations, (_combined(m, forms) for m in outer.equations))
    return Signature(_combined(outer.form, forms), equations)


def _combined(mask: int, forms: Mapping[int, int]) -> int:
    result = 0
    for b, form in forms.items():
        if mask & b:
            result ^= form
    return result
