"""Closed forms: E t₁(u)·t₂(v) for two terms of the closed family and jointly Gaussian (u, v).

The exponentials tilt the Gaussian into another one (`tilt`); what remains is E u^i v^j S₁(u) S₂(v) with gates S,
which Stein's lemma reduces to E S₁ S₂, an arcsine or Owen's T (`Moments`). Pairs that occur in every kernel have
their short formula in `SHORT`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.expectation.gauss import Gauss, difference, ratio, sign_product
from netsor.compilers.expectation.terms import Gate, Number, Term

STEP = Gate(0.5, 0.5, 0.0)


def plus(a: Tensor | None, b: Tensor | float | None) -> Tensor | None:
    """a + b, None being zero."""
    if a is None or b is None:
        return a if b is None else torch.as_tensor(b)
    return a + b


def times(a: Tensor | float, b: Tensor | None) -> Tensor | None:
    return None if b is None else a * b


Rates = tuple[Number, Number]


class Tilted(NamedTuple):
    """E exp(b₁u + b₂v − c₁u² − c₂v²) F(u, v) = exp(exponent) · factor · E F, (u, v) the Gaussian moved by K·rates."""

    exponent: Tensor | None
    factor: Tensor | None
    gauss: Gauss
    rates: Rates

    def weigh(self, x: Tensor) -> Tensor:
        x = x if self.factor is None else x * self.factor
        return x if self.exponent is None else x * torch.exp(self.exponent)


def tilt(t1: Term, t2: Term, g: Gauss) -> Tilted:
    """Absorb the exponentials of both terms; complex rates give complex means."""
    exponent, factor, rates = None, None, (t1.linear, t2.linear)
    if t1.quadratic or t2.quadratic:
        exponent, factor, g = _tilt_quadratic(2 * t1.quadratic, 2 * t2.quadratic, g)
    return Tilted(plus(exponent, _linear_exponent(rates, g)), factor, g, rates)


def _linear_exponent(rates: Rates, g: Gauss) -> Tensor | None:
    """b·m + ½ b·K·b."""
    b1, b2 = rates
    if not (b1 or b2):
        return None
    # grouped so that b₂ = −b₁ at k11 = k22 = k12 gives exactly zero
    exponent = 0.5 * (b1 * (b1 * g.k11 + b2 * g.k12) + b2 * (b2 * g.k22 + b1 * g.k12))
    return exponent + sum(m * b for m, b in ((g.m1, b1), (g.m2, b2)) if m is not None)


def moved(g: Gauss, rates: Rates) -> Gauss:
    """The Gaussian with its means moved by K·rates."""
    b1, b2 = rates
    if not (b1 or b2):
        return g
    return g._replace(m1=plus(b1 * g.k11 + b2 * g.k12, g.m1), m2=plus(b2 * g.k22 + b1 * g.k12, g.m2))


def _tilt_quadratic(c: float, d: float, g: Gauss) -> tuple[Tensor | None, Tensor, Gauss]:
    """exp(−½(c·u² + d·v²)): the precision grows by diag(c, d)."""
    scale = 1 + c * g.k11 + d * g.k22 + c * d * g.det
    k11, k22 = (g.k11 + d * g.det) / scale, (g.k22 + c * g.det) / scale
    new = Gauss(k11, k22, g.k12 / scale, g.det / scale)
    if g.m1 is None and g.m2 is None:
        return None, scale.rsqrt(), new
    m1, m2 = (torch.zeros_like(g.k11) if m is None else m for m in (g.m1, g.m2))
    n1 = ((1 + d * g.k22) * m1 - d * g.k12 * m2) / scale
    n2 = ((1 + c * g.k11) * m2 - c * g.k12 * m1) / scale
    exponent = -0.5 * (c * m1 * n1 + d * m2 * n2)
    return exponent, scale.rsqrt(), new._replace(m1=n1, m2=n2)


class Moments:
    """E u^i v^j S₁(u) S₂(v), memoised over (i, j).

    Stein: E u·F = m₁ E F + k11 E ∂ᵤF + k12 E ∂ᵥF, where ∂S is a Gaussian density (of width √noise) at 0, so that its
    expectation is that density times an expectation under the Gaussian conditioned on u + √noise·n = 0. The Gaussian is
    conditioned before it is moved by K·rates (they commute): afterwards the conditional mean would cancel at |ρ| ≈ 1.
    """

    def __init__(self, still: Gauss, gate1: Gate | None, gate2: Gate | None, rates: Rates = (0.0, 0.0)) -> None:
        self.still, self.rates, self.g = still, rates, moved(still, rates)
        self.gate1, self.gate2 = gate1, gate2
        self._known: dict[tuple[int, int], Tensor] = {}
        self._conditioned: Moments | None = None

    def __call__(self, i: int, j: int) -> Tensor:
        if (i, j) not in self._known:
            self._known[i, j] = self._moment(i, j)
        return self._known[i, j]

    def _moment(self, i: int, j: int) -> Tensor:
        if i == 0 and j == 0:
            return gates(self)
        if i == 0:
            return self.swapped()(j, 0)
        g = self.g
        total = torch.zeros_like(g.det)
        if g.m1 is not None:
            total = total + g.m1 * self(i - 1, j)
        if i > 1:
            total = total + (i - 1) * g.k11 * self(i - 2, j)
        if j:
            total = total + j * g.k12 * self(i - 1, j - 1)
        total = total + self._edge(i - 1, j, g.k11) if self.gate1 else total
        return total + self.swapped()._edge(j, i - 1, g.k12) if self.gate2 else total

    def swapped(self) -> Moments:
        return Moments(self.still.swapped(), self.gate2, self.gate1, (self.rates[1], self.rates[0]))

    def _edge(self, i: int, j: int, covariance: Tensor) -> Tensor | float:
        """covariance · E u^i v^j S₁′(u) S₂(v)."""
        gate = self.gate1
        if gate is None or (i and not gate.noise):
            return 0.0
        g = self.g
        width = (g.k11 + gate.noise).sqrt()
        height = 2 * gate.half / math.sqrt(2 * math.pi) * ratio(covariance, width)
        if g.m1 is not None:
            height = height * torch.exp(-0.5 * ratio(g.m1, width) ** 2)
        return height * self.conditioned()(i, j)

    def conditioned(self) -> Moments:
        """The moments given u + √noise·n = 0; that gate is then spent."""
        if self._conditioned is None:
            noise = self.gate1.noise if self.gate1 else 0.0
            self._conditioned = Moments(conditioned(self.still, noise), None, self.gate2, self.rates)
        return self._conditioned


def conditioned(g: Gauss, noise: float) -> Gauss:
    """(u, v) given u + √noise·n = 0."""
    total = g.k11 + noise
    k22 = ratio(g.det + noise * g.k22, total)
    # a constant u says nothing about v
    k22 = torch.where(total == 0, g.k22, k22)
    out = Gauss(noise * ratio(g.k11, total), k22, noise * ratio(g.k12, total), noise * ratio(g.det, total))
    if g.m1 is None:
        return out._replace(m2=g.m2)
    m2 = -ratio(g.k12, total) * g.m1
    m2 = m2 if g.m2 is None else difference(m2, g.m2, k22)
    return out._replace(m1=noise * ratio(g.m1, total), m2=m2)


def gates(on: Moments) -> Tensor:
    """E S₁(u) S₂(v)."""
    g, gate1, gate2 = on.g, on.gate1, on.gate2
    one = torch.ones_like(g.det)
    if gate1 is None or gate2 is None:
        only, k, m = (gate2, g.k22, g.m2) if gate1 is None else (gate1, g.k11, g.m1)
        return one if only is None else one * only.mid + only.half * sign_mean(only, k, m)
    total = torch.full_like(g.det, gate1.mid * gate2.mid)
    if g.m1 is not None:
        total = total + gate1.half * gate2.mid * sign_mean(gate1, g.k11, g.m1)
    if g.m2 is not None:
        total = total + gate1.mid * gate2.half * sign_mean(gate2, g.k22, g.m2)
    return total + gate1.half * gate2.half * _sign_pair(on, gate1.noise, gate2.noise)


def sign_mean(gate: Gate, k: Tensor, m: Tensor | None) -> Tensor:
    """E sgn(u + √noise·n)."""
    if m is None:
        return torch.zeros_like(k)
    out: Tensor = torch.special.erf(_standard(m, k + gate.noise) / math.sqrt(2))
    return out


def _standard(m: Tensor, k: Tensor) -> Tensor:
    """m/√k, and ±∞ (0 at m = 0) where k = 0."""
    zero = k == 0
    far = (m * math.inf).nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    return torch.where(zero, far, m / torch.where(zero, 1.0, k).sqrt())


def _sign_pair(on: Moments, noise1: float, noise2: float) -> Tensor:
    g = on.g
    v1, v2 = g.k11 + noise1, g.k22 + noise2
    root = (g.det + noise1 * g.k22 + noise2 * g.k11 + noise1 * noise2).sqrt()
    if g.m1 is None and g.m2 is None:
        return 2 / math.pi * torch.atan2(g.k12, root)
    zero = torch.zeros_like(g.det)
    x = zero if g.m1 is None else _standard(g.m1, v1)
    y = zero if g.m2 is None else _standard(g.m2, v2)
    # beyond ±40 a Gaussian is decided to 1e-300, and ∞ − ∞ does not occur
    x, y = x.clamp(-40, 40), y.clamp(-40, 40)
    if on.still.m1 is not None or on.still.m2 is not None:
        return sign_product(x, y, g.k12 + zero, root)
    # moved from zero means: y − ρx is the mean of v given u + √noise·n = 0 over √v₂, known without cancellation
    given_u, given_v = on.conditioned().g.m2, on.swapped().conditioned().g.m2
    above = zero if given_u is None else ratio(given_u + zero, v2.sqrt())
    beside = zero if given_v is None else ratio(given_v + zero, v1.sqrt())
    return sign_product(x, y, g.k12 + zero, root, (above, beside))


def pair(t1: Term, t2: Term, g: Gauss) -> Tensor:
    """E t₁(u) t₂(v), complex if a rate is."""
    tilted = tilt(t1, t2, g)
    return tilted.weigh(Moments(tilted.gauss, t1.gate, t2.gate, tilted.rates)(t1.power, t2.power))


def is_half_exponential(t: Term) -> bool:
    """exp(bx)[±x > 0] or x·exp(bx)[±x > 0] with real b ≠ 0; the recursion for higher powers loses digits."""
    gate, real = t.gate, not (t.oscillates or t.quadratic)
    if gate is None or gate.noise or gate.mid != abs(gate.half):
        return False
    return bool(t.linear) and real and t.power <= 1


def half_exponential(t: Term, k: Tensor, m: Tensor | None) -> Tensor:
    """E v^i exp(bv)[±v > 0], i ≤ 1, v ~ N(m, k), without the overflow of tilting when |b|√k or |m| is large."""
    assert t.gate is not None
    rate, side, size = float(t.linear.real), math.copysign(1.0, t.gate.half), t.gate.mid * 2
    mean = torch.zeros_like(k) if m is None else m
    sigma = k.sqrt() + torch.zeros_like(mean)
    edge = torch.exp(-0.5 * _standard(mean, k) ** 2)  # √(2πk) times the density of v at 0
    x = -side * _standard(mean + rate * k, k) * math.sqrt(0.5)  # the tilted mean is this far on the dead side
    tail = 0.5 * torch.special.erfcx(x.clamp(min=0)) * edge
    growth = torch.exp((rate * mean + 0.5 * rate**2 * k).masked_fill(x > 0, 0.0))
    body = 0.5 * torch.special.erfc(x.clamp(max=0)) * growth
    base = size * torch.where(x > 0, tail, body)
    if t.power == 0:
        return base
    return (mean + rate * k) * base + side * size * sigma * edge / math.sqrt(2 * math.pi)


def _relu_relu(g: Gauss) -> Tensor:
    """√det/2π + k12·(π − θ)/2π, θ the angle between the two; exactly k/2 on the diagonal."""
    root = g.det.sqrt()
    return root / (2 * math.pi) + g.k12 * (torch.atan2(root, -g.k12) / (2 * math.pi))


def _step_step(g: Gauss) -> Tensor:
    return 0.25 + torch.atan2(g.k12, g.det.sqrt()) / (2 * math.pi)


SHORT: dict[tuple[Term, Term], Callable[[Gauss], Tensor]] = {
    (Term(), Term()): lambda g: torch.ones_like(g.det),
    (Term(1), Term(1)): lambda g: g.k12 + torch.zeros_like(g.det),
    (Term(1, gate=STEP), Term(1)): lambda g: 0.5 * g.k12,
    (Term(1), Term(1, gate=STEP)): lambda g: 0.5 * g.k12,
    (Term(1, gate=STEP), Term(1, gate=STEP)): _relu_relu,
    (Term(gate=STEP), Term(gate=STEP)): _step_step,
}


def real_pair(c1: Number, t1: Term, c2: Number, t2: Term, g: Gauss) -> Tensor:
    """E Re(c₁t₁(u)) Re(c₂t₂(v))."""
    if not (t1.oscillates or t2.oscillates):
        short = SHORT.get((t1, t2)) if g.m1 is None and g.m2 is None else None
        out: Tensor = c1.real * c2.real * (short(g) if short else pair(t1, t2, g))
        return out
    direct = _real(c1 * c2, pair(t1, t2, g))
    if not (t1.oscillates and t2.oscillates):
        return direct
    conjugate = Term(t2.power, t2.linear.conjugate(), t2.quadratic, t2.gate)
    return 0.5 * (direct + _real(c1 * complex(c2).conjugate(), pair(t1, conjugate, g)))


def _real(c: Number, x: Tensor) -> Tensor:
    return (c * x).real if x.is_complex() else c.real * x


def closes(t1: Term, t2: Term) -> bool:
    """A complex rate needs Φ of a complex argument as soon as a gate is there: no closed form here."""
    return not ((t1.oscillates or t2.oscillates) and (t1.gate or t2.gate))
