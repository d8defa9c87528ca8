"""Pairs of functions whose expectations over whole blocks take few operations, and the formulas (see `fast`).

A formula is a function of a block, `law.Geometry` or `fused.TracedBlock`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.terms import Gate, Term

STEP = Gate(0.5, 0.5, 0.0)
Rule = Callable[[Any], Tensor]


def _linear(f: Fn, power: int) -> tuple[float, float] | None:
    """(a, b) of f = x^power·(a + b·step)."""
    found = {Term(power): 0.0, Term(power, gate=STEP): 0.0}
    for c, t in f.terms:
        if not isinstance(t, Term) or t not in found or isinstance(c, complex):
            return None
        found[t] += c
    a, b = found.values()
    return a, b


def _homogeneous(f: Fn, g: Fn) -> Rule | None:
    """Bilinearity over x^power and x^power·step, the same power in both."""
    for power, base in enumerate((methodcaller("step"), methodcaller("relu"))):
        one, two = _linear(f, power), _linear(g, power)
        if one is not None and two is not None and one[1] and two[1]:
            (a, b), (c, d) = one, two
            if not power and (2 * a + b) * (2 * c + d) == 0:  # E sgn·sgn is small where ¼ + … − ¼ cancels
                return lambda block: block.erf().mul_(b * d / 4)
            return _combination(base, power, b * d, a * c + 0.5 * (a * d + b * c))
    return None


def _combination(base: Rule, power: int, both: float, plain: float) -> Rule:
    def rule(block: Any) -> Tensor:
        out = base(block)
        out = out.mul_(both) if both != 1 else out
        if not plain:
            return out
        return out.add_(block.k12, alpha=plain) if power else out.add_(plain)

    return rule


def _smooth(f: Fn, g: Fn) -> tuple[Rule, tuple[float, float]] | None:
    """Two multiples of erf, or two of a Gaussian."""
    if len(f.terms) != 1 or len(g.terms) != 1:
        return None
    (c, s), (d, t) = f.terms[0], g.terms[0]
    if not isinstance(s, Term) or not isinstance(t, Term) or isinstance(c, complex) or isinstance(d, complex):
        return None
    if s.power or t.power or s.linear or t.linear:
        return None
    if _is_erf(s) and _is_erf(t):
        assert s.gate is not None and t.gate is not None
        size = c * d * s.gate.half * t.gate.half
        return (lambda b: b.erf().mul_(size)), (s.gate.noise, t.gate.noise)
    if s.quadratic and t.quadratic and s.gate is None and t.gate is None:
        factor = c * d
        return (lambda b: b.gaussian().mul_(factor)), (0.5 / s.quadratic, 0.5 / t.quadratic)
    return None


def _is_erf(t: Term) -> bool:
    return t.gate is not None and t.gate.noise > 0 and t.gate.mid == 0 and not t.quadratic


def _gated(f: Fn) -> tuple[int, float, float, float] | None:
    """(p, a, b, τ) of f = ax + bx·erf(x/√2τ), p = 1, or of its derivative, p = 0; b ≠ 0."""
    found: dict[Term, float] = {}
    for c, t in f.terms:
        if not isinstance(t, Term) or isinstance(c, complex):
            return None
        found[t] = found.get(t, 0.0) + c
    gate = next((t.gate for t in found if t.gate is not None and t.gate.noise > 0 and t.gate.mid == 0), None)
    if gate is None:
        return None
    for power in (0, 1):
        a, b = found.get(Term(power), 0.0), found.get(Term(power, gate=gate), 0.0)
        rest = {t: c for t, c in found.items() if t not in (Term(power), Term(power, gate=gate))}
        slope = (
            {}
            if power
            else {Term(1, quadratic=0.5 / gate.noise): b * 2 * gate.half / math.sqrt(2 * math.pi * gate.noise)}
        )
        if b and rest.keys() == slope.keys() and all(math.isclose(rest[t], c, rel_tol=1e-14) for t, c in slope.items()):
            return power, a, b * gate.half, gate.noise
    return None


def _gelu(f: Fn, g: Fn) -> tuple[Rule, tuple[float, float]] | None:
    """With A = k11/τ₁, B = k22/τ₂ and s = 1 − r²,

    E xy·erf·erf = (2/π)(k12·arcsin r + √(τ₁τ₂)·(sAB + r²)/√(s(1 + A)(1 + B))) and
    E (x·erf)′(y·erf)′ = (2/π)(arcsin r + r/√s·(1/(1 + A) + 1/(1 + B) + 1/(s(1 + A)(1 + B)))).
    """
    one, two = _gated(f), _gated(g)
    if one is None or two is None or one[0] != two[0]:
        return None
    (power, a, b, t1), (_, c, d, t2) = one, two
    plain, both, size = a * c, b * d, 2 / math.pi * b * d

    def of(k: Tensor, noise: float) -> tuple[Tensor, Tensor]:
        share = k.clamp(min=0) / noise
        return share, 1 / (1 + share)

    def value(block: Any) -> Tensor:
        (share1, root1), (share2, root2) = ((k, r.sqrt()) for k, r in (of(block.k11, t1), of(block.k22, t2)))
        s = block.complement
        rest = block.product(s, share1).mul_(share2).addcmul_(block.opposite, block.opposite).mul_(s.rsqrt_())
        rest = rest.mul_(root1 * (size * math.sqrt(t1 * t2))).mul_(root2)
        return block.erf().mul_(both).add_(plain).mul_(block.k12).add_(rest)

    def slope(block: Any) -> Tensor:
        (_, one), (_, two) = of(block.k11, t1), of(block.k22, t2)
        s = block.complement
        rest = block.product(s.reciprocal(), one).mul_(two).add_(one).add_(two).mul_(s.rsqrt_()).mul_(block.opposite)
        return block.erf().mul_(both).add_(plain).sub_(rest, alpha=size)

    return (value if power else slope), (t1, t2)


@lru_cache(maxsize=512)
def homogeneous_own(f: Fn, g: Fn) -> tuple[float, int] | None:
    """(c, p) when E f(u)g(u) = c·k^p, k the variance: both functions homogeneous of degree p."""
    for power in (0, 1):
        one, two = _linear(f, power), _linear(g, power)
        if one is not None and two is not None:
            (a, b), (c, d) = one, two
            return a * c + 0.5 * (a * d + b * c + b * d), power
    return None


@lru_cache(maxsize=512)
def at_zero(f: Fn, g: Fn) -> float:
    zero = torch.zeros((), dtype=torch.float64)
    return float(f.call(zero) * g.call(zero))


@lru_cache(maxsize=512)
def rule(f: Fn, g: Fn) -> tuple[Rule, tuple[float, float]] | None:
    """The formula for a pair of functions and its noises; None when there is none here."""
    found = _homogeneous(f, g)
    return (found, (0.0, 0.0)) if found is not None else _smooth(f, g) or _gelu(f, g)
