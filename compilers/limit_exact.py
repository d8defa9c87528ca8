"""The limit of a program whose functions are polynomials, exactly (Tensor Programs III; Wick's theorem).

Every Z is a polynomial in independent Gaussian variables. The arguments of a matrix are written in an orthogonal basis
z = Σ_i c_i e_i that grows with every use, Ẑ^{Wz} = Σ_i c_i g_i with Var g_i = σ_W² E e_i², and
Ż^{Wz} = σ_W² Σ_i E[∂Z^z/∂g′_i] e′_i over the basis e′_i of the earlier arguments of Wᵀ, whose images are g′_i;
Stein's lemma gives E[∂Z^z/∂g′_i] = E[Z^z g′_i] / Var g′_i. No square roots are taken, so rationals stay rationals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from netsor import ir
from netsor.compilers.finite.arrays import correlated_blocks
from netsor.compilers.finite.inputs import Group
from netsor.compilers.limit_polynomial import Gaussians, NotPolynomial, Polynomial, number, polynomial_coefficients

Data = tuple[Fraction, ...]
Image = tuple[Polynomial, Polynomial, Fraction]  # e, its image g, Var g


@dataclass
class Direction:
    """W or Wᵀ: σ² and its basis."""

    variance: Fraction
    basis: list[Image] = field(default_factory=list)


@dataclass
class Sample:
    """The limit variables of one sample: vectors, scalars and data by variable."""

    vectors: dict[ir.Var, Polynomial] = field(default_factory=dict)
    scalars: dict[ir.Var, Fraction] = field(default_factory=dict)
    data: dict[ir.Var, Data] = field(default_factory=dict)


class Exact:
    """The lines of a program on all samples, one after the other; `coupled` False drops Ż."""

    def __init__(self, p: Any, groups: Sequence[Group], coupled: bool) -> None:
        if any(line.out.dims for line in p.lines):
            raise NotPolynomial("families are sampled")
        self.program = p
        self.coupled = coupled
        self.gaussians = Gaussians()
        self.matrices: dict[ir.Var, tuple[ir.Var, bool]] = {}
        self.directions: dict[tuple[ir.Var, bool], Direction] = {}
        self.embedded: dict[ir.Var, tuple[Fraction, list[tuple[Data, Polynomial]]]] = {}
        self.inputs: dict[ir.Var, Polynomial] = {}
        for block in correlated_blocks(p):
            self._input_vectors(block)
        self.samples: list[Sample] = [Sample() for _ in range(sum(len(g.samples) for g in groups) or 1)]
        for group in groups:
            for k, place in enumerate(group.samples):
                self._sample(self.samples[place], {v: x.data[k] for v, x in group.values.items()})

    # ------------------------------------------------------------ inputs

    def _input_vectors(self, block: Sequence[ir.InputVector]) -> None:
        """β = mean + Σ_j l_j g_j with l from L D Lᵀ, the block's covariances."""
        basis: list[tuple[int, Polynomial, Fraction]] = []  # the line that brought it, the variable, its variance
        factors: list[list[Fraction]] = []
        for line in block:
            row: list[Fraction] = []
            for owner, _, variance in basis:
                known = sum(
                    (a * b * d for a, b, (_, _, d) in zip(row, factors[owner], basis, strict=False)), Fraction(0)
                )
                row.append((covariance(line, block[owner]) - known) / variance)
            rest = number(line.var) - sum((a * a * d for a, (_, _, d) in zip(row, basis, strict=True)), Fraction(0))
            if rest < 0:
                raise NotPolynomial("the covariances are not those of any vectors")
            if rest:
                basis.append((len(factors), self.gaussians.fresh(rest), rest))
                row.append(Fraction(1))
            factors.append(row)
            whole = Polynomial.constant(number(line.mean))
            for c, (_, g, _) in zip(row, basis, strict=True):
                whole = whole + g.scaled(c)
            self.inputs[line.out] = whole.scaled(number(line.multiplier))

    # ------------------------------------------------------------ lines

    def _sample(self, s: Sample, given: dict[ir.Var, Any]) -> None:
        for line in self.program.lines:
            match line:
                case ir.InputMatrix():
                    self._matrix(line)
                case ir.Trsp():
                    root, flipped = self.matrices[line.of]
                    self.matrices[line.out] = root, not flipped
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
                case _:
                    raise NotPolynomial(f"{line.out} is sampled")

    def _matrix(self, line: ir.InputMatrix) -> None:
        if line.out in self.matrices:
            return
        self.matrices[line.out] = line.out, False
        variance = number(line.multiplier) ** 2 * number(line.var)
        rows, cols = line.out.rows, line.out.cols
        self.directions[line.out, False] = Direction(variance)
        if isinstance(rows, ir.Width) and isinstance(cols, ir.Width):
            self.directions[line.out, True] = Direction(variance * number(rows.ratio) / number(cols.ratio))
        fan_in = {"cols": Fraction(0), None: Fraction(1)}.get(line.fan_in)  # type: ignore[arg-type]
        self.embedded[line.out] = number(line.fan_in) if fan_in is None else fan_in, []

    def _matmul(self, line: ir.MatMul, s: Sample) -> Polynomial:
        root, flipped = self.matrices[line.matrix]
        if line.vector in s.data:
            return self._embedding(root, s.data[line.vector])
        one, other = self.directions[root, flipped], self.directions.get((root, not flipped))
        z, mean = s.vectors[line.vector], self.gaussians.product
        rest, image = z, Polynomial({})
        for e, g, _ in one.basis:
            c = mean(z, e) / mean(e, e)
            rest, image = rest + e.scaled(-c), image + g.scaled(c)
        size = mean(rest, rest)
        if size and one.variance:
            fresh = self.gaussians.fresh(one.variance * size)
            one.basis.append((rest, fresh, one.variance * size))
            image = image + fresh
        if self.coupled and other is not None:
            for e, g, variance in other.basis:
                image = image + e.scaled(one.variance * mean(z, g) / variance)
        return image

    def _embedding(self, root: ir.Var, x: Data) -> Polynomial:
        fan_in, basis = self.embedded[root]
        weight = 1 / (fan_in or Fraction(len(x)))
        rest, image = x, Polynomial({})
        for e, g in basis:
            c = dot(x, e) / dot(e, e)
            rest = tuple(a - c * b for a, b in zip(rest, e, strict=True))
            image = image + g.scaled(c)
        size = self.directions[root, False].variance * weight * dot(rest, rest)
        if size:
            fresh = self.gaussians.fresh(size)
            basis.append((rest, fresh))
            image = image + fresh
        return image

    def _coordinatewise(self, line: ir.Nonlin | ir.Moment, s: Sample) -> None:
        params = {ir.param(j): s.scalars[c] for j, c in enumerate(line.params)}
        terms = polynomial_coefficients(line.expr, [ir.arg(i) for i in range(len(line.args))], params)
        if line.out.kind == "X":
            columns = zip(*(s.data[a] for a in line.args), strict=True)
            s.data[line.out] = tuple(_value(terms, column) for column in columns)
            return
        if any(a in s.data for a in line.args):
            raise NotPolynomial("a moment over data is sampled")
        total = Polynomial({})
        for powers, c in terms:
            part = Polynomial.constant(c)
            for a, k in zip(line.args, powers, strict=False):
                part = part * s.vectors[a] ** k
            total = total + part
        if isinstance(line, ir.Moment):
            s.scalars[line.out] = self.gaussians.mean(total)
        else:
            s.vectors[line.out] = total


def covariance(a: ir.InputVector, b: ir.InputVector) -> Fraction:
    """The covariance that the lines state."""
    stated = [c for v, c in a.cov if v is b.out] + [c for v, c in b.cov if v is a.out]
    return number(stated[0]) if stated else Fraction(0)


def _value(terms: Sequence[tuple[tuple[int, ...], Fraction]], column: Sequence[Fraction]) -> Fraction:
    total = Fraction(0)
    for powers, c in terms:
        for x, k in zip(column, powers, strict=True):
            c *= x**k
        total += c
    return total


def dot(x: Data, y: Data) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))
