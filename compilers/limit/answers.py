"""Questions about a limit, answered line by line: exactly or by quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, assert_never

import numpy as np
import sympy as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from netsor import ir
from netsor.build.program import Program
from netsor.compilers.finite.inputs import Group
from netsor.compilers.finite.tangent import trained_vectors
from netsor.compilers.limit.exact import Algebra, Element, Exact, Real, Sample, dot
from netsor.compilers.limit.functions import Functions
from netsor.compilers.limit.outputs import Outputs, Place, Read, elements, unrolled
from netsor.compilers.limit.polynomial import NotPolynomial, number
from netsor.compilers.limit.questions import Kernel, Moment, Question, Scalar, SecondMoment
from netsor.facts import Use, covariance, fan_in, input_vectors, ratio, reached, trained_uses
from netsor.passes.unroll import Unrolled

Numbers = NDArray[np.object_]
Named = ir.Var | Any  # an element of a family: a variable, or a constant
Answer = tuple[Any, Any]  # value and error, None when exact
MOST_LINES, MOST_FLOATS = 3000, 600  # lines times samples that are taken one by one


class LineAnswers:
    """Line by line, in exact rationals or by quadrature; families are unrolled.

    Values are `[sample, *axes]` or `[sample, sample′, *axes, *axes′]`: sympy rationals, or floats with the sum of what
    refining each quadrature changed, relative to the size of each entry, as their error.
    """

    def __init__(
        self, p: Program, groups: Sequence[Group], coupled: bool, algebra: Algebra, progress: bool | None = None
    ) -> None:
        self.source = self.program = p
        self.unrolled: Unrolled | None = None
        floats = isinstance(algebra, Functions)
        most = (MOST_FLOATS if floats else MOST_LINES) // max(1, sum(len(g.samples) for g in groups))
        if any(line.out.dims for line in p.lines):
            self.unrolled = unrolled(p, groups, most)
            self.program, groups = self.unrolled.program, [elements(self.unrolled, groups[0])]
        if (floats or self.unrolled) and len(self.program.lines) > most:
            raise NotPolynomial("too many lines")
        self.outputs = Outputs(p, self.unrolled)
        self.exact = Exact(self.program, groups, coupled, algebra, progress)

    def ask(self, question: Question) -> Answer:
        """Raises NotPolynomial where this is not the way."""
        value = self._answer(question)
        algebra = self.exact.gaussians
        if not isinstance(algebra, Functions):
            return value, None
        floats, bound = torch.as_tensor(value.astype(float)), algebra.bound
        return floats, bound * self._sizes(question, floats)

    def _sizes(self, question: Question, value: Tensor) -> Tensor:
        """What the relative bounds of expectations are multiplied by, entry by entry: √(E Z² E Z̄²), and alike."""
        match question:
            case Moment(u, power):
                return self._size(u, power)
            case SecondMoment(u, v):
                return outer(self._size(u, 2).sqrt(), self._size(v, 2).sqrt())
            case Scalar():
                return torch.full_like(value, max(1.0, float(value.abs().max())))
            case Kernel():
                shape = (len(self.exact.samples), *self.outputs.shape)
                blocks = value.reshape(shape[0], shape[0], len(self.outputs.places), -1)
                roots = torch.einsum("iiaa->ia", blocks).abs().sqrt().reshape(shape)
                return outer(roots, roots)
            case _:
                assert_never(question)

    def _size(self, u: ir.Var, power: int) -> Tensor:
        """(E |Z|^k)^{power/k}, k the even number that is power or follows it, `[sample, *axes]`."""
        even = 2 * -(-power // 2)
        values = torch.as_tensor(self._answer(Moment(u, even)).astype(float))
        return values.abs() ** (power / even)

    def _answer(self, question: Question) -> Numbers:
        mean, product = self.exact.gaussians.mean, self.exact.gaussians.product
        match question:
            case Moment(u, power):
                return self._each(u, lambda s, v: mean(self._vector_of(s, v) ** power))
            case Scalar(c):
                return self._each(c, self._scalar_of)
            case SecondMoment(u, v):
                return self._blocks(u, v, lambda s, x, t, y: product(self._vector_of(s, x), self._vector_of(t, y)))
            case Kernel(name):
                return self._kernel(self._nngp if name == "nngp" else self._ntk)
            case _:
                assert_never(question)

    # ------------------------------------------------------------ elements of families

    def _elements(self, u: ir.Var) -> tuple[tuple[int, ...], list[Named]]:
        """The sizes of a variable's axes, and its elements: variables or constants."""
        if self.unrolled is None:
            return (), [u]
        shape = tuple(self.unrolled.size(d.size) for d in u.dims)
        return shape, [self.unrolled.get(u, index) for index in self.unrolled.indices(u)]

    def _vector_of(self, s: Sample, v: Named) -> Element:
        algebra = self.exact.gaussians
        return s.vectors[v] if isinstance(v, ir.Var) else algebra.constant(algebra.number(v or 0))

    def _scalar_of(self, s: Sample, c: Named) -> Real:
        if not isinstance(c, ir.Var):
            return number(c)
        return s.scalars.irrational[c] if c in s.scalars.irrational else s.scalars[c]

    def _each(self, u: ir.Var, value: Callable[[Sample, Named], Real]) -> Numbers:
        shape, parts = self._elements(u)
        found = [[self._number(value(s, v)) for v in parts] for s in self.exact.samples]
        return np.array(found, dtype=object).reshape(len(found), *shape)

    def _blocks(self, u: ir.Var, v: ir.Var, value: Callable[[Sample, Named, Sample, Named], Real]) -> Numbers:
        (shape, one), (other, two) = self._elements(u), self._elements(v)
        samples = self.exact.samples
        found = [[[[self._number(value(s, x, t, y)) for y in two] for x in one] for t in samples] for s in samples]
        return np.array(found, dtype=object).reshape(len(samples), len(samples), *shape, *other)

    def _number(self, value: Real) -> Real:
        return float(value) if isinstance(self.exact.gaussians, Functions) else rational(value)

    # ------------------------------------------------------------ kernels

    def _kernel(self, value: Callable[[Sample, Place, Sample, Place], Real]) -> Numbers:
        """`[sample, sample′, *output axes, *output axes′]`, one entry after the other."""
        places, shape, samples = self.outputs.places, self.outputs.shape, self.exact.samples
        ends = [(s, i) for s in samples for i in places]
        found = np.empty((len(ends), len(ends)), dtype=object)
        for a, (s, i) in enumerate(ends):
            for b, (t, j) in enumerate(ends[: a + 1]):
                found[a, b] = found[b, a] = self._number(value(s, i, t, j))
        blocks = found.reshape(len(samples), len(places), len(samples), len(places)).transpose(0, 2, 1, 3)
        return blocks.reshape(len(samples), len(samples), *shape, *shape)

    def _nngp(self, s: Sample, i: Place, t: Sample, j: Place) -> Real:
        lines = {x.out: x for x in input_vectors(self.program.lines)}
        number = self.exact.gaussians.number
        total = number(0)
        for one in self.outputs.read(i):
            for two in self.outputs.read(j):
                v, w = lines[one.readout], lines[two.readout]
                stated = number(covariance(v, w))
                if stated:
                    scale = self._weight(one, two) * number(v.multiplier) * number(w.multiplier) * stated
                    total += scale * self._met(s, one, t, two)
        return total

    def _ntk(self, s: Sample, i: Place, t: Sample, j: Place) -> Real:
        """Eq. 12: over all pairs of uses of every trained array."""
        p, forward = self.program, reached(self.program)
        number = self.exact.gaussians.number
        total = number(0)
        for line, uses in trained_uses(p.lines).items():
            used = [u for u in uses if u.line.out in forward]
            pairs = [self._sides(u, s, i) for u in used], [self._sides(u, t, j) for u in used]
            scale = number(line.multiplier) ** 2 * _ratio(line.out.rows) / _ratio(self.outputs.rows)
            for left, right in pairs[0]:
                for left2, right2 in pairs[1]:
                    total += scale * self._product(left, left2, line) * self._product(right, right2, line)
        for vector in trained_vectors(p):
            if vector.out in forward:
                total += self._vector(vector, (s, i), (t, j))
        return total

    def _sides(self, use: Use, s: Sample, i: Place) -> tuple[Any, Any]:
        gradient = self.outputs.gradients(i).get(use.line.out)
        dy = None if gradient is None else self._vector_of(s, gradient)
        z = s.data.get(use.line.vector) or s.vectors.get(use.line.vector)
        return (z, dy) if use.transposed else (dy, z)

    def _product(self, a: Any, b: Any, line: ir.InputMatrix) -> Any:
        number = self.exact.gaussians.number
        if a is None or b is None:
            return number(0)
        if isinstance(a, tuple):
            return dot(a, b) / number(fan_in(line, len(a)))
        return self.exact.gaussians.product(a, b)

    def _vector(self, vector: ir.InputVector, one: tuple[Sample, Place], two: tuple[Sample, Place]) -> Real:
        number = self.exact.gaussians.number
        scale = number(vector.multiplier) ** 2
        if vector.out in self.outputs.stated:
            left, right = (self._vector_of(s, self.outputs.gradients(i)[vector.out]) for s, i in (one, two))
            ratio = _ratio(vector.out.rows) / _ratio(self.outputs.rows)
            return scale * ratio * self.exact.gaussians.product(left, right)
        (s, i), (t, j) = one, two
        mine = [r for r in self.outputs.read(i) if r.readout is vector.out]
        theirs = [r for r in self.outputs.read(j) if r.readout is vector.out]
        return scale * sum((self._weight(a, b) * self._met(s, a, t, b) for a in mine for b in theirs), number(0))

    def _met(self, s: Sample, one: Read, t: Sample, two: Read) -> Real:
        return self.exact.gaussians.product(self._vector_of(s, one.vector), self._vector_of(t, two.vector))

    def _weight(self, one: Read, two: Read) -> Real:
        """scale scale̅/√(|P| |P̅|)"""
        number = self.exact.gaussians.number
        square = one.positions * two.positions
        root = math.isqrt(square)
        if root * root != square and not isinstance(self.exact.gaussians, Functions):
            raise NotPolynomial(f"√{square} is not rational")
        return number(one.scale) * number(two.scale) / (number(root) if root * root == square else math.sqrt(square))


def outer(a: Tensor, b: Tensor) -> Tensor:
    """a[i, …] b[j, …′] as `[i, j, …, …′]`."""
    table = torch.einsum("ia,jb->ijab", a.reshape(len(a), -1), b.reshape(len(b), -1))
    return table.reshape(len(a), len(b), *a.shape[1:], *b.shape[1:])


def rational(value: Fraction | sp.Expr) -> sp.Expr:
    return sp.Rational(value.numerator, value.denominator) if isinstance(value, Fraction) else value


def _ratio(width: ir.Dimension | None) -> Fraction:
    return number(ratio(width))
