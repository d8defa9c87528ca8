"""The NTK by trained array: D·C from the backward lines (Tensor Programs II, Eq. 12), or the tangent kernel of each.

A use y = W z contributes multiplier² · (rows/n_out) · E[dy dȳ] · E[z z̄] over all pairs of uses of W; a bias
multiplier² · (n_b/n_out) · E[db db̄]; a readout multiplier² · scale² · E[x x̄] (averaged over its axes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netsor import facts, ir
from netsor.compilers.derive.entries.arithmetic import add, mul
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.entries.terms import Terms, dense, inside, scale, sum_left, swap
from netsor.compilers.derive.entries.values import ONE, SECOND_MOMENT, Kind, Num, Value
from netsor.compilers.derive.references import Ref
from netsor.compilers.derive.rules import readouts_flip
from netsor.errors import CheckError, UnsupportedError
from netsor.functions import exact

if TYPE_CHECKING:
    from netsor.compilers.derive.recursion import Derivation

Term = tuple[Value, tuple[Sym, ...]]  # a value and its free symbols


def tangent_terms(d: Derivation) -> dict[str, Term]:
    """The tangent kernel with one array trained at a time; needs no backward lines."""
    out = {}
    for line in facts.trained(d.program.lines):
        out[line.out.name] = d.kernel_value(Kind("T", line.out))
    return out


def array_terms(d: Derivation) -> dict[str, Term]:
    """D·C for each trained array."""
    return {line.out.name: (_Terms(d).of(line), ()) for line in facts.trained(d.program.lines)}


class _Terms:
    def __init__(self, d: Derivation) -> None:
        self.d = d
        self.gradient: dict[ir.Var, ir.Var] = {g.of: g.is_ for g in d.program.gradients}
        self.n_out = exact(facts.ratio(d.program.outputs[0].readout.rows))

    def of(self, line: ir.InputMatrix | ir.InputVector) -> Value:
        if isinstance(line, ir.InputMatrix):
            return self._matrix(line)
        parts = [self._readout(line)]
        if line.out in self.gradient:
            parts.append(self._vector(line))
        elif self._is_used(line.out):
            raise _missing(line.out, line.out)
        return add(*parts)

    def _is_used(self, var: ir.Var) -> bool:
        backward = facts.backward(self.d.program)
        return any(var in facts.inputs_of(x) and x.out not in backward for x in self.d.program.lines)

    # ------------------------------------------------------------ matrices

    def _matrix(self, line: ir.InputMatrix) -> Value:
        uses = self._uses(line)
        weight = exact(line.multiplier) ** 2 * exact(facts.ratio(line.out.rows)) / self.n_out
        parts = [self._pair_of_uses(line, a, b) for a in uses for b in uses if self._together(line, a, b)]
        fan = self.d.rules.fan_in(line, self.d.normal.of_var[uses[0].vector]) if uses else ONE
        return mul(Num(weight), fan, add(*parts))

    def _together(self, line: ir.InputMatrix, a: ir.MatMul, b: ir.MatMul) -> bool:
        """Both of W or both of Wᵀ; other pairs, E dh ā · E x dȳ, vanish with readouts of mean zero."""
        if (a.matrix is line.out) == (b.matrix is line.out):
            return True
        if readouts_flip(self.d.program):
            return False
        raise UnsupportedError(
            f"the NTK through a forward use of the transpose of {line.out.name} (line {b.out.name}), with a readout of"
            " nonzero mean or in the forward pass", code="NT702", location=b.loc,
            hint="ns.limit handles programs that are not BP-like",
        )  # fmt: skip

    def _uses(self, line: ir.InputMatrix) -> list[ir.MatMul]:
        """Forward uses of W and of Wᵀ: those with a gradient, or that no gradient is made of."""
        backward = facts.backward(self.d.program)
        uses = [u.line for u in facts.trained_uses(self.d.program.lines)[line] if u.line.out not in backward]
        for x in uses:
            if x.out not in self.gradient:
                raise _missing(line.out, x.out)
        return uses

    def _pair_of_uses(self, line: ir.InputMatrix, a: ir.MatMul, b: ir.MatMul) -> Value:
        """Σ E[dy dȳ] E[z z̄], the matrix's own axes unified, all others summed separately."""
        own = line.out.axes
        left = self._symbols(a.out.dims, Copy.FIRST)
        right = self._symbols(b.out.dims, Copy.SECOND) | {x: left[x] for x in own}
        dy = self._ref(self.gradient[a.out], Copy.FIRST, left), self._ref(self.gradient[b.out], Copy.SECOND, right)
        z = self._ref(a.vector, Copy.FIRST, left), self._ref(b.vector, Copy.SECOND, right)
        terms = self.d.after(self.d.rules.second_moment(*dy), SECOND_MOMENT, *z)
        summed = [s for x, s in left.items() if x not in own], [s for x, s in right.items() if x not in own]
        return self._total(terms, *summed, [left[x] for x in own])

    # ------------------------------------------------------------ vectors

    def _vector(self, line: ir.InputVector) -> Value:
        """Σ over the array's own axes E[db db̄]."""
        db = self.gradient[line.out]
        left = self._symbols(line.out.dims, Copy.FIRST)
        terms = self.d.rules.second_moment(self._ref(db, Copy.FIRST, left), self._ref(db, Copy.SECOND, left))
        weight = exact(line.multiplier) ** 2 * exact(facts.ratio(line.out.rows)) / self.n_out
        return mul(Num(weight), self._total(terms, [], [], list(left.values())))

    def _readout(self, line: ir.InputVector) -> Value:
        outputs = [o for o in self.d.program.outputs if o.readout is line.out]
        kind = Kind("T", line.out)
        return add(*(self.d.readout_term(kind, a, b) for a in outputs for b in outputs))

    # ------------------------------------------------------------ symbols

    def _symbols(self, dims: tuple[ir.Dim, ...], copy: Copy) -> dict[ir.Axis, Sym]:
        return {x.axis: self.d.rules.q.fresh(x, copy) for x in dims}

    def _ref(self, var: ir.Var, copy: Copy, table: dict[ir.Axis, Sym]) -> Ref:
        return self.d.rules.q.ref(self.d.normal.of_var[var], copy, lambda x: table[x.axis])

    @staticmethod
    def _total(terms: Terms, left: list[Sym], right: list[Sym], shared: list[Sym]) -> Value:
        for s in left:
            terms = sum_left(terms, s)
        terms = swap(terms)
        for s in right:
            terms = sum_left(terms, s)
        terms = swap(terms)
        for s in shared:
            terms = sum_left(scale(terms, _in_both(s)), s)
        return dense(terms)


def _in_both(s: Sym) -> Value:
    """1 where a symbol of the first copy is inside the second copy's axis too: an array's elements that both use."""
    return ONE if isinstance(s.size, int) else inside(s, s._replace(copy=Copy.SECOND))


def _missing(array: ir.Var, of: ir.Var) -> CheckError:
    return CheckError(
        f"the gradient of {of.name} is missing, so the NTK term of {array.name} cannot be formed", code="NT501",
        hint="p.backward() adds the backward pass, or p.gradient(of=…, is_=…) says which line it is",
    )  # fmt: skip
