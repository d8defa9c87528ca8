"""Coordinatewise functions R → R as the expectation engine sees them, and their constructors.

A function with closed forms prints itself: `eval(f.source)`, with the constructors in scope, builds it again.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from netsor.compilers.expectation import terms as _t
from netsor.compilers.expectation.quadrature.linear import Piece, pieces
from netsor.compilers.expectation.terms import Delta, Gate, Number, Numeric, Sum, Term

Call = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Fn:
    """A function R → R: its values, its kinks, and the sum of atoms that it equals.

    `call` maps tensors coordinatewise; `kinks` are the points where f or f′ jumps; `source` is a constructor
    expression. `trusted` is the range of the variance in which the sum of closed forms loses no digits to
    cancellation or overflow; outside it the engine integrates `call` instead.
    """

    name: str
    source: str
    call: Call
    kinks: tuple[float, ...]
    terms: Sum
    trusted: tuple[float, float] = (0.0, math.inf)

    @property
    def centred(self) -> bool:
        """No kinks but at 0."""
        return self.kinks in ((), (0.0,))

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of a piecewise linear function with kinks."""
        return pieces(self.call, self.kinks)

    def __repr__(self) -> str:
        return self.source

    @cached_property
    def derivative(self) -> Fn:
        """f′ in the sense of distributions (a jump contributes a Delta)."""
        sums = ((c * d, atom) for c, whole in self.terms for d, atom in _t.derivative(whole))
        prime = from_terms(_t.collect(tuple(sums)), f"({self.source}).derivative", f"{self.name}'")
        return prime


