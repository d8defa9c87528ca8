"""The closed family of coordinatewise functions, and its derivatives.

A `Term` is `x^power · exp(linear·x − quadratic·x²) · S(x)` with a gate S: a step, an erf, or nothing. Gaussian
expectations of a product of two terms are known in closed form (`closed.py`), and the family is closed under
differentiation, scaling and multiplication by x once the distributions `Delta` are admitted.
A complex `linear` stands for sin and cos: a function is the real part of Σ coefficient · term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from netsor.compilers.expectation.functions import Fn

Number = float | complex


@dataclass(frozen=True)
class Gate:
    """S(x) = mid + half · E sgn(x + √noise·n), n ~ N(0, 1).

    Noise 0 is a step (at the jump: the midpoint); noise τ > 0 is `mid + half·erf(x/√(2τ))`.
    """

    mid: float
    half: float
    noise: float

    def __call__(self, x: Tensor) -> Tensor:
        sign = torch.special.erf(x / math.sqrt(2 * self.noise)) if self.noise else torch.sign(x)
        return self.mid + self.half * sign


@dataclass(frozen=True)
class Term:
    """`x^power · exp(linear·x − quadratic·x²) · gate(x)`, quadratic ≥ 0."""

    power: int = 0
    linear: Number = 0.0
    quadratic: float = 0.0
    gate: Gate | None = None

    @property
    def oscillates(self) -> bool:
        return isinstance(self.linear, complex)


@dataclass(frozen=True)
class Delta:
    """The order-th derivative of the Dirac distribution at a point."""

    at: float = 0.0
    order: int = 0


@dataclass(frozen=True, eq=False)
class Numeric:
    """A function known by its values: C^∞ between the kinks, which are where it or its derivative jumps."""

    call: Callable[[Tensor], Tensor]
    kinks: tuple[float, ...]
    derivative: Callable[[], Fn]


Atom = Term | Delta | Numeric
Sum = tuple[tuple[Number, Atom], ...]


def value(coefficient: Number, atom: Atom, x: Tensor) -> Tensor:
    """Re(coefficient · atom(x)); a distribution is zero almost everywhere."""
    if isinstance(atom, Numeric):
        return coefficient.real * atom.call(x)
    if isinstance(atom, Delta):
        return torch.zeros_like(x)
    gate = atom.gate
    out = x**atom.power if atom.power else torch.ones_like(x)
    if gate is not None:
        out = out * gate(x)
        if not gate.noise and abs(gate.mid) == abs(gate.half):
            x = x.clamp(min=0) if gate.mid == gate.half else x.clamp(max=0)  # no overflow on the dead side
    if not atom.linear and not atom.quadratic:
        return coefficient.real * out
    return out * _exponential(coefficient, atom, x)


def _exponential(coefficient: Number, term: Term, x: Tensor) -> Tensor:
    growth = torch.exp(term.linear.real * x - term.quadratic * x * x)
    if not term.oscillates:
        return coefficient.real * growth
    angle = term.linear.imag * x
    return growth * (coefficient.real * torch.cos(angle) - coefficient.imag * torch.sin(angle))


def derivative(atom: Atom) -> Sum:
    """d/dx in the sense of distributions: a step has a Delta as its derivative."""
    if isinstance(atom, Numeric):
        return atom.derivative().terms
    if isinstance(atom, Delta):
        return ((1.0, replace(atom, order=atom.order + 1)),)
    out: list[tuple[Number, Atom]] = []
    if atom.power:
        out.append((float(atom.power), replace(atom, power=atom.power - 1)))
    if atom.linear:
        out.append((atom.linear, atom))
    if atom.quadratic:
        out.append((-2.0 * atom.quadratic, replace(atom, power=atom.power + 1)))
    return (*out, *_gate_derivative(atom))


def _gate_derivative(term: Term) -> Sum:
    gate = term.gate
    if gate is None:
        return ()
    if not gate.noise:
        return ((2.0 * gate.half, Delta()),) if term.power == 0 else ()
    rate = 1 / (2 * gate.noise)
    peak = 2.0 * gate.half / math.sqrt(2 * math.pi * gate.noise)
    return ((peak, replace(term, gate=None, quadratic=term.quadratic + rate)),)


def rescaled(atom: Atom, a: float) -> tuple[float, Atom]:
    """x ↦ atom(a·x) for a ≠ 0, as a factor and an atom."""
    if isinstance(atom, Numeric):
        call, slope = atom.call, atom.derivative
        kinks = tuple(sorted(c / a for c in atom.kinks))
        return 1.0, Numeric(lambda x: call(a * x), kinks, lambda: _chain(slope(), a))
    if isinstance(atom, Delta):
        return 1 / (abs(a) * a**atom.order), Delta(atom.at / a, atom.order)
    gate = atom.gate
    if gate is not None:
        gate = Gate(gate.mid, math.copysign(gate.half, gate.half * a), gate.noise / (a * a))
    return float(a**atom.power), Term(atom.power, atom.linear * a, atom.quadratic * a * a, gate)


def _chain(slope: Fn, a: float) -> Fn:
    from netsor.compilers.expectation.functions import combine, scaled

    return combine((a, scaled(slope, a)))


def times_x(atom: Atom) -> Sum:
    """x·atom(x)."""
    if isinstance(atom, Numeric):
        call, slope = atom.call, atom.derivative
        return ((1.0, Numeric(lambda x: x * call(x), atom.kinks, lambda: _product_rule(atom, slope()))),)
    if isinstance(atom, Delta):
        lower = ((-float(atom.order), replace(atom, order=atom.order - 1)),) if atom.order else ()
        return ((atom.at, atom), *lower) if atom.at else lower
    return ((1.0, replace(atom, power=atom.power + 1)),)


def _product_rule(atom: Atom, slope: Fn) -> Fn:
    from netsor.compilers.expectation.functions import combine, from_terms, times_power

    return combine((1.0, from_terms(((1.0, atom),), "f")), (1.0, times_power(slope, 1)))


def collect(terms: Sum) -> Sum:
    """The same sum with equal atoms merged and zero coefficients dropped."""
    total: dict[Atom, Number] = {}
    for coefficient, atom in terms:
        total[atom] = total.get(atom, 0.0) + coefficient
    return tuple((c, atom) for atom, c in total.items() if c != 0)


def signs(sum_: Sum) -> Sum:
    """The same sum with a + b·step, 2a + b = 0, as one term (b/2)·sgn: E sgn·sgn is small where ¼ + … − ¼ cancels."""
    size = {atom: c for c, atom in sum_ if isinstance(atom, Term)}
    one, step = Term(), Term(gate=Gate(0.5, 0.5, 0.0))
    if not size.get(step) or 2 * size.get(one, 0.0) + size[step] != 0:
        return sum_
    rest = tuple((c, atom) for c, atom in sum_ if atom not in (one, step))
    return ((1.0, Term(gate=Gate(0.0, 0.5 * size[step].real, 0.0))), *rest)
