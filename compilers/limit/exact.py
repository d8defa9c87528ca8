"""The limit of a straight-line program without sampling (Tensor Programs III).

Every Z is an element of an algebra over independent Gaussian variables: of polynomials with rational coefficients whose
expectations are exact (Wick's theorem, `Gaussians`), or of sums of products of functions of Gaussian variables, whose
expectations are quadratures (`Functions`). The arguments of a matrix are written in an orthogonal basis
z = Σ_i c_i e_i that grows with every use, Ẑ^{Wz} = Σ_i c_i g_i with Var g_i = σ_W² E e_i², and
Ż^{Wz} = σ_W² Σ_i E[∂Z^z/∂g′_i] e′_i over the basis e′_i of the earlier arguments of Wᵀ, whose images are g′_i;
Stein's lemma gives E[∂Z^z/∂g′_i] = E[Z^z g′_i] / Var g′_i. No square roots are taken, so rationals stay rationals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, assert_never

import sympy as sp

from netsor import facts, ir
from netsor.compilers.budget.progress import Progress
from netsor.compilers.finite.inputs import Group
from netsor.compilers.limit.polynomial import NotPolynomial, polynomial_coefficients

Real = Any  # Fraction | float
Element = Any  # Polynomial | Sum
Data = tuple[Real, ...]
Image = tuple[Element, Element, Real]  # e, its image g, Var g


class Algebra(Protocol):
    """Independent Gaussian variables, elements made of them, and expectations."""

    zero: Any
    tiny: float  # the share of a squared length that is rounding
    passes: int  # of orthogonalisation, two against rounding

    def constant(self, c: Any, /) -> Element: ...
    def number(self, value: Any, /) -> Real: ...
    def negligible(self, size: Any, whole: Any, /) -> bool: ...
    def fresh(self, variance: Any, /) -> Element: ...
    def function(self, expr: sp.Expr, args: Any, params: Any, /) -> Element: ...
    def mean(self, p: Any, /) -> Real: ...
    def product(self, p: Any, q: Any, /) -> Real: ...


@dataclass
class Direction:
    """W or Wᵀ: σ² and its basis."""

    variance: Real
    basis: list[Image] = field(default_factory=list)


class Scalars(dict[ir.Var, Real]):
    """Limits of scalars; irrational ones stand apart, for nothing exact is computed from them."""

    def __init__(self) -> None:
        self.irrational: dict[ir.Var, sp.Expr] = {}

    def __missing__(self, c: ir.Var) -> Real:
        raise NotPolynomial(f"{c} is irrational")


@dataclass
class Sample:
    """The limit variables of one sample: vectors, scalars and data by variable."""

    vectors: dict[ir.Var, Element] = field(default_factory=dict)
    scalars: Scalars = field(default_factory=Scalars)
    data: dict[ir.Var, Data] = field(default_factory=dict)


class Exact:
    """The lines of a program on all samples, one after the other; `coupled` False drops Ż."""

    def __init__(
        self, p: ir.ProgramLike, groups: Sequence[Group], coupled: bool, algebra: Algebra, progress: bool | None = None
    ) -> None:
        if any(line.out.dims for line in p.lines):
            raise NotPolynomial("families are sampled")
        self.program = p
        self.coupled = coupled
        self.gaussians = algebra
        self.matrices = facts.matrices(p.lines)
        self.directions: dict[tuple[ir.Var, bool], Direction] = {}
        self.embedded: dict[ir.Var, list[tuple[Data, Element]]] = {}
        self.inputs: dict[ir.Var, Element] = {}
        for block in facts.covariance_blocks(p.lines):
            self._input_vectors(block)
        self.samples: list[Sample] = [Sample() for _ in range(sum(len(g.samples) for g in groups) or 1)]
        with Progress(p.name, len(self.samples) * len(p.lines), "lines", progress) as shown:
            for group in groups:
                for k, place in enumerate(group.samples):
                    self._sample(self.samples[place], {v: x.data[k] for v, x in group.values.items()}, shown)

    # ------------------------------------------------------------ inputs

    def _input_vectors(self, block: Sequence[ir.InputVector]) -> None:
        """β = mean + Σ_j l_j g_j with l from L D Lᵀ, the block's covariances."""
        basis: list[tuple[int, Element, Real]] = []  # the line that brought it, the variable, its variance
        factors: list[list[Real]] = []
        number = self.gaussians.number
        for line in block:
            row: list[Real] = []
            for owner, _, variance in basis:
                known = sum((a * b * d for a, b, (_, _, d) in zip(row, factors[owner], basis, strict=False)), number(0))
                row.append((number(facts.covariance(line, block[owner])) - known) / variance)
            whole = number(line.var)
            rest = whole - sum((a * a * d for a, (_, _, d) in zip(row, basis, strict=True)), number(0))
            if rest < 0 and not self.gaussians.negligible(-rest, whole):
                raise NotPolynomial("the covariances are not those of any vectors")
            if not self.gaussians.negligible(rest, whole):
                basis.append((len(factors), self.gaussians.fresh(rest), rest))
                row.append(number(1))
            factors.append(row)
            total = self.gaussians.constant(number(line.mean))
            for c, (_, g, _) in zip(row, basis, strict=True):
                total = total + g.scaled(c)
            self.inputs[line.out] = total.scaled(number(line.multiplier))

    # ------------------------------------------------------------ lines

    def _sample(self, s: Sample, given: dict[ir.Var, Any], shown: Progress) -> None:
        number = self.gaussians.number
        for line in self.program.lines:
            match line:
                case ir.InputMatrix():
                    self._matrix(line)
                case ir.Trsp():
                    pass  # `self.matrices` says what it is
                case ir.InputVector():
                    s.vectors[line.out] = self.inputs[line.out]
                case ir.Data():
                    s.data[line.out] = tuple(number(float(c)) for c in given[line.out])
                case ir.InputScalar():
                    s.scalars[line.out] = number(float(given[line.out]) if line.out in given else line.limit)
                case ir.MatMul():
                    s.vectors[line.out] = self._matmul(line, s)
                case ir.Nonlin() | ir.Moment():
                    self._coordinatewise(line, s)
                case ir.IndexLine() | ir.Reduce() | ir.Softmax():
                    raise NotPolynomial(f"{line.out} is sampled")
                case _:
                    assert_never(line)
            shown.done(1)

    def _matrix(self, line: ir.InputMatrix) -> None:
        if line.out in self.embedded:
            return
        number = self.gaussians.number
        variance = number(line.multiplier) ** 2 * number(line.var)
        rows, cols = line.out.rows, line.out.cols
        self.directions[line.out, False] = Direction(variance)
        if isinstance(rows, ir.Width) and isinstance(cols, ir.Width):
            self.directions[line.out, True] = Direction(variance * number(rows.ratio) / number(cols.ratio))
        self.embedded[line.out] = []

    def _matmul(self, line: ir.MatMul, s: Sample) -> Element:
        source, flipped = self.matrices[line.matrix]
        if line.vector in s.data:
            return self._embedding(source, s.data[line.vector])
        one, other = self.directions[source.out, flipped], self.directions.get((source.out, not flipped))
        z, mean = s.vectors[line.vector], self.gaussians.product
        rest, image = z, self.gaussians.zero
        for e, g, _ in one.basis * self.gaussians.passes:
            c = mean(rest, e) / mean(e, e)
            rest, image = rest + e.scaled(-c), image + g.scaled(c)
        size = mean(rest, rest)
        if one.variance and not self.gaussians.negligible(size, mean(z, z)):
            fresh = self.gaussians.fresh(one.variance * size)
            one.basis.append((rest, fresh, one.variance * size))
            image = image + fresh
        if self.coupled and other is not None:
            for e, g, variance in other.basis:
                image = image + e.scaled(one.variance * mean(z, g) / variance)
        return image

    def _embedding(self, source: ir.InputMatrix, x: Data) -> Element:
        basis = self.embedded[source.out]
        weight = 1 / self.gaussians.number(facts.fan_in(source, len(x)))
        rest, image = x, self.gaussians.zero
        for e, g in basis * self.gaussians.passes:
            c = dot(rest, e) / dot(e, e)
            rest = tuple(a - c * b for a, b in zip(rest, e, strict=True))
            image = image + g.scaled(c)
        size = self.directions[source.out, False].variance * weight * dot(rest, rest)
        if size and dot(rest, rest) > self.gaussians.tiny * dot(x, x):
            fresh = self.gaussians.fresh(size)
            basis.append((rest, fresh))
            image = image + fresh
        return image

    def _coordinatewise(self, line: ir.Nonlin | ir.Moment, s: Sample) -> None:
        params = {ir.param(j): s.scalars[c] for j, c in enumerate(line.params)}
        symbols = [ir.arg(i) for i in range(len(line.args))]
        if line.out.kind == "X":
            exact = {k: Fraction(v) for k, v in params.items()}
            terms = polynomial_coefficients(line.expr, symbols, exact)
            columns = zip(*(s.data[a] for a in line.args), strict=True)
            s.data[line.out] = tuple(_value(terms, column) for column in columns)
            return
        if any(a in s.data for a in line.args):
            raise NotPolynomial("a moment over data is sampled")
        args = {symbol: s.vectors[a] for symbol, a in zip(symbols, line.args, strict=True)}
        try:
            total = self.gaussians.function(line.expr, args, params)
        except NotPolynomial:
            value = line.expr.xreplace({k: sp.Rational(v.numerator, v.denominator) for k, v in params.items()})
            if args or isinstance(line, ir.Nonlin) or not (value.is_real and value.is_finite):
                raise
            s.scalars.irrational[line.out] = value
            return
        if isinstance(line, ir.Moment):
            s.scalars[line.out] = self.gaussians.mean(total)
        else:
            s.vectors[line.out] = total


def _value(terms: Sequence[tuple[tuple[int, ...], Fraction]], column: Sequence[Real]) -> Real:
    total: Real = Fraction(0)
    for powers, coefficient in terms:
        c: Real = coefficient
        for x, k in zip(column, powers, strict=True):
            c *= x**k
        total += c
    return total


def dot(x: Data, y: Data) -> Real:
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))