def from_terms(sum_: Sum, source: str, name: str = "") -> Fn:
    """The function Re Σ coefficient · atom."""

    def call(x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for coefficient, atom in sum_:
            out = out + _t.value(coefficient, atom, x)
        return out

    return Fn(name or source, source, call, _kinks(sum_), sum_, _trusted(sum_))


def _kinks(sum_: Sum) -> tuple[float, ...]:
    points: set[float] = set()
    for _, atom in sum_:
        if isinstance(atom, Numeric):
            points.update(atom.kinks)
        elif isinstance(atom, Delta):
            points.add(atom.at)
        elif atom.gate is not None and not atom.gate.noise:
            points.add(0.0)
    return tuple(sorted(points))


def _trusted(sum_: Sum) -> tuple[float, float]:
    """Closed forms of exp(ax)·step overflow at large a·σ; a sum whose terms cancel at 0 loses digits at small σ."""
    closed = [(c, atom) for c, atom in sum_ if isinstance(atom, Term)]
    rates = [abs(t.linear) for _, t in closed if t.gate is not None and t.linear]
    high = min((4.0 / rate**2 for rate in rates), default=math.inf)
    return _cancellation(closed), high


def _cancellation(closed: list[tuple[Number, Term]]) -> float:
    """The smallest variance at which a sum that vanishes at 0 (on one side) is still computed termwise."""
    if len(closed) < 2:
        return 0.0
    eps = torch.tensor([1e-9, -1e-9], dtype=torch.float64)
    parts = [_t.value(c, t, eps) for c, t in closed]
    size = torch.stack([p.abs() for p in parts]).sum(0)
    lost = (torch.stack(parts).sum(0).abs() < 1e-6 * size) & (size > 1e-6)
    return 2e-3 if bool(lost.any()) else 0.0


def power(k: int) -> Fn:
    """x^k, k ≥ 0; k = 0 is the constant 1."""
    return from_terms(((1.0, Term(k)),), f"power({k})")


def relu_power(m: int) -> Fn:
    """x^m·[x > 0]: the step (½ at 0), relu, relu², ..."""
    return from_terms(((1.0, Term(m, gate=Gate(0.5, 0.5, 0.0))),), f"relu_power({m})")


def erf(a: float = 1.0) -> Fn:
    """erf(a·x), a ≠ 0."""
    gate = Gate(0.0, math.copysign(1.0, a), 1 / (2 * a * a))
    return from_terms(((1.0, Term(gate=gate)),), f"erf({a!r})")


def exp(a: float = 1.0, b: float = 0.0) -> Fn:
    """exp(a·x + b)."""
    return from_terms(((math.exp(b), Term(linear=float(a))),), f"exp({a!r}, {b!r})")


def sin(a: float = 1.0, b: float = 0.0) -> Fn:
    """sin(a·x + b)."""
    whole = from_terms(((-1j * cmath.exp(1j * b), Term(linear=complex(0, a))),), f"sin({a!r}, {b!r})")
    # E sin u sin v is a difference of two exponentials near 1 where the variance is small
    return replace(whole, trusted=(1e-2 / a**2, math.inf)) if a and b == 0 else whole


def cos(a: float = 1.0, b: float = 0.0) -> Fn:
    """cos(a·x + b)."""
    return from_terms(((cmath.exp(1j * b), Term(linear=complex(0, a))),), f"cos({a!r}, {b!r})")


def gaussian(a: float = 1.0) -> Fn:
    """exp(−a·x²), a ≥ 0."""
    return from_terms(((1.0, Term(quadratic=float(a))),), f"gaussian({a!r})")


def exp_left(a: float = 1.0) -> Fn:
    """exp(a·x)·[x < 0] (½ at 0), a > 0."""
    return from_terms(((1.0, Term(linear=float(a), gate=Gate(0.5, -0.5, 0.0))),), f"exp_left({a!r})")


def delta(at: float = 0.0, order: int = 0) -> Fn:
    """The order-th derivative of the Dirac distribution at a point: what a step has for a derivative."""
    return from_terms(((1.0, Delta(float(at), order)),), f"delta({at!r}, {order})")


def combine(*parts: tuple[float, Fn]) -> Fn:
    """Σ c·f over the pairs (c, f)."""
    sums = tuple((c * d, atom) for c, f in parts for d, atom in f.terms)
    source = "combine(" + ", ".join(f"({c!r}, {f.source})" for c, f in parts) + ")"
    whole = from_terms(_t.collect(sums), source)

    def call(x: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for c, f in parts:
            out = out + c * f.call(x)
        return out

    low = max([whole.trusted[0], *(f.trusted[0] for _, f in parts)])
    return Fn(source, source, call, whole.kinks, whole.terms, (low, whole.trusted[1]))


def named(f: Fn, name: str, values: Call) -> Fn:
    """f under a name, with its values by a formula that loses fewer digits than the sum of its atoms."""
    return replace(f, name=name, call=values)


def scaled(f: Fn, a: float) -> Fn:
    """x ↦ f(a·x)."""
    source = f"scaled({f.source}, {a!r})"
    if a == 0:
        value = float(f.call(torch.zeros((), dtype=torch.float64)))
        return Fn(source, source, lambda x: f.call(a * x), (), ((value, Term()),))
    sums = []
    for c, atom in f.terms:
        factor, new = _t.rescaled(atom, a)
        sums.append((c * factor, new))
    low, high = f.trusted
    kinks = tuple(sorted(c / a for c in f.kinks))
    return Fn(source, source, lambda x: f.call(a * x), kinks, tuple(sums), (low / a**2, high / a**2))


def times_power(f: Fn, k: int) -> Fn:
    """x^k·f(x)."""
    sums: Sum = f.terms
    for _ in range(k):
        sums = _t.collect(tuple((c * d, new) for c, atom in sums for d, new in _t.times_x(atom)))
    source = f"times_power({f.source}, {k})"
    return Fn(source, source, lambda x: x**k * f.call(x), f.kinks, sums, f.trusted)


def function(
    call: Call, derivative: Fn | Call | None = None, kinks: tuple[float, ...] = (), name: str = "", source: str = ""
) -> Fn:
    """Any function given by a torch callable, which must be right in float64.

    `kinks` are the points where f or f′ jumps; `derivative` is f′ away from its jumps (an `Fn` or a callable; torch's
    automatic derivative where it is missing).
    """
    name = name or getattr(call, "__name__", "function")
    call = _alike(call)
    kinks = tuple(sorted(float(c) for c in kinks))
    jumps = {c: j for c in kinks if (j := _jump(call, c))}

    def slope() -> Fn:
        smooth = derivative if isinstance(derivative, Fn) else function(derivative or _autograd(call), None, kinks)
        known = {atom.at for _, atom in smooth.terms if isinstance(atom, Delta)}
        return combine((1.0, smooth), *((j, delta(c)) for c, j in jumps.items() if c not in known))

    values = _midpoints(call, tuple(jumps)) if jumps else call
    return Fn(name, source or name, values, kinks, ((1.0, Numeric(values, kinks, slope)),))


def _alike(call: Call) -> Call:
    """The same function with values of the argument's shape, dtype and device, where it gives a number or integers."""

    def values(x: Tensor) -> Tensor:
        out = call(x)
        if isinstance(out, Tensor) and out.shape == x.shape and out.dtype == x.dtype:
            return out
        return torch.as_tensor(out, dtype=x.dtype, device=x.device).expand(x.shape)

    return values


def _midpoints(call: Call, jumps: tuple[float, ...]) -> Call:
    """The same function with the midpoint for its value at a jump, as the gates have it."""

    def values(x: Tensor) -> Tensor:
        out = call(x)
        for c in jumps:
            at = x == c
            if bool(at.any()):
                out = torch.where(at, 0.5 * (call(x - _beside(c)) + call(x + _beside(c))), out)
        return out

    return values


def _autograd(call: Call) -> Call:
    def slope(x: Tensor) -> Tensor:
        with torch.enable_grad():
            at = x if x.requires_grad else x.detach().requires_grad_()
            out = call(at)
            if not out.requires_grad:
                return torch.zeros_like(x)
            (grad,) = torch.autograd.grad(out.sum(), at, create_graph=True, allow_unused=True)
            # adding gives storage to the symbolic zeros that torch returns for constants
            grad = torch.zeros_like(x) if grad is None else torch.zeros_like(x) + grad
        return grad if x.requires_grad else grad.detach()

    return slope


def _beside(c: float) -> float:
    """How far from c a function is read for its one-sided limits."""
    return 1e-12 * max(1.0, abs(c))


def _jump(call: Call, c: float) -> float:
    """f(c+) − f(c−); differences that continuity explains count as zero."""
    at = torch.tensor([c - _beside(c), c + _beside(c)], dtype=torch.float64)
    low, high = call(at).tolist()
    return high - low if abs(high - low) > 1e-6 * max(1.0, abs(high), abs(low)) else 0.0
